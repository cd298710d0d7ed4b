"""The end of the next micro-batch of ``kafka-ordered``, decided before its records are read.

Pure: the logs are asked through :class:`~headrace.spark.ordered.inputs.Log`, and time is an
argument.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headrace.ordered import Decision, Readiness
from headrace.protocol.partitions import TopicPartition

from .cuts import until_first_is_empty
from .inputs import Inputs, Log
from .limits import limited


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
    log: Log,
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
