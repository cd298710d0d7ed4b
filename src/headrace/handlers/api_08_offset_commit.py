"""OffsetCommit (8), versions 2-10: how far a group has come.

Versions before 10 name their topics; 2-4 may bring a retention time of their own (KIP-211). There is no error for the
request as a whole: what the group refuses, it refuses for every partition. What the topic or partition is at fault for
does not get that far.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from kio.schema.offset_commit.v10.request import OffsetCommitRequest
from kio.schema.offset_commit.v10.response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode
from headrace.groups.classic_member import MemberIdentity
from headrace.groups.offsets import NO_RETENTION, Commit
from headrace.wire.messages import NO_THROTTLE

from . import RequestContext
from .group_requests import milliseconds

_FIRST_WITH_GROUP_ID_NOT_FOUND = 9
_UNSAID = timedelta(milliseconds=NO_RETENTION)


def handle(broker: Broker, request: OffsetCommitRequest, context: RequestContext) -> Any:
    commits = []
    refused = []  # for each topic its error, or for each partition whether it exists
    for asked in request.topics:
        topic = broker.catalog.topics_by_id.get(asked.topic_id)
        if topic is None:
            refused.append((asked, ErrorCode.UNKNOWN_TOPIC_ID, 0))
            continue
        refused.append((asked, ErrorCode.NONE, topic.partitions))
        commits += [
            Commit(
                topic.name,
                topic.topic_id,
                partition.partition_index,
                partition.committed_offset,
                partition.committed_leader_epoch,
                partition.committed_metadata,
            )
            for partition in asked.partitions
            if 0 <= partition.partition_index < topic.partitions
        ]
    codes = iter(_commit(broker, request, context, commits) if commits else ())
    topics = []
    for asked, code, count in refused:
        partitions = []
        for partition in asked.partitions:
            index = partition.partition_index
            if code:
                error_code = code
            elif 0 <= index < count:
                error_code = next(codes)
            else:
                error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            partitions.append(OffsetCommitResponsePartition(partition_index=index, error_code=error_code))
        topics.append(OffsetCommitResponseTopic(topic_id=asked.topic_id, partitions=tuple(partitions)))
    return broker.when_durable(OffsetCommitResponse(throttle_time=NO_THROTTLE, topics=tuple(topics)))


def _commit(
    broker: Broker, request: OffsetCommitRequest, context: RequestContext, commits: list[Commit]
) -> tuple[ErrorCode, ...]:
    outcome = broker.groups.commit(
        request.group_id,
        MemberIdentity(request.member_id, request.group_instance_id),
        request.generation_id_or_member_epoch,
        commits,
        broker.now_ms(),
        retention_ms=milliseconds(context.legacy.get("retention_time", _UNSAID)),
        says_group_unknown=context.api_version >= _FIRST_WITH_GROUP_ID_NOT_FOUND,
    )
    return broker.submit(broker.groups, request.group_id, outcome)
