"""The state of a record in the share groups of its topic: done, held, waiting, dead-lettered."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.dead_letters.letters import parse_letter
from headrace.client.errors import ClientError
from headrace.client.share_state import SharePartitionState, Span, share_states
from headrace.protocol.dead_letters import HEADERS
from headrace.protocol.partitions import TopicPartition
from headrace.protocol.record_batch import Record
from headrace.protocol.share_inspection import SpanState

from .limits import MAX_DEAD_LETTERS, MAX_SPANS_OF_RECORD
from .records import Query, find_records
from .texts import count_of, duration


class Standing(NamedTuple):
    """The state of a record in a share group.

    :param kind: "done", "held", "waiting", "available", "ahead", "dead", "unknown"
    :param text: a sentence
    """

    group: str
    kind: str
    text: str


async def standings(
    cluster: Cluster, group_ids: Sequence[str], keys: Sequence[TopicPartition]
) -> dict[str, Mapping[TopicPartition, SharePartitionState]]:
    """Return the state of share groups in partitions, without the groups that refuse.

    :raises ClientError: the cluster cannot be reached
    """
    answers = await asyncio.gather(
        *(share_states(cluster, group_id, keys, MAX_SPANS_OF_RECORD) for group_id in group_ids),
        return_exceptions=True,
    )
    found: dict[str, Mapping[TopicPartition, SharePartitionState]] = {}
    for group_id, answer in zip(group_ids, answers, strict=True):
        if isinstance(answer, ClientError):
            continue
        if isinstance(answer, BaseException):
            raise answer
        found[group_id] = answer
    return found


def standing(group_id: str, state: SharePartitionState | None, offset: int) -> Standing:
    """Return the standing of the record at an offset with a group.

    :param state: of the group in the partition; None if the broker did not answer for it
    """
    if state is None or state.start_offset is None:
        return Standing(group_id, "unknown", "the group has not begun with this partition")
    if offset < state.start_offset:
        return Standing(group_id, "done", "done")
    if state.spans is None or state.end_offset is None:
        return Standing(
            group_id, "unknown", "not below the start offset; this broker does not tell more"
        )
    span = next((one for one in state.spans if one.first_offset <= offset <= one.last_offset), None)
    if span is None and state.is_cut:
        return Standing(group_id, "unknown", "too many runs of records are in flight to tell")
    if span is None:
        return Standing(group_id, "ahead", "not delivered yet")
    return Standing(group_id, *_of_span(span))


def _of_span(span: Span) -> tuple[str, str]:
    times = f", delivered {count_of(span.delivery_count, 'time')}" if span.delivery_count else ""
    if span.state is SpanState.LOCKED:
        left = duration(span.remaining_ms)
        return "held", f"held by {span.member_id} for {left} more{times}"
    if span.state is SpanState.WAITING:
        return "waiting", f"waits {duration(span.remaining_ms)} for its next delivery{times}"
    if span.state is SpanState.FINISHED:
        return "done", "done"
    return "available", f"available{times or ', not delivered yet'}"


async def dead_lettered(
    cluster: Cluster, queue: str
) -> Collection[tuple[str | None, str, int, int]]:
    """Return (group, topic, partition, offset) of the records in the newest letters of a queue.

    :raises ClientError: the queue cannot be read
    """
    query = Query(queue, start="latest", limit=MAX_DEAD_LETTERS)
    found = await find_records(cluster, query, _letter_headers)
    letters = (
        parse_letter((queue, one.partition), one.record.offset, 0, None, None, one.record.headers)
        for one in found.records
    )
    return {(one.group_id, *one.source, one.source_offset) for one in letters if one is not None}


def _letter_headers(record: Record) -> Record:
    """Return a record with only the last header of each name of a dead letter."""
    names = {name: (name, content) for name, content in record.headers if name in HEADERS}
    return record._replace(key=None, value=None, headers=tuple(names.values()))
