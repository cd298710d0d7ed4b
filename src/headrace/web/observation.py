"""What was seen of a cluster, and what of it needs attention. Pure."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from headrace.amounts import count_of
from headrace.client.share_state import SharePartitionState
from headrace.client.workers import SeenWorker
from headrace.protocol.partitions import TopicPartition

from .limits import HISTORY_POINTS, MAX_COURSES, MAX_HISTORIES
from .texts import duration, number
from .views import GroupSummary, Note, Outcomes, Point, TopicSummary

STALLED_MS = 30_000
"""The time without progress after which a group with a lag is called stalled."""

_LEAST_STEP_MS = 1000
"""The least time between two points of a course."""
_WORST_FIRST = ("paused", "stalled", "letters", "idle", "growing")


@dataclass(frozen=True, slots=True)
class Observation:
    """A cluster at one time.

    :param time_ms: since the epoch
    :param took_ms: the time that the brokers took to answer
    :param topics_of: group id → its topics
    :param queues: group id → its dead-letter queue
    :param warnings: what could not be determined, one line each
    :param workers: by name
    """

    time_ms: int
    took_ms: int
    cluster_id: str | None
    brokers: int
    groups: Mapping[str, GroupSummary]
    topics: Mapping[str, TopicSummary]
    topics_of: Mapping[str, Sequence[str]]
    queues: Mapping[str, str]
    notes: Sequence[Note]
    warnings: Sequence[str]
    workers: Sequence[SeenWorker] = ()

    def readers(self, topic: str, kind: str = "") -> list[GroupSummary]:
        """Return the groups that have read a topic, by name.

        :param kind: only groups of this type
        """
        return [
            self.groups[group_id]
            for group_id, topics in self.topics_of.items()
            if topic in topics and (not kind or self.groups[group_id].group_type == kind)
        ]


class Histories:
    """The points of groups, or of topics, by name, in bounded memory. Any thread may read them.

    :param points: the number of points to keep for each name; the oldest are dropped
    :param most: the largest number of names with a history; further names have none
    """

    def __init__(self, points: int = HISTORY_POINTS, most: int = MAX_HISTORIES) -> None:
        self._points = points
        self._most = most
        self._by_name: dict[str, deque[Point]] = {}
        self._lock = threading.Lock()

    def add(self, points: Mapping[str, Point]) -> None:
        """Add a point for each name; forget the names that have none."""
        with self._lock:
            for gone in self._by_name.keys() - points.keys():
                del self._by_name[gone]
            for name, point in points.items():
                if name in self._by_name or len(self._by_name) < self._most:
                    self._by_name.setdefault(name, deque(maxlen=self._points)).append(point)

    def of(self, name: str) -> tuple[Point, ...]:
        """Return the points of a name, the oldest first."""
        with self._lock:
            return tuple(self._by_name.get(name, ()))


class Courses:
    """The counts of released and archived records of share groups, at each view of their pages."""

    def __init__(self) -> None:
        self._courses: dict[tuple[str, TopicPartition], deque[tuple[int, int, int]]] = {}

    def outcomes(
        self, group_id: str, states: Mapping[TopicPartition, SharePartitionState], now_ms: int
    ) -> list[Outcomes]:
        """Note the counts of the partitions on a page, and return the rates between its views."""
        if not states:
            return []
        name = group_id, min(states)
        course = self._courses.pop(name, None) or deque(maxlen=HISTORY_POINTS)
        self._courses[name] = course  # the last one viewed is the last one forgotten
        while len(self._courses) > MAX_COURSES:
            del self._courses[next(iter(self._courses))]
        if not course or now_ms - course[-1][0] >= _LEAST_STEP_MS:
            released = sum(state.released_count or 0 for state in states.values())
            archived = sum(state.archived_count or 0 for state in states.values())
            course.append((now_ms, released, archived))
        return [
            Outcomes(
                later_ms,
                _rate(later_released - released, later_ms - earlier_ms),
                _rate(later_archived - archived, later_ms - earlier_ms),
            )
            for (earlier_ms, released, archived), (
                later_ms,
                later_released,
                later_archived,
            ) in pairwise(course)
        ]


def _rate(growth: int, over_ms: int) -> float | None:
    """Return records per second; None if the broker has begun to count anew."""
    return growth * 1000 / over_ms if growth >= 0 else None


def notes(
    groups: Iterable[GroupSummary],
    histories: Histories,
    letters: Mapping[str, tuple[str, int, int]],
    workers: Iterable[SeenWorker] = (),
) -> list[Note]:
    """Return a sentence about each group that needs attention, the worst first.

    :param histories: of the groups
    :param letters: group id → its dead-letter queue, the records that came to it, and the time in
        ms in which they came
    """
    lines = _pauses(workers)
    for group in groups:
        note = _progress_note(group, histories)
        if note is not None:
            lines.append(note)
        queue, count, over_ms = letters.get(group.group_id, ("", 0, 0))
        if count:
            came = f"{count_of(count, 'record')} came to {queue} in the last {duration(over_ms)}"
            lines.append(Note("letters", group.group_id, f"dead-letters: {came}"))
    return sorted(lines, key=lambda note: (_WORST_FIRST.index(note.kind), note.group_id))


def _pauses(workers: Iterable[SeenWorker]) -> list[Note]:
    """Return a sentence about each task that pauses, because most of its records fail."""
    reasons = {
        task.group_id: f"task {task.task} pauses, as most records fail: {task.breaker_reason}"
        for worker in workers
        for task in worker.state.tasks
        if task.breaker != "closed" and not worker.is_gone
    }
    return [Note("paused", group_id, reason) for group_id, reason in reasons.items()]


def _progress_note(group: GroupSummary, histories: Histories) -> Note | None:
    """Return the sentence about the progress of a group, or None if it is healthy."""
    if not group.lag:
        return None
    behind = count_of(group.lag, "record") + " behind"
    if group.time_lag_ms:
        behind += f", the oldest {duration(group.time_lag_ms)} old"
    if not group.members:
        return Note("idle", group.group_id, f"nobody consumes: {behind}")
    still_ms = _still_ms(histories.of(group.group_id))
    if still_ms >= STALLED_MS:
        members = count_of(group.members, "member")
        still = f"stalled: {members}, but nothing was finished for {duration(still_ms)}; {behind}"
        return Note("stalled", group.group_id, still)
    if group.seconds_to_zero == -1 and group.done_per_s and group.produced_per_s:
        rates = f"{number(group.done_per_s)} of {number(group.produced_per_s)}"
        text = f"does not keep up: {rates} records a second; {behind}"
        return Note("growing", group.group_id, text)
    return None


def _still_ms(history: Sequence[Point]) -> int:
    """Return the time for which a group with a lag has finished nothing."""
    since_ms = None
    for point in reversed(history):
        if point.done_per_s is None or point.done_per_s > 0 or not point.lag:
            break
        since_ms = point.time_ms
    return 0 if since_ms is None else history[-1].time_ms - since_ms
