"""Partitions in which a group with members finishes nothing, with the members that hold their
records; and acknowledgements that came too late.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from headrace.amounts import count_of
from headrace.client.cluster import Cluster
from headrace.client.lag.model import GroupLag
from headrace.client.share_state import SharePartitionState, Span, share_states
from headrace.protocol.partitions import TopicPartition
from headrace.protocol.share_inspection import SpanState

from .limits import GROUPS_OF_TURN, LEAST_SPANS_OF_PARTITION, MAX_STUCK, PARTITIONS_OF_PAGE
from .texts import duration

STUCK_MS = 60_000
"""The time without progress after which a partition with a lag is called stuck."""
LATE_FOR_MS = 300_000
"""The time after the last late acknowledgement for which a group has a note about them."""


class Stuck(NamedTuple):
    """The partition in which a group with members has a lag, and has finished nothing for longest.

    :param holders: who may be the cause: client ids of members that it is assigned to
    :param others: the number of other partitions of the group that stand still
    """

    group_id: str
    partition: TopicPartition
    still_ms: int
    holders: Sequence[str]
    others: int = 0


class Progress:
    """Since when each partition with a lag has stood still, of groups with members. Pure.

    For each observation call ``begin``, ``add`` for each part, then ``end``.
    """

    def __init__(self) -> None:
        self._marks: dict[tuple[str, str, int], tuple[int, int, int]] = {}
        """(group, topic, partition) → position, largest number of records done, and since when."""
        self._next: dict[tuple[str, str, int], tuple[int, int, int]] = {}
        self._stuck: list[Stuck] = []
        self._now_ms = 0

    def begin(self, now_ms: int) -> None:
        """Begin an observation."""
        self._now_ms, self._next, self._stuck = now_ms, {}, []

    def add(self, groups: Iterable[GroupLag]) -> None:
        """Add groups of the observation, with their partitions."""
        for group in groups:
            if group.members and group.lag.records:
                self._add_group(group)

    def _add_group(self, group: GroupLag) -> None:
        longest, longest_since_ms, count = None, self._now_ms - STUCK_MS + 1, 0
        for lag in group.partitions:
            if not lag.records:
                continue
            key = (group.group_id, lag.topic, lag.partition)
            position = -1 if lag.position is None else lag.position
            done = position + (lag.delivery_complete_count or 0)
            mark = self._marks.get(key)
            if mark is None or done > mark[1] or position < mark[0]:
                mark = (position, done, self._now_ms)
            self._next[key] = mark
            count += self._now_ms - mark[2] >= STUCK_MS
            if mark[2] < longest_since_ms:
                longest, longest_since_ms = lag, mark[2]
        if longest is not None:
            stuck = Stuck(
                group.group_id,
                (longest.topic, longest.partition),
                self._now_ms - longest_since_ms,
                [member.client_id for member in longest.members],
                count - 1,
            )
            self._stuck.append(stuck)

    def end(self) -> list[Stuck]:
        """End the observation, and return the groups that are stuck, the longest first."""
        self._marks = self._next
        return sorted(self._stuck, key=lambda stuck: -stuck.still_ms)[:MAX_STUCK]


class _Late(NamedTuple):
    """The late acknowledgements of a group: their count in all, what it has grown by while the page
    looked, and when it grew last.
    """

    total: int
    grown: int
    at_ms: int


class InFlightLooks:
    """Looks at what members hold of share groups: of those with stuck partitions, and of some
    others in turn, so that the number of requests does not grow with the groups.

    :ivar late: group id → records that were acknowledged after the end of their locks
    """

    def __init__(self) -> None:
        self.late: dict[str, int] = {}
        self._seen: dict[str, _Late] = {}
        self._turn = 0

    async def look(
        self,
        cluster: Cluster,
        groups: Mapping[str, GroupLag],
        partitions: Mapping[str, Sequence[TopicPartition]],
        stuck: Sequence[Stuck],
        now_ms: int,
    ) -> list[tuple[str, str]]:
        """Return the group and a sentence of each partition that is stuck.

        :param partitions: of the share groups with members
        """
        keys: dict[str, list[TopicPartition]] = {}
        for each in stuck:
            if each.group_id in partitions:
                keys.setdefault(each.group_id, []).append(each.partition)
        names = sorted(partitions)
        at = self._turn % max(1, len(names))
        self._turn += GROUPS_OF_TURN
        for group_id in (names[at:] + names[:at])[:GROUPS_OF_TURN]:
            keys[group_id] = list({*keys.get(group_id, ()), *partitions[group_id]})
        answers = await asyncio.gather(
            *(
                share_states(
                    cluster, group_id, chosen[:PARTITIONS_OF_PAGE], LEAST_SPANS_OF_PARTITION
                )
                for group_id, chosen in keys.items()
            ),
            return_exceptions=True,
        )
        states: dict[str, Mapping[TopicPartition, SharePartitionState]] = {
            group_id: answer
            for group_id, answer in zip(keys, answers, strict=True)
            if not isinstance(answer, BaseException)
        }
        self._seen = {group: seen for group, seen in self._seen.items() if group in groups}
        self._note_late({group: states[group] for group in states if group in groups}, now_ms)
        sentences = []
        for each in stuck:
            state = states.get(each.group_id, {}).get(each.partition)
            clients = {
                member.member_id: member.client_id for member in groups[each.group_id].members
            }
            spans = None if state is None else state.spans
            sentences.append((each.group_id, _sentence(each, spans, clients)))
        return sentences

    def _note_late(
        self, states: Mapping[str, Mapping[TopicPartition, SharePartitionState]], now_ms: int
    ) -> None:
        for group_id, of_group in states.items():
            total = sum(state.late_count or 0 for state in of_group.values())
            seen = self._seen.pop(group_id, _Late(total, 0, 0))
            if total > seen.total:
                seen = _Late(total, seen.grown + total - seen.total, now_ms)
            self._seen[group_id] = seen._replace(total=total)
        self.late = {
            group_id: seen.grown
            for group_id, seen in self._seen.items()
            if seen.grown and now_ms - seen.at_ms < LATE_FOR_MS
        }


def _sentence(stuck: Stuck, spans: Sequence[Span] | None, names: Mapping[str, str]) -> str:
    """Return a sentence about a partition that is stuck.

    :param spans: the records in flight, if the broker tells them
    :param names: member id → client id
    """
    topic, partition = stuck.partition
    text = f"{topic}-{partition}: nothing finished for {duration(stuck.still_ms)}"
    if stuck.others:
        text += f", nor in {count_of(stuck.others, 'other partition')}"
    if spans is None:
        return f"{text}; assigned to {', '.join(stuck.holders[:3])}" if stuck.holders else text
    held: Counter[str] = Counter()
    for span in spans:
        if span.state is SpanState.LOCKED:
            held[names.get(span.member_id or "", span.member_id or "")] += span.record_count
    holders = [f"{name} holds {count_of(count, 'record')}" for name, count in held.most_common(3)]
    return f"{text}; {', '.join(holders)}" if holders else f"{text}; no member holds its records"
