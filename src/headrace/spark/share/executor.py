"""The executor's side of ``kafka-share``: the records of acquired offsets, as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from headrace.client import AcquiredRange
from headrace.spark.option_parsing import KafkaOptions, SourceError, one_line
from headrace.spark.reader.log_reader import OffsetRange, ReadOptions
from headrace.spark.reader.log_reader import read as read_ranges


class SharePartition(InputPartition):
    """The work of one task: acquired ranges, of one or more topic partitions.

    ``value`` is a tuple of (topic, partition, first offset, last offset inclusive, delivery count).
    """

    def __init__(self, ranges: Sequence[AcquiredRange]) -> None:
        super().__init__(
            tuple(
                (r.topic, r.partition, r.first_offset, r.last_offset, r.delivery_count)
                for r in ranges
            )
        )


def split(ranges: Sequence[AcquiredRange], records_per_task: int) -> list[SharePartition]:
    """Cut acquired ranges into tasks of about equal size, none larger than ``records_per_task``.

    A task may hold a piece of a topic partition or pieces of several.
    """
    total = sum(r.count for r in ranges)
    if not total:
        return []
    tasks = -(-total // records_per_task)
    room = size = -(-total // tasks)
    work: list[list[AcquiredRange]] = [[]]
    for acquired in sorted(ranges, key=lambda r: (r.topic, r.partition, r.first_offset)):
        first = acquired.first_offset
        while first <= acquired.last_offset:
            if not room:
                work.append([])
                room = size
            last = min(acquired.last_offset, first + room - 1)
            work[-1].append(
                AcquiredRange(
                    acquired.topic, acquired.partition, first, last, acquired.delivery_count
                )
            )
            room -= last - first + 1
            first = last + 1
    return [SharePartition(pieces) for pieces in work]


def read(
    partition: SharePartition, kafka: KafkaOptions, *, headers: bool
) -> Iterator[pa.RecordBatch]:
    """The acquired records of one task, with their delivery counts.

    Offsets that hold no record (gaps, transaction markers, what retention has deleted since) are
    passed over. Records of aborted transactions are delivered: the group's isolation level was
    applied when they were acquired.

    :raises SourceError: a broker refuses, or did not deliver for a minute
    """
    counts = _DeliveryCounts(partition)
    ranges = [
        OffsetRange(topic, index, first, last + 1)
        for topic, index, first, last, _ in partition.value
    ]
    try:
        for batch in read_ranges(kafka, ranges, ReadOptions(headers=headers, skip_lost=True)):
            yield counts.appended_to(batch)
    except SourceError as error:
        raise one_line(error) from None


class _DeliveryCounts:
    """How often the records of one task have been delivered, by runs of offsets of a topic
    partition.
    """

    def __init__(self, partition: SharePartition) -> None:
        runs: dict[tuple[str, int], list[tuple[int, int]]] = {}
        for topic, index, first, _, delivery_count in sorted(partition.value):
            runs.setdefault((topic, index), []).append((first, delivery_count))
        self._runs = {key: np.array(of_partition, np.int64).T for key, of_partition in runs.items()}

    def appended_to(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch of one topic partition's records, with one more column."""
        firsts, counts = self._runs[
            batch.column("topic")[0].as_py(), batch.column("partition")[0].as_py()
        ]
        run = np.searchsorted(firsts, batch.column("offset").to_numpy(), side="right") - 1
        return batch.append_column("deliveryCount", pa.array(counts[run].astype(np.int32)))
