"""The records of a share group that are in flight, as headrace's broker reports them.

Other brokers do not report them: their responses have no such fields (see
:mod:`headrace.protocol.share_inspection`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kio.schema.describe_share_group_offsets.v1.request import (
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from kio.static.primitive import i32, i64

from headrace.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition
from headrace.protocol.share_inspection import (
    AlterShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest,
    Release,
    SpanState,
)

from .cluster import Cluster
from .connection import Connection
from .errors import ClientError, RequestRefused, check_answer, refused
from .group_requests import asking_for_share_offsets

SPANS_OF_PARTITION = 500
"""The default limit of spans of one partition in a response."""


class Span(NamedTuple):
    """A run of records in one state.

    :param last_offset: inclusive
    :param delivery_count: how often the records were delivered; 0 if finished or never delivered
    :param member_id: the holder of locked records
    :param remaining_ms: time until the lock or the backoff ends; None for other states
    """

    first_offset: int
    last_offset: int
    state: SpanState
    delivery_count: int
    member_id: str | None
    remaining_ms: int | None

    @property
    def record_count(self) -> int:
        """The number of records."""
        return self.last_offset - self.first_offset + 1


class SharePartitionState(NamedTuple):
    """The state of a share-partition; None for an unknown value.

    :param spans: the records in flight, ascending
    :param end_offset: the offset after the last span
    :param released_count: records released since the broker loaded the share-partition
    :param archived_count: records archived since then that were not accepted
    :param is_cut: whether more spans may follow
    """

    start_offset: int | None
    lag: int | None
    spans: tuple[Span, ...] | None
    end_offset: int | None
    released_count: int | None
    archived_count: int | None
    is_cut: bool = False


async def share_states(
    cluster: Cluster,
    group_id: str,
    partitions: Iterable[TopicPartition],
    spans_of_partition: int = SPANS_OF_PARTITION,
) -> dict[TopicPartition, SharePartitionState]:
    """Return the states of share-partitions, with their first spans.

    :returns: (topic, partition) → state
    :raises ClientError: the coordinator refuses or does not answer
    """
    by_topic: dict[str, list[i32]] = {}
    for topic, number in partitions:
        by_topic.setdefault(topic, []).append(i32(number))

    async def ask(
        connection: Connection, group_ids: Sequence[str], timeout_ms: int
    ) -> Mapping[str, Any]:
        if connection.version("describe_share_group_offsets") == 0:  # without the lag
            ask_plainly = asking_for_share_offsets({group_id: by_topic})
            return await ask_plainly(connection, group_ids, timeout_ms)
        topics = tuple(
            DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=tuple(numbers))
            for name, numbers in by_topic.items()
        )
        group = DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=topics)
        request = DescribeShareGroupOffsetsRequest(
            groups=(group,), in_flight_limit=i32(spans_of_partition)
        )
        response = await connection.request(request, timeout_ms=timeout_ms)
        what = f"asking for the offsets of share group '{group_id}'"
        needs = f"DESCRIBE on group '{group_id}'"
        return {str(one.group_id): refused(what, one, needs) or one for one in response.groups}

    answer = (await cluster.coordinators.ask([group_id], ask, cluster.timeout_ms))[group_id]
    if isinstance(answer, ClientError):
        raise answer
    return {
        (str(topic.topic_name), int(p.partition_index)): _state(p, spans_of_partition)
        for topic in answer.topics
        for p in topic.partitions
    }


def _state(answer: Any, spans_limit: int) -> SharePartitionState:
    end_offset = getattr(answer, "in_flight_end", -1)
    lag = getattr(answer, "lag", -1)
    tells = end_offset >= 0
    return SharePartitionState(
        int(answer.start_offset) if answer.start_offset >= 0 else None,
        int(lag) if lag >= 0 else None,
        tuple(map(_span, answer.in_flight)) if tells else None,
        int(end_offset) if tells else None,
        int(answer.released_count) if tells else None,
        int(answer.archived_count) if tells else None,
        tells and len(answer.in_flight) >= spans_limit,
    )


def _span(answer: Any) -> Span:
    try:
        state = SpanState(answer.state)
    except ValueError:
        state = SpanState.FINISHED
    return Span(
        int(answer.first_offset),
        int(answer.last_offset),
        state,
        int(answer.delivery_count),
        None if answer.member_id is None else str(answer.member_id),
        int(answer.remaining_ms) if answer.remaining_ms >= 0 else None,
    )


async def release_records(
    cluster: Cluster, group_id: str, partition: TopicPartition, first_offset: int, last_offset: int
) -> None:
    """Release the records of a range from the members that hold them.

    Only headrace's broker can: call it only if :func:`share_states` returns spans.

    :param last_offset: inclusive
    :raises RequestRefused: no member holds any of them, or the user may not release them
    :raises ClientError: the coordinator does not answer
    """
    topic, number = partition
    release = Release(
        topic_name=topic,
        partition_index=i32(number),
        first_offset=i64(first_offset),
        last_offset=i64(last_offset),
    )

    def build(_: Connection) -> AlterShareGroupOffsetsRequest:
        return AlterShareGroupOffsetsRequest(
            group_id=group_id,
            topics=(),
            releases=(release,),
        )

    response = await cluster.coordinator_call(group_id, build)
    what = f"releasing {topic}-{number} {first_offset}-{last_offset} of share group '{group_id}'"
    check_answer(what, response, f"READ on group '{group_id}'")
    answers = [one for answer in response.responses for one in answer.partitions]
    if not answers:
        reason = "the broker does not know this request"
        raise RequestRefused(what, ErrorCode.INVALID_REQUEST, reason)
    for answer in answers:
        check_answer(what, answer, f"READ on topic '{topic}'")
