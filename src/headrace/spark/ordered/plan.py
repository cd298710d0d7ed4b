"""How far each task of ``kafka-ordered`` may go in the next micro-batch, decided before anything of
it is read.

A task's inputs are merged by always taking the smallest timestamp among the partitions' next
records. That is the order of (largest timestamp so far within the partition, partition, offset), so
*all that comes before timestamp T* is, in each partition, what lies before its first record from T
on. Brokers find that record (ListOffsets by timestamp), and so a batch is cut without reading it.
They may be misled by transaction markers, by aborted records and by records before the batch's
start; so each cut is checked by a look at the first record behind it, and searched for in the
records themselves where it does not hold.

Pure: what is known of the logs comes through :class:`Log`, the time as an argument.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from headrace.protocol.partitions import TopicPartition
from headrace.tasks import Decision, Readiness
from headrace.tasks.ordered_merge import NO_TIMESTAMP

Offsets = dict[TopicPartition, int]

SCAN_RECORDS = 100_000
"""So many records of a partition are looked through for its largest timestamp, when its broker
cannot tell.
"""

_MOST_ROUNDS = 64
_GOOD_FILL = 0.8


class Log(Protocol):
    """What is asked about the subscribed partitions. Everything but :meth:`walk` is asked for all
    at once.

    *Visible* are records that a consumer would get: no transaction markers and, for read_committed,
    none of aborted transactions.
    """

    def ends(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The offset after the last record that can be read; without partitions of which nobody
        tells.
        """

    def offsets_at(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int | None]:
        """The first offset of the whole log with that timestamp or a later one, visible or not;
        None without any.
        """

    def peaks(
        self, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, tuple[int, int]]:
        """(timestamp, offset) of the first of the records with the largest timestamp, visible or
        not.
        """

    def heads(
        self, ranges: Mapping[TopicPartition, tuple[int, int]]
    ) -> Mapping[TopicPartition, tuple[int, int]]:
        """(offset, timestamp) of the first visible record from ``start`` to before ``end``; none is
        left out.
        """

    def walk(self, partition: TopicPartition, start: int, end: int) -> Iterator[tuple[Any, Any]]:
        """Offsets and timestamps of visible records in that range, in pieces: two numpy arrays
        each.
        """


@dataclass(frozen=True, slots=True)
class Inputs:
    """One task's partitions, and what of each may be read.

    :param partitions: their order breaks ties between equal timestamps
    :param starts: the next offset to read
    :param ends: the offset after the last one that may be read; a partition of which nothing is
        known is left out
    """

    partitions: tuple[TopicPartition, ...]
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]

    def __len__(self) -> int:
        return sum(map(self.available, self.partitions))

    def available(self, partition: TopicPartition) -> int:
        """How many offsets of ``partition`` may be read."""
        return max(0, self.ends.get(partition, 0) - self.starts[partition])

    @property
    def filled(self) -> list[TopicPartition]:
        """The partitions of which something may be read."""
        return [partition for partition in self.partitions if self.available(partition)]

    def until(self, ends: Mapping[TopicPartition, int]) -> Inputs:
        """The same, with nearer ends for some partitions."""
        return Inputs(self.partitions, self.starts, {**self.ends, **ends})

    @property
    def reached(self) -> Offsets:
        """Where each partition is when all of this has been read."""
        return {p: max(self.starts[p], self.ends.get(p, 0)) for p in self.partitions}

    def stopped(self) -> Inputs:
        """The same with nothing to read."""
        return self.until({p: self.starts[p] for p in self.partitions})


@dataclass(slots=True)
class Pacing:
    """Which tasks may go on, by the rule of ``max.task.idle.ms``. It remembers only the idle
    deadlines.

    :param max_task_idle_ms: see :class:`headrace.tasks.Readiness`
    """

    max_task_idle_ms: int
    decisions: dict[int, Decision[str]] = field(default_factory=dict)
    """The last one of each task; partitions by name, as in "flights-0"."""
    _rules: dict[int, tuple[Sequence[TopicPartition], Readiness[str]]] = field(default_factory=dict)

    def decide(self, task: int, inputs: Inputs, now_ms: int) -> Decision[str]:
        """Whether the task may take a record. What a broker has counts as buffered: it is there to
        be read.
        """
        partitions, rule = self._rules.get(task, ((), None))
        if rule is None or partitions != inputs.partitions:
            rule = Readiness(
                [f"{topic}-{number}" for topic, number in inputs.partitions], self.max_task_idle_ms
            )
            self._rules[task] = (inputs.partitions, rule)
        buffered = dict(zip(rule.partitions, map(inputs.available, inputs.partitions), strict=True))
        known = (0 if partition in inputs.ends else None for partition in inputs.partitions)
        lags = dict(zip(rule.partitions, known, strict=True))
        decision = self.decisions[task] = rule.decide(buffered, lags, now_ms)
        return decision


