"""Who holds which records, and until when: the part of a share-partition that a restart forgets.

Kept apart from the durable state on purpose. A lock ends by its deadline, by an acknowledgement, or by its member's
session; it is renewed by acknowledging with RENEW (KIP-1222).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from typing import NamedTuple

from headrace.share.spans import Run, Spans


class AcquiredRecords(NamedTuple):
    """A run of records handed to a member; ``last_offset`` inclusive."""

    first_offset: int
    last_offset: int
    delivery_count: int


class AcquisitionLock:
    """One member's hold on the records of one acquire. Compared by identity, so that its spans stay its own.

    :ivar delivery_count: the delivery count of the records while they are held
    """

    __slots__ = ("deadline_ms", "delivery_count", "member_id")

    def __init__(self, member_id: str, deadline_ms: int, delivery_count: int) -> None:
        self.member_id = member_id
        self.deadline_ms = deadline_ms
        self.delivery_count = delivery_count

    def __repr__(self) -> str:
        return f"AcquisitionLock({self.member_id!r}, {self.deadline_ms}, {self.delivery_count})"


class AcquisitionLocks:
    """The locks of one share-partition, as spans of offsets, and their deadlines in order."""

    __slots__ = ("_timers", "spans")

    def __init__(self) -> None:
        self.spans: Spans[AcquisitionLock] = Spans()
        # (deadline, first, last), ascending. A timer whose lock has ended is dropped when it gets to the head.
        self._timers: list[tuple[int, int, int]] = []

    def grant(self, runs: Sequence[Run[AcquisitionLock]], deadline_ms: int) -> None:
        """Lock ``runs`` (ascending, disjoint), all until ``deadline_ms``. What was locked there is replaced."""
        self.spans.paint(runs)
        insort(self._timers, (deadline_ms, runs[0][0], runs[-1][1]))

    def renew(self, runs: Sequence[Run[AcquisitionLock]], deadline_ms: int) -> None:
        """Hold ``runs`` (ascending; they may share offsets) until ``deadline_ms`` instead."""
        fresh = {lock: AcquisitionLock(lock.member_id, deadline_ms, lock.delivery_count) for _, _, lock in runs}
        renewed: list[Run[AcquisitionLock]] = []
        for first, last, lock in runs:
            first = max(first, renewed[-1][1] + 1) if renewed else first
            if first <= last:
                renewed.append((first, last, fresh[lock]))
        self.grant(renewed, deadline_ms)

    def next_deadline_ms(self) -> int | None:
        """When the first lock runs out, None when there is none."""
        timers = self._timers
        ended = 0
        while ended < len(timers) and not self._still_held(*timers[ended]):
            ended += 1
        del timers[:ended]
        return timers[0][0] if timers else None

    def _still_held(self, deadline_ms: int, first: int, last: int) -> bool:
        spans = self.spans
        locks = spans.values
        reach = range(bisect_left(spans.lasts, first), bisect_right(spans.firsts, last))
        return any(locks[i].deadline_ms == deadline_ms for i in reach)

    def expired(self, now_ms: int) -> list[Run[AcquisitionLock]]:
        """The locks whose deadline has come. They stay until they are released."""
        spans = self.spans
        indexes: set[int] = set()
        for deadline_ms, first, last in self._timers:
            if deadline_ms > now_ms:
                break
            indexes.update(range(bisect_left(spans.lasts, first), bisect_right(spans.firsts, last)))
        return [
            (spans.firsts[i], spans.lasts[i], spans.values[i])
            for i in sorted(indexes)
            if spans.values[i].deadline_ms <= now_ms
        ]

    def held_by(self, member_id: str) -> list[Run[AcquisitionLock]]:
        """All that a member holds."""
        return [run for run in self.spans if run[2].member_id == member_id]

    def release(self, runs: Sequence[tuple[int, int]]) -> None:
        """End the locks on these ranges (ascending, disjoint)."""
        self.spans.erase(runs)
