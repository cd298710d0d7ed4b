"""The executor's side of ``kafka-ordered``: reads the partitions of a task and merges them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from headrace.spark.errors import one_line_errors
from headrace.spark.option_parsing import KafkaOptions
from headrace.spark.reader.log_reader import LogReader
from headrace.spark.reader.read_options import OffsetRange, ReadOptions

from .broker_log import timestamps_ms
from .inputs import Inputs
from .merge import ChunkMerge
from .task_reports import ReportAddress, TaskReport, send_report


@dataclass(frozen=True, slots=True)
class TaskWork:
    """The work of one Spark task.

    :param task: the partition number
    :param piece: number of the piece, of a task that has been divided into several
    :param ranges: in the order that breaks ties, empty ones included
    :param caught_up: for each range, whether it ends where the broker's records ended; the metrics
        follow from it, not the order
    :param stream_time_ms: the largest timestamp of the task's earlier micro-batches; -1 if unknown
    :param reports: where to report counts; None for nowhere
    """

    task: int
    piece: int
    ranges: tuple[OffsetRange, ...]
    caught_up: tuple[bool, ...] = ()
    stream_time_ms: int = -1
    reports: ReportAddress | None = None


def offset_ranges(inputs: Inputs) -> tuple[OffsetRange, ...]:
    """Return the ranges of a task's inputs."""
    reached = inputs.reached
    return tuple(OffsetRange(*p, inputs.starts[p], reached[p]) for p in inputs.partitions)


class OrderedPartition(InputPartition):
    """One Spark task; ``value`` is a :class:`TaskWork`."""

    def __init__(self, work: TaskWork) -> None:
        super().__init__(work)


def read(work: TaskWork, kafka: KafkaOptions, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """Yield the records of one task in the order of their timestamps.

    :raises SourceError: records are lost or cannot be read
    """
    merge = ChunkMerge(len(work.ranges), work.stream_time_ms)
    with one_line_errors(), LogReader(kafka, work.ranges, options) as reader:
        yield from _merged(merge, reader, work)
    if work.reports is not None:
        counts = merge.counts
        task_report = TaskReport(
            task=work.task,
            piece=work.piece,
            records=counts.records,
            enforced=counts.enforced,
            late=counts.late,
            stream_time_ms=counts.stream_time_ms,
        )
        send_report(work.reports, task_report)


def _merged(merge: ChunkMerge, reader: LogReader, work: TaskWork) -> Iterator[Any]:
    caught_up = work.caught_up or (False,) * len(work.ranges)
    for number, one in enumerate(work.ranges):
        if one.start >= one.end:
            merge.finish(number, caught_up=caught_up[number])
    while blocking := merge.blocking:
        for number in blocking:
            batch = reader.next(work.ranges[number].topic, work.ranges[number].partition)
            if batch is None:
                merge.finish(number, caught_up=caught_up[number])
            else:
                merge.add(number, batch, timestamps_ms(batch))
        yield from merge.take()