def plan(
    log: Log,
    pacing: Pacing,
    tasks: Mapping[int, Inputs],
    now_ms: int,
    max_offsets: int | None = None,
) -> dict[int, Inputs]:
    """The next micro-batch of each task: the same inputs, with the ends where it stops.

    :param now_ms: of a clock that does not go back
    :param max_offsets: of all tasks together, about: records of one timestamp stay together
    """
    ready = {
        task: inputs for task, inputs in tasks.items() if pacing.decide(task, inputs, now_ms).ready
    }
    known = dict(ready)
    if pacing.max_task_idle_ms > 0:
        # A partition that has been read to its end is waited for, so nothing may be taken beyond
        # that.
        for task, inputs in known.items():
            ready[task], known[task] = until_first_is_empty(log, inputs)
    if max_offsets is not None:
        ready = limited(log, ready, max_offsets)
    planned = {
        task: ready[task] if task in ready else inputs.stopped() for task, inputs in tasks.items()
    }
    if pacing.max_task_idle_ms > 0:
        for task, inputs in known.items():  # waiting for what this batch exhausts begins now
            pacing.decide(task, after(inputs, planned[task]), now_ms)
    return planned


def after(inputs: Inputs, taken: Inputs) -> Inputs:
    """What is left of ``inputs`` when ``taken`` has been read."""
    return Inputs(inputs.partitions, taken.reached, inputs.ends)


def until_first_is_empty(log: Log, inputs: Inputs) -> tuple[Inputs, Inputs]:
    """What can be taken before one of the partitions that have records has none left.

    :returns: that, and ``inputs`` with the later ends that were learned of meanwhile
    """
    filled = inputs.filled
    if len(filled) < 2:
        return inputs, inputs
    inputs, found = _peaks(log, inputs)
    peak_ms, order, whole = min(
        (timestamp_ms, order, whole)
        for order, (timestamp_ms, whole) in enumerate(found[p] for p in filled)
    )
    if whole:
        # The record with this timestamp of the partition `order` is the last one.
        bounds = {
            p: peak_ms + 1 if place < order else peak_ms
            for place, p in enumerate(filled)
            if place != order
        }
    else:
        bounds = dict.fromkeys(
            filled, peak_ms
        )  # it has more than was looked at: the batch ends with that
    return cut(log, inputs, bounds), inputs


def cut(log: Log, inputs: Inputs, timestamps_ms: Mapping[TopicPartition, int]) -> Inputs:
    """Up to each partition's first record from its timestamp on."""
    found = _cuts(log, inputs, timestamps_ms, None)
    return inputs.until({partition: offset for partition, (offset, _) in found.items()})


