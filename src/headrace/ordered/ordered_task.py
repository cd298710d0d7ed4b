"""One task with several inputs: its queues, the rule that decides when to take from them, and its
metrics (KIP-695).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace
from typing import Generic, TypeVar

from headrace.protocol.record_batch import NO_TIMESTAMP

from .readiness import Decision, P, Readiness

R = TypeVar("R")

IDLE_LOG_INTERVAL_MS = 120_000
"""The least time between two log lines of a waiting task, as in Kafka Streams."""


@dataclass(frozen=True, slots=True)
class TaskMetrics:
    """The metrics of a task, with the names of Kafka Streams.

    :param enforced_processing_total: the number of records taken although a partition without
        records might still have had an earlier one
    :param late_records_total: records whose timestamp was behind the stream time
    :param record_lateness_avg_ms: the average time by which records were late; records in order
        count 0
    :param stream_time_ms: the largest timestamp so far; -1 before the first record
    :param time_current_idling_started_ms: when the task stopped being ready; None while it is ready
    """

    records_total: int
    enforced_processing_total: int
    late_records_total: int
    record_lateness_avg_ms: float
    record_lateness_max_ms: int
    stream_time_ms: int
    time_current_idling_started_ms: int | None


class OrderedTask(Generic[P, R]):
    """A task that takes records in timestamp order, when the rule of :class:`Readiness` allows it.

    The next record is always the one with the smallest timestamp among the heads of the partitions'
    queues; of equal ones, the one of the partition named first. Within a partition the order of
    offsets is kept, so a late record stays late.

    :param partitions: the inputs; their order breaks ties
    :param max_task_idle_ms: see :class:`Readiness`
    :ivar partitions: the inputs, in order
    """

    def __init__(self, partitions: Sequence[P], max_task_idle_ms: int = 0) -> None:
        self.partitions = tuple(partitions)
        self.readiness: Readiness[P] = Readiness(partitions, max_task_idle_ms)
        self.enforced_processing = 0
        self.idle_since_ms: int | None = None
        self.decision: Decision[P] | None = None
        """The last decision of :attr:`readiness`; None while all partitions have records."""
        self.stream_time_ms = NO_TIMESTAMP
        self._order = {partition: index for index, partition in enumerate(self.partitions)}
        self._queues: list[deque[tuple[int, R]]] = [deque() for _ in self.partitions]
        self._heads: list[tuple[int, int]] = []
        """A heap of (timestamp of the head, index of the partition), of the queues that are not
        empty.
        """
        self._lags: dict[P, int | None] = {}
        self._next_log_ms = 0
        self._records = 0
        self._late_records = 0
        self._lateness_max_ms = 0
        self._lateness_total_ms = 0

    def add(self, partition: P, records: Iterable[tuple[int, R]]) -> None:
        """Buffer (timestamp in ms, record) pairs of ``partition``, in order of offset."""
        index = self._order[partition]
        queue = self._queues[index]
        was_empty = not queue
        queue.extend(records)
        if was_empty and queue:
            heappush(self._heads, (queue[0][0], index))
        self.decision = None

    def discard(self, partition: P) -> None:
        """Drop the buffered records of ``partition``, whose position has changed, and its lag."""
        index = self._order[partition]
        self._queues[index].clear()
        self._heads = [head for head in self._heads if head[1] != index]
        self._heads.sort()
        self._lags.pop(partition, None)
        self.decision = None

    @property
    def empty_queues(self) -> int:
        """The number of partitions without buffered records."""
        return len(self._queues) - len(self._heads)

    def count(self, partition: P) -> int:
        """Return the number of buffered records of ``partition``."""
        return len(self._queues[self._order[partition]])

    def peek(self, partition: P) -> R | None:
        """Return the oldest buffered record of ``partition``."""
        queue = self._queues[self._order[partition]]
        return queue[0][1] if queue else None

    def update_lags(self, lags: Mapping[P, int | None]) -> None:
        """Update the lags of partitions.

        :param lags: number of records on the broker after the buffered ones; missing or None is
            unknown
        """
        if lags != self._lags:
            self._lags = dict(lags)
            self.decision = None

    def take(self, now_ms: int) -> tuple[P, R] | None:
        """Remove and return the next record and its partition; None when the task is not ready or
        has no record.

        The cost does not depend on the number of partitions, as long as none has become empty and
        no lag has changed.
        """
        return self.pop() if self.is_ready(now_ms) else None

    def pop(self) -> tuple[P, R] | None:
        """Remove and return the next record and its partition, whatever the rule says; None when
        nothing is buffered.
        """
        if not self._heads:
            return None
        index = self._heads[0][1]
        queue = self._queues[index]
        timestamp_ms, record = queue.popleft()
        if queue:
            heapreplace(self._heads, (queue[0][0], index))
        else:
            heappop(self._heads)
            self.decision = None
        self._records += 1
        lateness_ms = self.stream_time_ms - timestamp_ms
        if lateness_ms <= 0:
            self.stream_time_ms = timestamp_ms
        else:
            self._late_records += 1
            self._lateness_total_ms += lateness_ms
            self._lateness_max_ms = max(self._lateness_max_ms, lateness_ms)
        return self.partitions[index], record

    def is_ready(self, now_ms: int) -> bool:
        """Return True if the task may take a record now. Count it as enforced processing if a
        partition without records may still have an earlier one.
        """
        if not self.empty_queues:
            self.readiness.all_buffered()
            self.decision = self.idle_since_ms = None
            return True
        decision = self.decision
        # An enforced decision holds until a queue or a lag changes: its deadlines have passed.
        if decision is None or not decision.ready:
            buffered = dict(zip(self.partitions, map(len, self._queues), strict=True))
            decision = self.decision = self.readiness.decide(buffered, self._lags, now_ms)
            if decision.ready:
                self.idle_since_ms = None
            elif self.idle_since_ms is None:
                self.idle_since_ms, self._next_log_ms = now_ms, now_ms + IDLE_LOG_INTERVAL_MS
        if decision.is_enforced:
            self.enforced_processing += 1
        return decision.ready

    def to_log(self, now_ms: int) -> str | None:
        """Return a log line with the reason, each time the task has waited for another
        :data:`IDLE_LOG_INTERVAL_MS`; else None.
        """
        if self.idle_since_ms is None or now_ms < self._next_log_ms:
            return None
        self._next_log_ms = now_ms + IDLE_LOG_INTERVAL_MS
        return str(self.decision)

    def next_deadline_ms(self) -> int | None:
        """Return the time at which the task may become ready without new data, in ms; None if only
        data or a lag can make it ready.
        """
        return self.decision.deadline_ms if self.decision else None

    def metrics(self) -> TaskMetrics:
        """Return the metrics of the task."""
        return TaskMetrics(
            self._records,
            self.enforced_processing,
            self._late_records,
            self._lateness_total_ms / self._records if self._records else 0.0,
            self._lateness_max_ms,
            self.stream_time_ms,
            self.idle_since_ms,
        )
