"""The executor's side of ``kafka-ordered``: reads the partitions of a task and merges them.

The merge takes whole runs of records, as Arrow batches: the rules are those of
:class:`headrace.ordered.ordered_task.OrderedTask`, which takes one record at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.protocol.partitions import TopicPartition
from headrace.spark.errors import one_line_errors
from headrace.spark.option_parsing import KafkaOptions
from headrace.spark.ordered.broker_log import timestamps_ms
from headrace.spark.ordered.plan import Inputs
from headrace.spark.ordered.progress import ReportAddress, TaskCounts, send_report
from headrace.spark.reader.log_reader import LogReader
from headrace.spark.reader.ranges import OffsetRange, ReadOptions


@dataclass(frozen=True, slots=True)
class TaskWork:
    """The work of one Spark task.

    :param ranges: in the order that breaks ties, empty ones included
    :param caught_up: indexes of the ranges that end where the broker's records ended; the metrics
        follow from it, not the order
    :param task: the partition number, for the report
    :param stream_time_ms: the largest timestamp of the task's earlier micro-batches; -1 if unknown
    :param reports: where to report counts; None for nowhere
    """

    ranges: tuple[OffsetRange, ...]
    caught_up: frozenset[int] = frozenset()
    task: int = 0
    stream_time_ms: int = -1
    reports: ReportAddress | None = None


@dataclass(frozen=True, slots=True)
class BatchPiece:
    """The work of one Spark task of a batch, as Spark keeps it for all runs of a DataFrame.

    :param partitions: all of the task
    :param planned: what the partitions had when the batch was planned
    :param is_first: begin where the start of the batch is when the piece is read
    :param is_last: read up to where the end of the batch is then
    :param partition_count: number of partitions of all topics when the batch was planned
    """

    partitions: tuple[TopicPartition, ...]
    planned: Inputs
    is_first: bool
    is_last: bool
    partition_count: int

    def at(self, batch: Inputs) -> Inputs:
        """Return what to read.

        :param batch: the bounds of the batch as they are
        """
        starts, ends = dict(batch.starts), dict(batch.ends)
        for partition, start in batch.starts.items():
            if not self.is_first:
                starts[partition] = max(start, self.planned.starts.get(partition, start))
            if not self.is_last:
                ends[partition] = self.planned.ends.get(partition, start)
        return Inputs(batch.partitions, starts, ends)


def offset_ranges(inputs: Inputs) -> tuple[OffsetRange, ...]:
    """Return the ranges of a task's inputs."""
    reached = inputs.reached
    return tuple(OffsetRange(*p, inputs.starts[p], reached[p]) for p in inputs.partitions)


