"""The share-partition against a naive model that keeps one object per record, through random
histories.

The model is written from the description (docs/behaviour/share-groups.md), record by record, with
no thought of cost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.protocol.errors import ErrorCode
from headrace.share.acknowledgement import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    AcknowledgementBatch,
    AcknowledgeTerms,
)
from headrace.share.records import ACQUIRED, ARCHIVED, AVAILABLE, ArchiveReason, StateBatch
from headrace.share.settings import ShareSettings
from tests.machines.share_shelf import KEY, Shelf

FINISHED = ARCHIVED
ARCHIVING = 3
LIMITS = ShareSettings(
    delivery_count_limit=5, lock_duration_ms=100, max_record_locks=30, release_backoff_max_ms=70
)
MEMBERS = st.sampled_from(["m1", "m2", "m3"])
REASONS = {GAP: ArchiveReason.GAP, REJECT: ArchiveReason.REJECTED}


@dataclass
class Record:
    batch: int  # first offset of the in-flight batch, which names it
    state: int = AVAILABLE
    count: int = 0
    owner: str = ""
    deadline: int = 0  # of the lock, or of the backoff
    persisted: tuple[int, int] | None = None  # (state, count) that a restart finds


class NaivePartition:
    """One object per record.

    :ivar passed: what is persisted of the records that the start offset passed since the last write
    :ivar written: (start offset, complete count) of the last write
    :ivar archived: (offset, reason), as it happened
    :ivar waiting: acknowledgements whose dead letters are not written: the records as they are
        afterwards, and what is then archived
    """

    def __init__(self) -> None:
        self.settings = LIMITS
        self.records: dict[int, Record] = {}
        self.sizes: dict[int, int] = {}
        self.start = self.end = 0
        self.now = 0
        self.passed: dict[int, tuple[int, int]] = {}
        self.written = (0, 0)
        self.archived: list[tuple[int, ArchiveReason]] = []
        self.waiting: list[tuple[dict[int, Record], list[tuple[int, ArchiveReason]]]] = []

    # what is seen

    def states(self):
        return [
            (
                offset,
                ACQUIRED if record.state == ARCHIVING else record.state,
                0 if record.state == FINISHED else record.count,
            )
            for offset, record in sorted(self.records.items())
        ]

    def complete(self):
        return sum(r.state == FINISHED for r in self.records.values())

    def deadline(self):
        return min(
            (
                r.deadline
                for r in self.records.values()
                if r.deadline > self.now and r.state != ARCHIVING
            ),
            default=None,
        )

    def idle(self):
        return self.deadline() is None and all(r.state != ARCHIVING for r in self.records.values())

    def may_be_acquired(self, offset):
        record = self.records[offset]
        return record.state == AVAILABLE and record.deadline <= self.now

    def fetch_offset(self):
        for offset in range(self.start, self.end):
            if self.may_be_acquired(offset):
                return offset
        return self.end if self.end - self.start < self.settings.max_record_locks else None

    # what is done

    def wrote(self):
        self.advance()
        self.passed = {}
        # with the same start offset the stored count does not go down, as it might after a restart:
        # records of aborted transactions that were counted are not stored as finished
        self.written = max(self.written, (self.start, self.complete()))

    def new_batch(self, first, last, **kwargs):
        for offset in range(first, last + 1):
            self.records[offset] = Record(first, **kwargs)
        self.sizes[first] = last - first + 1
        self.end = last + 1

    def acquire(self, member, read, max_records, batch_size, record_limit, aborted):
        taken, alone = self.take_available(read[-1][1], max_records, record_limit)
        left = min(
            max_records - len(taken), self.settings.max_record_locks - (self.end - self.start)
        )
        runs = []
        for offset in taken:
            record = self.records[offset]
            if (
                runs
                and runs[-1][1] == offset - 1
                and runs[-1][2:] == [record.count + 1, record.batch]
            ):
                runs[-1][1] = offset
            else:
                runs.append([offset, offset, record.count + 1, record.batch])
        if not alone and len(taken) < max_records and left > 0 and read[-1][1] >= self.end:
            runs += self.take_new(read, left, batch_size, record_limit)
        kept = []
        for first, last, count, _ in runs:
            whole = False  # whether the last of kept may be continued
            for offset in range(first, last + 1):
                record = self.records[offset]
                if any(begin <= offset <= end for begin, end in aborted):
                    record.state, record.deadline = FINISHED, 0
                    whole = False
                    continue
                record.state, record.count, record.owner = ACQUIRED, count, member
                record.deadline = self.now + self.settings.lock_duration_ms
                if whole:
                    kept[-1] = (kept[-1][0], offset, count)
                else:
                    kept.append((offset, offset, count))
                whole = True
        self.advance()
        return kept

    def take_available(self, last, max_records, record_limit):
        limit = self.settings.delivery_count_limit
        suspect = max(2, (limit + 1) // 2)
        taken = []
        offset = self.start
        while offset < self.end and offset <= last and len(taken) < max_records:
            batch = self.records[offset].batch
            mine = [
                o
                for o in range(offset, min(self.end, last + 1))
                if self.records[o].batch == batch and self.may_be_acquired(o)
            ]
            throttled = any(self.records[o].count >= suspect for o in mine)
            if throttled and taken:
                return taken, True
            cap = None
            for o in mine:
                count = self.records[o].count
                last_attempt = limit > 2 and count == limit - 1
                if last_attempt and taken and throttled:
                    return taken, True
                taken.append(o)
                if throttled:
                    if last_attempt:
                        return taken, True
                    if count >= suspect and cap is None:
                        cap = max(1, self.sizes[batch] >> (count - suspect + 1))
                    if len(taken) == cap:  # with more before the first suspect there is no limit
                        return taken, True
                if record_limit and len(taken) == max_records:
                    return taken, throttled
            if throttled and mine:
                return taken, True
            while offset < self.end and self.records[offset].batch == batch:
                offset += 1
        return taken, False

    def take_new(self, read, left, batch_size, record_limit):
        first = self.end
        last = min((end for _, end in read if end >= first + left - 1), default=read[-1][1])
        if record_limit:
            self.new_batch(first, last)
            return [[first, min(last, first + left - 1), 1, first]]
        starts = [first]
        if last - first + 1 > batch_size:
            starts += [base for base, _ in read if first < base <= last]
            kept = [first]
            for base in starts[1:]:
                if base - kept[-1] >= batch_size:
                    kept.append(base)
            starts = kept
        ends = [base - 1 for base in starts[1:]] + [last]
        for start, end in zip(starts, ends, strict=True):
            self.new_batch(start, end)
        return [[start, end, 1, start] for start, end in zip(starts, ends, strict=True)]

    def acknowledge(self, member, batches, renew, uncounted=False, waits=False):
        """None, or the error code."""
        previous = -1
        for first, last, types in batches:
            n = last - first + 1
            if n < 1 or first < previous or len(types) not in (1, n):
                return ErrorCode.INVALID_REQUEST
            if any(t < GAP or t > RENEW or (t == RENEW and not renew) for t in types):
                return ErrorCode.INVALID_REQUEST
            previous = last
        if not self.settings.renew_enabled and any(RENEW in types for _, _, types in batches):
            return ErrorCode.INVALID_RECORD_STATE
        became = {}
        renewed = set()
        for first, last, types in batches:
            if last < self.start:
                continue
            if not self.records:
                return ErrorCode.INVALID_RECORD_STATE
            if last >= self.end:
                return ErrorCode.INVALID_REQUEST
            for i, offset in enumerate(range(first, last + 1)):
                if offset < self.start:
                    continue
                record = self.records[offset]
                if record.state != ACQUIRED or record.owner != member or offset in became:
                    return ErrorCode.INVALID_RECORD_STATE
                kind = types[0] if len(types) == 1 else types[i]
                if kind == RENEW:
                    renewed.add(offset)
                else:
                    became[offset] = kind
        for offset in renewed:
            self.records[offset].deadline = self.now + self.settings.lock_duration_ms
        before = {offset: replace(self.records[offset], state=ARCHIVING) for offset in became}
        count = len(self.archived)
        for offset, kind in became.items():
            if kind == RELEASE and uncounted:
                self.take_back(offset)
            elif kind == RELEASE:
                self.give_back(offset)
            else:
                self.finish(offset, REASONS.get(kind))
        if became and waits:
            self.waiting.append(
                ({offset: self.records[offset] for offset in became}, self.archived[count:])
            )
            del self.archived[count:]
            self.records |= before
        elif became:
            self.wrote()
        return None

    def end_letters(self, are_written):
        after, archived = self.waiting.pop(0)
        present = self.records.keys() & after.keys()  # the start of the log has passed others
        for offset in present:
            if are_written:
                self.records[offset] = after[offset]
            else:
                self.records[offset].state = ACQUIRED
        if are_written and present:
            self.archived += [(offset, reason) for offset, reason in archived if offset in present]
            self.wrote()
        self.give_back_all(lambda record: record.deadline <= self.now)

    def finish(self, offset, reason):
        record = self.records[offset]
        record.state, record.owner, record.deadline = FINISHED, "", 0
        record.persisted = (FINISHED, record.count)
        if reason:
            self.archived.append((offset, reason))

    def give_back(self, offset):
        record, limits = self.records[offset], self.settings
        if record.count >= limits.delivery_count_limit:
            self.finish(offset, ArchiveReason.DELIVERY_LIMIT)
            return
        record.state, record.owner, record.deadline = AVAILABLE, "", 0
        record.persisted = (AVAILABLE, record.count)
        if limits.release_backoff_ms:
            wait = limits.release_backoff_ms * 2 ** (record.count - 1)
            record.deadline = self.now + min(wait, limits.release_backoff_max_ms)

    def take_back(self, offset):
        """As if this delivery had not been, but for a second of waiting."""
        record, limits = self.records[offset], self.settings
        record.state, record.owner, record.count = AVAILABLE, "", record.count - 1
        record.persisted = (AVAILABLE, record.count)
        wait = limits.release_backoff_ms * 2 ** max(record.count - 1, 0)
        record.deadline = self.now + max(1000, min(wait, limits.release_backoff_max_ms))

    def give_back_all(self, condition):
        held = [
            offset
            for offset, record in self.records.items()
            if record.state == ACQUIRED and condition(record)
        ]
        for offset in held:
            self.give_back(offset)
        if held:
            self.wrote()

    def advance(self):
        while self.start < self.end and self.records[self.start].state == FINISHED:
            self.pass_one()

    def pass_one(self):
        record = self.records.pop(self.start)
        if record.persisted:
            self.passed[self.start] = record.persisted
        self.start += 1

    def move_start(self, log_start):
        if log_start > self.start:
            while self.start < min(log_start, self.end):
                self.pass_one()
            self.start = log_start
            self.end = max(self.end, log_start)
            self.wrote()

    def skip_missing(self, base):
        gone = [
            offset
            for offset in range(self.start, min(base, self.end))
            if self.may_be_acquired(offset)
        ]
        if base > self.end:
            gone += range(self.end, base)
            self.new_batch(self.end, base - 1)
        for offset in gone:
            self.finish(offset, ArchiveReason.GONE)
        if gone:
            self.wrote()

    def restart(self, stored):
        """:param stored: the coordinator's batches: they are in-flight batches now, and so are the
        holes
        """
        persisted = {
            offset: r.persisted for offset, r in self.records.items() if r.persisted
        } | self.passed
        found = {
            offset: (AVAILABLE if state == AVAILABLE else FINISHED, count)
            for first, last, state, count in stored
            for offset in range(first, last + 1)
        }
        assert found == persisted
        self.records, self.passed, self.waiting = {}, {}, []
        self.start = self.end = self.written[0]
        for first, last, state, count in stored:
            if first > self.end:
                self.new_batch(self.end, first - 1)
            state = FINISHED if state != AVAILABLE else AVAILABLE
            self.new_batch(first, last, state=state, count=count, persisted=(state, count))
        self.advance()


TYPES = st.sampled_from([GAP, ACCEPT, ACCEPT, RELEASE, RELEASE, RELEASE, REJECT, RENEW])
BROKEN: list[Callable[[int, int, list[int]], tuple[int, int, list[int]]]] = [
    lambda first, last, types: (first, last, []),
    lambda first, last, types: (first, first - 1, types),
    lambda first, last, types: (first, first + len(types) + 1, [*types, *types, ACCEPT, ACCEPT]),
    lambda first, last, types: (first, last, [*types[:-1], 5]),
    lambda first, last, types: (first, last, [-1, *types[1:]]),
]


class SharePartitionMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.shelf = Shelf()
        self.naive = NaivePartition()
        self.configure(LIMITS)
        self.lowest_start = 0

    def configure(self, limits):
        self.shelf.settings = self.naive.settings = limits

    def held_by(self, member):
        return [
            o for o, r in self.naive.records.items() if r.state == ACQUIRED and r.owner == member
        ]

    def somebody_who_holds_records(self, member):
        """``member``, or another; after a fetch if nobody holds any."""
        holder = next((m for m in (member, "m1", "m2", "m3") if self.held_by(m)), None)
        if holder is None:
            if self.naive.fetch_offset() in (None, self.shelf.end):
                self.shelf.produce(4, 3)
            self.fetch(member, 5, batch_size=4, record_limit=False, log_batches=4)
        return holder or member

    @initialize(
        limit=st.sampled_from([2, 3, 5, 5, 10]),
        backoff=st.sampled_from([0, 20, 60]),
        committed=st.booleans(),
    )
    def begin(self, limit, backoff, committed):
        self.configure(
            replace(
                LIMITS,
                delivery_count_limit=limit,
                release_backoff_ms=backoff,
                read_committed=committed,
            )
        )

    @rule(
        change=st.sampled_from(
            [
                {"delivery_count_limit": 3},
                {"delivery_count_limit": 5},
                {"lock_duration_ms": 40},
                {"lock_duration_ms": 100},
                {"max_record_locks": 12},
                {"max_record_locks": 40},
                {"renew_enabled": False},
                {"renew_enabled": True},
                {"release_backoff_ms": 0},
                {"release_backoff_ms": 30},
                {"read_committed": False},
            ]
        )
    )
    def group_configs_change(self, change):
        self.configure(replace(self.naive.settings, **change))

    @rule(
        sizes=st.lists(st.integers(1, 8), min_size=1, max_size=4),
        hole=st.sampled_from([0, 0, 0, 0, 3]),
        aborted=st.sampled_from([False, False, True]),
    )
    def produce(self, sizes, hole, aborted):
        shelf = self.shelf
        if hole:
            shelf.log.append((shelf.end + hole, shelf.end + hole))
        before = len(shelf.log)
        shelf.produce(*sizes)
        if aborted:
            shelf.aborted += shelf.log[before:]
            shelf.produce(1)  # the marker

    @rule(
        member=MEMBERS,
        max_records=st.sampled_from([0, 1, 3, 8, 25, 25]),
        batch_size=st.integers(1, 12),
        record_limit=st.booleans(),
        log_batches=st.integers(1, 6),
    )
    def fetch(self, member, max_records, batch_size, record_limit, log_batches):
        shelf, naive = self.shelf, self.naive
        naive.move_start(shelf.log_start)
        offset = naive.fetch_offset()
        read = (
            []
            if offset is None
            else [batch for batch in shelf.log if batch[1] >= offset][:log_batches]
        )
        expected = []
        if read:
            if read[0][0] > offset:
                naive.skip_missing(read[0][0])
            if max_records > 0:
                aborted = (
                    [batch for batch in shelf.aborted if batch in read]
                    if naive.settings.read_committed
                    else []
                )
                expected = naive.acquire(
                    member, read, max_records, batch_size, record_limit, aborted
                )
        assert shelf.fetch(member, max_records, batch_size, record_limit, log_batches) == expected

    def draw_batches(self, data, member):
        batches = []
        held = self.held_by(member)
        position = data.draw(
            st.integers(max(self.naive.start - 3, 0), self.naive.start + 2), "from"
        )
        if held and data.draw(st.booleans(), "something held"):
            position = data.draw(st.sampled_from(held), "first")
        for _ in range(data.draw(st.integers(1, 3), "batches")):
            last = position + data.draw(st.integers(0, 9), "length")
            if data.draw(st.integers(0, 3), "cut to what is held"):
                while last > position and last not in held:
                    last -= 1
            one = data.draw(st.booleans(), "one type")
            types = [data.draw(TYPES) for _ in range(1 if one else last - position + 1)]
            batches.append((position, last, types))
            later = [offset for offset in held if offset > last]
            position = data.draw(st.sampled_from([last, last + 1, *later[:3]]), "next")
        return batches

    @rule(
        data=st.data(),
        member=MEMBERS,
        renew=st.booleans(),
        own=st.sampled_from([True, True, False]),
        uncounted=st.sampled_from([False, False, True]),
        waits=st.sampled_from([False, False, True]),
    )
    def acknowledge(self, data, member, renew, own, uncounted, waits):
        holder = self.somebody_who_holds_records(member)
        batches = self.draw_batches(data, holder)
        member = holder if own else member
        refusal = self.shelf.ack(
            *batches, member=member, renew=renew, uncounted=uncounted, waits=waits
        )
        expected = self.naive.acknowledge(member, batches, renew, uncounted, waits)
        assert (refusal and refusal.code) == expected

    @rule(data=st.data(), member=MEMBERS, broken=st.sampled_from(BROKEN), back=st.booleans())
    def malformed_acknowledgements_change_nothing(self, data, member, broken, back):
        batches = self.draw_batches(data, member)
        batches[-1] = broken(*batches[-1])
        if back:
            batches.append((batches[0][0] - 1, batches[0][0] - 1, [ACCEPT]))
        assert self.naive.acknowledge(member, batches, renew=True) == ErrorCode.INVALID_REQUEST
        assert self.shelf.ack(*batches, member=member, renew=True).code == ErrorCode.INVALID_REQUEST

    @rule(
        data=st.data(),
        member=MEMBERS,
        kind=st.sampled_from([ACCEPT, RELEASE, RELEASE, REJECT, RENEW, RENEW]),
        again=st.sampled_from([None, None, None, ACCEPT, RELEASE, RENEW]),
        later_ms=st.sampled_from([0, 7]),
    )
    def acknowledge_something_held(self, data, member, kind, again, later_ms):
        member = self.somebody_who_holds_records(member)
        self.time_passes(later_ms)
        held = self.held_by(member)
        if held:
            first = data.draw(st.sampled_from(held), "first")
            last = first
            while last + 1 in held and last - first < 12:
                last += 1
            last = data.draw(st.integers(first, last), "last")
            batches = [(first, last, [kind])]
            if again is not None:
                batches.append((last, last, [again]))
            refusal = self.shelf.ack(*batches, member=member, renew=True)
            assert (refusal and refusal.code) == self.naive.acknowledge(member, batches, renew=True)

    @rule(
        member=MEMBERS,
        times=st.sampled_from([1, 1, 2, 3, 9]),
        max_records=st.sampled_from([4, 25]),
        record_limit=st.booleans(),
        how=st.sampled_from(["release", "close", "timeout"]),
    )
    def nobody_can_process_it(self, member, times, max_records, record_limit, how):
        """Delivered and given back again and again, until it is suspect, alone, and given up."""
        for _ in range(times):
            self.fetch(member, max_records, 6, record_limit, log_batches=6)
            if how == "release":
                for offset in self.held_by(member):
                    assert self.shelf.ack((offset, offset, RELEASE), member=member) is None
                    assert (
                        self.naive.acknowledge(member, [(offset, offset, [RELEASE])], renew=False)
                        is None
                    )
            elif how == "close":
                self.close(member)
            else:
                self.time_passes(self.naive.settings.lock_duration_ms)
            self.time_passes(self.naive.settings.release_backoff_ms)

    @rule(member=MEMBERS, kind=st.sampled_from([ACCEPT, RELEASE, REJECT]))
    def what_is_decided_and_not_written_changes_nothing(self, member, kind):
        """The append failed."""
        shelf = self.shelf
        batches = [AcknowledgementBatch(offset, offset, [kind]) for offset in self.held_by(member)]
        shelf.partition.acknowledge(
            member, batches, shelf.now_ms, shelf.settings, AcknowledgeTerms()
        )
        locks = shelf.partition.locks.held_by(member)
        shelf.partition.release(locks, shelf.now_ms, shelf.settings)
        shelf.partition.move_start(self.naive.end + 5)

    @rule(ms=st.sampled_from([1, 10, 50, 99, 100, 250, 1000]))
    def time_passes(self, ms):
        naive, until = self.naive, self.naive.now + ms
        while (deadline := naive.deadline()) is not None and deadline <= until:
            naive.now = deadline
            naive.give_back_all(lambda record: record.deadline <= naive.now)
        naive.now = until
        self.shelf.wait(ms)

    @precondition(lambda self: self.naive.waiting)
    @rule(are_written=st.sampled_from([True, True, False]))
    def letters_end(self, are_written):
        shelf = self.shelf
        shelf.end_letters(are_written=are_written)
        shelf.expire()
        self.naive.end_letters(are_written)

    @rule(member=MEMBERS)
    def close(self, member):
        self.shelf.close(member)
        self.naive.give_back_all(lambda record: record.owner == member)

    @precondition(lambda self: len(self.shelf.log) > 1)
    @rule(data=st.data())
    def log_start_moves(self, data):
        """Retention and DeleteRecords."""
        shelf = self.shelf
        shelf.log_start = data.draw(
            st.integers(shelf.log_start, min(shelf.end, shelf.log_start + 15))
        )
        while shelf.log[0][1] < shelf.log_start and len(shelf.log) > 1:
            del shelf.log[0]
        if data.draw(st.booleans(), "a fetch notices"):
            self.fetch("m1", 3, batch_size=12, record_limit=False, log_batches=2)

    @precondition(lambda self: len(self.shelf.log) > 3)
    @rule(data=st.data())
    def compaction(self, data):
        del self.shelf.log[data.draw(st.integers(0, len(self.shelf.log) - 2))]

    @rule()
    def restart(self):
        self.shelf.restart()
        self.naive.restart(self.shelf.partition_state())
        self.lowest_start = min(self.lowest_start, self.naive.start)

    @invariant()
    def all_is_as_the_model_says(self):
        partition, naive = self.shelf.partition, self.naive
        assert (partition.start_offset, partition.end_offset) == (naive.start, naive.end)
        assert as_offsets(self.shelf.states()) == naive.states()
        assert partition.delivery_complete_count == naive.complete()
        assert partition.next_deadline_ms() == naive.deadline()
        assert partition.fetch_offset(self.shelf.settings) == naive.fetch_offset()
        assert partition.idle == naive.idle()

    @invariant()
    def what_was_archived_was_said_so_with_the_reason(self):
        archived = [
            (o, one.reason) for one in self.shelf.archived for o in range(one[0], one[1] + 1)
        ]
        assert sorted(archived, key=str) == sorted(self.naive.archived, key=str)

    @invariant()
    def the_lag_is_the_records_not_finished_at_the_last_write(self):
        summary = self.shelf.coordinator.summary(KEY)
        start, complete = self.naive.written
        assert (summary.start_offset, max(summary.delivery_complete_count, 0)) == (start, complete)
        assert self.shelf.lag == self.shelf.end - start - complete

    @invariant()
    def the_start_offset_never_goes_back_but_over_a_restart_to_what_was_written(self):
        assert self.shelf.partition.start_offset >= self.lowest_start
        self.lowest_start = self.shelf.partition.start_offset
        assert self.lowest_start >= self.naive.written[0]


def as_offsets(states):
    """Spans may be cut in other places; offset by offset they are the same."""
    return [
        (offset, state, count)
        for first, last, state, count in map(StateBatch._make, states)
        for offset in range(first, last + 1)
    ]


TestSharePartition = SharePartitionMachine.TestCase
TestSharePartition.settings = settings(max_examples=120, stateful_step_count=60, deadline=None)
