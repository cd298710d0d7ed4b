"""May a task with several inputs take its next record yet? The rule of ``max.task.idle.ms``
(KIP-353, KIP-695).

A task takes the record with the smallest timestamp among its input partitions. When nothing of one
of them is buffered, nobody knows what timestamp would come from there, and the rule says whether
that is worth waiting for::

    readiness = Readiness(["orders-0", "payments-0"], max_task_idle_ms=0)
    decision = readiness.decide(buffered={"orders-0": 3}, lags={"payments-0": 5}, now_ms=1_000)
    decision.ready      # False
    str(decision)       # "Partition payments-0 has current lag 5, but no data …"

The rule in words, and why it is like that: docs/behaviour/tasks.md.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

P = TypeVar("P", bound=Hashable)
"""What stands for a partition: anything hashable whose ``str`` names it, such as ``"orders-0"``."""

IDLING_DISABLED = -1
"""As ``max_task_idle_ms``: never wait for anything."""


class Reason(Enum):
    """Why a task may take a record, or may not yet. The value is what Kafka Streams writes to its
    log.
    """

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


_READY = frozenset({Reason.DISABLED, Reason.BUFFERED, Reason.ENFORCED})


@dataclass(frozen=True, slots=True)
class Decision(Generic[P]):
    """What the rule says at one moment. ``str()`` of it is a text for the log.

    :param ready: whether the task may take a record (with idling disabled also when there is none)
    :param partition: the one that is waited for; None when ready, and when nothing at all is
        buffered
    :param lag: of that partition, as the broker knows it; None when unknown
    :param deadline_ms: until when it is waited for; None when data on the broker, or its lag, is
        waited for
    :param enforced: the empty partitions that are waited for no longer, each with the deadline that
        has passed. Not empty and ``ready``: this is enforced processing, records that come from
        there may be late
    """

    ready: bool
    reason: Reason
    now_ms: int
    max_task_idle_ms: int
    partition: P | None = None
    lag: int | None = None
    deadline_ms: int | None = None
    enforced: Mapping[P, int] | None = None

    @property
    def is_enforced(self) -> bool:
        """Whether a record is taken although one from an empty partition might still come before
        it.
        """
        return self.reason is Reason.ENFORCED

    def __str__(self) -> str:
        return self.reason.value.format(
            partition=self.partition,
            lag=self.lag,
            now_ms=self.now_ms,
            max_task_idle_ms=self.max_task_idle_ms,
            deadline_ms=self.deadline_ms,
            enforced=", ".join(f"{p} (deadline {ms})" for p, ms in (self.enforced or {}).items()),
        )


class Readiness(Generic[P]):
    """The rule for one task. It remembers only until when each caught-up partition is waited for.

    :param partitions: the task's inputs; of several that are empty, the first one decides
    :param max_task_idle_ms: -1: never wait. 0: wait for what the broker already has. n: wait also n
        milliseconds for what producers may still send to a partition that is caught up
    :raises ValueError: ``max_task_idle_ms`` is below -1
    """

    __slots__ = ("_deadlines", "max_task_idle_ms", "partitions")

    def __init__(self, partitions: Sequence[P], max_task_idle_ms: int = 0) -> None:
        if max_task_idle_ms < IDLING_DISABLED:
            raise ValueError(
                f"max_task_idle_ms is {max_task_idle_ms}: it may be -1 (never wait), 0 "
                f"(wait for what the broker "
                "has) or a number of milliseconds to wait for producers, too"
            )
        self.partitions = tuple(partitions)
        self.max_task_idle_ms = max_task_idle_ms
        self._deadlines: dict[P, int] = {}

    def decide(
        self, buffered: Mapping[P, int], lags: Mapping[P, int | None], now_ms: int
    ) -> Decision[P]:
        """Whether the task may take a record now. Ask before each one, and whenever something has
        changed.

        The cost is that of a look at each partition.

        :param buffered: how many records of each partition are at hand; a missing one has none
        :param lags: how many more the broker has of each, as far as known; missing or None is
            unknown. Zero, or less, is what "caught up" means, whatever is buffered
        :param now_ms: in milliseconds, of any clock that does not go back
        """
        if self.max_task_idle_ms == IDLING_DISABLED:
            return self._decision(Reason.DISABLED, now_ms)
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
                return self._decision(reason, now_ms, partition, lag)
            deadline_ms = self._deadlines.setdefault(partition, now_ms + self.max_task_idle_ms)
            if now_ms < deadline_ms:
                return self._decision(Reason.IDLING, now_ms, partition, lag, deadline_ms)
            enforced[partition] = deadline_ms
        if not enforced:
            return self._decision(Reason.BUFFERED, now_ms)
        return self._decision(
            Reason.ENFORCED if queued else Reason.NOTHING_BUFFERED, now_ms, enforced=enforced
        )

    def _decision(
        self,
        reason: Reason,
        now_ms: int,
        partition: P | None = None,
        lag: int | None = None,
        deadline_ms: int | None = None,
        enforced: Mapping[P, int] | None = None,
    ) -> Decision[P]:
        return Decision(
            reason in _READY,
            reason,
            now_ms,
            self.max_task_idle_ms,
            partition,
            lag,
            deadline_ms,
            enforced or {},
        )

    def all_buffered(self) -> None:
        """For a task with records of every partition: does what :meth:`decide` would do then, at no
        cost.
        """
        if self._deadlines:
            self._deadlines.clear()

    def next_deadline_ms(self) -> int | None:
        """When the first of the partitions that are waited for will be so no longer; None when none
        is.

        A deadline that has passed stays until its partition has records, or a lag above zero or
        unknown.
        """
        return min(self._deadlines.values(), default=None)
