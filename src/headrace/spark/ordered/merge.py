"""The executor's merge for ``kafka-ordered``: chunks of Arrow columns of several partitions in, one
sequence out.

It is :class:`headrace.tasks.OrderedMerge` for whole chunks: always taking the smallest timestamp
among the partitions' next records gives the order of (largest timestamp so far within the
partition, partition, offset). So a chunk's keys are a running maximum, and what may be given away
is all that lies before the last key of the partition that is behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

_LOWEST = np.iinfo(np.int64).min


@dataclass(slots=True)
class _Chunk:
    """Records of one partition that are still to be given away, in order of offset.

    :param keys: the running maximum of the timestamps since the partition's first record
    """

    rows: Any
    timestamps: Any
    keys: Any

    def split(self, count: int) -> tuple[_Chunk, _Chunk | None]:
        """The first ``count`` and the rest."""
        if count >= len(self.keys):
            return self, None
        first = _Chunk(self.rows.slice(0, count), self.timestamps[:count], self.keys[:count])
        return first, _Chunk(self.rows.slice(count), self.timestamps[count:], self.keys[count:])


@dataclass(slots=True)
class MergeCounts:
    """What the merge of one task saw, in the terms of Kafka Streams' metrics of a task.

    :param enforced: records taken after a partition had none left, here and on its broker
    :param late: records whose timestamp was behind the stream time
    :param stream_time_ms: the largest timestamp so far; -1 before the first record
    """

    records: int = 0
    enforced: int = 0
    late: int = 0
    stream_time_ms: int = -1


class ChunkMerge:
    """Merges the partitions of one task.

    :param count: how many partitions; their numbers, from 0, break ties
    :param stream_time_ms: the largest timestamp of earlier batches, for counting late records
    """

    def __init__(self, count: int, stream_time_ms: int = -1) -> None:
        self.counts = MergeCounts(stream_time_ms=stream_time_ms)
        self._chunks: list[list[_Chunk]] = [[] for _ in range(count)]
        self._last_keys = [_LOWEST] * count
        self._done: list[bool] = [False] * count
        self._exhausted: tuple[int, int] | None = None

    def add(self, partition: int, rows: pa.RecordBatch, timestamps_ms: Any) -> None:
        """The next records of a partition."""
        if not len(timestamps_ms):
            return
        keys = np.maximum.accumulate(np.maximum(timestamps_ms, self._last_keys[partition]))
        self._last_keys[partition] = int(keys[-1])
        self._chunks[partition].append(_Chunk(rows, timestamps_ms, keys))

    def finish(self, partition: int, *, caught_up: bool = True) -> None:
        """Nothing more comes of it.

        :param caught_up: the broker has nothing more either: a record taken after this is taken by
            force
        """
        self._done[partition] = True
        if not caught_up:
            return
        end = (self._last_keys[partition], partition)
        self._exhausted = end if self._exhausted is None else min(end, self._exhausted)

    def buffered(self, partition: int) -> int:
        """How many records of it are held."""
        return sum(len(chunk.keys) for chunk in self._chunks[partition])

    @property
    def hungry(self) -> list[int]:
        """The partitions without which nothing can be given away."""
        return [p for p, chunks in enumerate(self._chunks) if not chunks and not self._done[p]]

    def take(self) -> Iterator[pa.RecordBatch]:
        """All that can be given away by now, in order. At the end, when all partitions are
        finished, everything.
        """
        while not self.hungry and any(self._chunks):
            yield self._next()

    def _next(self) -> pa.RecordBatch:
        # One chunk of each partition at a time: the one that ends first says how far.
        bound = min((int(chunks[0].keys[-1]), p) for p, chunks in enumerate(self._chunks) if chunks)
        taken = []
        for partition, chunks in enumerate(self._chunks):
            if not chunks:
                continue
            keys = chunks[0].keys
            count = int(
                np.searchsorted(keys, bound[0], side="right" if partition <= bound[1] else "left")
            )
            if count:
                first, rest = chunks[0].split(count)
                chunks[:1] = [] if rest is None else [rest]
                taken.append((partition, first))
        return self._merged(taken)

    def _merged(self, taken: Sequence[tuple[int, _Chunk]]) -> pa.RecordBatch:
        if len(taken) == 1:
            partition, chunk = taken[0]
            self._count(chunk.timestamps, chunk.keys, np.full(len(chunk.keys), partition))
            return chunk.rows
        keys = np.concatenate([chunk.keys for _, chunk in taken])
        order = np.argsort(keys, kind="stable")  # they come in the order of partitions and offsets
        partitions: Any = np.repeat(
            [partition for partition, _ in taken], [len(chunk.keys) for _, chunk in taken]
        )
        timestamps = np.concatenate([chunk.timestamps for _, chunk in taken])
        self._count(timestamps[order], keys[order], partitions[order])
        return pa.concat_batches([chunk.rows for _, chunk in taken]).take(pa.array(order))

    def _count(self, timestamps: Any, keys: Any, partitions: Any) -> None:
        counts = self.counts
        times = np.maximum.accumulate(np.maximum(timestamps, counts.stream_time_ms))
        before = np.concatenate(([counts.stream_time_ms], times[:-1]))
        counts.late += int(np.count_nonzero(timestamps < before))
        counts.stream_time_ms = int(times[-1])
        counts.records += len(timestamps)
        if self._exhausted is not None:
            key, partition = self._exhausted
            counts.enforced += int(
                np.count_nonzero((keys > key) | ((keys == key) & (partitions > partition)))
            )
