"""What was seen of a cluster, and what of it needs attention; and looks at what members hold: who
keeps a stuck partition, and which acknowledgements came late.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from headrace.amounts import count_of
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.groups import GroupMember
from headrace.client.lag.model import GroupLag
from headrace.client.share_state import SharePartitionState, holds, share_states
from headrace.client.workers import SeenWorker
from headrace.protocol.partitions import TopicPartition

from .texts import duration, number
from .views import GroupSummary, Note, Point, TopicSummary

HISTORY_POINTS, RECENT_POINTS = 320, 150
"""Points in the history of a group or topic, and the newest of them, which are never thinned: of
half an hour, and of 5 minutes at one every 2 seconds. A history takes up to 60 kB.
"""
OLDER_STEP_MS = 10_000
"""The least time between two older points."""
MAX_HISTORIES = 10_000
"""Groups with a history, and topics."""
MAX_STUCK = 20
"""Groups with a partition in which nothing is finished that are told."""
GROUPS_OF_TURN = 5
"""Share groups that each observation asks for what is in flight."""
PARTITIONS_OF_PAGE = 50
"""Partitions of a group or topic on one page."""
LEAST_SPANS_OF_PARTITION = 10
"""The spans of a partition on a page with many partitions."""

_WORST_FIRST = ("paused", "stuck", "letters", "late", "growing", "idle")


class Observation(NamedTuple):
    """A cluster at one time.

    :param time_ms: since the epoch
    :param took_ms: the time that the brokers took to answer
    :param topics_of: group id → its topics
    :param queues: group id → its dead-letter queue
    :param warnings: what could not be determined, one line each
    :param workers: by name
    :param clients: member id → client id, of share groups
    """

    time_ms: int
    took_ms: int
    cluster_id: str | None
    brokers: int
    groups: Mapping[str, GroupSummary] = {}
    topics: Mapping[str, TopicSummary] = {}
    topics_of: Mapping[str, Sequence[str]] = {}
    queues: Mapping[str, str] = {}
    notes: Sequence[Note] = ()
    warnings: Sequence[str] = ()
    workers: Sequence[SeenWorker] = ()
    clients: Mapping[str, str] = {}

    def readers(self, topic: str, kind: str = "") -> list[GroupSummary]:
        """Return the groups that have read a topic, by name.

        :param kind: only groups of this type
        """
        return [
            self.groups[group_id]
            for group_id, topics in self.topics_of.items()
            if topic in topics and (not kind or self.groups[group_id].group_type == kind)
        ]


NOTHING_SEEN = Observation(0, 0, None, 0)


class Histories:
    """The points of groups, or of topics, by name, in bounded memory. Any thread may read them."""

    def __init__(self) -> None:
        self._by_name: dict[str, deque[Point]] = {}
        self._lock = threading.Lock()

    def add(self, points: Mapping[str, Point], *, after_gap: bool = False) -> None:
        """Add a point for each name; forget the names that have none.

        :param after_gap: there are no points for the time before, which an unknown one tells
        """
        with self._lock:
            for gone in self._by_name.keys() - points.keys():
                del self._by_name[gone]
            for name, point in points.items():
                if name not in self._by_name:
                    if len(self._by_name) >= MAX_HISTORIES:
                        continue
                    self._by_name[name] = deque(maxlen=HISTORY_POINTS)
                elif after_gap:
                    _add(self._by_name[name], Point(point.time_ms))
                _add(self._by_name[name], point)

    def of(self, name: str, most: int = HISTORY_POINTS) -> list[Point]:
        """Return the points of a name, the oldest first.

        :param most: about so many, evenly chosen; besides those that tell a gap
        """
        with self._lock:
            points = list(self._by_name.get(name, ()))
        step = max(1, len(points) // most)
        first = (len(points) - 1) % step  # so that the newest one is told
        return [
            point
            for at, point in enumerate(points)
            if at % step == first or point == Point(point.time_ms)
        ]


def _add(points: deque[Point], point: Point) -> None:
    """Add the newest point, and leave out the one that becomes an older one if it is too close."""
    points.append(point)
    if len(points) > RECENT_POINTS + 1:
        before, aging = points[-RECENT_POINTS - 2], points[-RECENT_POINTS - 1]
        is_gap = aging == Point(aging.time_ms)
        if aging.time_ms - before.time_ms < OLDER_STEP_MS and not is_gap:
            del points[-RECENT_POINTS - 1]


# What needs attention -----------------------------------------------------------------------------


def notes(
    groups: Mapping[str, GroupSummary],
    letters: Mapping[str, tuple[str, int, int]],
    workers: Iterable[SeenWorker] = (),
    stuck: Iterable[tuple[str, str]] = (),
    late: Mapping[str, int] | None = None,
) -> list[Note]:
    """Return a sentence about each thing that needs attention: by severity, then by the activity of
    the group. Groups without members have one together.

    :param letters: group id → its dead-letter queue, the records that came to it, and the time in
        ms in which they came
    :param stuck: group id, and a sentence about a partition
    :param late: group id → records that were acknowledged after the end of their locks
    """
    lines = _pauses(workers)
    paused = {note.group_id for note in lines}
    lines += [Note("stuck", group_id, text) for group_id, text in stuck if group_id not in paused]
    for group_id, count in (late or {}).items():
        text = (
            f"{count_of(count, 'record')} acknowledged after the end of the lock, and delivered "
            "again: the work takes longer than share.record.lock.duration.ms"
        )
        lines.append(Note("late", group_id, text))
    for group in groups.values():
        note = _growing_note(group)
        if note is not None:
            lines.append(note)
        queue, count, over_ms = letters.get(group.group_id, ("", 0, 0))
        if count:
            text = f"{count_of(count, 'record')} dead-lettered in the last {duration(over_ms)}"
            lines.append(Note("letters", group.group_id, text, queue))

    def rank(note: Note) -> tuple[int, float, str]:
        group = groups.get(note.group_id or "")
        activity = 0.0 if group is None else (group.done_per_s or 0) + (group.produced_per_s or 0)
        return _WORST_FIRST.index(note.kind), -activity, note.group_id or ""

    return sorted(lines, key=rank) + _idle(groups.values())


def _idle(groups: Iterable[GroupSummary]) -> list[Note]:
    """Return the sentence about all groups that have a lag and no members."""
    idle = [group for group in groups if group.lag and not group.member_count]
    if not idle:
        return []
    text = f"{count_of(len(idle), 'group')} behind without members"
    oldest_ms = max(group.time_lag_ms or 0 for group in idle)
    if oldest_ms:
        text += f", the oldest record {duration(oldest_ms)} old"
    return [Note("idle", idle[0].group_id if len(idle) == 1 else None, text)]


def _pauses(workers: Iterable[SeenWorker]) -> list[Note]:
    """Return a sentence about each task that pauses, because most of its records fail."""
    reasons = {
        task.group_id: f"task {task.task} pauses, as most records fail: {task.breaker_reason}"
        for worker in workers
        for task in worker.state.tasks
        if task.breaker != "closed" and not worker.is_gone
    }
    return [Note("paused", group_id, reason) for group_id, reason in reasons.items()]


def _growing_note(group: GroupSummary) -> Note | None:
    """Return the sentence about a group with members that does not keep up; None if it does."""
    rates = group.done_per_s, group.produced_per_s
    if not group.lag or not group.member_count or group.seconds_to_zero != -1 or not all(rates):
        return None
    text = f"finishes {number(rates[0])} of {number(rates[1])} records a second; "
    text += count_of(group.lag, "record") + " behind"
    if group.time_lag_ms:
        text += f", the oldest {duration(group.time_lag_ms)} old"
    return Note("growing", group.group_id, text)


# What members hold --------------------------------------------------------------------------------


LATE_FOR_MS = 300_000
"""The time after the last late acknowledgement for which a group has a note about them."""
_NAMED = 3
"""The members that a sentence names."""


States = Mapping[TopicPartition, SharePartitionState]


async def states_if_told(
    cluster: Cluster, partitions: Mapping[str, Sequence[TopicPartition]], spans: int
) -> dict[str, States]:
    """Return group id → the states of partitions, without the groups that cannot be asked: their
    own views tell why.

    :param spans: the limit of those of one partition
    """

    async def ask(group_id: str) -> States | None:
        try:
            return await share_states(cluster, group_id, partitions[group_id], spans)
        except ClientError:
            return None

    answers = zip(partitions, await asyncio.gather(*map(ask, partitions)), strict=True)
    return {group_id: answer for group_id, answer in answers if answer is not None}


class _Late(NamedTuple):
    """The late acknowledgements of a group: the last count of each partition, what the counts have
    grown by while the page looked, and when they grew last.
    """

    counts: Mapping[TopicPartition, int] = {}
    grown: int = 0
    at_ms: int = 0


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
        stuck: Mapping[str, Mapping[TopicPartition, float]],
        now_ms: int,
    ) -> list[tuple[str, str]]:
        """Return a sentence about each group with stuck partitions, with its id.

        :param partitions: of the share groups with members
        :param stuck: group id → partition → seconds, the longest first
        """
        worst = {group_id: next(iter(stuck[group_id])) for group_id in islice(stuck, MAX_STUCK)}
        keys = {group_id: [key] for group_id, key in worst.items() if group_id in partitions}
        names = sorted(partitions)
        at = self._turn % max(1, len(names))
        self._turn += GROUPS_OF_TURN
        for group_id in (names[at:] + names[:at])[:GROUPS_OF_TURN]:
            chosen = dict.fromkeys((*keys.get(group_id, ()), *partitions[group_id]))
            keys[group_id] = list(chosen)[:PARTITIONS_OF_PAGE]
        states = await states_if_told(cluster, keys, LEAST_SPANS_OF_PARTITION)
        self._seen = {group: seen for group, seen in self._seen.items() if group in groups}
        self._note_late(states, now_ms)
        return [
            (
                group_id,
                _sentence(
                    stuck[group_id],
                    key,
                    states.get(group_id, {}).get(key),
                    groups[group_id].members,
                ),
            )
            for group_id, key in worst.items()
        ]

    def _note_late(self, states: Mapping[str, States], now_ms: int) -> None:
        for group_id, of_group in states.items():
            seen = self._seen.get(group_id, _Late())
            counts = {
                partition: state.late_count
                for partition, state in of_group.items()
                if state.late_count is not None
            }
            grown = sum(max(0, n - seen.counts.get(key, n)) for key, n in counts.items())
            if grown:
                seen = seen._replace(grown=seen.grown + grown, at_ms=now_ms)
            self._seen[group_id] = seen._replace(counts={**seen.counts, **counts})
        self.late = {
            group_id: seen.grown
            for group_id, seen in self._seen.items()
            if seen.grown and now_ms - seen.at_ms < LATE_FOR_MS
        }


def _sentence(
    stuck: Mapping[TopicPartition, float],
    key: TopicPartition,
    state: SharePartitionState | None,
    members: Sequence[GroupMember],
) -> str:
    """Return a sentence about a partition that is stuck.

    :param stuck: the partitions of the group that are, and for how many seconds
    :param state: with the records in flight, if the broker tells them
    """
    text = f"{key[0]}-{key[1]}: nothing finished for {duration(round(stuck[key] * 1000))}"
    if len(stuck) > 1:
        text += f", nor in {count_of(len(stuck) - 1, 'other partition')}"
    if state is None or state.spans is None:
        names = [member.client_id for member in members if key in member.assignment]
        return f"{text}; assigned to {', '.join(names[:_NAMED])}" if names else text
    held = holds(state.spans, members)[:_NAMED]
    holders = [f"{hold.holder} holds {count_of(hold.record_count, 'record')}" for hold in held]
    return f"{text}; {', '.join(holders) or 'no member holds its records'}"
