"""DescribeShareGroupOffsets (90), versions 0-1: describe start offsets and lag (KIP-932).

A group, topic or partition that does not exist has the start offset -1, and no error.

Version notes:

* Version 1 adds the lag (KIP-1226): end offset - start offset - delivery-complete count. It is -1
  until the share-partition has a start offset. A tagged field of headrace's own asks for the
  records in flight of the partitions that the request names
  (:mod:`headrace.protocol.share_inspection`). A log that is offline, or cannot be read, is an error
  of its partition.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from kio.schema.describe_share_group_offsets.v1.request import DescribeShareGroupOffsetsRequestGroup

from headrace.broker.broker import Broker
from headrace.broker.catalog import Topic
from headrace.broker.limits import MAX_IN_FLIGHT_SPANS
from headrace.errors import ErrorCode, Refusal
from headrace.groups.share.group import ShareGroup
from headrace.protocol.authorized_operations import Operation
from headrace.protocol.large_responses import Sliced
from headrace.protocol.messages import NO_THROTTLE
from headrace.protocol.share_inspection import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
    InFlightSpan,
    SpanState,
)
from headrace.security.acls import ResourceType
from headrace.share.records import ACQUIRED, AVAILABLE, UNKNOWN, SharePartitionKey
from headrace.share.share_partition import InFlight
from headrace.share.share_state import StateSummary

from .context import RequestContext
from .slicing import lazily, sliced

_LEAST_LAG, _GREATEST_LAG = -(1 << 63), (1 << 63) - 1
"""The bounds of the field: a start offset may be set to anything."""
_NOT_ALLOWED = Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
_NO_LOG = Refusal(ErrorCode.KAFKA_STORAGE_ERROR, "The log of the partition cannot be read.")


def handle(
    broker: Broker, request: DescribeShareGroupOffsetsRequest, context: RequestContext
) -> DescribeShareGroupOffsetsResponse | Sliced:
    """Describe the share-partitions of each group of a request."""
    spans = _Spans(request.in_flight_limit)
    groups = lazily(partial(_group, broker, context, spans), request.groups)
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


class _Spans:
    """The spans of a response: how many are still wanted, and how many fit.

    :param limit: the number for one partition; 0 for none
    """

    def __init__(self, limit: int) -> None:
        self._limit = min(limit, MAX_IN_FLIGHT_SPANS)
        self._left = MAX_IN_FLIGHT_SPANS

    @property
    def wanted(self) -> bool:
        """True if partitions shall have their spans."""
        return self._limit > 0

    def of(self, broker: Broker, key: SharePartitionKey) -> tuple[InFlightSpan, ...] | None:
        """Return the first spans of a partition; None if they do not fit into the response."""
        partitions = broker.share
        found = partitions.in_flight(key)[: self._limit]
        if len(found) > self._left:
            return None
        self._left -= len(found)
        now_ms = partitions.clock.now_ms()
        return tuple(
            InFlightSpan(
                first_offset=one.first_offset,
                last_offset=one.last_offset,
                state=_span_state(one),
                delivery_count=one.delivery_count,
                member_id=one.member_id,
                remaining_ms=UNKNOWN
                if one.deadline_ms is None
                else max(0, one.deadline_ms - now_ms),
            )
            for one in found
        )


def _span_state(one: InFlight) -> SpanState:
    if one.state == ACQUIRED:
        return SpanState.LOCKED
    if one.state != AVAILABLE:
        return SpanState.FINISHED
    return SpanState.AVAILABLE if one.deadline_ms is None else SpanState.WAITING


def _group(
    broker: Broker,
    context: RequestContext,
    spans: _Spans,
    asked: DescribeShareGroupOffsetsRequestGroup,
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
        topics=lazily(partial(_topic, broker, context, spans, asked.group_id), topics),
        error_code=ErrorCode.NONE,
    )


def _topic(
    broker: Broker,
    context: RequestContext,
    spans: _Spans,
    group_id: str,
    asked: tuple[str, Collection[int]],
) -> DescribeShareGroupOffsetsResponseTopic:
    name, partitions = asked
    if not context.access.allows(Operation.DESCRIBE, ResourceType.TOPIC, name):
        return DescribeShareGroupOffsetsResponseTopic(
            topic_name=name,
            topic_id=None,
            partitions=lazily(partial(_refused, _NOT_ALLOWED), tuple(partitions)),
        )
    topic = broker.catalog.topics.get(name)
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=name,
        topic_id=None if topic is None else topic.topic_id,
        partitions=lazily(partial(_partition, broker, spans, group_id, topic), tuple(partitions)),
    )


def _refused(refusal: Refusal, partition: int) -> DescribeShareGroupOffsetsResponsePartition:
    return DescribeShareGroupOffsetsResponsePartition(
        partition_index=partition,
        start_offset=-1,
        leader_epoch=0,
        lag=-1,
        error_code=refusal.code,
        error_message=refusal.message,
    )


def _partition(
    broker: Broker, spans: _Spans, group_id: str, topic: Topic | None, partition: int
) -> DescribeShareGroupOffsetsResponsePartition:
    summary: StateSummary | Refusal = StateSummary()
    in_flight: tuple[InFlightSpan, ...] | None = () if spans.wanted else None
    loaded, archived, late = None, 0, 0
    if topic is not None:
        key = SharePartitionKey(group_id, topic.topic_id, partition)
        summary = broker.share_state.summary(key, topic.partitions)
        if spans.wanted:
            in_flight = spans.of(broker, key)
            loaded = broker.share.loaded(*key)
            archived = broker.metrics.share.archived_count(key)
            late = broker.metrics.share.late_count(key)
    if isinstance(summary, Refusal):
        summary = StateSummary()
    lag = _lag(broker, topic, partition, summary)
    if isinstance(lag, Refusal):
        return _refused(lag, partition)
    return DescribeShareGroupOffsetsResponsePartition(
        partition_index=partition,
        start_offset=summary.start_offset,
        leader_epoch=summary.leader_epoch,
        lag=lag,
        error_code=ErrorCode.NONE,
        in_flight=in_flight or (),
        in_flight_end=UNKNOWN if in_flight is None else _end(in_flight, summary),
        released_count=0 if loaded is None else loaded.released_count,
        archived_count=archived,
        late_count=late,
    )


def _end(in_flight: Sequence[InFlightSpan], summary: StateSummary) -> int:
    return in_flight[-1].last_offset + 1 if in_flight else max(0, summary.start_offset)


def _lag(
    broker: Broker, topic: Topic | None, partition: int, summary: StateSummary
) -> int | Refusal:
    if topic is None or UNKNOWN in (summary.start_offset, summary.delivery_complete_count):
        return UNKNOWN
    log = broker.partition(topic.topic_id, partition)
    if log is ErrorCode.KAFKA_STORAGE_ERROR:
        return _NO_LOG
    if isinstance(log, ErrorCode):
        return UNKNOWN
    lag = log.end_offset - summary.start_offset - summary.delivery_complete_count
    return max(_LEAST_LAG, min(lag, _GREATEST_LAG))