def limited(log: Log, tasks: Mapping[int, Inputs], max_offsets: int) -> dict[int, Inputs]:
    """The first ``max_offsets`` of all tasks together, each with its share of them by what it
    has."""
    total = sum(map(len, tasks.values()))
    if total <= max_offsets:
        return dict(tasks)
    budgets = {
        task: max(1, max_offsets * len(inputs) // total)
        for task, inputs in tasks.items()
        if len(inputs)
    }
    searches = {}
    filled = {task: inputs.filled for task, inputs in tasks.items() if task in budgets}
    everything = {
        p: (tasks[t].starts[p], tasks[t].ends[p])
        for t, partitions in filled.items()
        for p in partitions
    }
    heads = log.heads(everything)
    peaks = log.peaks(list(everything))
    lowest: dict[int, int] = {}
    for task, partitions in filled.items():
        timestamps = [heads[p][1] for p in partitions if p in heads]
        if len(tasks[task]) <= budgets[task] or not timestamps:
            continue  # small enough; or nothing that anyone would see
        lowest[task] = min(timestamps)
        highest = max([peaks[p][0] for p in partitions if p in peaks] + timestamps)
        searches[task] = _search(tasks[task], budgets[task], lowest[task], highest + 1)
    bounds = _together(log, searches)
    return {
        task: _within(log, inputs, budgets[task], bounds[task], lowest[task])
        if task in bounds
        else inputs
        for task, inputs in tasks.items()
    }


def slices(log: Log, inputs: Inputs, count: int) -> list[Inputs]:
    """The same in about ``count`` pieces of about equal size, each later in time than the one
    before.
    """
    size = max(1, -(-len(inputs) // count))
    pieces: list[Inputs] = []
    left = inputs
    while len(left):
        pieces.append(limited(log, {0: left}, size)[0] if len(pieces) < count - 1 else left)
        left = after(left, pieces[-1])
    return pieces


def _search(
    inputs: Inputs, budget: int, lowest_ms: int, highest_ms: int
) -> Generator[dict[TopicPartition, int], Mapping[TopicPartition, int | None], int]:
    """Look for the timestamp before which about ``budget`` offsets lie. Yields what to ask, is sent
    the answers.

    :param lowest_ms: nothing lies before it
    :param highest_ms: everything lies before it
    """
    low, high = lowest_ms, highest_ms
    low_count, high_count = 0, len(inputs)
    for number in range(_MOST_ROUNDS):
        if high - low <= 1:
            break
        middle = (low + high) // 2
        if number % 3 != 2:  # timestamps are mostly spread evenly: guess, but do not rely on it
            guess = low + (high - low) * (0.9 * budget - low_count) / max(1, high_count - low_count)
            middle = min(high - 1, max(low + 1, int(guess)))
        answers = yield dict.fromkeys(inputs.filled, middle)
        count = sum(
            min(max(_hint(answers, p, inputs), inputs.starts[p]), inputs.ends[p]) - inputs.starts[p]
            for p in inputs.filled
        )
        if _GOOD_FILL * budget <= count <= budget:
            return middle
        if count > budget:
            high, high_count = middle, count
        else:
            low, low_count = middle, count
    return low if low_count else high


def _together(
    log: Log,
    searches: Mapping[
        int, Generator[dict[TopicPartition, int], Mapping[TopicPartition, int | None], int]
    ],
) -> dict[int, int]:
    """Run searches side by side, so that each round is one question."""
    results: dict[int, int] = {}
    questions: dict[int, dict[TopicPartition, int]] = {}
    answers: Mapping[TopicPartition, int | None] | None = None
    waiting = dict(searches)
    while waiting:
        for task, search in list(waiting.items()):
            try:
                questions[task] = next(search) if answers is None else search.send(answers)
            except StopIteration as end:
                results[task] = end.value
                questions.pop(task, None)
                del waiting[task]
        if waiting:
            answers = log.offsets_at(
                {p: at for question in questions.values() for p, at in question.items()}
            )
    return results


def _within(log: Log, inputs: Inputs, budget: int, timestamp_ms: int, lowest_ms: int) -> Inputs:
    """Cut at the timestamp, or at an earlier one should more than the budget turn out to lie before
    it.
    """
    while True:
        # Records of the lowest timestamp are taken, however many there are: otherwise nothing would
        # ever be.
        most = budget if timestamp_ms > lowest_ms + 1 else None
        found = _cuts(log, inputs, dict.fromkeys(inputs.filled, timestamp_ms), most)
        too_many = [reached_ms for _, reached_ms in found.values() if reached_ms is not None]
        if not too_many:
            return inputs.until({partition: offset for partition, (offset, _) in found.items()})
        timestamp_ms = max(lowest_ms + 1, min(too_many))


def _hint(
    answers: Mapping[TopicPartition, int | None], partition: TopicPartition, inputs: Inputs
) -> int:
    """Where the broker says that later timestamps begin; the start when it does not know."""
    offset = answers.get(partition, inputs.starts[partition])
    return inputs.ends[partition] if offset is None else offset


def _cuts(
    log: Log, inputs: Inputs, timestamps_ms: Mapping[TopicPartition, int], most: int | None
) -> dict[TopicPartition, tuple[int, int | None]]:
    """Where each partition's records from its timestamp on begin.

    :param most: give up when more than so many offsets lie before
    :returns: (offset, None); or what was reached when given up, with the largest timestamp seen
        until there
    """
    asked = {
        partition: bound_ms
        for partition, bound_ms in timestamps_ms.items()
        if bound_ms > NO_TIMESTAMP
    }
    hints = log.offsets_at(asked) if asked else {}
    # Nothing lies before the lowest of all timestamps, which to a broker would mean something else.
    found: dict[TopicPartition, tuple[int, int | None]] = {
        partition: (inputs.starts[partition], None)
        for partition in timestamps_ms
        if partition not in asked
    }
    unsure: dict[TopicPartition, tuple[int, int]] = {}
    for partition in asked:
        start, end = inputs.starts[partition], inputs.ends[partition]
        at = min(max(start, _hint(hints, partition, inputs)), end)
        if at == end:
            found[partition] = (end, None)
        else:
            unsure[partition] = (at, end)
    heads = log.heads(unsure) if unsure else {}
    for partition, (at, end) in unsure.items():
        bound_ms = timestamps_ms[partition]
        if partition not in heads:
            found[partition] = (end, None)  # nothing there that anyone would see
        elif heads[partition][1] >= bound_ms:
            found[partition] = (at, None)
        else:
            limit = None if most is None else inputs.starts[partition] + most
            found[partition] = _first_from(log, partition, (at, end), bound_ms, limit)
    return found


def _first_from(
    log: Log,
    partition: TopicPartition,
    bounds: tuple[int, int],
    timestamp_ms: int,
    limit: int | None,
) -> tuple[int, int | None]:
    largest_ms = NO_TIMESTAMP
    for offsets, timestamps in log.walk(partition, *bounds):
        later = (timestamps >= timestamp_ms).nonzero()[0]
        if len(later):
            return int(offsets[later[0]]), None
        inside = timestamps if limit is None or largest_ms < 0 else timestamps[offsets < limit]
        largest_ms = max(largest_ms, int(inside.max(initial=NO_TIMESTAMP)))
        if limit is not None and len(offsets) and int(offsets[-1]) >= limit:
            return limit, largest_ms
    return bounds[1], None


def _peaks(log: Log, inputs: Inputs) -> tuple[Inputs, dict[TopicPartition, tuple[int, bool]]]:
    """The largest timestamp of what may be read of each partition, and whether all of that was
    considered.

    Records that came after the ends were asked for are taken along up to the one with the largest
    timestamp: otherwise a partition that is written to all the time would have to be looked through
    each time.
    """
    filled = inputs.filled
    hints = log.peaks(filled)
    newer = [p for p, (_, at) in hints.items() if at >= inputs.ends[p]]
    readable = {**inputs.ends, **(log.ends(newer) if newer else {})}
    likely = {
        p: (at, at + 1) for p, (_, at) in hints.items() if inputs.starts[p] <= at < readable[p]
    }
    heads = log.heads(likely) if likely else {}
    found: dict[TopicPartition, tuple[int, bool]] = {}
    ends = {}
    for partition in filled:
        head = heads.get(partition)
        if head is not None and head[1] == hints[partition][0]:
            found[partition] = (head[1], True)
            ends[partition] = max(inputs.ends[partition], head[0] + 1)
        else:  # a marker, an aborted record, or one from before the start: see for ourselves
            found[partition] = _largest(
                log, partition, inputs.starts[partition], inputs.ends[partition]
            )
    return inputs.until(ends), found


def _largest(log: Log, partition: TopicPartition, start: int, end: int) -> tuple[int, bool]:
    first_ms: int | None = None
    largest_ms, seen = NO_TIMESTAMP, 0
    for _, timestamps in log.walk(partition, start, end):
        if not len(timestamps):
            continue
        if seen >= SCAN_RECORDS and first_ms is not None and largest_ms > first_ms:
            return largest_ms, False
        first_ms = int(timestamps[0]) if first_ms is None else first_ms
        largest_ms = max(largest_ms, int(timestamps.max()))
        seen += len(timestamps)
    return largest_ms, True
