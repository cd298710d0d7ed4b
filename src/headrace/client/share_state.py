"""The records of a share group that are in flight, as headrace's broker reports them.

Other brokers do not report them: their responses have no such fields (see
:mod:`headrace.protocol.own_fields`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from headrace.protocol.api import AlterShareGroupOffsetsRequest
from headrace.protocol.errors import ErrorCode
from headrace.protocol.own_fields import SpanState
from headrace.protocol.partitions import TopicPartition

from .cluster import Cluster
from .coordinators import ask_coordinator, partition_answers
from .errors import ClientError, RequestRefused, check_answer, raised
from .groups import GroupMember
from .offsets import describe_share_offsets, unless_negative

State = Literal["available", "locked", "finished", "waiting"]
"""Of records: waiting ones were released, and are available at the end of a backoff."""
_STATES: Mapping[int, State] = {
    SpanState.AVAILABLE: "available",
    SpanState.LOCKED: "locked",
    SpanState.FINISHED: "finished",
    SpanState.WAITING: "waiting",
}

SPANS_OF_PARTITION = 500
"""The default limit of spans of one partition in a response."""


@dataclass(frozen=True, slots=True)
class Span:
    """A run of records in one state.

    :param last_offset: inclusive
    :param delivery_count: how often the records were delivered; 0 if finished or never delivered
    :param member_id: the holder of locked records
    :param remaining_ms: time until the lock or the backoff ends; None for other states
    """

    first_offset: int
    last_offset: int
    state: State
    delivery_count: int
    member_id: str | None
    remaining_ms: int | None

    @property
    def record_count(self) -> int:
        """The number of records."""
        return self.last_offset - self.first_offset + 1


@dataclass(frozen=True, slots=True)
class SharePartitionState:
    """The state of a share-partition; None for an unknown value.

    :param spans: the records in flight, ascending
    :param end_offset: the offset after the last span
    :param released_count: records released since the broker loaded the share-partition
    :param archived_count: records archived that were not accepted, since the broker started
    :param late_count: records acknowledged after the end of their lock, since the broker started
    :param is_cut: whether more spans may follow
    """

    start_offset: int | None
    lag: int | None
    spans: tuple[Span, ...] | None = None
    end_offset: int | None = None
    released_count: int | None = None
    archived_count: int | None = None
    late_count: int | None = None
    is_cut: bool = False


class Hold(NamedTuple):
    """What a member holds of a share-partition.

    :param holder: its client id, or else its member id
    :param remaining_ms: time until the first of its locks ends
    """

    holder: str
    record_count: int
    remaining_ms: int


def holds(spans: Iterable[Span], members: Iterable[GroupMember]) -> list[Hold]:
    """Return who holds records, the largest number first.

    :param members: for their client ids
    """
    clients = {member.member_id: member.client_id for member in members}
    locked: dict[str, list[Span]] = {}
    for span in spans:
        if span.state == "locked":
            locked.setdefault(span.member_id or "", []).append(span)
    held = [
        Hold(
            clients.get(member_id) or member_id,
            sum(span.record_count for span in of_member),
            min(span.remaining_ms or 0 for span in of_member),
        )
        for member_id, of_member in locked.items()
    ]
    return sorted(held, key=lambda hold: -hold.record_count)


async def share_states(
    cluster: Cluster,
    group_id: str,
    partitions: Iterable[TopicPartition],
    spans_of_partition: int = SPANS_OF_PARTITION,
) -> dict[TopicPartition, SharePartitionState]:
    """Return the states of share-partitions, with their first spans.

    :raises ClientError: the coordinator refuses or does not answer
    """
    answers = await describe_share_offsets(
        cluster,
        {group_id: partitions},
        lambda answer: _state(answer, spans_of_partition),
        spans_of_partition,
    )
    return {
        key: SharePartitionState(None, None) if isinstance(state, ClientError) else state
        for key, state in raised(answers)[group_id].items()
    }


def _state(answer: Any, spans_limit: int) -> SharePartitionState:
    start_offset, lag = unless_negative(answer.start_offset), unless_negative(answer.lag)
    if answer.in_flight_end < 0:  # the broker does not tell
        return SharePartitionState(start_offset, lag)
    return SharePartitionState(
        start_offset,
        lag,
        tuple(
            Span(
                span.first_offset,
                span.last_offset,
                _STATES.get(span.state, "finished"),
                span.delivery_count,
                span.member_id,
                unless_negative(span.remaining_ms),
            )
            for span in answer.in_flight
        ),
        answer.in_flight_end,
        answer.released_count,
        answer.archived_count,
        answer.late_count,
        len(answer.in_flight) >= spans_limit,
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
    release = AlterShareGroupOffsetsRequest.Release(topic, number, first_offset, last_offset)
    request = AlterShareGroupOffsetsRequest(group_id, releases=[release])
    response = await ask_coordinator(cluster, group_id, request)
    what = f"releasing {topic}-{number} {first_offset}-{last_offset} of share group '{group_id}'"
    check_answer(what, response, f"READ on group '{group_id}'")
    answers = [answer for _, answer in partition_answers(response)]
    if not answers:
        reason = "the broker does not know this request"
        raise RequestRefused(what, ErrorCode.INVALID_REQUEST, reason)
    for answer in answers:
        check_answer(what, answer, f"READ on topic '{topic}'")
