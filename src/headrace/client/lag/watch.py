"""Repeated snapshots of the lag of a cluster, with rates between them."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from headrace.client.cluster import Cluster

from .model import EVERYTHING, GroupLag, LagQuery, LagSum, PartitionLag, Snapshot, total
from .snapshot import parts, select_groups
from .times import RecordTimes

MAX_FETCHES = 100
"""The limit of requests to one broker for the timestamps of records, in one snapshot. Positions
beyond it have no time lag until a later snapshot.
"""
TIMES_KEPT_MS = 60_000
"""The time for which a timestamp is used again, if the position has not moved."""

K = TypeVar("K")

_Key = tuple[str, str]
"""(group id, topic)"""


@dataclass(slots=True)
class Course:
    """A total at the times of its observations: (time in ms, total), the oldest first.

    :param kept_ms: the time for which observations are kept, and the last one before it
    """

    kept_ms: int
    points: deque[tuple[int, int]] = field(default_factory=deque)

    def add(self, now_ms: int, total: int) -> None:
        """Add an observation; one at the same time is replaced."""
        points = self.points
        if points and total < points[-1][1]:
            points.clear()  # what is counted was created again
        if points and now_ms <= points[-1][0]:
            points.pop()
        points.append((now_ms, total))
        while len(points) > 2 and points[1][0] <= now_ms - self.kept_ms:
            points.popleft()

    def growth(self, over_ms: int) -> tuple[int, int]:
        """Return the growth over a time, or since the last observation but one if that is longer
        ago; and the time in ms that it took.
        """
        last_ms, last = self.points[-1]
        first_ms, first = next(point for point in self.points if point[0] >= last_ms - over_ms)
        if first_ms == last_ms and len(self.points) > 1:
            first_ms, first = self.points[-2]
        return last - first, last_ms - first_ms

    def rate(self, over_ms: int | None = None) -> float | None:
        """Return the growth per second; None before the second observation.

        :param over_ms: None for all that is kept
        """
        growth, took_ms = self.growth(self.kept_ms if over_ms is None else over_ms)
        return growth * 1000 / took_ms if took_ms else None


@dataclass(slots=True)
class _Count:
    """A count that only grows.

    :ivar course: its totals over the window
    :ivar last: partition → the offset up to which records are counted
    :ivar position: partition → the last position
    """

    course: Course
    total: int = 0
    last: dict[int, int] = field(default_factory=dict)
    position: dict[int, int] = field(default_factory=dict)

    def add(self, partition: int, position: int, finished: int = 0) -> None:
        """Count up to a position, or up to what is finished if that is more.

        What a share group has finished may be wrong by the number of records produced during the
        snapshot. So a number counts only if it exceeds the largest one so far, until the position
        moves back.
        """
        done = max(position, finished)
        before = self.last.get(partition)
        if before is None or position < self.position[partition]:
            before = done
        self.total += max(0, done - before)
        self.last[partition] = max(done, before)
        self.position[partition] = position

    def add_ends(self, ends: Mapping[int, int]) -> None:
        """Count what was produced up to the ends of partitions."""
        for partition, end in ends.items():
            self.total += max(0, end - self.last.get(partition, end))
            self.last[partition] = end


class LagRates:
    """Counts and rates of records done and produced, from one snapshot to the next. Pure.

    For each snapshot call ``begin``, ``add`` for each part, then ``end``. Groups and topics that a
    snapshot does not have are forgotten.

    Done is the growth of the committed offset, or for a share group of the number of finished
    records. A position that moves back is not counted, and neither are the records before the first
    snapshot.

    :param window_ms: the time over which rates are averaged
    """

    def __init__(self, window_ms: int = 60_000) -> None:
        def new_count() -> _Count:
            return _Count(Course(window_ms))

        self._done = defaultdict[_Key, _Count](new_count)
        self._produced = defaultdict[str, _Count](new_count)
        self._produced_unknown = defaultdict[_Key, _Count](new_count)
        """Production in the partitions in which the lag of a group is unknown."""
        self.begin(0)

    def begin(self, now_ms: int) -> None:
        """Begin a snapshot.

        :param now_ms: the time of the snapshot, on a steady clock
        """
        self._now_ms = now_ms
        self._groups: dict[str, GroupLag] = {}
        self._ends = defaultdict[str, dict[int, int]](dict)
        self._unknown_ends = defaultdict[_Key, dict[int, int]](dict)

    def add(self, groups: Sequence[GroupLag]) -> None:
        """Add groups of the snapshot. Their partitions are not kept."""
        for group in groups:
            self._groups[group.group_id] = replace(group, partitions=())
            is_share = group.type == "share"
            for lag in group.partitions:
                key = group.group_id, lag.topic
                done = self._done[key]
                if lag.position is not None:
                    done.add(lag.partition, lag.position, _finished(lag) if is_share else 0)
                if lag.end_offset is not None:
                    ends = self._ends[lag.topic]
                    ends[lag.partition] = max(lag.end_offset, ends.get(lag.partition, 0))
                    if lag.records is None:
                        self._unknown_ends[key][lag.partition] = lag.end_offset

    def end(self) -> list[GroupLag]:
        """End the snapshot.

        :returns: its groups with their trends, by id
        """
        for topic, ends in self._ends.items():
            self._produced[topic].add_ends(ends)
        for key, ends in self._unknown_ends.items():
            count = self._produced_unknown[key]
            count.last = {
                partition: end for partition, end in count.last.items() if partition in ends
            }
            count.add_ends(ends)
        topics = {
            (group.group_id, topic) for group in self._groups.values() for topic in group.topics
        }
        _observe(self._done, topics, self._now_ms)
        _observe(self._produced, self._ends, self._now_ms)
        _observe(self._produced_unknown, self._unknown_ends, self._now_ms)
        return [self._with_trend(group) for _, group in sorted(self._groups.items())]

    def produced(self) -> dict[str, tuple[int, float | None]]:
        """Return topic → the records produced since the first snapshot, and per second."""
        return {
            topic: (count.total, count.course.rate())
            for topic, count in sorted(self._produced.items())
        }

    def _with_trend(self, group: GroupLag) -> GroupLag:
        topics = {}
        for topic, lag in group.topics.items():
            done = self._done[group.group_id, topic]
            topics[topic] = replace(
                lag,
                done=done.total,
                done_per_s=done.course.rate(),
                produced_per_s=self._produced_per_s(group.group_id, topic, lag),
            )
        return replace(group, topics=topics, lag=total(topics.values()))

    def _produced_per_s(self, group_id: str, topic: str, lag: LagSum) -> float | None:
        produced, unknown = self._produced.get(topic), self._produced_unknown.get((group_id, topic))
        per_s = None if produced is None else produced.course.rate()
        if per_s is None or unknown is None or lag.records is None:
            return per_s
        elsewhere_per_s = unknown.course.rate()
        return None if elsewhere_per_s is None else max(0.0, per_s - elsewhere_per_s)


def _observe(counts: dict[K, _Count], keys: Collection[K], now_ms: int) -> None:
    """Note the totals at one time; forget the counts of other keys."""
    for key in set(counts).difference(keys):
        del counts[key]
    for count in counts.values():
        count.course.add(now_ms, count.total)


def _finished(lag: PartitionLag) -> int:
    """Return up to where a share group has finished, if its finished records came first."""
    if lag.position is not None and lag.delivery_complete_count is not None:
        return lag.position + lag.delivery_complete_count
    if lag.records is not None and lag.end_offset is not None:
        return lag.end_offset - lag.records
    return 0


class LagWatch:
    """A series of snapshots with rates.

    :param query: the groups and topics
    :param window: the time over which rates are averaged, in seconds
    :ivar rates: between the snapshots
    """

    def __init__(
        self, cluster: Cluster, query: LagQuery = EVERYTHING, window: float = 60.0
    ) -> None:
        self._cluster = cluster
        self._query = query
        self.rates = LagRates(int(window * 1000))
        self._times = RecordTimes(MAX_FETCHES, TIMES_KEPT_MS)

    async def snapshot(self, each: Callable[[Sequence[GroupLag]], None] | None = None) -> Snapshot:
        """Take a snapshot; its groups have trends, but no partitions.

        :param each: called with the groups and their partitions, a part at a time
        :raises ClientError: the cluster cannot be reached
        """
        listed, warnings = await select_groups(self._cluster, self._query)
        at_ms = time.time_ns() // 1_000_000
        self.rates.begin(time.monotonic_ns() // 1_000_000)
        async for part in parts(self._cluster, listed, self._query, at_ms, self._times):
            self.rates.add(part.groups)
            warnings += part.warnings
            if each is not None:
                each(part.groups)
        return Snapshot(
            groups=self.rates.end(),
            warnings=warnings,
            at_ms=at_ms,
            cluster_id=self._cluster.cluster_id,
        )
