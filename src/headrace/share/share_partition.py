"""A share-partition: the delivery state of the records of a topic-partition for one share group.

::

    start_offset                                                   end_offset
        |                                                              |
     …  | finished … locked … available … finished … locked … locked   |  not fetched yet …

Every offset from ``start_offset`` (the "share-partition start offset") up to ``end_offset`` is
exactly one of

* *available*: released, or read but never delivered (delivery count 0). Can be acquired at once or
  after a backoff, see :mod:`headrace.share.available_records`;
* *locked* (ACQUIRED): held by a member until a deadline, see
  :mod:`headrace.share.acquisition_locks`;
* *archiving*: to be finished as soon as dead letters are written. Nobody can take, acknowledge or
  release it meanwhile, and no deadline ends it. The records of one acknowledgement are archiving
  together, as all or none of them are finished;
* *finished*: ACKNOWLEDGED or ARCHIVED, never delivered again. The start offset moves over finished
  records.

======================  ==============================  ===========================================
from                    event                           to
======================  ==============================  ===========================================
not fetched, AVAILABLE  acquire                         ACQUIRED, delivery count + 1
not fetched, AVAILABLE  acquire an aborted record       ARCHIVED
ACQUIRED                accept                          ACKNOWLEDGED
ACQUIRED                reject, gap                     ARCHIVED
ACQUIRED                release, timeout, close         AVAILABLE; ARCHIVED at the delivery limit
ACQUIRED                uncounted release               AVAILABLE, delivery count - 1
ACQUIRED                renew                           ACQUIRED with a new deadline
ACQUIRED                any of these, if it needs       ARCHIVING
                        dead letters
ARCHIVING               the letters are written         as above
ARCHIVING               they cannot be written          ACQUIRED, under the same lock
AVAILABLE               missing in the log              ARCHIVED
======================  ==============================  ===========================================

Commands that finish or release records only decide: they return the :class:`StateUpdate` to
persist, None without any change, and :meth:`SharePartition.replay` applies it, live and on loading.
Changes that a restart may lose are made at once and not written: acquiring and renewing locks,
archiving aborted records, ending backoffs, and ARCHIVING. Source: KIP-932, KIP-1191;
``docs/behaviour/share-groups.md``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from headrace.protocol.errors import Refusal
from headrace.share.acknowledgement import (
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
    RENEW_NOT_ENABLED,
    UNCOUNTED_BACKOFF_MS,
    AcknowledgementBatch,
    AcknowledgeTerms,
    acknowledged,
    backoffs,
    given_back,
    runs,
    well_formed,
)
from headrace.share.acquisition_locks import AcquiredRecords, AcquisitionLock, AcquisitionLocks
from headrace.share.available_records import AvailableRecords, InFlightBatches
from headrace.share.records import (
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    NO_BACKOFF,
    UNKNOWN,
    Archived,
    ArchiveReason,
    Change,
    StateBatch,
    StateUpdate,
)
from headrace.share.settings import FetchLimits, ShareSettings
from headrace.share.spans import Range, Run, Spans, offset_count, subtract


class InFlight(NamedTuple):
    """A run of records in one state, for inspection.

    :ivar last_offset: inclusive
    :ivar state: AVAILABLE, ACQUIRED, or ARCHIVED for all that are finished
    :ivar delivery_count: 0 for finished records
    :ivar member_id: the holder of acquired records
    :ivar deadline_ms: the end of the lock or of the backoff, in steady milliseconds; None if there
        is none
    """

    first_offset: int
    last_offset: int
    state: int
    delivery_count: int
    member_id: str | None = None
    deadline_ms: int | None = None


class SharePartition:
    """One group's state on one topic-partition.

    :param start_offset: the persisted start offset, or the resolved ``share.auto.offset.reset``
    :param state_batches: the persisted state of the records from there on
    """

    __slots__ = (
        "_archiving",
        "_finished",
        "available",
        "batches",
        "delivery_complete_count",
        "locks",
        "start_offset",
    )

    def __init__(self, start_offset: int, state_batches: tuple[StateBatch, ...] = ()) -> None:
        self.start_offset = start_offset
        self.delivery_complete_count = 0
        self.locks = AcquisitionLocks()
        self._archiving: Spans[AcquisitionLock] = Spans()  # with the locks that they come from
        self.available = AvailableRecords()
        self._finished: Spans[bool] = Spans()
        self.batches = InFlightBatches(start_offset)
        self.replay(StateUpdate(start_offset, UNKNOWN, state_batches))
        self._pass_finished()  # the persisted state may begin with finished records

    # --- fetch state ---

    @property
    def end_offset(self) -> int:
        """The first offset that is not fetched yet."""
        return self.batches.end_offset

    @property
    def in_flight(self) -> int:
        """The number of records between start and end offset, finished ones included;
        ``max_record_locks`` limits it.
        """
        return self.end_offset - self.start_offset

    def fetch_offset(self, settings: ShareSettings) -> int | None:
        """Return the log offset to read from for the next acquire; None if nothing can be acquired
        now.
        """
        available = self.available.spans.firsts
        if available:
            return available[0]
        return self.end_offset if self.in_flight < settings.max_record_locks else None

    @property
    def idle(self) -> bool:
        """True if no record is locked, archiving or in a backoff, so the share-partition can be
        unloaded.
        """
        return not (self.locks.spans or self._archiving or self.available.backoffs.spans)

    def in_flight_spans(self) -> list[InFlight]:
        """Return all records between start and end offset in runs of one state, ascending. Those
        that are archiving count as ACQUIRED.
        """
        spans = [
            InFlight(first, last, AVAILABLE, count) for first, last, count in self.available.spans
        ]
        spans += (
            InFlight(first, last, AVAILABLE, backoff.delivery_count, None, backoff.deadline_ms)
            for first, last, backoff in self.available.backoffs.spans
        )
        spans += (
            InFlight(first, last, ACQUIRED, lock.delivery_count, lock.member_id, lock.deadline_ms)
            for first, last, lock in (*self.locks.spans, *self._archiving)
        )
        spans += (InFlight(first, last, ARCHIVED, 0) for first, last, _ in self._finished)
        return sorted(spans, key=itemgetter(0))

    # --- acquire ---

    def acquire(
        self,
        member_id: str,
        log_batches: Sequence[tuple[int, int]],
        limits: FetchLimits,
        now_ms: int,
        settings: ShareSettings,
        aborted: Sequence[tuple[int, int]] = (),
    ) -> list[AcquiredRecords]:
        """Lock records for a member: available records first, then new ones.

        :param log_batches: (base offset, last offset) of the log batches read from
            :meth:`fetch_offset` on, ascending
        :param aborted: (first, last offset) of records of aborted transactions, without markers;
            ascending, disjoint. They are archived instead of acquired, for groups with
            ``share.isolation.level=read_committed``
        :returns: the acquired runs, ascending
        """
        if not log_batches or limits.max_records <= 0:
            return []
        last = log_batches[-1][1]
        taken, alone = self.available.take(last, limits, self.batches, settings)
        remaining = limits.max_records - offset_count(taken)
        if not alone and remaining > 0 and last >= self.end_offset:
            remaining = min(remaining, settings.max_record_locks - self.in_flight)
            if remaining > 0:
                taken += self._take_new(log_batches, remaining, limits)
        if aborted:
            taken = self._archive_aborted(taken, aborted)
        if taken:
            self.locks.acquire(member_id, taken, now_ms + settings.lock_duration_ms)
        return taken

    def _take_new(
        self,
        log_batches: Sequence[tuple[int, int]],
        max_records: int,
        limits: FetchLimits,
    ) -> list[AcquiredRecords]:
        """Take ``max_records`` records from the end offset on, rounded up to the end of a log batch
        unless ``record_limit`` is set.
        """
        first = self.end_offset
        holding = bisect_left(log_batches, first + max_records - 1, key=itemgetter(1))
        holding = min(holding, len(log_batches) - 1)
        last = log_batches[holding][1]
        firsts = [first]
        batch_size = max(limits.batch_size, 1)
        if last - first >= batch_size and not limits.record_limit:
            for base_offset, _ in log_batches[: holding + 1]:
                if base_offset - firsts[-1] >= batch_size:
                    firsts.append(base_offset)
        self.batches.add(firsts, last + 1)
        if limits.record_limit and last - first >= max_records:
            # the rest of the log batch is available, with a delivery count of 0
            self.available.add([(first + max_records, last, 0)])
            last = first + max_records - 1
        ends = [*firsts[1:], last + 1]
        return [AcquiredRecords(begin, end - 1, 1) for begin, end in zip(firsts, ends, strict=True)]

    def _archive_aborted(
        self, taken: Sequence[AcquiredRecords], aborted: Sequence[tuple[int, int]]
    ) -> list[AcquiredRecords]:
        """Archive the aborted records of ``taken``. Nothing is written now: the next update has the
        new count.

        :returns: the records of ``taken`` that are not aborted
        """
        committed = subtract(taken, aborted)
        archived = subtract(taken, committed)
        self._finished.paint([(first, last, True) for first, last, _ in archived])
        self.delivery_complete_count += offset_count(archived)
        self._pass_finished()
        return [AcquiredRecords(*run) for run in committed]

    # --- acknowledge ---

    def acknowledge(
        self,
        member_id: str,
        batches: Sequence[AcknowledgementBatch],
        now_ms: int,
        settings: ShareSettings,
        terms: AcknowledgeTerms,
    ) -> StateUpdate | Refusal | None:
        """Finish, release or renew records that ``member_id`` holds. Apply all batches or, on an
        error, none.

        Uncounted releases wait for at least
        :data:`~headrace.share.acknowledgement.UNCOUNTED_BACKOFF_MS`.
        """
        renew, uncounted = terms.renew, terms.uncounted
        if not well_formed(batches, RENEW if renew else REJECT):
            return MALFORMED
        if renew and not settings.renew_enabled and any(RENEW in types for _, _, types in batches):
            return RENEW_NOT_ENABLED
        changes: list[Change] = []
        renewed: list[Run[AcquisitionLock]] = []
        for first, last, types in batches:
            if last < self.start_offset:
                continue
            if not self.batches:
                return NOT_IN_CACHE
            if last >= self.end_offset:
                return FIRST_PAST_ACQUIRED if first >= self.end_offset else LAST_PAST_ACQUIRED
            for run_first, run_last, acknowledge_type in runs(
                first, last, types, self.start_offset
            ):
                if changes and changes[-1][1] >= run_first:  # changed by an earlier batch
                    is_batch = self.batches.bounds(run_first) == (run_first, run_first)
                    return BATCH_NOT_ACQUIRED if is_batch else OFFSET_NOT_ACQUIRED
                held = self._held(member_id, run_first, run_last)
                if isinstance(held, Refusal):
                    return held
                if acknowledge_type == RENEW:
                    renewed += held
                    continue
                for lock_first, lock_last, lock in held:
                    count = lock.delivery_count
                    changes.append(
                        acknowledged(
                            lock_first,
                            lock_last,
                            acknowledge_type,
                            count,
                            settings,
                            uncounted=uncounted,
                        )
                    )
        if renewed:
            self.locks.renew(renewed, now_ms + settings.lock_duration_ms)
        shortest_ms = max(terms.delay_ms, UNCOUNTED_BACKOFF_MS if uncounted else 0)
        not_before_ms = backoffs(changes, now_ms, settings, shortest_ms)
        return self._change(changes, not_before_ms)

    def _held(self, member_id: str, first: int, last: int) -> list[Run[AcquisitionLock]] | Refusal:
        """Return the locks of ``member_id`` on all of ``first..last``, in runs."""
        spans = self.locks.spans
        i = bisect_right(spans.firsts, first) - 1
        if i < 0 or spans.lasts[i] < first:
            return self._not_acquired(first)
        held: list[Run[AcquisitionLock]] = []
        position = first
        while True:
            lock = spans.values[i]
            if lock.member_id != member_id:
                is_batch = spans.covers(*self.batches.bounds(position))
                return NOT_OWNER_OF_BATCH if is_batch else NOT_OWNER_OF_OFFSET
            end = min(spans.lasts[i], last)
            held.append((position, end, lock))
            position = end + 1
            if position > last:
                return held
            i += 1
            if i == len(spans) or spans.firsts[i] != position:
                return self._not_acquired(position)

    def _not_acquired(self, offset: int) -> Refusal:
        bounds = self.batches.bounds(offset)
        is_batch = (
            self.available.covers(*bounds)
            or self._finished.covers(*bounds)
            or self._archiving.covers(*bounds)
        )
        return BATCH_NOT_ACQUIRED if is_batch else OFFSET_NOT_ACQUIRED

    # --- release ---

    def next_deadline_ms(self) -> int | None:
        """Return when the first acquisition lock or release backoff ends, in steady milliseconds;
        None without any.
        """
        deadlines = self.locks.next_deadline_ms(), self.available.backoffs.next_deadline_ms()
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def release(
        self, locks: Sequence[Run[AcquisitionLock]], now_ms: int, settings: ShareSettings
    ) -> StateUpdate | None:
        """Release the records of ``locks``, those of a member, of a range, or that have timed out.
        Delivery counts do not change.
        """
        changes = [
            given_back(first, last, lock.delivery_count, settings) for first, last, lock in locks
        ]
        return self._change(changes, backoffs(changes, now_ms, settings))

    # --- wait for dead letters ---

    def start_archiving(self, update: StateUpdate) -> None:
        """Have the records that ``update`` changes wait: ACQUIRED becomes ARCHIVING."""
        locks = self.locks.spans
        self._archiving.paint(
            [lock for change in update.changes for lock in locks.within(change[0], change[1])]
        )
        locks.erase(update.changes)

    def stop_archiving(self, ranges: Sequence[Range]) -> None:
        """Make the records of ``ranges`` that are ARCHIVING ACQUIRED again, with their locks."""
        for first, last, *_ in ranges:
            for lock in self._archiving.within(first, last):
                self.locks.grant([lock], lock[2].deadline_ms)
        self._archiving.erase(ranges)

    def archived(self, update: StateUpdate) -> StateUpdate | None:
        """Return the update that finishes what waits for the letters of ``update``. Other records
        may have changed since, and the start of the log may have passed some of these.
        """
        start = self.start_offset
        return self._change(
            [
                (max(first, start), last, state, count, reason)
                for first, last, state, count, reason in update.changes
                if last >= start
            ],
            update.not_before_ms,
        )

    # --- follow the log ---

    def move_start(self, log_start_offset: int) -> StateUpdate | None:
        """Archive everything before ``log_start_offset``, the new start of the log."""
        if log_start_offset <= self.start_offset:
            return None
        start = log_start_offset
        finished = self._finished
        i = bisect_right(finished.firsts, start) - 1
        if i >= 0 and finished.lasts[i] >= start:
            start = finished.lasts[i] + 1
        complete = self.delivery_complete_count - finished.count_below(start)
        return StateUpdate(start, complete, ())

    def skip_missing(self, base_offset: int) -> StateUpdate | None:
        """Archive available records before ``base_offset``, the first offset found in the log when
        reading from the fetch offset.
        """
        changes: list[Change] = [
            (first, last, ARCHIVED, count, ArchiveReason.GONE)
            for first, last, count in self.available.spans.within(0, base_offset - 1)
        ]
        if base_offset > self.end_offset:
            changes.append((self.end_offset, base_offset - 1, ARCHIVED, 0, ArchiveReason.GONE))
        return self._change(changes)

    # --- update and replay ---

    def _change(
        self, changes: Sequence[Change], not_before_ms: Mapping[int, int] = NO_BACKOFF
    ) -> StateUpdate | None:
        """Return the update that persists ``changes``, with the start offset moved over finished
        records; None without changes.

        :param changes: ascending, disjoint, without records that are finished already
        """
        if not changes:
            return None
        start, complete = self.start_offset, self.delivery_complete_count
        finished = self._finished
        joined: list[tuple[int, int, int, int]] = []
        end, joined_state, joined_count = -1, -1, -1  # of the last joined change
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
            if first == end and state == joined_state and count == joined_count:
                joined[-1] = (joined[-1][0], last, state, count)
            else:
                joined.append((first, last, state, count))
                joined_state, joined_count = state, count
            end = last + 1
        while i < len(finished) and finished.firsts[i] == start:
            start = finished.lasts[i] + 1
            i += 1
        complete -= start - self.start_offset
        after_start = joined[bisect_left(joined, start, key=itemgetter(1)) :]
        batches = tuple(map(StateBatch._make, after_start))
        return StateUpdate(start, complete, batches, tuple(archived), changes, not_before_ms)

    def replay(self, update: StateUpdate) -> None:
        """Apply a persisted update."""
        batches = update.state_batches
        if batches:
            for batch in batches[bisect_left(batches, self.end_offset, key=itemgetter(1)) :]:
                self._reach(batch)
            self.locks.spans.erase(batches)
            self._archiving.erase(batches)
            self.available.erase(batches)
            available = [
                (first, last, count) for first, last, state, count in batches if state == AVAILABLE
            ]
            self.available.add(available, update.not_before_ms)
            self._finished.paint(
                [(first, last, True) for first, last, state, _ in batches if state != AVAILABLE]
            )
        if update.start_offset > self.start_offset:
            self._move_to(update.start_offset)
        complete = update.delivery_complete_count
        self.delivery_complete_count = (
            self._finished.count_below(self.end_offset) if complete == UNKNOWN else complete
        )

    def _reach(self, batch: StateBatch) -> None:
        """Extend the end offset to ``batch``, on loading or over a gap in the log.

        Records in between were acquired before a restart and not persisted. They become available
        with a delivery count of 0.
        """
        end = self.end_offset
        if batch.first_offset > end:
            self.batches.add((end,), batch.first_offset)
            self.available.add([(end, batch.first_offset - 1, 0)])
        self.batches.add((max(end, batch.first_offset),), batch.last_offset + 1)

    def _pass_finished(self) -> None:
        """Move the start offset over finished records. The next update includes it."""
        finished = self._finished
        if finished and finished.firsts[0] == self.start_offset:
            start = finished.lasts[0] + 1
            self.delivery_complete_count -= start - self.start_offset
            self._move_to(start)

    def _move_to(self, start_offset: int) -> None:
        self.start_offset = start_offset
        self.batches.drop_below(start_offset)
        self.available.drop_below(start_offset)
        self._finished.drop_below(start_offset)
        self._archiving.drop_below(start_offset)
        self.locks.spans.drop_below(start_offset)
