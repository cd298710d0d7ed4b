"""A share-partition: which records of a topic-partition a share group has still to process, and who has them now.

Read this first::

    start_offset                                                   end_offset
        |                                                              |
     …  | finished … locked … available … finished … locked … locked   |  not fetched yet …

Every offset from ``start_offset`` (the "share-partition start offset") up to ``end_offset`` is exactly one of

* *available*: delivered and given back (or read past, with a delivery count of 0), may be acquired again;
* *locked* (ACQUIRED): held by a member until a deadline, see :mod:`headrace.share.acquisition_locks`;
* *finished*: ACKNOWLEDGED or ARCHIVED, never delivered again. The start offset moves over finished records.

======================  ==============================  ===========================================
from                    event                           to
======================  ==============================  ===========================================
not fetched, AVAILABLE  acquire                         ACQUIRED, delivery count + 1
ACQUIRED                accept                          ACKNOWLEDGED
ACQUIRED                reject, gap                     ARCHIVED
ACQUIRED                release, timeout, close         AVAILABLE; ARCHIVED at the delivery limit
ACQUIRED                renew                           ACQUIRED with a new deadline
AVAILABLE               found to be gone from the log   ARCHIVED
======================  ==============================  ===========================================

Commands that finish or give back records decide only: their outcome holds the :class:`StateUpdate` to persist, and
:meth:`SharePartition.replay` applies it, live and on loading alike. Taking locks (:meth:`SharePartition.acquire`,
renewing) writes nothing and happens at once. Source: KIP-932; ``docs/behaviour/share-groups.md``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import itemgetter

from headrace.errors import Refusal
from headrace.outcome import Outcome
from headrace.share.acknowledgement import (
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    BATCH_NOT_ACQUIRED,
    FIRST_PAST_ACQUIRED,
    LAST_PAST_ACQUIRED,
    MALFORMED,
    NOT_IN_CACHE,
    NOT_OWNER_OF_BATCH,
    NOT_OWNER_OF_OFFSET,
    OFFSET_NOT_ACQUIRED,
    REJECT,
    RENEW,
    AcknowledgementBatch,
    Change,
    acknowledged,
    given_back,
    runs,
    well_formed,
)
from headrace.share.acquisition_locks import AcquiredRecords, AcquisitionLock, AcquisitionLocks
from headrace.share.isolation import isolate, throttle_limit
from headrace.share.records import UNKNOWN, Archived, ArchiveReason, StateBatch, StateUpdate
from headrace.share.settings import ShareSettings
from headrace.share.spans import Run, Spans


class SharePartition:
    """One group's state on one topic-partition.

    :param start_offset: where it begins: the persisted start offset, or the resolved ``share.auto.offset.reset``
    :param state_batches: the persisted state of the records from there on
    """

    __slots__ = (
        "_available",
        "_batches",
        "_finished",
        "delivery_complete_count",
        "end_offset",
        "locks",
        "start_offset",
    )

    def __init__(self, start_offset: int, state_batches: Sequence[StateBatch] = ()) -> None:
        self.start_offset = start_offset
        self.end_offset = start_offset
        self.delivery_complete_count = 0
        self.locks = AcquisitionLocks()
        self._available: Spans[int] = Spans()  # value: delivery count
        self._finished: Spans[bool] = Spans()
        # First offsets of the batches in which records were acquired; a batch ends where the next begins. They
        # matter for bad-record isolation only. The first may begin below the start offset.
        self._batches: list[int] = []
        self.replay(StateUpdate(start_offset, UNKNOWN, tuple(state_batches)))
        if self._finished.firsts[:1] == [start_offset]:  # written by a leader whose start offset trails
            self.replay(*self.move_start(self._finished.lasts[0] + 1).records)

    # --- what may be fetched ---

    @property
    def in_flight(self) -> int:
        """Records between start and end offset, finished ones among them; what ``max_record_locks`` limits."""
        return self.end_offset - self.start_offset

    def fetch_offset(self, settings: ShareSettings) -> int | None:
        """Where the next acquire needs the log read from; None when nothing may be acquired now."""
        if self._available.firsts:
            return self._available.firsts[0]
        return self.end_offset if self.in_flight < settings.max_record_locks else None

    def states(self) -> list[StateBatch]:
        """All records between start and end offset with their state now, for inspection. Finished: ARCHIVED."""
        states = [StateBatch(first, last, AVAILABLE, count) for first, last, count in self._available]
        states += [StateBatch(first, last, ACQUIRED, lock.delivery_count) for first, last, lock in self.locks.spans]
        states += [StateBatch(first, last, ARCHIVED, 0) for first, last, _ in self._finished]
        return sorted(states)

    # --- acquire ---

    def acquire(
        self,
        member_id: str,
        log_batches: Sequence[tuple[int, int]],
        max_records: int,
        batch_size: int,
        now_ms: int,
        settings: ShareSettings,
        *,
        record_limit: bool = False,
    ) -> list[AcquiredRecords]:
        """Lock records for a member: first what is available again, then new ones.

        :param log_batches: (base offset, last offset) of the log batches read from :meth:`fetch_offset` on, ascending
        :param max_records: acquire up to so many, then to the end of the log batch or in-flight batch; exactly so many
            at most with ``record_limit``
        :param batch_size: new records are split into elements of about this size, at the starts of log batches
        :returns: what was acquired, ascending
        """
        if not log_batches or max_records <= 0:
            return []
        last = log_batches[-1][1]
        taken, alone = self._take_available(last, max_records, settings, record_limit)
        left = max_records - sum(run[1] - run[0] + 1 for run in taken)
        end = self.end_offset
        if not alone and left > 0 and last >= end:
            left = min(left, settings.max_record_locks - self.in_flight)
            if left > 0:
                taken += self._take_new(log_batches, left, batch_size, record_limit)
        if taken:
            deadline_ms = now_ms + settings.lock_duration_ms
            locks = {run.delivery_count: AcquisitionLock(member_id, deadline_ms, run.delivery_count) for run in taken}
            self.locks.grant([(first, last, locks[count]) for first, last, count in taken], deadline_ms)
        return taken

    def _take_available(
        self, last: int, max_records: int, settings: ShareSettings, record_limit: bool
    ) -> tuple[list[AcquiredRecords], bool]:
        """Take available records up to ``last``, in-flight batch by batch.

        A batch suspected to hold a bad record is delivered alone, see :mod:`headrace.share.isolation`.

        :returns: what was taken, and whether it must be delivered alone
        """
        available = self._available
        suspect = throttle_limit(settings.delivery_count_limit)
        taken: list[AcquiredRecords] = []
        total = 0
        while available.firsts and available.firsts[0] <= last and total < max_records:
            first = available.firsts[0]
            batch_first, batch_last = self._batch_bounds(first)
            waiting = available.within(first, min(batch_last, last))
            throttled = max(count for _, _, count in waiting) >= suspect
            if throttled:
                if taken:
                    break
                waiting = isolate(waiting, batch_last - batch_first + 1, settings.delivery_count_limit)
            for run_first, run_last, count in waiting:
                if record_limit:
                    run_last = min(run_last, run_first + max_records - total - 1)
                taken.append(AcquiredRecords(run_first, run_last, count + 1))
                total += run_last - run_first + 1
                if record_limit and total >= max_records:
                    break
            available.drop_below(taken[-1].last_offset + 1)  # records are taken in order: all before is taken
            if throttled:
                return taken, True
        return taken, False

    def _take_new(
        self, log_batches: Sequence[tuple[int, int]], max_records: int, batch_size: int, record_limit: bool
    ) -> list[AcquiredRecords]:
        """Take records that were never fetched, to the end of the log batch that holds the last of ``max_records``."""
        first = self.end_offset
        holding = bisect_left(log_batches, first + max_records - 1, key=itemgetter(1))
        holding = min(holding, len(log_batches) - 1)
        last = log_batches[holding][1]
        self.end_offset = last + 1
        if record_limit:
            self._batches.append(first)
            if last - first >= max_records:  # the rest of the log batch waits with a delivery count of 0
                self._available.paint([(first + max_records, last, 0)])
                last = first + max_records - 1
            return [AcquiredRecords(first, last, 1)]
        firsts = [first]
        batch_size = max(batch_size, 1)
        if last - first >= batch_size:
            for base_offset, _ in log_batches[: holding + 1]:
                if base_offset - firsts[-1] >= batch_size:
                    firsts.append(base_offset)
        self._batches += firsts
        ends = [*firsts[1:], last + 1]
        return [AcquiredRecords(begin, end - 1, 1) for begin, end in zip(firsts, ends, strict=True)]

    # --- acknowledge ---

    def acknowledge(
        self,
        member_id: str,
        batches: Sequence[AcknowledgementBatch],
        now_ms: int,
        settings: ShareSettings,
        *,
        renew: bool = False,
    ) -> Outcome[StateUpdate, Refusal | None]:
        """Finish, give back or renew what ``member_id`` holds: all of the batches or, with a refusal, none.

        :param renew: whether RENEW may be among the types
        """
        if not well_formed(batches, RENEW if renew else REJECT):
            return Outcome(MALFORMED)
        changes: list[Change] = []
        renewed: list[Run[AcquisitionLock]] = []
        for first, last, types in batches:
            if last < self.start_offset:
                continue
            if not self._batches:
                return Outcome(NOT_IN_CACHE)
            if last >= self.end_offset:
                return Outcome(FIRST_PAST_ACQUIRED if first >= self.end_offset else LAST_PAST_ACQUIRED)
            for run_first, run_last, acknowledge_type in runs(first, last, types, self.start_offset):
                refusal = self._collect(member_id, run_first, run_last, acknowledge_type, settings, changes, renewed)
                if refusal:
                    return Outcome(refusal)
        if renewed:
            self.locks.renew(renewed, now_ms + settings.lock_duration_ms)
        return self._change(changes)

    def _collect(
        self,
        member_id: str,
        first: int,
        last: int,
        acknowledge_type: int,
        settings: ShareSettings,
        changes: list[Change],
        renewed: list[Run[AcquisitionLock]],
    ) -> Refusal | None:
        """Add what one acknowledge type makes of ``first..last`` to ``changes`` or ``renewed``."""
        if changes and changes[-1].last_offset >= first:  # finished by an earlier batch of this very request
            whole = self._batch_bounds(first) == (first, first)
            return BATCH_NOT_ACQUIRED if whole else OFFSET_NOT_ACQUIRED
        spans = self.locks.spans
        i = bisect_right(spans.firsts, first) - 1
        if i < 0 or spans.lasts[i] < first:
            return self._not_acquired(first)
        position = first
        while True:
            lock = spans.values[i]
            if lock.member_id != member_id:
                whole = spans.covers(*self._batch_bounds(position))
                return NOT_OWNER_OF_BATCH if whole else NOT_OWNER_OF_OFFSET
            end = min(spans.lasts[i], last)
            if acknowledge_type == RENEW:
                renewed.append((position, end, lock))
            else:
                changes.append(acknowledged(position, end, acknowledge_type, lock.delivery_count, settings))
            position = end + 1
            if position > last:
                return None
            i += 1
            if i == len(spans) or spans.firsts[i] != position:
                return self._not_acquired(position)

    def _batch_bounds(self, offset: int) -> tuple[int, int]:
        """First and last offset of the in-flight batch that holds ``offset``."""
        i = bisect_right(self._batches, offset)
        return self._batches[i - 1], (self._batches[i] if i < len(self._batches) else self.end_offset) - 1

    def _not_acquired(self, offset: int) -> Refusal:
        bounds = self._batch_bounds(offset)
        whole = self._available.covers(*bounds) or self._finished.covers(*bounds)
        return BATCH_NOT_ACQUIRED if whole else OFFSET_NOT_ACQUIRED

    # --- what ends a lock otherwise ---

    def next_deadline_ms(self) -> int | None:
        """When the first acquisition lock runs out; None when nothing is locked."""
        return self.locks.next_deadline_ms()

    def expire(self, now_ms: int, settings: ShareSettings) -> Outcome[StateUpdate, None]:
        """Give back what was not acknowledged in time."""
        return self._give_back(self.locks.expired(now_ms), settings)

    def release(self, member_id: str, settings: ShareSettings) -> Outcome[StateUpdate, None]:
        """Give back all that a member holds: its session has ended. Delivery counts stay as they are."""
        return self._give_back(self.locks.held_by(member_id), settings)

    def _give_back(self, locks: Iterable[Run[AcquisitionLock]], settings: ShareSettings) -> Outcome[StateUpdate, None]:
        outcome = self._change([given_back(first, last, lock.delivery_count, settings) for first, last, lock in locks])
        return Outcome(None, outcome.records)

    # --- what the log does ---

    def move_start(self, log_start_offset: int) -> Outcome[StateUpdate, None]:
        """The log now starts at ``log_start_offset``: what lies before it is over, whatever its state."""
        if log_start_offset <= self.start_offset:
            return Outcome(None)
        start = log_start_offset
        finished = self._finished
        i = bisect_right(finished.firsts, start) - 1
        if i >= 0 and finished.lasts[i] >= start:
            start = finished.lasts[i] + 1
        left = self.delivery_complete_count - finished.count_below(start)
        return Outcome(None, (StateUpdate(start, left, ()),))

    def skip_missing(self, base_offset: int) -> Outcome[StateUpdate, None]:
        """The log has nothing from the fetch offset to ``base_offset`` (exclusive): archive what is available there."""
        missing = self._available.within(0, base_offset - 1)
        changes = [Change(first, last, ARCHIVED, count, ArchiveReason.GONE) for first, last, count in missing]
        if base_offset > self.end_offset:
            changes.append(Change(self.end_offset, base_offset - 1, ARCHIVED, 0, ArchiveReason.GONE))
        return Outcome(None, self._change(changes).records)

    # --- change ---

    def _change(self, changes: Sequence[Change]) -> Outcome[StateUpdate, Refusal | None]:
        """The update that ``changes`` make (ascending, disjoint, none of them finished so far)."""
        if not changes:
            return Outcome(None)
        finished = self._finished
        start = self.start_offset
        complete = self.delivery_complete_count
        joined: list[StateBatch] = []
        archived: list[Archived] = []
        i = 0
        for first, last, state, count, reason in changes:
            if state != AVAILABLE:
                complete += last - first + 1
                while i < len(finished) and finished.firsts[i] == start:
                    start = finished.lasts[i] + 1
                    i += 1
                if first == start:
                    start = last + 1
                if reason is not None:
                    archived.append(Archived(first, last, count, reason))
            if joined and joined[-1][1:] == (first - 1, state, count):
                joined[-1] = StateBatch(joined[-1][0], last, state, count)
            else:
                joined.append(StateBatch(first, last, state, count))
        while i < len(finished) and finished.firsts[i] == start:
            start = finished.lasts[i] + 1
            i += 1
        complete -= start - self.start_offset
        kept = tuple(batch for batch in joined if batch.last_offset >= start)
        return Outcome(None, (StateUpdate(start, complete, kept, tuple(archived)),))

    def replay(self, update: StateUpdate) -> None:
        """Apply a persisted update: the only way in which records finish, come back or are passed."""
        start, complete, batches, _ = update
        if batches:
            for batch in batches:
                self._reach(batch)
            ranges = [(batch.first_offset, batch.last_offset) for batch in batches]
            self.locks.release(ranges)
            self._available.erase(ranges)
            self._available.paint([(first, last, count) for first, last, state, count in batches if state == AVAILABLE])
            self._finished.paint([(first, last, True) for first, last, state, _ in batches if state != AVAILABLE])
        if start > self.start_offset:
            self.start_offset = start
            self.end_offset = max(self.end_offset, start)
            for spans in (self._available, self._finished, self.locks.spans):
                spans.drop_below(start)
            del self._batches[: bisect_right(self._batches, start) - 1]
            if start == self.end_offset:
                self._batches.clear()
        self.delivery_complete_count = self._finished.count_below(self.end_offset) if complete == UNKNOWN else complete

    def _reach(self, batch: StateBatch) -> None:
        """Extend to ``batch`` if it lies past the end: on loading, or over a hole in the log.

        What lies between was acquired but not persisted before a restart: it is available with its count forgotten.
        """
        end = self.end_offset
        if batch.last_offset < end:
            return
        if batch.first_offset > end:
            self._batches.append(end)
            self._available.paint([(end, batch.first_offset - 1, 0)])
        self._batches.append(max(end, batch.first_offset))
        self.end_offset = batch.last_offset + 1
