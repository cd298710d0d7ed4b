"""The executor's side of ``kafka-share``: records of acquired offsets as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from headrace.client import AcquiredRange
from headrace.protocol.partitions import TopicPartition
from headrace.spark.errors import one_line_errors
from headrace.spark.option_parsing import KafkaOptions
from headrace.spark.reader import log_reader
from headrace.spark.reader.ranges import OffsetRange, ReadOptions, split_evenly

from .outcomes import RECEIPT_COLUMN


class ShareInputPartition(InputPartition):
    """The work of one task: acquired ranges of one or more topic partitions.

    :ivar receipt: text of the column ``receipt``
    """

    value: Sequence[OffsetRange]

    def __init__(self, ranges: Sequence[OffsetRange], receipt: str) -> None:
        super().__init__(ranges)
        self.receipt = receipt


def split(
    ranges: Sequence[AcquiredRange], records_per_task: int, receipt: str
) -> list[ShareInputPartition]:
    """Divide acquired ranges into tasks of about equal size, at most ``records_per_task`` each.

    A task may hold a part of a topic partition, or parts of several.
    """
    offsets = sorted(
        OffsetRange(r.topic, r.partition, r.first_offset, r.last_offset + 1, r.delivery_count)
        for r in ranges
    )
    return [
        ShareInputPartition(parts, receipt) for parts in split_evenly(offsets, records_per_task)
    ]


def read(
    partition: ShareInputPartition, kafka: KafkaOptions, *, headers: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the acquired records of one task, with their delivery counts.

    Offsets without a record (gaps, transaction markers, records that retention has deleted since)
    are skipped. Records of aborted transactions are yielded: the broker applied the group's
    isolation level when the records were acquired.

    :raises SourceError: a broker refuses, or has not delivered for a minute
    """
    runs = {
        key: np.array([(r.start, r.delivery_count) for r in of_key], np.int64).T
        for key, of_key in groupby(sorted(partition.value), lambda r: r[:2])
    }
    options = ReadOptions(headers=headers, skip_lost=True)
    with one_line_errors():
        for batch in log_reader.read(kafka, partition.value, options):
            rows = batch.append_column("deliveryCount", _delivery_counts(batch, runs))
            receipts = pa.repeat(partition.receipt, rows.num_rows)
            yield rows.append_column(RECEIPT_COLUMN, receipts)


def _delivery_counts(batch: pa.RecordBatch, runs: Mapping[TopicPartition, Any]) -> pa.Array:
    """Return the column ``deliveryCount`` of a batch of one topic partition."""
    key = batch.column("topic")[0].as_py(), batch.column("partition")[0].as_py()
    first_offsets, counts = runs[key]
    run = np.searchsorted(first_offsets, batch.column("offset").to_numpy(), side="right") - 1
    return pa.array(counts[run].astype(np.int32))