def read(work: TaskWork, kafka: KafkaOptions, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """Yield the records of one task in the order of their timestamps.

    :raises SourceError: records are lost or cannot be read
    """
    merge = ChunkMerge(len(work.ranges), work.stream_time_ms)
    with one_line_errors(), LogReader(kafka, work.ranges, options) as reader:
        while blocking := merge.blocking:
            for number in blocking:
                batch = reader.next(work.ranges[number][:2])
                if batch is None:
                    merge.finish(number, caught_up=number in work.caught_up)
                else:
                    merge.add(number, batch, timestamps_ms(batch))
            yield from merge.take()
    if work.reports is not None:
        send_report(work.reports, work.task, merge.counts)


_LOWEST = np.iinfo(np.int64).min


@dataclass(slots=True)
class _Chunk:
    """Records of one partition that have not been yielded, in order of offset.

    :param keys: the running maximum of the timestamps since the partition's first record
    """

    rows: Any
    timestamps_ms: Any
    keys: Any

    def split(self, count: int) -> tuple[_Chunk, _Chunk]:
        """Return the first ``count`` records, and the rest."""
        first = _Chunk(self.rows.slice(0, count), self.timestamps_ms[:count], self.keys[:count])
        rest = _Chunk(self.rows.slice(count), self.timestamps_ms[count:], self.keys[count:])
        return first, rest


class ChunkMerge:
    """The merge of the partitions of one task.

    :param count: number of partitions; their indexes, from 0, break ties
    :param stream_time_ms: the largest timestamp of earlier micro-batches, to count late records
    """

    def __init__(self, count: int, stream_time_ms: int = -1) -> None:
        self.counts = TaskCounts(stream_time_ms=stream_time_ms)
        self._chunks: dict[int, _Chunk] = {}
        self._last_keys = [_LOWEST] * count
        self._unfinished = list(range(count))
        self._first_exhausted: tuple[int, int] | None = None

    def add(self, partition: int, rows: pa.RecordBatch, timestamps_ms: Any) -> None:
        """Add the next records of a partition that blocks."""
        if len(timestamps_ms):
            keys = np.maximum.accumulate(np.maximum(timestamps_ms, self._last_keys[partition]))
            self._last_keys[partition] = int(keys[-1])
            self._chunks[partition] = _Chunk(rows, timestamps_ms, keys)

    def finish(self, partition: int, *, caught_up: bool = True) -> None:
        """Mark a partition as having no more records.

        :param caught_up: the broker has no more either, so that records behind the partition's last
            one are enforced
        """
        self._unfinished.remove(partition)
        if caught_up:
            end = (self._last_keys[partition], partition)
            self._first_exhausted = min(end, self._first_exhausted or end)

    @property
    def blocking(self) -> list[int]:
        """The partitions whose next records must be added before anything can be yielded."""
        return [partition for partition in self._unfinished if partition not in self._chunks]

    def take(self) -> Iterator[pa.RecordBatch]:
        """Yield all records whose turn is certain, in order.

        When all partitions are finished, these are all.
        """
        while self._chunks and not self.blocking:
            yield self._next()

    def _next(self) -> pa.RecordBatch:
        # The partition whose records end first sets the bound.
        bound_key, bound_partition = min((int(c.keys[-1]), p) for p, c in self._chunks.items())
        taken: dict[int, _Chunk] = {}
        for partition in sorted(self._chunks):
            chunk = self._chunks[partition]
            side: Any = "right" if partition <= bound_partition else "left"
            count = int(np.searchsorted(chunk.keys, bound_key, side=side))
            if count == len(chunk.keys):
                taken[partition] = self._chunks.pop(partition)
            elif count:
                taken[partition], self._chunks[partition] = chunk.split(count)
        chunks = taken.values()
        sizes = [len(chunk.keys) for chunk in chunks]
        partitions: Any = np.repeat(list(taken), sizes)
        if len(taken) == 1:
            (chunk,) = chunks
            self._count(chunk.timestamps_ms, chunk.keys, partitions)
            return chunk.rows
        keys = np.concatenate([chunk.keys for chunk in chunks])
        # A stable sort keeps the order of partitions and offsets among equal keys.
        order = np.argsort(keys, kind="stable")
        timestamps_ms = np.concatenate([chunk.timestamps_ms for chunk in chunks])
        self._count(timestamps_ms[order], keys[order], partitions[order])
        return pa.concat_batches([chunk.rows for chunk in chunks]).take(pa.array(order))

    def _count(self, timestamps_ms: Any, keys: Any, partitions: Any) -> None:
        counts = self.counts
        stream_times_ms = np.maximum.accumulate(np.maximum(timestamps_ms, counts.stream_time_ms))
        before_ms = np.concatenate(([counts.stream_time_ms], stream_times_ms[:-1]))
        enforced = 0
        if self._first_exhausted is not None:
            key, partition = self._first_exhausted
            is_enforced = (keys > key) | ((keys == key) & (partitions > partition))
            enforced = int(np.count_nonzero(is_enforced))
        self.counts = TaskCounts(
            counts.records + len(timestamps_ms),
            counts.enforced + enforced,
            counts.late + int(np.count_nonzero(timestamps_ms < before_ms)),
            int(stream_times_ms[-1]),
        )
