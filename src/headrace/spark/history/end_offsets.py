"""End offsets of partitions at points in time, asked of their leaders in Spark tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.client.list_offsets import LATEST, list_offsets
from headrace.protocol.partitions import TopicPartition
from headrace.spark.errors import one_line_errors
from headrace.spark.option_parsing import KafkaOptions

END_OFFSETS = "topic string, partition int, end_offsets array<bigint>"
"""Columns of :func:`ends_at`, as DDL."""
_TIMEOUT_MS = 60_000
_POINTS_AT_ONCE = 8
_PARTITIONS_AT_ONCE = 2_000


def ends_at(
    kafka: KafkaOptions, times_ms: Sequence[int], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Add the end offset of each partition at each point in time. For ``mapInArrow``.

    The end at a time is the first offset with a later timestamp (ListOffsets), so that one request
    per point and leader answers for all partitions. Before the first record that retention has
    left, it is that record's offset.

    :param times_ms: the points, in milliseconds since 1970
    :param batches: columns ``topic`` and ``partition``
    :returns: columns of :data:`END_OFFSETS`, with one end offset per point
    :raises SourceError: the leaders do not answer
    """
    for batch in batches:
        for start in range(0, batch.num_rows, _PARTITIONS_AT_ONCE):
            piece = batch.slice(start, _PARTITIONS_AT_ONCE)
            topics, numbers = piece.column("topic"), piece.column("partition")
            partitions = list(zip(topics.to_pylist(), numbers.to_pylist(), strict=True))
            with one_line_errors():
                ends = asyncio.run(_ask(kafka, times_ms, partitions))
            list_starts: Any = np.arange(len(partitions) + 1, dtype=np.int32) * len(times_ms)
            lists = pa.ListArray.from_arrays(pa.array(list_starts), pa.array(ends.reshape(-1)))
            yield pa.RecordBatch.from_arrays(
                [topics, numbers, lists], names=["topic", "partition", "end_offsets"]
            )


async def _ask(
    kafka: KafkaOptions, times_ms: Sequence[int], partitions: Sequence[TopicPartition]
) -> Any:
    """Return end offsets as a numpy array: a row per partition, a column per time."""
    cluster = kafka.cluster()

    def list_at(timestamp_ms: int) -> Any:
        return list_offsets(
            cluster, dict.fromkeys(partitions, timestamp_ms), timeout_ms=_TIMEOUT_MS
        )

    try:
        latest = await list_at(LATEST)
        log_ends: Any = np.array([latest[key].offset or 0 for key in partitions], np.int64)
        ends: Any = np.empty((len(partitions), len(times_ms)), np.int64)
        for first in range(0, len(times_ms), _POINTS_AT_ONCE):
            times = times_ms[first : first + _POINTS_AT_ONCE]
            answers = await asyncio.gather(*(list_at(time_ms + 1) for time_ms in times))
            for column, listed in enumerate(answers, first):
                offsets = (listed[key].offset for key in partitions)
                ends[:, column] = [
                    log_ends[row] if offset is None else offset
                    for row, offset in enumerate(offsets)
                ]
        return ends
    finally:
        await cluster.close()
