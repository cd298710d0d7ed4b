"""The end of the next micro-batch of ``kafka-ordered``, decided before its records are read.

Pure: the logs are asked through :class:`~headrace.spark.ordered.cuts.Log`, and time is an
argument.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.ordered import Decision, Readiness
from headrace.protocol.partitions import TopicPartition
from headrace.spark.ordered.broker_log import BrokerLog
from headrace.spark.ordered.cuts import Inputs, find_cuts, hinted_offset, until_first_is_empty


@dataclass(slots=True)
class Pacing:
    """The rule of ``max.task.idle.ms`` for all tasks. It remembers only the idle deadlines.

    :param max_task_idle_ms: see :class:`headrace.ordered.Readiness`
    :ivar decisions: the last decision for each task; partitions by name, as in ``flights-0``
    """

    max_task_idle_ms: int
    decisions: dict[int, Decision[str]] = field(default_factory=dict)
    _rules: dict[int, tuple[Sequence[TopicPartition], Readiness[str]]] = field(default_factory=dict)

    def decide(self, task: int, inputs: Inputs, now_ms: int) -> Decision[str]:
        """Decide whether a task may take a record. Records on the broker count as buffered."""
        partitions, rule = self._rules.get(task, ((), None))
        if rule is None or partitions != inputs.partitions:
            names = [f"{topic}-{number}" for topic, number in inputs.partitions]
            rule = Readiness(names, self.max_task_idle_ms)
            self._rules[task] = (inputs.partitions, rule)
        buffered = dict(zip(rule.partitions, map(inputs.available, inputs.partitions), strict=True))
        known_lags = (0 if partition in inputs.ends else None for partition in inputs.partitions)
        lags = dict(zip(rule.partitions, known_lags, strict=True))
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
    known = dict(ready)
    waits_for_producers = pacing.max_task_idle_ms > 0
    if waits_for_producers:
        # A task waits for a partition that it has read to its end, so it must not take later
        # records from the others.
        for task, inputs in known.items():
            ready[task], known[task] = until_first_is_empty(log, inputs)
    if max_offsets is not None:
        ready = limited(log, ready, max_offsets)
    planned = {
        task: ready[task] if task in ready else inputs.emptied() for task, inputs in tasks.items()
    }
    if waits_for_producers:
        # The idle time of partitions that this micro-batch exhausts begins now.
        for task, inputs in known.items():
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
    found_ms = _run_together(log, searches)
    return {
        task: _cut_within(log, inputs, budgets[task], found_ms[task], lowest_ms[task])
        if task in found_ms
        else inputs
        for task, inputs in tasks.items()
    }


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
    questions: dict[int, dict[TopicPartition, int]] = {}
    hints: _Hints | None = None
    running = dict(searches)
    while running:
        for task, search in list(running.items()):
            try:
                questions[task] = search.send(hints)
            except StopIteration as end:
                found_ms[task] = end.value
                questions.pop(task, None)
                del running[task]
        if running:
            hints = log.offsets_at(
                {
                    partition: timestamp_ms
                    for question in questions.values()
                    for partition, timestamp_ms in question.items()
                }
            )
    return found_ms


def _cut_within(
    log: BrokerLog, inputs: Inputs, budget: int, timestamp_ms: int, lowest_ms: int
) -> Inputs:
    """Cut at the timestamp, or at an earlier one if more than the budget lies before it."""
    while True:
        # All records of the lowest timestamp are taken: otherwise a micro-batch could be empty.
        most = budget if timestamp_ms > lowest_ms + 1 else None
        cuts = find_cuts(log, inputs, dict.fromkeys(inputs.filled, timestamp_ms), most)
        given_up_ms = [cut.given_up_ms for cut in cuts.values() if cut.given_up_ms is not None]
        if not given_up_ms:
            return inputs.until({partition: cut.offset for partition, cut in cuts.items()})
        timestamp_ms = max(lowest_ms + 1, min(given_up_ms))
