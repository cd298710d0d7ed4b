"""The records of several partitions as one sequence in the order of their timestamps (KIP-695).

The next record is always the one with the smallest timestamp among the heads of the partitions'
queues; of equal ones, the one of the partition named first. Within a partition the order of offsets
is kept, so a late record stays late.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from heapq import heappop, heappush, heapreplace
from typing import Generic, TypeVar

from headrace.protocol.record_batch import NO_TIMESTAMP

P = TypeVar("P", bound=Hashable)
R = TypeVar("R")


class OrderedMerge(Generic[P, R]):
    """The queues of one task.

    :param partitions: the inputs; their order breaks ties
    """

    def __init__(self, partitions: Sequence[P]) -> None:
        self.partitions = tuple(partitions)
        self._order = {partition: index for index, partition in enumerate(self.partitions)}
        self._queues: list[deque[tuple[int, R]]] = [deque() for _ in self.partitions]
        self._heads: list[tuple[int, int]] = []
        """A heap of (timestamp of the head, index of the partition), of the queues that are not
        empty.
        """
        self.stream_time_ms = NO_TIMESTAMP
        self.records = 0
        self.late_records = 0
        self.lateness_max_ms = 0
        self._lateness_total_ms = 0

    def add(self, partition: P, records: Iterable[tuple[int, R]]) -> None:
        """Append (timestamp in ms, record) pairs of ``partition``, in order of offset."""
        index = self._order[partition]
        queue = self._queues[index]
        was_empty = not queue
        queue.extend(records)
        if was_empty and queue:
            heappush(self._heads, (queue[0][0], index))

    def take(self) -> tuple[P, R] | None:
        """Remove and return the next record and its partition; None when nothing is buffered."""
        if not self._heads:
            return None
        index = self._heads[0][1]
        queue = self._queues[index]
        timestamp_ms, record = queue.popleft()
        if queue:
            heapreplace(self._heads, (queue[0][0], index))
        else:
            heappop(self._heads)
        self.records += 1
        lateness_ms = self.stream_time_ms - timestamp_ms
        if lateness_ms <= 0:
            self.stream_time_ms = timestamp_ms
        else:
            self.late_records += 1
            self._lateness_total_ms += lateness_ms
            self.lateness_max_ms = max(self.lateness_max_ms, lateness_ms)
        return self.partitions[index], record

    @property
    def empty_queues(self) -> int:
        """The number of partitions without buffered records."""
        return len(self._queues) - len(self._heads)

    @property
    def lateness_avg_ms(self) -> float:
        """The average time by which records were behind the stream time, over all records taken."""
        return self._lateness_total_ms / self.records if self.records else 0.0

    @property
    def buffered(self) -> Mapping[P, int]:
        """The number of buffered records of each partition."""
        return {
            partition: len(queue)
            for partition, queue in zip(self.partitions, self._queues, strict=True)
        }

    def count(self, partition: P) -> int:
        """Return the number of buffered records of ``partition``."""
        return len(self._queues[self._order[partition]])

    def peek(self, partition: P) -> R | None:
        """Return the oldest buffered record of ``partition``."""
        queue = self._queues[self._order[partition]]
        return queue[0][1] if queue else None

    def discard(self, partition: P) -> None:
        """Drop the buffered records of ``partition``, whose position has changed."""
        index = self._order[partition]
        self._queues[index].clear()
        self._heads = [head for head in self._heads if head[1] != index]
        self._heads.sort()
