"""TxnOffsetCommit (28), versions 0-5: how far a group has come, as part of a transaction (KIP-98,
KIP-447).

The group must take part in the transaction; from version 5 on committing is what lets it take part
(KIP-890). From version 3 on the producer says which member it commits for, and is refused when that
member is no longer in the group.
"""

from __future__ import annotations

from typing import Any

from kio.schema.txn_offset_commit.v5.request import TxnOffsetCommitRequest
from kio.schema.txn_offset_commit.v5.response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode
from headrace.groups.classic.member import MemberIdentity
from headrace.groups.offsets.committed import commit_record
from headrace.groups.records import OffsetCommit
from headrace.protocol.messages import NO_THROTTLE
from headrace.transactions.producer import Producer

from . import RequestContext

_FIRST_THAT_KNOWS_ABORTABLE = 4
_FIRST_THAT_TAKES_PART = 5


def handle(broker: Broker, request: TxnOffsetCommitRequest, context: RequestContext) -> Any:
    codes: dict[tuple[str, int], ErrorCode] = {}
    commits: list[OffsetCommit] = []
    group_id, wall_ms = request.group_id, broker.clock.wall_ms()
    for asked in request.topics:
        topic = broker.catalog.topics.get(asked.name)
        for partition in asked.partitions:
            index = partition.partition_index
            if topic is None or not 0 <= index < topic.partitions:
                codes[asked.name, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            said = (
                partition.committed_offset,
                partition.committed_leader_epoch,
                partition.committed_metadata,
            )
            commits.append(
                commit_record(group_id, topic.name, topic.topic_id, index, *said, wall_ms=wall_ms)
            )
    if commits:
        answers = _commit(broker, request, context.api_version, commits)
        codes |= {
            (commit.topic, commit.partition): code
            for commit, code in zip(commits, answers, strict=True)
        }
    topics = tuple(
        TxnOffsetCommitResponseTopic(
            name=asked.name,
            partitions=tuple(
                TxnOffsetCommitResponsePartition(
                    partition_index=partition.partition_index,
                    error_code=codes[asked.name, partition.partition_index],
                )
                for partition in asked.partitions
            ),
        )
        for asked in request.topics
        if asked.partitions or asked.name not in broker.catalog.topics
    )
    return broker.when_durable(TxnOffsetCommitResponse(throttle_time=NO_THROTTLE, topics=topics))


def _commit(
    broker: Broker,
    request: TxnOffsetCommitRequest,
    version: int,
    commits: list[OffsetCommit],
) -> tuple[ErrorCode, ...]:
    if not request.group_id:
        return (ErrorCode.INVALID_GROUP_ID,) * len(commits)
    producer = Producer(request.producer_id, request.producer_epoch)
    refusal = _take_part(broker, request, producer, version)
    if refusal is not None:
        return (refusal,) * len(commits)
    outcome = broker.groups.offsets.commit(
        request.group_id,
        MemberIdentity(request.member_id, request.group_instance_id),
        request.generation_id,
        commits,
        broker.clock.now_ms(),
        says_group_unknown=False,
        transactional=True,
    )
    return broker.group_runtime.write_now(request.group_id, outcome, producer)


def _take_part(
    broker: Broker, request: TxnOffsetCommitRequest, producer: Producer, version: int
) -> ErrorCode | None:
    offsets = broker.partition_by_name(*broker.transactions.offsets_partition(request.group_id))
    if isinstance(offsets, ErrorCode):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    refusal = broker.transactions.may_write(
        request.transactional_id,
        producer,
        offsets,
        adds_partition=version >= _FIRST_THAT_TAKES_PART,
    )
    if refusal is None:
        return None
    if refusal.code == ErrorCode.INVALID_TXN_STATE and version >= _FIRST_THAT_KNOWS_ABORTABLE:
        return ErrorCode.TRANSACTION_ABORTABLE
    # What a client of any version knows: PRODUCER_FENCED is no answer to this request.
    return (
        ErrorCode.INVALID_PRODUCER_EPOCH
        if refusal.code == ErrorCode.PRODUCER_FENCED
        else refusal.code
    )
