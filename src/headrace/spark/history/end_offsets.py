"""Where partitions ended at points in time, asked of their leaders in Spark tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.client import ClientError
from headrace.client.list_offsets import LATEST, list_offsets
from headrace.protocol.partitions import TopicPartition
from headrace.spark.option_parsing import KafkaOptions, one_line

SCHEMA = "topic string, partition int, end_offsets array<bigint>"
_TIMEOUT_MS = 60_000
_POINTS_AT_A_TIME = 8
_PARTITIONS_AT_A_TIME = 2_000


def ends_at(
    kafka: KafkaOptions, times_ms: Sequence[int], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """For ``mapInArrow``: ``topic, partition`` in, :data:`SCHEMA` out.

    The end at a time is the first offset with a later timestamp (ListOffsets), so that one request
    per point and leader tells it of all partitions. Before the first record that retention left, it
    is that record's offset.

    :raises SourceError: the leaders do not answer
    """
    for batch in batches:
        for start in range(0, batch.num_rows, _PARTITIONS_AT_A_TIME):
            some = batch.slice(start, _PARTITIONS_AT_A_TIME)
            keys = list(
                zip(
                    some.column("topic").to_pylist(),
                    some.column("partition").to_pylist(),
                    strict=True,
                )
            )
            try:
                ends = asyncio.run(_ask(kafka, times_ms, keys))
            except ClientError as error:
                raise one_line(error) from None
            offsets: Any = np.arange(len(keys) + 1, dtype=np.int32) * len(times_ms)
            yield pa.RecordBatch.from_arrays(
                [
                    some.column("topic"),
                    some.column("partition"),
                    pa.ListArray.from_arrays(pa.array(offsets), pa.array(ends.reshape(-1))),
                ],
                names=["topic", "partition", "end_offsets"],
            )


async def _ask(kafka: KafkaOptions, times_ms: Sequence[int], keys: Sequence[TopicPartition]) -> Any:
    """A row per partition, a column per time."""
    cluster = kafka.cluster()
    try:
        latest = await list_offsets(cluster, dict.fromkeys(keys, LATEST), timeout_ms=_TIMEOUT_MS)
        now: Any = np.array([latest[key].offset or 0 for key in keys], np.int64)
        ends: Any = np.empty((len(keys), len(times_ms)), np.int64)
        for first in range(0, len(times_ms), _POINTS_AT_A_TIME):
            times = times_ms[first : first + _POINTS_AT_A_TIME]
            asked = (
                list_offsets(cluster, dict.fromkeys(keys, t + 1), timeout_ms=_TIMEOUT_MS)
                for t in times
            )
            for column, found in enumerate(await asyncio.gather(*asked), first):
                offsets = (found[key].offset for key in keys)
                ends[:, column] = [
                    now[row] if offset is None else offset for row, offset in enumerate(offsets)
                ]
        return ends
    finally:
        await cluster.close()
