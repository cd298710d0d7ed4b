"""AlterShareGroupOffsets (91), version 0: set the start offsets of an empty share group (KIP-932).

A group that does not exist is created. Offsets are not checked against the log: after -1 the next
fetch resolves ``share.auto.offset.reset``; after an offset past the end, fetches are empty until
the log reaches it. Acquisition locks of the partitions are lost.

A tagged field of headrace's own releases records that members hold
(:mod:`headrace.protocol.share_inspection`). Such a request sets no offsets, and the group may have
members.
"""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

from kio.schema.alter_share_group_offsets.v0.response import (
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)

from headrace.broker.broker import Broker
from headrace.broker.catalog import Topic
from headrace.broker.limits import MAX_RELEASES_PER_REQUEST
from headrace.coordinators import share_state_recovery
from headrace.coordinators.dead_letters import LettersPending
from headrace.errors import ErrorCode, Refusal
from headrace.protocol.authorized_operations import Operation
from headrace.protocol.messages import NO_THROTTLE
from headrace.protocol.share_inspection import AlterShareGroupOffsetsRequest, Release
from headrace.security.acls import ResourceType
from headrace.share.records import SharePartitionKey
from headrace.share.share_state import NOT_HOSTED

from .context import RequestContext

NOTHING_HELD = Refusal(ErrorCode.INVALID_RECORD_STATE, "No member holds a record of the range.")


def handle(broker: Broker, request: AlterShareGroupOffsetsRequest, context: RequestContext) -> Any:
    """Set the start offsets of the partitions of a request."""
    if request.releases:
        return _released(broker, request, context)
    group = broker.groups.share.empty_group(request.group_id, create=True)
    if isinstance(group, Refusal):
        return AlterShareGroupOffsetsResponse(
            throttle_time=NO_THROTTLE,
            error_code=group.code,
            error_message=group.message,
            responses=(),
        )
    asked: dict[str, list[tuple[int, int]]] = {}
    for topic in request.topics:
        pairs = [
            (partition.partition_index, partition.start_offset) for partition in topic.partitions
        ]
        asked.setdefault(topic.topic_name, []).extend(pairs)
    topics = broker.catalog.topics
    starts: dict[UUID, dict[int, int]] = {}
    for name, pairs in asked.items():
        if name in topics:
            known = {
                partition: offset
                for partition, offset in pairs
                if _refusal(topics[name], partition) is None
            }
            if known:
                starts[topics[name].topic_id] = known
    if starts:
        share_state_recovery.initialize(broker.coordinators, group, starts, group.epoch)
    return broker.when_durable(
        AlterShareGroupOffsetsResponse(
            throttle_time=NO_THROTTLE,
            error_code=ErrorCode.NONE,
            responses=tuple(_topic(name, topics.get(name), pairs) for name, pairs in asked.items()),
        )
    )


async def _released(
    broker: Broker, request: AlterShareGroupOffsetsRequest, context: RequestContext
) -> AlterShareGroupOffsetsResponse:
    """Release records that members hold: one partition in the answer for each range."""
    if request.topics or len(request.releases) > MAX_RELEASES_PER_REQUEST:
        return AlterShareGroupOffsetsResponse(
            throttle_time=NO_THROTTLE,
            error_code=ErrorCode.INVALID_REQUEST,
            error_message=f"A request releases at most {MAX_RELEASES_PER_REQUEST} ranges of "
            "records, and sets no offsets.",
            responses=(),
        )
    answers = []
    for one in request.releases:
        refusal = await _release(broker, request.group_id, one, context)
        topic = broker.catalog.topics.get(one.topic_name)
        answers.append(
            AlterShareGroupOffsetsResponseTopic(
                topic_name=one.topic_name,
                topic_id=None if topic is None else topic.topic_id,
                partitions=(_partition(one.partition_index, refusal),),
            )
        )
    await broker.durable()
    return AlterShareGroupOffsetsResponse(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.NONE, responses=tuple(answers)
    )


async def _release(
    broker: Broker, group_id: str, asked: Release, context: RequestContext
) -> Refusal | None:
    """Release a range of records, with dead letters of those that were delivered too often; return
    the error, or None.
    """
    if not context.access.allows(Operation.READ, ResourceType.TOPIC, asked.topic_name):
        return Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
    topic = broker.catalog.topics.get(asked.topic_name)
    refusal = _refusal(topic, asked.partition_index)
    if refusal is not None or topic is None:
        return refusal
    key = SharePartitionKey(group_id, topic.topic_id, asked.partition_index)
    while True:
        try:
            released = broker.share.release_range(key, asked.first_offset, asked.last_offset)
            break
        except LettersPending as pending:
            await asyncio.shield(pending.written)
    if isinstance(released, Refusal):
        return released
    return None if released else NOTHING_HELD


def _refusal(topic: Topic | None, partition: int) -> Refusal | None:
    return None if topic is not None and 0 <= partition < topic.partitions else NOT_HOSTED


def _topic(
    name: str, topic: Topic | None, pairs: list[tuple[int, int]]
) -> AlterShareGroupOffsetsResponseTopic:
    return AlterShareGroupOffsetsResponseTopic(
        topic_name=name,
        topic_id=None if topic is None else topic.topic_id,
        partitions=tuple(
            _partition(partition, _refusal(topic, partition)) for partition, _ in pairs
        ),
    )


def _partition(partition: int, refusal: Refusal | None) -> AlterShareGroupOffsetsResponsePartition:
    return AlterShareGroupOffsetsResponsePartition(
        partition_index=partition,
        error_code=ErrorCode.NONE if refusal is None else refusal.code,
        error_message=None if refusal is None else refusal.message,
    )
