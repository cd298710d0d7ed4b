"""Rates of consumption and production between snapshots of a cluster's lag, and forecasts. Pure."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from .rows import LagRow

RATE_WINDOW_MS = 60_000
"""The default time over which rates are averaged."""


KEEPS_UP_S = 10.0
"""A group keeps up if it finishes what waits within this time. It is longer than the default
interval of two commits, between which the lag of a healthy group grows.
"""


def seconds_to_zero(
    lag: int | None, unknown: int, consumed_per_s: float | None, produced_per_s: float | None
) -> float | None:
    """Return a forecast of the time until a group has finished what waits now.

    A lag that does not shrink is told even if some partitions are unknown: they cannot make it
    better. Good news needs to know them all.

    :param lag: the sum over the partitions in which it is known; None if there is none
    :param unknown: number of partitions in which it is not
    :param produced_per_s: in the partitions whose lag is known
    :returns: infinity if the lag does not shrink; None if unknown
    """
    if lag is None:
        return None
    left_s: float | None = 0.0
    if lag > 0:
        if consumed_per_s is None or produced_per_s is None:
            return None
        if lag <= KEEPS_UP_S * consumed_per_s:
            left_s = lag / consumed_per_s
        else:
            left_s = eta_s(lag, consumed_per_s, produced_per_s)
    if left_s is None:
        return math.inf
    return None if unknown else left_s


def eta_s(lag: float, consumed_per_s: float, produced_per_s: float) -> float | None:
    """Return the seconds until the lag is zero at these rates; None if it does not shrink."""
    if lag <= 0:
        return 0.0
    gain_per_s = consumed_per_s - produced_per_s
    return lag / gain_per_s if gain_per_s > 0 else None


@dataclass(slots=True)
class _Count:
    """A count that only grows, and its values over the window.

    :ivar total: records since the first snapshot
    :ivar last: partition → the offset up to which records are counted
    :ivar start: partition → the last start offset; share groups only
    :ivar course: (time in ms, total) of each snapshot in the window
    """

    total: int = 0
    last: dict[int, int] = field(default_factory=dict)
    start: dict[int, int] = field(default_factory=dict)
    course: deque[tuple[int, int]] = field(default_factory=deque)

    def rate(self) -> float | None:
        """Return records per second over the window; None before the second snapshot."""
        if len(self.course) < 2:
            return None
        (first_ms, first), (last_ms, last) = self.course[0], self.course[-1]
        return (last - first) * 1000 / (last_ms - first_ms)


class LagRates:
    """Counts and rates of records consumed and produced, from one snapshot to the next.

    For each snapshot call ``begin``, ``add`` for each part, then ``end``. Groups and topics that a
    snapshot does not have are forgotten.

    Consumption is the growth of the committed offset, or for a share group of the number of
    finished records. A position that moves back is not counted, and neither are the records before
    the first snapshot.

    :param window_ms: the time over which rates are averaged
    """

    def __init__(self, window_ms: int = RATE_WINDOW_MS) -> None:
        self._window_ms = window_ms
        self._groups: dict[tuple[str, str], _Count] = {}
        self._topics: dict[str, _Count] = {}
        self._unknown: dict[tuple[str, str], _Count] = {}
        """Production in the partitions in which the lag of a group is unknown."""
        self._unknown_ends: dict[tuple[str, str], dict[int, int]] = {}
        self._seen_groups: set[tuple[str, str]] = set()
        self._ends: dict[str, dict[int, int]] = {}
        self._now_ms = 0

    def begin(self, now_ms: int) -> None:
        """Begin a snapshot.

        :param now_ms: the time of the snapshot, on a steady clock
        """
        self._now_ms = now_ms
        self._seen_groups = set()
        self._ends = {}
        self._unknown_ends = {}

    def add(self, rows: Iterable[LagRow]) -> None:
        """Add rows of the snapshot."""
        for row in rows:
            if row.topic is None or row.partition is None:
                continue
            key = (row.group_id, row.topic)
            self._seen_groups.add(key)
            count = self._groups.get(key)
            if count is None:
                count = self._groups[key] = _Count()
            if row.group_type == "share":
                _add_share(count, row)
            elif row.committed_offset is not None:
                before = count.last.get(row.partition)
                if before is not None:
                    count.total += max(0, row.committed_offset - before)
                count.last[row.partition] = row.committed_offset
            if row.end_offset is not None:
                ends = self._ends.setdefault(row.topic, {})
                ends[row.partition] = max(row.end_offset, ends.get(row.partition, 0))
                if row.lag is None:
                    self._unknown_ends.setdefault(key, {})[row.partition] = row.end_offset

    def end(self) -> None:
        """End the snapshot."""
        for gone in self._groups.keys() - self._seen_groups:
            del self._groups[gone]
        for gone_topic in self._topics.keys() - self._ends.keys():
            del self._topics[gone_topic]
        for known in self._unknown.keys() - self._unknown_ends.keys():
            del self._unknown[known]
        for topic, ends in self._ends.items():
            self._add_ends(self._topics.setdefault(topic, _Count()), ends)
        for key, ends in self._unknown_ends.items():
            count = self._unknown.setdefault(key, _Count())
            count.last = {one: end for one, end in count.last.items() if one in ends}
            self._add_ends(count, ends)
        for key in self._seen_groups:
            self._note(self._groups[key])

    def _add_ends(self, count: _Count, ends: Mapping[int, int]) -> None:
        """Count what was produced up to the ends of partitions."""
        for partition, end in ends.items():
            count.total += max(0, end - count.last.get(partition, end))
            count.last[partition] = end
        self._note(count)

    def _note(self, count: _Count) -> None:
        """Append the total to the course, and drop totals that are older than the window."""
        course, now_ms = count.course, self._now_ms
        if course and now_ms <= course[-1][0]:
            course.pop()
        course.append((now_ms, count.total))
        while len(course) > 2 and course[1][0] <= now_ms - self._window_ms:
            course.popleft()

    def topics(self) -> list[str]:
        """Return the topics of the last snapshot."""
        return sorted(self._topics)

    def consumed(self, group_id: str, topic: str) -> tuple[int, float | None]:
        """Return the records that a group has consumed since the first snapshot, and the rate."""
        count = self._groups[group_id, topic]
        return count.total, count.rate()

    def produced(self, topic: str) -> tuple[int, float | None]:
        """Return the records produced since the first snapshot, and the rate per second."""
        count = self._topics.get(topic)
        return (0, None) if count is None else (count.total, count.rate())

    def produced_for(self, group_id: str, topic: str) -> float | None:
        """Return the records produced per second in the partitions in which the lag of a group is
        known.
        """
        per_s = self.produced(topic)[1]
        unknown = self._unknown.get((group_id, topic))
        if unknown is None or per_s is None:
            return per_s
        elsewhere_per_s = unknown.rate()
        return None if elsewhere_per_s is None else max(0.0, per_s - elsewhere_per_s)


def _add_share(count: _Count, row: LagRow) -> None:
    """Count the records that a share group has finished in a partition.

    The number of records finished after the start offset may be wrong by the number of records
    produced during the snapshot. So a number counts only if it exceeds the largest one so far,
    until the start offset moves back.
    """
    if row.start_offset is None or row.partition is None:
        return
    done = row.start_offset
    if row.delivery_complete_count is not None:
        done += row.delivery_complete_count
    elif row.lag is not None and row.end_offset is not None:
        done = max(done, row.end_offset - row.lag)
    before = count.last.get(row.partition)
    if before is None or row.start_offset < count.start[row.partition]:
        count.last[row.partition] = done
    else:
        count.total += max(0, done - before)
        count.last[row.partition] = max(done, before)
    count.start[row.partition] = row.start_offset
