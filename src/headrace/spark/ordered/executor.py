"""The executor's side of ``kafka-ordered``: reads the partitions of a task, and yields their
records by time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from headrace.spark.option_parsing import KafkaOptions, SourceError, one_line
from headrace.spark.reader.log_reader import LogReader, OffsetRange, ReadOptions

from .log import timestamps_ms
from .merge import ChunkMerge
from .task_reports import Desk, report


@dataclass(frozen=True, slots=True)
class TaskWork:
    """What one Spark task reads.

    :param task: the number of the partitions
    :param piece: which piece of it this is, where it has been cut
    :param ranges: in the order that breaks ties; those with nothing to read too
    :param caught_up: whose ranges go as far as the broker had records; the metrics follow from it,
        not the order
    :param stream_time_ms: the largest timestamp that the task has yielded before; -1 when unknown
    :param desk: where to tell what the merge saw; None for nowhere
    """

    task: int
    piece: int
    ranges: tuple[OffsetRange, ...]
    caught_up: tuple[bool, ...] = ()
    stream_time_ms: int = -1
    desk: Desk | None = None


class OrderedPartition(InputPartition):
    """One Spark task."""

    def __init__(self, work: TaskWork) -> None:
        super().__init__(work)


def read(work: TaskWork, kafka: KafkaOptions, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """The records of one task in the order of their timestamps.

    :raises SourceError: records are gone or cannot be read
    """
    merge = ChunkMerge(len(work.ranges), work.stream_time_ms)
    try:
        with LogReader(kafka, work.ranges, options) as reader:
            yield from _merged(merge, reader, work)
    except SourceError as error:
        raise one_line(error) from None
    if work.desk is not None:
        counts = merge.counts
        report(
            work.desk,
            (
                work.task,
                work.piece,
                counts.records,
                counts.enforced,
                counts.late,
                counts.stream_time_ms,
            ),
        )


def read_unordered(
    work: TaskWork, kafka: KafkaOptions, options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """The same records as they come: what the order costs is measured against this."""
    with LogReader(kafka, work.ranges, options) as reader:
        yield from reader


def _merged(merge: ChunkMerge, reader: LogReader, work: TaskWork) -> Iterator[Any]:
    caught_up = work.caught_up or (False,) * len(work.ranges)
    for number, one in enumerate(work.ranges):
        if one.start >= one.end:
            merge.finish(number, caught_up=caught_up[number])
    while hungry := merge.hungry:
        for number in hungry:
            batch = reader.next(work.ranges[number].topic, work.ranges[number].partition)
            if batch is None:
                merge.finish(number, caught_up=caught_up[number])
            else:
                merge.add(number, batch, timestamps_ms(batch))
        yield from merge.take()
