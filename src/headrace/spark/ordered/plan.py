"""The end of the next micro-batch of ``kafka-ordered``, decided before its records are read.

Pure: the logs are asked through a :class:`~headrace.spark.ordered.broker_log.BrokerLog`, and time
is an argument.

A micro-batch is cut at moments in time: the merge of a task always takes the smallest timestamp
among the partitions' next records. That is the order of (largest timestamp so far within the
partition, partition, offset). So *all records before timestamp T* are, in each partition, those
before its first record with timestamp T or later. Brokers find that record (ListOffsets by
timestamp), and a batch is cut without reading it.

The broker's answer is only a hint: transaction markers, aborted records, and records before the
batch's start can mislead it. Each hint is checked with the first visible record behind it. Where
the hint is wrong, the records themselves are searched.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from headrace.ordered.readiness import Decision, Readiness
from headrace.protocol.partitions import TopicPartition
from headrace.protocol.record_batch import NO_TIMESTAMP

from .broker_log import BrokerLog, Offsets

SCAN_RECORDS = 100_000
"""Number of records of a partition to search for its largest timestamp when its broker cannot tell
it."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """The partitions of one task, and the offsets of each that may be read.

    :param partitions: their order breaks ties between equal timestamps
    :param starts: the next offset to read
    :param ends: the offset after the last one that may be read; missing while unknown
    """

    partitions: tuple[TopicPartition, ...]
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]

    @classmethod
    def bounded(
        cls,
        partitions: Iterable[TopicPartition],
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> Inputs:
        """Return those of the partitions whose start and end are known."""
        complete = tuple(p for p in partitions if p in starts and p in ends)
        return cls(complete, {p: starts[p] for p in complete}, {p: ends[p] for p in complete})

    @classmethod
    def joined(cls, tasks: Collection[Inputs]) -> Inputs:
        """Return the inputs of several tasks as one."""
        starts = {p: start for inputs in tasks for p, start in inputs.starts.items()}
        ends = {p: end for inputs in tasks for p, end in inputs.ends.items()}
        return cls(tuple(starts), starts, ends)

    def __len__(self) -> int:
        return sum(map(self.available, self.partitions))

    def available(self, partition: TopicPartition) -> int:
        """Return the number of offsets of ``partition`` that may be read."""
        return max(0, self.ends.get(partition, 0) - self.starts[partition])

    @property
    def filled(self) -> list[TopicPartition]:
        """The partitions with offsets that may be read."""
        return [partition for partition in self.partitions if self.available(partition)]

    @property
    def reached(self) -> Offsets:
        """The next offset of each partition after all of this has been read."""
        return {p: max(self.starts[p], self.ends.get(p, 0)) for p in self.partitions}

    def until(self, ends: Mapping[TopicPartition, int]) -> Inputs:
        """Return the same inputs with other ends for some partitions."""
        return Inputs(self.partitions, self.starts, {**self.ends, **ends})

    def after(self, taken: Inputs) -> Inputs:
        """Return what is left after ``taken`` has been read."""
        return Inputs(self.partitions, taken.reached, self.ends)


@dataclass(slots=True)
class Pacing:
    """The rule of ``max.task.idle.ms`` for all tasks. It remembers only the idle deadlines.

    :param max_task_idle_ms: see :class:`headrace.ordered.readiness.Readiness`
    :ivar decisions: the last decision for each task
    """

    max_task_idle_ms: int
    decisions: dict[int, Decision[TopicPartition]] = field(default_factory=dict)
    _rules: dict[int, Readiness[TopicPartition]] = field(default_factory=dict)

    def decide(self, task: int, inputs: Inputs, now_ms: int) -> Decision[TopicPartition]:
        """Decide whether a task may take a record. Records on the broker count as buffered."""
        rule = self._rules.get(task)
        if rule is None or rule.partitions != inputs.partitions:
            rule = self._rules[task] = Readiness(inputs.partitions, self.max_task_idle_ms)
        buffered = {partition: inputs.available(partition) for partition in inputs.partitions}
        lags = {partition: 0 for partition in inputs.partitions if partition in inputs.ends}
        decision = self.decisions[task] = rule.decide(buffered, lags, now_ms)
        return decision


def plan(
    log: BrokerLog,
    pacing: Pacing,
    tasks: Mapping[int, Inputs],
    now_ms: int,
    max_offsets: int | None = None,
) -> dict[int, Inputs]:
    """Return the next micro-batch of each task: its inputs, with the ends where it stops.

    :param tasks: what may be read
    :param now_ms: of a monotonic clock
    :param max_offsets: limit for all tasks together, approximately: records of one timestamp stay
        together
    """
    ready = {
        task: inputs for task, inputs in tasks.items() if pacing.decide(task, inputs, now_ms).ready
    }
    inputs_now = dict(ready)
    waits_for_producers = pacing.max_task_idle_ms > 0
    if waits_for_producers:
        # A task waits for a partition that it has read to its end, so it must not take later
        # records from the others.
        for task, inputs in inputs_now.items():
            ready[task], inputs_now[task] = until_first_is_empty(log, inputs)
    if max_offsets is not None:
        ready = limited(log, ready, max_offsets)
    planned = {task: ready.get(task, inputs.until(inputs.starts)) for task, inputs in tasks.items()}
    if waits_for_producers:
        # The idle time of partitions that this micro-batch exhausts begins now.
        for task, inputs in inputs_now.items():
            pacing.decide(task, inputs.after(planned[task]), now_ms)
    return planned


_MOST_ROUNDS = 64
_GOOD_FILL = 0.8
"""A cut is good enough when it takes this part of the budget."""
_AIMED_FILL = 0.9

_Hints = Mapping[TopicPartition, int | None]
_Search = Generator[dict[TopicPartition, int], _Hints | None, int]
"""A search for a timestamp: yields timestamps to ask for, is sent hints, returns the timestamp."""


def limited(log: BrokerLog, tasks: Mapping[int, Inputs], max_offsets: int) -> dict[int, Inputs]:
    """Return the first ``max_offsets`` of all tasks together, approximately.

    Each task gets a share in proportion to its offsets. Records of one timestamp stay together.
    """
    total = sum(map(len, tasks.values()))
    if total <= max_offsets:
        return dict(tasks)
    budgets = {
        task: max(1, max_offsets * len(inputs) // total)
        for task, inputs in tasks.items()
        if len(inputs)
    }
    ranges = {
        partition: (tasks[task].starts[partition], tasks[task].ends[partition])
        for task in budgets
        for partition in tasks[task].filled
    }
    first_visible = log.first_visible(ranges)
    largest = log.largest_timestamps(list(ranges))
    searches: dict[int, _Search] = {}
    lowest_ms: dict[int, int] = {}
    for task, budget in budgets.items():
        inputs = tasks[task]
        timestamps = [first_visible[p][1] for p in inputs.filled if p in first_visible]
        if len(inputs) <= budget or not timestamps:
            continue  # small enough, or without visible records
        lowest_ms[task] = min(timestamps)
        timestamps += [largest[p][0] for p in inputs.filled if p in largest]
        searches[task] = _search(inputs, budget, lowest_ms[task], max(timestamps) + 1)
    cuts_ms = _run_together(log, searches)
    return dict(tasks) | _cut_within(log, tasks, budgets, cuts_ms, lowest_ms)


def slices(log: BrokerLog, inputs: Inputs, count: int) -> list[Inputs]:
    """Divide inputs into about ``count`` pieces of about equal size, each later than the last."""
    size = max(1, -(-len(inputs) // count))
    pieces: list[Inputs] = []
    left = inputs
    while len(left):
        piece = limited(log, {0: left}, size)[0] if len(pieces) < count - 1 else left
        pieces.append(piece)
        left = left.after(piece)
    return pieces


def _search(inputs: Inputs, budget: int, lowest_ms: int, highest_ms: int) -> _Search:
    """Search for the timestamp before which about ``budget`` offsets lie.

    :param lowest_ms: a timestamp before which there are no records
    :param highest_ms: a timestamp before which all records are
    """
    low_ms, low_count = lowest_ms, 0
    high_ms, high_count = highest_ms, len(inputs)
    for round_number in range(_MOST_ROUNDS):
        if high_ms - low_ms <= 1:
            break
        middle_ms = (low_ms + high_ms) // 2
        if round_number % 3 != 2:
            # Timestamps are mostly spread evenly: interpolate, but bisect in every third round.
            part = (_AIMED_FILL * budget - low_count) / max(1, high_count - low_count)
            guess_ms = int(low_ms + (high_ms - low_ms) * part)
            middle_ms = min(high_ms - 1, max(low_ms + 1, guess_ms))
        hints = (yield dict.fromkeys(inputs.filled, middle_ms)) or {}
        count = sum(hinted_offset(hints, p, inputs) - inputs.starts[p] for p in inputs.filled)
        if _GOOD_FILL * budget <= count <= budget:
            return middle_ms
        if count > budget:
            high_ms, high_count = middle_ms, count
        else:
            low_ms, low_count = middle_ms, count
    return low_ms if low_count else high_ms


def _run_together(log: BrokerLog, searches: Mapping[int, _Search]) -> dict[int, int]:
    """Run the searches of tasks side by side, so that each round asks the brokers once."""
    found_ms: dict[int, int] = {}
    hints: _Hints | None = None
    while len(found_ms) < len(searches):
        questions: dict[TopicPartition, int] = {}
        for task in searches.keys() - found_ms:
            try:
                questions |= searches[task].send(hints)
            except StopIteration as end:
                found_ms[task] = end.value
        hints = log.offsets_at(questions)
    return found_ms


def _cut_within(
    log: BrokerLog,
    tasks: Mapping[int, Inputs],
    budgets: Mapping[int, int],
    cuts_ms: dict[int, int],
    lowest_ms: dict[int, int],
) -> dict[int, Inputs]:
    """Cut each task at its timestamp, or at an earlier one if more than its budget lies before."""
    taken: dict[int, Inputs] = {}
    opened: set[int] = set()
    while cuts_ms:
        timestamps_ms: dict[TopicPartition, int] = {}
        most: dict[TopicPartition, int] = {}
        for task, timestamp_ms in cuts_ms.items():
            timestamps_ms |= dict.fromkeys(tasks[task].filled, timestamp_ms)
            # All records of the lowest timestamp are taken: otherwise a micro-batch could be empty.
            if timestamp_ms > lowest_ms[task] + 1:
                most |= dict.fromkeys(tasks[task].filled, budgets[task])
        ends, seen_ms = cut(
            log, Inputs.joined([tasks[task] for task in cuts_ms]), timestamps_ms, most
        )
        for task in list(cuts_ms):
            inputs = tasks[task]
            given_up_ms = [seen_ms[p] for p in inputs.filled if p in seen_ms]
            if given_up_ms:
                cuts_ms[task] = max(lowest_ms[task] + 1, min(given_up_ms))
                continue
            taken[task] = inputs.until({p: ends[p] for p in inputs.filled})
            del cuts_ms[task]
            if not len(taken[task]) and task not in opened:
                # The head of a batch may tell an earlier time than that of its first record.
                opened.add(task)
                ranges = {p: (inputs.starts[p], inputs.ends[p]) for p in inputs.filled}
                firsts = log.first_visible(ranges, by_heads=False)
                if firsts:
                    lowest_ms[task] = min(first_ms for _, first_ms in firsts.values())
                    cuts_ms[task] = lowest_ms[task] + 1
    return taken


# -- cuts at moments in time


def cut(
    log: BrokerLog,
    inputs: Inputs,
    timestamps_ms: Mapping[TopicPartition, int],
    most: Mapping[TopicPartition, int] = MappingProxyType({}),
) -> tuple[Offsets, Offsets]:
    """Return where the inputs end before each partition's first record from its timestamp on.

    :param most: give up after this many offsets of a partition
    :returns: also, of the partitions whose search was given up, the largest timestamp that was seen
    """
    # Nothing lies before the lowest timestamp. To a broker it would mean something else.
    searched = {p: at_ms for p, at_ms in timestamps_ms.items() if at_ms > NO_TIMESTAMP}
    ends = {p: (inputs.ends if p in searched else inputs.starts)[p] for p in timestamps_ms}
    given_up_ms: Offsets = {}
    hints = log.offsets_at(searched)
    unchecked: dict[TopicPartition, tuple[int, int]] = {}
    for partition in searched:
        offset, start = hinted_offset(hints, partition, inputs), inputs.starts[partition]
        if partition in most and offset - start > most[partition]:
            # The broker has seen a later timestamp before the start, and tells nothing of the rest.
            offset = start
        if offset < inputs.ends[partition]:
            unchecked[partition] = offset, inputs.ends[partition]
    for partition, (_, first_ms) in log.first_visible(unchecked).items():
        bounds, timestamp_ms = unchecked[partition], searched[partition]
        ends[partition] = bounds[0]
        if first_ms < timestamp_ms:
            limit = inputs.starts[partition] + most[partition] if partition in most else None
            ends[partition], seen_ms = _search_records(log, partition, bounds, timestamp_ms, limit)
            if seen_ms is not None:
                given_up_ms[partition] = seen_ms
    return ends, given_up_ms


def hinted_offset(
    hints: Mapping[TopicPartition, int | None], partition: TopicPartition, inputs: Inputs
) -> int:
    """Return where the broker says that later timestamps begin, within the inputs.

    The start when it does not answer.
    """
    start, end = inputs.starts[partition], inputs.ends[partition]
    offset = hints.get(partition, start)
    return end if offset is None else min(max(offset, start), end)


def _search_records(
    log: BrokerLog,
    partition: TopicPartition,
    bounds: tuple[int, int],
    timestamp_ms: int,
    limit: int | None,
) -> tuple[int, int | None]:
    """Search the records themselves for the first one from a timestamp on.

    :param limit: the offset at which to give up
    :returns: the offset of that record; or the limit, and the largest timestamp before it
    """
    largest_ms = NO_TIMESTAMP
    for offsets, timestamps in log.scan(partition, *bounds):
        later = (timestamps >= timestamp_ms).nonzero()[0]
        if len(later):
            return int(offsets[later[0]]), None
        counted = timestamps
        if limit is not None and largest_ms >= 0:
            counted = timestamps[offsets < limit]
        largest_ms = max(largest_ms, int(counted.max(initial=NO_TIMESTAMP)))
        if limit is not None and int(offsets[-1]) >= limit:
            return limit, largest_ms
    return bounds[1], None


def until_first_is_empty(log: BrokerLog, inputs: Inputs) -> tuple[Inputs, Inputs]:
    """Cut where the merge has taken the last record of one of the partitions that have records.

    :returns: what can be taken until then; and ``inputs`` with the later ends that were learned of
        meanwhile
    """
    filled = inputs.filled
    if len(filled) < 2:
        return inputs, inputs
    inputs, largest = _largest_timestamps(log, inputs)
    first = min(filled, key=lambda partition: largest[partition][0])
    largest_ms, is_complete = largest[first]
    bounds = dict.fromkeys(filled, largest_ms)
    if is_complete:  # otherwise it has more: end with what was searched
        # Before the last record of `first` the merge takes equal timestamps of earlier partitions,
        # but not those of later ones.
        del bounds[first]
        bounds |= dict.fromkeys(filled[: filled.index(first)], largest_ms + 1)
    return inputs.until(cut(log, inputs, bounds)[0]), inputs


_Largest = tuple[int, bool]
"""The largest timestamp of a partition; False if only its first records were searched."""


def _largest_timestamps(
    log: BrokerLog, inputs: Inputs
) -> tuple[Inputs, dict[TopicPartition, _Largest]]:
    """Find the largest timestamp of what may be read of each partition.

    Records that arrived after the ends were asked for are included, up to the one with the largest
    timestamp. Otherwise a partition that is written to all the time would be searched each time.

    :returns: ``inputs`` with these later ends; and the timestamps
    """
    filled = inputs.filled
    hints = log.largest_timestamps(filled)
    newer = [p for p, (_, offset) in hints.items() if offset >= inputs.ends[p]]
    readable = {**inputs.ends, **log.ends(newer)}
    likely = {
        p: (offset, offset + 1)
        for p, (_, offset) in hints.items()
        if inputs.starts[p] <= offset < readable[p]
    }
    visible = log.first_visible(likely)
    largest: dict[TopicPartition, _Largest] = {}
    ends = {}
    for partition in filled:
        start, end = inputs.starts[partition], inputs.ends[partition]
        if partition in visible and visible[partition][1] == hints[partition][0]:
            offset, timestamp_ms = visible[partition]
            largest[partition] = timestamp_ms, True
            ends[partition] = max(end, offset + 1)
        else:  # the hint is a marker, an aborted record, or one from before the start
            largest[partition] = _search_largest(log, partition, start, end)
    return inputs.until(ends), largest


def _search_largest(log: BrokerLog, partition: TopicPartition, start: int, end: int) -> _Largest:
    first_ms: int | None = None
    largest_ms = NO_TIMESTAMP
    seen = 0
    for _, timestamps in log.scan(partition, start, end):
        if first_ms is None:
            first_ms = int(timestamps[0])
        elif seen >= SCAN_RECORDS and largest_ms > first_ms:
            return largest_ms, False
        largest_ms = max(largest_ms, int(timestamps.max()))
        seen += len(timestamps)
    return largest_ms, True
