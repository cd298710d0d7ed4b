"""Internal topics in memory, for the coordinators' runtime: they fail on command."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from headrace.log.partition_log import FoundBatch
from headrace.protocol import record_batch
from headrace.protocol.errors import StorageError


class MemoryLog:
    """Implements :class:`headrace.coordinators.environment.InternalLogs`.

    :param partitions: of every topic
    :ivar batches_of: the batches of each topic and partition
    :ivar is_full: whether all appends fail
    :ivar refuses: given topic, partition and batch, whether an append fails
    :ivar flushed: what a write waits for, None while writes are durable at once
    """

    def __init__(self, partitions: int = 1) -> None:
        self.partitions = partitions
        self.batches_of: dict[tuple[str, int], list[bytes]] = {}
        self.is_full = False
        self.refuses: Callable[[str, int, bytes], bool] = lambda topic, partition, data: False
        self.flushed: asyncio.Future[None] | None = None
        self._ends: dict[tuple[str, int], int] = {}
        self._starts: dict[tuple[str, int], int] = {}

    @contextmanager
    def failing_after(self, appends: int) -> Iterator[None]:
        """Have all appends of the block fail but for the first so many."""
        left, before = iter(range(appends)), self.refuses
        self.refuses = lambda topic, partition, data: next(left, None) is None
        try:
            yield
        finally:
            self.refuses = before

    # InternalLogs ---------------------------------------------------------------------------------

    def exists(self, topic: str) -> bool:
        return any(name == topic for name, _ in self.batches_of)

    def partition_count(self, topic: str) -> int:
        return self.partitions

    def append(self, topic: str, partition: int, data: bytes, wall_ms: int) -> int:
        if self.is_full or self.refuses(topic, partition, data):
            raise StorageError("No space left on device")
        where = topic, partition
        base_offset = self._ends.get(where, 0)
        placed = struct.pack(">q", base_offset) + bytes(data)[8:]
        self.batches_of.setdefault(where, []).append(placed)
        self._ends[where] = record_batch.header_at(placed).last_offset + 1
        return base_offset

    def batches(self, topic: str) -> Iterator[tuple[int, FoundBatch]]:
        for (name, partition), batches in sorted(self.batches_of.items()):
            for data in batches if name == topic else ():
                header = record_batch.header_at(data)
                if header.last_offset >= self._starts.get((name, partition), 0):
                    yield partition, FoundBatch(name, header, memoryview(data))

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        self._starts[topic, partition] = max(offset, self._starts.get((topic, partition), 0))

    def pending_flush(self) -> Awaitable[None] | None:
        return None if self.flushed is None else asyncio.shield(self.flushed)

    # For tests ------------------------------------------------------------------------------------

    def records(self, topic: str) -> list[tuple[bytes, bytes | None]]:
        """Key and value of every record of a topic, partition by partition."""
        return [
            (record.key or b"", record.value)
            for _, found in self.batches(topic)
            for record in record_batch.records(found.data)
        ]
