"""Partitions that stand still: a group has members and a lag there, and finishes nothing. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from headrace.protocol.partitions import TopicPartition

from .model import GroupLag

STUCK_S = 60.0
"""A partition that has stood still for so long is stuck. It is longer than the default lock of a
record, so that a member that is gone is no reason yet.
"""


class _Mark(NamedTuple):
    """What was finished in a partition, and since when that is all.

    :ivar done: the largest one seen: a share group's may be too small for a moment
    """

    position: int
    done: int
    since_s: float


class Standstills:
    """Since when partitions stand still, from one snapshot to the next.

    For each snapshot call ``begin``, ``add`` for each part, then ``end``.
    """

    def __init__(self) -> None:
        self._marks: dict[str, dict[TopicPartition, _Mark]] = {}
        self._next = self._marks
        self._now_s = 0.0

    def begin(self, now_s: float) -> None:
        """Begin a snapshot.

        :param now_s: on a steady clock
        """
        self._now_s, self._next = now_s, {}

    def add(self, groups: Iterable[GroupLag]) -> None:
        """Add groups of the snapshot, with their partitions."""
        for group in groups:
            if not group.members or not group.lag.records:
                continue
            before = self._marks.get(group.group_id, {})
            marks = self._next[group.group_id] = {}
            for lag in group.partitions:
                if lag.records:
                    position = -1 if lag.position is None else lag.position
                    done = position + (lag.delivery_complete_count or 0)
                    mark = before.get(lag.key)
                    if mark is None or done > mark.done or position < mark.position:
                        mark = _Mark(position, done, self._now_s)
                    marks[lag.key] = mark

    def end(self, least_s: float = STUCK_S) -> dict[str, dict[TopicPartition, float]]:
        """End the snapshot.

        :returns: group id → the partitions that have stood still for at least ``least_s``, and for
            how many seconds; those that do so for longest first
        """
        self._marks = self._next
        stuck = {}
        for group_id, marks in self._marks.items():
            still_s = {
                key: self._now_s - mark.since_s
                for key, mark in marks.items()
                if self._now_s - mark.since_s >= least_s
            }
            if still_s:
                stuck[group_id] = dict(sorted(still_s.items(), key=lambda item: -item[1]))
        return dict(sorted(stuck.items(), key=lambda item: -max(item[1].values())))
