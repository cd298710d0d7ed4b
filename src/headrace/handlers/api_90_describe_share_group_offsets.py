"""DescribeShareGroupOffsets (90), versions 0-1: describe start offsets and lag (KIP-932).

A group, topic or partition that does not exist has the start offset -1, and no error.

Version notes:

* Version 1 adds the lag (KIP-1226): end offset - start offset - delivery-complete count. It is -1
  until the share-partition has a start offset. A tagged field of headrace's own asks for the
  records in flight of the partitions that the request names
  (:mod:`headrace.protocol.own_fields`). A log that is offline, or cannot be read, is an error of
  its partition.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial

from headrace.groups.share.group import ShareGroup
from headrace.net.api import DESCRIBE, GROUP, TOPIC, TOPIC_DENIED, Api, Inside
from headrace.net.call import SLICED_ABOVE, Call
from headrace.protocol.api import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from headrace.protocol.errors import ErrorCode, Refusal
from headrace.protocol.own_fields import SpanState
from headrace.share.records import ACQUIRED, AVAILABLE, NO_TOPIC, UNKNOWN, SharePartitionKey
from headrace.share.share_partition import InFlight
from headrace.share.share_state import ShareState
from headrace.topics.catalog import Topic

MAX_IN_FLIGHT_SPANS = 20_000
"""The spans of records in flight in one response of DescribeShareGroupOffsets. A partition whose
spans do not fit is described without them.
"""

RequestGroup = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
ResponseGroup = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup
ResponseTopic = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic
Partition = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition
InFlightSpan = DescribeShareGroupOffsetsResponse.InFlightSpan

API = Api(
    90,
    Inside(DESCRIBE, GROUP, "refused for the group"),
    Inside(
        DESCRIBE,
        TOPIC,
        "TOPIC_AUTHORIZATION_FAILED for its partitions; left out of the answer if it is not named",
    ),
)

_LEAST_LAG, _GREATEST_LAG = -(1 << 63), (1 << 63) - 1
"""The bounds of the field: a start offset may be set to anything."""
_NO_LOG = Refusal(ErrorCode.KAFKA_STORAGE_ERROR, "The log of the partition cannot be read.")


async def handle(
    call: Call, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    """Describe the share-partitions of each group of a request."""
    describing = _Describing(call, min(request.in_flight_limit, MAX_IN_FLIGHT_SPANS))
    groups = call.lazily(describing.group, request.groups)
    if not call.is_long:
        call.is_long = sum(map(_partition_count, groups)) > SLICED_ABOVE
    return DescribeShareGroupOffsetsResponse(groups=groups)


def _partition_count(group: ResponseGroup) -> int:
    """Return the number of topics and partitions in the response for a group."""
    return len(group.topics) + sum(len(topic.partitions) for topic in group.topics)


@dataclass(slots=True, eq=False)
class _Describing:
    """Describes the share-partitions of one request.

    :ivar most_of_partition: the limit on the spans in flight of each partition
    :ivar left_spans: those that fit into the response still
    """

    call: Call
    most_of_partition: int
    left_spans: int = MAX_IN_FLIGHT_SPANS

    def group(self, described: RequestGroup) -> ResponseGroup:
        call, group_id = self.call, described.group_id
        if not call.may(DESCRIBE, GROUP, group_id):
            return ResponseGroup(group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        group = call.groups.groups.get(group_id)
        topics: Sequence[tuple[str, Collection[int]]] = ()
        if described.topics is not None:
            topics = [(topic.topic_name, topic.partitions) for topic in described.topics]
        elif isinstance(group, ShareGroup):
            topics = [
                topic for topic in group.stateful().values() if call.may(DESCRIBE, TOPIC, topic[0])
            ]
        return ResponseGroup(group_id, call.lazily(partial(self._topic, group_id), topics))

    def _topic(self, group_id: str, described: tuple[str, Collection[int]]) -> ResponseTopic:
        name, partitions = described
        call, topic = self.call, None
        describe = partial(_refused, TOPIC_DENIED)
        if call.may(DESCRIBE, TOPIC, name):
            topic = call.catalog.topics.get(name)
            describe = partial(self._partition, group_id, topic)
        topic_id = None if topic is None else topic.topic_id
        return ResponseTopic(name, topic_id, call.lazily(describe, tuple(partitions)))

    def _partition(self, group_id: str, topic: Topic | None, index: int) -> Partition:
        topic_id = NO_TOPIC if topic is None else topic.topic_id
        key = SharePartitionKey(group_id, topic_id, index)
        summary = self.call.share_state_runtime.coordinator.state(key)
        lag = _lag(self.call, key, summary)
        if isinstance(lag, Refusal):
            return _refused(lag, index)
        partition = Partition(index, summary.start_offset, summary.leader_epoch, lag)
        if self.most_of_partition > 0:
            self._add_in_flight(partition, key)
        return partition

    def _add_in_flight(self, partition: Partition, key: SharePartitionKey) -> None:
        """Add the first spans of a partition, unless they do not fit into the response."""
        share, counted = self.call.share, self.call.metrics.share.of_group(key.group_id)
        loaded = share.loaded(key)
        partition.released_count = 0 if loaded is None else loaded.released_count
        partition.archived_count, partition.late_count = counted.archived[key], counted.late[key]
        spans = share.in_flight(key)[: self.most_of_partition]
        if len(spans) > self.left_spans:
            return
        self.left_spans -= len(spans)
        now_ms = share.clock.now_ms()
        partition.in_flight = [
            InFlightSpan(
                span.first_offset,
                span.last_offset,
                _span_state(span),
                span.delivery_count,
                span.member_id,
                UNKNOWN if span.deadline_ms is None else max(0, span.deadline_ms - now_ms),
            )
            for span in spans
        ]
        end = spans[-1].last_offset + 1 if spans else partition.start_offset
        partition.in_flight_end = max(0, end)


def _span_state(span: InFlight) -> SpanState:
    if span.state == ACQUIRED:
        return SpanState.LOCKED
    if span.state != AVAILABLE:
        return SpanState.FINISHED
    return SpanState.AVAILABLE if span.deadline_ms is None else SpanState.WAITING


def _refused(refusal: Refusal, index: int) -> Partition:
    return Partition(index, UNKNOWN).refused(refusal)


def _lag(call: Call, key: SharePartitionKey, summary: ShareState) -> int | Refusal:
    if UNKNOWN in (summary.start_offset, summary.delivery_complete_count):
        return UNKNOWN
    log = call.topic_logs.partition(key.topic_id, key.partition)
    if log is ErrorCode.KAFKA_STORAGE_ERROR:
        return _NO_LOG
    if isinstance(log, ErrorCode):
        return UNKNOWN
    lag = log.end_offset - summary.start_offset - summary.delivery_complete_count
    return max(_LEAST_LAG, min(lag, _GREATEST_LAG))
