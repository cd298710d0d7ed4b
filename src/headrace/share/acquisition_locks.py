"""Acquisition locks: which member holds records, and until when. Volatile: a restart ends them.

A lock ends with its deadline, an acknowledgement or the member's session; RENEW renews it
(KIP-1222).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.share.acknowledgement import AcknowledgementBatch
from headrace.share.spans import Run, Spans, TimedSpans, offset_count


class AcquiredRecords(NamedTuple):
    """A run of records that a member acquired; ``last_offset`` is inclusive."""

    first_offset: int
    last_offset: int
    delivery_count: int


@dataclass(slots=True, eq=False)
class AcquisitionLock:
    """One member's lock on the records of one acquire. Compared by identity, so that spans of
    different locks are not joined.

    :ivar delivery_count: the delivery count of the records while they are held
    """

    member_id: str
    deadline_ms: int
    delivery_count: int


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


MAX_ENDED_LOCKS = 200
"""The runs of records of one share-partition that are remembered; those of the member whose locks
have timed out first are forgotten first.
"""


class LateRecords(NamedTuple):
    """Records that were acknowledged after their lock.

    :param longest_ms: the longest time since the end of a lock
    """

    records: int
    longest_ms: int


@dataclass(slots=True)
class EndedLocks:
    """The locks of one share-partition that have timed out, and were not acknowledged since: they
    tell how late acknowledgements come. The broker refuses such an acknowledgement, or ignores it
    if the record is finished meanwhile: the member cannot know, and its work was done twice.
    """

    _ends: dict[str, Spans[int]] = field(default_factory=dict)
    """Member id → runs of records, with the end of their locks."""

    def __len__(self) -> int:
        return sum(map(len, self._ends.values()))

    def add(self, runs: Iterable[Run[AcquisitionLock]]) -> None:
        """Remember locks that have timed out."""
        of_member: dict[str, list[Run[int]]] = {}
        for first, last, lock in runs:
            of_member.setdefault(lock.member_id, []).append((first, last, lock.deadline_ms))
        for member_id, ends in of_member.items():
            self._ends.setdefault(member_id, Spans()).paint(ends)
        excess = len(self) - MAX_ENDED_LOCKS
        while excess > 0:
            member_id, spans = next(iter(self._ends.items()))
            if len(spans) > excess:
                spans.drop_below(spans.lasts[excess - 1] + 1)
                break
            excess -= len(spans)
            del self._ends[member_id]

    def take(
        self,
        member_id: str,
        batches: Sequence[AcknowledgementBatch],
        held: Spans[AcquisitionLock],
        now_ms: int,
    ) -> LateRecords | None:
        """Return the records of acknowledgements that come late, and forget their locks; None if
        there are none.

        :param held: the locks of all members: a record that the member has acquired again is not
            late
        """
        spans = self._ends.get(member_id)
        if spans is None:
            return None
        records, first_end_ms = 0, now_ms
        for first, last, _ in batches:
            for run_first, run_last, end_ms in spans.within(first, last):
                late = run_last - run_first + 1
                late -= offset_count(
                    run for run in held.within(run_first, run_last) if run[2].member_id == member_id
                )
                if late:
                    records += late
                    first_end_ms = min(first_end_ms, end_ms)
            spans.erase([(first, last)])
        if not spans:
            del self._ends[member_id]
        return LateRecords(records, now_ms - first_end_ms) if records else None
