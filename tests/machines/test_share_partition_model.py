"""The share-partition against a naive model that keeps one object per record, through random histories.

The model is written from the description (docs/behaviour/share-groups.md), record by record, with no thought of cost.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headrace.errors import ErrorCode
from headrace.share.acknowledgement import ACCEPT, GAP, REJECT, RELEASE, RENEW
from headrace.share.records import ACQUIRED, ARCHIVED, AVAILABLE, StateBatch
from tests.machines.share_shelf import Shelf

FINISHED = ARCHIVED
LIMITS = {"delivery_count_limit": 5, "lock_duration_ms": 100, "max_record_locks": 30}
MEMBERS = st.sampled_from(["m1", "m2", "m3"])


@dataclass
class Record:
    batch: int  # first offset of the in-flight batch, which names it
    state: int = AVAILABLE
    count: int = 0
    owner: str = ""
    deadline: int = 0
    persisted: tuple[int, int] | None = None  # (state, count) that a restart finds


class NaivePartition:
    """One object per record."""

    def __init__(self, limit, lock_ms, max_locks):
        self.limit, self.lock_ms, self.max_locks = limit, lock_ms, max_locks
        self.records: dict[int, Record] = {}
        self.sizes: dict[int, int] = {}
        self.start = self.end = 0

    # what is seen

    def states(self):
        runs = []
        for offset in range(self.start, self.end):
            record = self.records[offset]
            what = (record.state, 0 if record.state == FINISHED else record.count, record.deadline, record.owner)
            if runs and runs[-1][2] == what:
                runs[-1][1] = offset
            else:
                runs.append([offset, offset, what])
        return [(first, last, what[0], what[1]) for first, last, what in runs]

    def complete(self):
        return sum(r.state == FINISHED for r in self.records.values())

    def deadline(self):
        return min((r.deadline for r in self.records.values() if r.state == ACQUIRED), default=None)

    def fetch_offset(self):
        for offset in range(self.start, self.end):
            if self.records[offset].state == AVAILABLE:
                return offset
        return self.end if self.end - self.start < self.max_locks else None

    # what is done

    def new_batch(self, first, last, **kwargs):
        for offset in range(first, last + 1):
            self.records[offset] = Record(first, **kwargs)
        self.sizes[first] = last - first + 1
        self.end = last + 1

    def acquire(self, member, read, max_records, batch_size, now, record_limit):
        taken, alone = self.take_available(read[-1][1], max_records, record_limit)
        left = min(max_records - len(taken), self.max_locks - (self.end - self.start))
        runs = []
        for offset in taken:
            record = self.records[offset]
            if runs and runs[-1][1] == offset - 1 and runs[-1][2:] == [record.count + 1, record.batch]:
                runs[-1][1] = offset
            else:
                runs.append([offset, offset, record.count + 1, record.batch])
        if not alone and len(taken) < max_records and left > 0 and read[-1][1] >= self.end:
            runs += self.take_new(read, left, batch_size, record_limit)
        for first, last, count, _ in runs:
            for offset in range(first, last + 1):
                record = self.records[offset]
                record.state, record.count, record.owner, record.deadline = ACQUIRED, count, member, now + self.lock_ms
        return [tuple(run[:3]) for run in runs]

    def take_available(self, last, max_records, record_limit):
        suspect = (self.limit + 1) // 2
        taken = []
        offset = self.start
        while offset < self.end and offset <= last and len(taken) < max_records:
            batch = self.records[offset].batch
            mine = [
                o
                for o in range(offset, min(self.end, last + 1))
                if self.records[o].batch == batch and self.records[o].state == AVAILABLE
            ]
            throttled = any(self.records[o].count >= suspect for o in mine)
            if throttled and taken:
                return taken, False
            cap = None
            for o in mine:
                count = self.records[o].count
                if count >= self.limit - 1 and taken and throttled:
                    return taken, True
                taken.append(o)
                if throttled:
                    if count >= self.limit - 1:
                        return taken, True
                    if count >= suspect and cap is None:
                        cap = max(1, self.sizes[batch] >> (count - suspect + 1))
                    if cap is not None and len(taken) >= cap:
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

    def acknowledge(self, member, batches, now, renew):
        """None, or the error code."""
        previous = -1
        for first, last, types in batches:
            n = last - first + 1
            if n < 1 or first < previous or len(types) not in (1, n):
                return ErrorCode.INVALID_REQUEST
            if any(t < GAP or t > RENEW or (t == RENEW and not renew) for t in types):
                return ErrorCode.INVALID_REQUEST
            previous = last
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
            self.records[offset].deadline = now + self.lock_ms
        for offset, kind in became.items():
            self.end_lock(offset, FINISHED if kind in (GAP, ACCEPT, REJECT) else AVAILABLE)
        self.advance()
        return None

    def end_lock(self, offset, state):
        record = self.records[offset]
        if state == AVAILABLE and record.count >= self.limit:
            state = FINISHED
        record.state, record.owner, record.deadline = state, "", 0
        record.persisted = (state, record.count)

    def give_back(self, condition):
        for offset, record in self.records.items():
            if record.state == ACQUIRED and condition(record):
                self.end_lock(offset, AVAILABLE)
        self.advance()

    def advance(self):
        while self.start < self.end and self.records[self.start].state == FINISHED:
            del self.records[self.start]
            self.start += 1

    def move_start(self, log_start):
        if log_start > self.start:
            for offset in range(self.start, min(log_start, self.end)):
                del self.records[offset]
            self.start = log_start
            self.end = max(self.end, log_start)
            self.advance()

    def skip_missing(self, base):
        if base > self.end:
            end = self.end
            self.new_batch(end, base - 1, state=FINISHED, persisted=(FINISHED, 0))
        for offset in range(self.start, base):
            record = self.records[offset]
            if record.state == AVAILABLE:
                record.state, record.persisted = FINISHED, (FINISHED, record.count)
        self.advance()

    def restart(self, stored):
        """:param stored: the coordinator's batches: they are in-flight batches now, and so are the holes"""
        persisted = {offset: r.persisted for offset, r in self.records.items() if r.persisted}
        assert {o: (s, c) for f, last, s, c in stored for o in range(f, last + 1)}.keys() == persisted.keys()
        self.records, self.end = {}, self.start
        for first, last, state, count in stored:
            if first > self.end:
                self.new_batch(self.end, first - 1)
            state = FINISHED if state != AVAILABLE else AVAILABLE
            assert {persisted[o] for o in range(first, last + 1)} == {(state, count)}
            self.new_batch(first, last, state=state, count=count, persisted=(state, count))


