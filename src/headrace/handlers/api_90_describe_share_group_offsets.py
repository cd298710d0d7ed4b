"""DescribeShareGroupOffsets (90), versions 0-1: describe start offsets and lag (KIP-932).

A group, topic or partition that does not exist has the start offset -1, and no error.

Version notes:

* Version 1 adds the lag (KIP-1226): end offset - start offset - delivery-complete count. It is -1
  until the share-partition has a start offset.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from kio.schema.describe_share_group_offsets.v1.request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from kio.schema.describe_share_group_offsets.v1.response import (
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)

from headrace.broker.broker import Broker
from headrace.broker.catalog import Topic
from headrace.errors import ErrorCode, Refusal
from headrace.groups.share.group import ShareGroup
from headrace.protocol.authorized_operations import Operation
from headrace.protocol.large_responses import Sliced
from headrace.protocol.messages import NO_THROTTLE
from headrace.security.acls import ResourceType
from headrace.share.records import UNKNOWN, SharePartitionKey
from headrace.share.share_state import StateSummary

from .context import RequestContext
from .slicing import lazily, sliced

_LEAST_LAG, _GREATEST_LAG = -(1 << 63), (1 << 63) - 1
"""The bounds of the field: a start offset may be set to anything."""


def handle(
    broker: Broker, request: DescribeShareGroupOffsetsRequest, context: RequestContext
) -> DescribeShareGroupOffsetsResponse | Sliced:
    """Describe the share-partitions of each group of a request."""
    groups = lazily(partial(_group, broker, context), request.groups)
    response = DescribeShareGroupOffsetsResponse(throttle_time=NO_THROTTLE, groups=groups)
    if not isinstance(groups, tuple):
        return Sliced(response)
    return sliced(response, sum(map(_partition_count, groups)))


def _partition_count(group: DescribeShareGroupOffsetsResponseGroup) -> int:
    """Return the number of topics and partitions in the answer for a group; at least the number of
    topics, if there are many.
    """
    topics = group.topics if isinstance(group.topics, tuple) else ()
    return len(group.topics) + sum(len(topic.partitions) for topic in topics)


def _group(
    broker: Broker, context: RequestContext, asked: DescribeShareGroupOffsetsRequestGroup
) -> DescribeShareGroupOffsetsResponseGroup:
    access = context.access
    if not access.allows(Operation.DESCRIBE, ResourceType.GROUP, asked.group_id):
        return DescribeShareGroupOffsetsResponseGroup(
            group_id=asked.group_id, topics=(), error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED
        )
    group = broker.groups.groups.get(asked.group_id)
    topics: Sequence[tuple[str, Collection[int]]] = ()
    if asked.topics is not None:
        topics = [(topic.topic_name, topic.partitions) for topic in asked.topics]
    elif isinstance(group, ShareGroup):
        topics = [
            topic
            for topic in group.stateful().values()
            if access.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic[0])
        ]
    return DescribeShareGroupOffsetsResponseGroup(
        group_id=asked.group_id,
        topics=lazily(partial(_topic, broker, context, asked.group_id), topics),
        error_code=ErrorCode.NONE,
    )


def _topic(
    broker: Broker, context: RequestContext, group_id: str, asked: tuple[str, Collection[int]]
) -> DescribeShareGroupOffsetsResponseTopic:
    name, partitions = asked
    if not context.access.allows(Operation.DESCRIBE, ResourceType.TOPIC, name):
        return DescribeShareGroupOffsetsResponseTopic(
            topic_name=name,
            topic_id=None,
            partitions=lazily(_not_allowed, tuple(partitions)),
        )
    topic = broker.catalog.topics.get(name)
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=name,
        topic_id=None if topic is None else topic.topic_id,
        partitions=lazily(partial(_partition, broker, group_id, topic), tuple(partitions)),
    )


def _not_allowed(partition: int) -> DescribeShareGroupOffsetsResponsePartition:
    return DescribeShareGroupOffsetsResponsePartition(
        partition_index=partition,
        start_offset=-1,
        leader_epoch=0,
        lag=-1,
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        error_message="Topic authorization failed.",
    )


def _partition(
    broker: Broker, group_id: str, topic: Topic | None, partition: int
) -> DescribeShareGroupOffsetsResponsePartition:
    summary: StateSummary | Refusal = StateSummary()
    if topic is not None:
        summary = broker.share_state.summary(
            SharePartitionKey(group_id, topic.topic_id, partition), topic.partitions
        )
    if isinstance(summary, Refusal):
        summary = StateSummary()
    return DescribeShareGroupOffsetsResponsePartition(
        partition_index=partition,
        start_offset=summary.start_offset,
        leader_epoch=summary.leader_epoch,
        lag=_lag(broker, topic, partition, summary),
        error_code=ErrorCode.NONE,
    )


def _lag(broker: Broker, topic: Topic | None, partition: int, summary: StateSummary) -> int:
    log = None if topic is None else broker.log(topic, partition)
    if log is None or UNKNOWN in (summary.start_offset, summary.delivery_complete_count):
        return UNKNOWN
    lag = log.end_offset - summary.start_offset - summary.delivery_complete_count
    return max(_LEAST_LAG, min(lag, _GREATEST_LAG))
