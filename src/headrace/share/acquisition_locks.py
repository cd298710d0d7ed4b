"""Acquisition locks: which member holds records, and until when. Volatile: a restart ends them.

A lock ends with its deadline, an acknowledgement or the member's session; RENEW renews it
(KIP-1222).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.share.spans import Run, TimedSpans


class AcquiredRecords(NamedTuple):
    """A run of records that a member acquired; ``last_offset`` is inclusive."""

    first_offset: int
    last_offset: int
    delivery_count: int


class AcquisitionLock:
    """One member's lock on the records of one acquire. Compared by identity, so that spans of
    different locks are not joined.

    :ivar delivery_count: the delivery count of the records while they are held
    """

    __slots__ = ("deadline_ms", "delivery_count", "member_id")

    def __init__(self, member_id: str, deadline_ms: int, delivery_count: int) -> None:
        self.member_id = member_id
        self.deadline_ms = deadline_ms
        self.delivery_count = delivery_count

    def __repr__(self) -> str:
        return f"AcquisitionLock({self.member_id!r}, {self.deadline_ms}, {self.delivery_count})"


class AcquisitionLocks(TimedSpans[AcquisitionLock]):
    """The locks of one share-partition."""

    __slots__ = ()

    def acquire(self, member_id: str, runs: Sequence[AcquiredRecords], deadline_ms: int) -> None:
        """Lock ``runs`` (ascending, disjoint) for a member until ``deadline_ms``."""
        locks = {
            count: AcquisitionLock(member_id, deadline_ms, count)
            for count in {run[2] for run in runs}
        }
        self.grant([(first, last, locks[count]) for first, last, count in runs], deadline_ms)

    def renew(self, runs: Sequence[Run[AcquisitionLock]], deadline_ms: int) -> None:
        """Move the deadline of ``runs`` (ascending; they may overlap) to ``deadline_ms``."""
        fresh = {
            lock: AcquisitionLock(lock.member_id, deadline_ms, lock.delivery_count)
            for _, _, lock in runs
        }
        renewed: list[Run[AcquisitionLock]] = []
        for first, last, lock in runs:
            first = max(first, renewed[-1][1] + 1) if renewed else first
            if first <= last:
                renewed.append((first, last, fresh[lock]))
        self.grant(renewed, deadline_ms)

    def held_by(self, member_id: str) -> list[Run[AcquisitionLock]]:
        """Return all records that a member holds."""
        return [run for run in self.spans if run[2].member_id == member_id]