TYPES = st.sampled_from([GAP, ACCEPT, ACCEPT, RELEASE, RELEASE, RELEASE, REJECT, RENEW, 5])


class SharePartitionMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.shelf = Shelf(**LIMITS)
        self.naive = NaivePartition(*LIMITS.values())
        self.lowest_start = 0

    @rule(sizes=st.lists(st.integers(1, 8), min_size=1, max_size=4), hole=st.sampled_from([0, 0, 0, 0, 3]))
    def produce(self, sizes, hole):
        if hole:
            self.shelf.log.append((self.shelf.end + hole, self.shelf.end + hole))
        self.shelf.produce(*sizes)

    @rule(
        member=MEMBERS,
        max_records=st.integers(0, 25),
        batch_size=st.integers(1, 12),
        record_limit=st.booleans(),
        log_batches=st.integers(1, 6),
    )
    def fetch(self, member, max_records, batch_size, record_limit, log_batches):
        shelf, naive = self.shelf, self.naive
        naive.move_start(shelf.log_start)
        offset = naive.fetch_offset()
        read = [] if offset is None else [batch for batch in shelf.log if batch[1] >= offset][:log_batches]
        expected = []
        if read:
            if read[0][0] > offset:
                naive.skip_missing(read[0][0])
            if max_records > 0:
                expected = naive.acquire(member, read, max_records, batch_size, shelf.now_ms, record_limit)
        assert shelf.fetch(member, max_records, batch_size, record_limit, log_batches) == expected

    @rule(data=st.data(), member=MEMBERS, renew=st.booleans())
    def acknowledge(self, data, member, renew):
        batches = []
        held = [o for o, r in self.naive.records.items() if r.state == ACQUIRED and r.owner == member]
        position = data.draw(st.integers(max(self.naive.start - 3, 0), self.naive.start + 2), "from")
        if held and data.draw(st.booleans(), "something held"):
            position = data.draw(st.sampled_from(held), "first")
        for _ in range(data.draw(st.integers(1, 3), "batches")):
            last = position + data.draw(st.integers(0, 9), "length") - data.draw(st.sampled_from([0] * 9 + [1]))
            if data.draw(st.integers(0, 3), "cut to what is held"):
                while last > position and last not in held:
                    last -= 1
            one = data.draw(st.booleans(), "one type") or last < position
            types = [data.draw(TYPES) for _ in range(1 if one else last - position + 1)]
            batches.append((position, last, types))
            later = [offset for offset in held if offset > last]
            position = data.draw(st.sampled_from([last, last + 1, *later[:3]]), "next")
        refusal = self.shelf.ack(*batches, member=member, renew=renew)
        expected = self.naive.acknowledge(member, batches, self.shelf.now_ms, renew)
        assert (refusal and refusal.code) == expected

    @rule(data=st.data(), member=MEMBERS, kind=st.sampled_from([ACCEPT, RELEASE, RELEASE, REJECT]))
    def acknowledge_something_held(self, data, member, kind):
        held = [o for o, r in self.naive.records.items() if r.state == ACQUIRED and r.owner == member]
        if held:
            first = data.draw(st.sampled_from(held))
            last = first
            while last + 1 in held and last - first < 12:
                last += 1
            assert self.shelf.ack((first, last, kind), member=member) is None
            assert self.naive.acknowledge(member, [(first, last, [kind])], self.shelf.now_ms, False) is None

    @rule(ms=st.sampled_from([1, 10, 50, 99, 100, 250]))
    def time_passes(self, ms):
        self.shelf.wait(ms)
        self.naive.give_back(lambda record: record.deadline <= self.shelf.now_ms)

    @rule(member=MEMBERS)
    def close(self, member):
        self.shelf.close(member)
        self.naive.give_back(lambda record: record.owner == member)

    @precondition(lambda self: len(self.shelf.log) > 1)
    @rule(data=st.data())
    def log_start_moves(self, data):
        """Retention and DeleteRecords; a fetch notices."""
        shelf = self.shelf
        shelf.log_start = data.draw(st.integers(shelf.log_start, min(shelf.end, shelf.log_start + 15)))
        while shelf.log[0][1] < shelf.log_start and len(shelf.log) > 1:
            del shelf.log[0]

    @precondition(lambda self: len(self.shelf.log) > 3)
    @rule(data=st.data())
    def compaction(self, data):
        del self.shelf.log[data.draw(st.integers(0, len(self.shelf.log) - 2))]

    @rule()
    def restart(self):
        self.shelf.restart()
        self.naive.restart(self.shelf.partition_state())

    @invariant()
    def all_is_as_the_model_says(self):
        partition, naive = self.shelf.partition, self.naive
        assert (partition.start_offset, partition.end_offset) == (naive.start, naive.end)
        assert as_offsets(partition.states()) == as_offsets(naive.states())
        assert partition.delivery_complete_count == naive.complete()
        assert partition.next_deadline_ms() == naive.deadline()
        assert partition.fetch_offset(self.shelf.settings) == naive.fetch_offset()

    @invariant()
    def the_lag_is_the_records_not_yet_finished(self):
        done = self.naive.complete()
        assert self.shelf.lag == self.shelf.end - self.naive.start - done

    @invariant()
    def the_start_offset_never_goes_back(self):
        assert self.shelf.partition.start_offset >= self.lowest_start
        self.lowest_start = self.shelf.partition.start_offset


def as_offsets(states):
    """Spans may be cut in other places; offset by offset they are the same."""
    return [
        (offset, state, count)
        for first, last, state, count in map(StateBatch._make, states)
        for offset in range(first, last + 1)
    ]


TestSharePartition = SharePartitionMachine.TestCase
TestSharePartition.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
