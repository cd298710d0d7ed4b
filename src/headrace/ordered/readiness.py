"""The rule of ``max.task.idle.ms``: when a task with several inputs may take its next record
(KIP-353, KIP-695).

A task takes the record with the smallest timestamp among its input partitions. When nothing of a
partition is buffered, its next timestamp is unknown, and the rule decides whether to wait for it::

    readiness = Readiness(["orders-0", "payments-0"], max_task_idle_ms=0)
    decision = readiness.decide(buffered={"orders-0": 3}, lags={"payments-0": 5}, now_ms=1_000)
    decision.ready      # False
    str(decision)       # "Partition payments-0 has current lag 5, but no data …"

docs/behaviour/ordered.md explains the rule and its reasons.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

P = TypeVar("P", bound=Hashable)
"""A partition: ``("orders", 0)``, or anything hashable whose ``str`` names it."""

IDLING_DISABLED = -1
"""The ``max_task_idle_ms`` with which a task never waits."""


class Reason(Enum):
    """The reason for a decision. The value is the text that Kafka Streams logs."""

    DISABLED = "Idling is disabled."
    BUFFERED = "All partitions have records buffered."
    ENFORCED = (
        "Records are processed without waiting any longer for {enforced}; current time is {now_ms}."
    )
    LAG_UNKNOWN = (
        "Partition {partition} has fetched lag of -1\n\tWaiting to fetch data for {partition}"
    )
    NOT_FETCHED = (
        "Partition {partition} has current lag {lag}, but no data is buffered locally. Waiting "
        "to buffer some records."
    )
    IDLING = (
        "Partition {partition} has current lag {lag} and current time is {now_ms}. Waiting "
        "for new data to be produced "
        "for configured idle time {max_task_idle_ms} (deadline is {deadline_ms})."
    )
    NOTHING_BUFFERED = (
        "No partitions were buffered locally, so this task is not ready for processing."
    )


@dataclass(frozen=True, slots=True)
class Decision(Generic[P]):
    """The decision of the rule at one moment. ``str()`` returns a text for the log.

    :param ready: the task may take a record (with idling disabled also when there is none)
    :param partition: the partition that the task waits for; None when ready, and when nothing at
        all is buffered
    :param lag: the lag of that partition; None when unknown
    :param deadline_ms: when waiting for it ends; None when the task waits for data on the broker,
        or for its lag
    :param enforced: the empty partitions that the task no longer waits for, each with the deadline
        that has passed. If it is not empty and ``ready`` is true, this is enforced processing:
        records of these partitions may be late
    """

    ready: bool
    reason: Reason
    now_ms: int
    max_task_idle_ms: int
    partition: P | None = None
    lag: int | None = None
    deadline_ms: int | None = None
    enforced: Mapping[P, int] = field(default_factory=dict)

    @property
    def is_enforced(self) -> bool:
        """True if a record is taken although one of an empty partition may still precede it."""
        return self.reason is Reason.ENFORCED

    def __str__(self) -> str:
        return self.reason.value.format(
            partition=_text(self.partition),
            lag=self.lag,
            now_ms=self.now_ms,
            max_task_idle_ms=self.max_task_idle_ms,
            deadline_ms=self.deadline_ms,
            enforced=", ".join(f"{_text(p)} (deadline {ms})" for p, ms in self.enforced.items()),
        )


def _text(partition: object) -> str:
    return "-".join(map(str, partition)) if isinstance(partition, tuple) else str(partition)


class Readiness(Generic[P]):
    """The rule for one task. It remembers only the deadlines of caught-up partitions.

    :param partitions: the task's inputs; of several empty ones, the first decides
    :param max_task_idle_ms: -1: never wait. 0: wait for data that the broker has. n: wait also n
        milliseconds for data that producers may still send to a caught-up partition
    :raises ValueError: ``max_task_idle_ms`` is below -1
    """

    def __init__(self, partitions: Sequence[P], max_task_idle_ms: int = 0) -> None:
        if max_task_idle_ms < IDLING_DISABLED:
            raise ValueError(
                f"max_task_idle_ms is {max_task_idle_ms}: it may be -1 (never wait), 0 (wait for "
                "what the broker has) or a number of milliseconds to wait for producers, too"
            )
        self.partitions = tuple(partitions)
        self.max_task_idle_ms = max_task_idle_ms
        self._deadlines: dict[P, int] = {}

    def decide(
        self, buffered: Mapping[P, int], lags: Mapping[P, int | None], now_ms: int
    ) -> Decision[P]:
        """Decide whether the task may take a record now. Call it before each record, and whenever
        something has changed.

        Takes time in proportion to the partitions.

        :param buffered: the number of buffered records of each partition; a missing one has none
        :param lags: the number of further records on the broker, as far as known; missing or None
            is unknown. Zero or less means caught up, whatever is buffered
        :param now_ms: in milliseconds, of any clock that does not go back
        """
        idle_ms = self.max_task_idle_ms
        if idle_ms == IDLING_DISABLED:
            return Decision(True, Reason.DISABLED, now_ms, idle_ms)
        queued = False
        enforced: dict[P, int] = {}
        for partition in self.partitions:
            if buffered.get(partition):
                self._deadlines.pop(partition, None)
                queued = True
                continue
            lag = lags.get(partition)
            if lag is None or lag > 0:
                self._deadlines.pop(partition, None)
                reason = Reason.LAG_UNKNOWN if lag is None else Reason.NOT_FETCHED
                return Decision(False, reason, now_ms, idle_ms, partition, lag)
            deadline_ms = self._deadlines.setdefault(partition, now_ms + idle_ms)
            if now_ms < deadline_ms:
                return Decision(False, Reason.IDLING, now_ms, idle_ms, partition, lag, deadline_ms)
            enforced[partition] = deadline_ms
        if not enforced:
            return Decision(True, Reason.BUFFERED, now_ms, idle_ms)
        reason = Reason.ENFORCED if queued else Reason.NOTHING_BUFFERED
        return Decision(queued, reason, now_ms, idle_ms, enforced=enforced)

    def all_buffered(self) -> None:
        """Do what :meth:`decide` does if every partition has records, in constant time."""
        self._deadlines.clear()
