"""``format("kafka-lag")``: how far each group of a cluster is with each partition, as a table. See
docs/spark.md.

A batch read is one snapshot, a stream one per trigger. The driver lists the groups; each task asks
for the progress of some of them over connections of its own, and yields it as Arrow.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from headrace.client import ClientError
from headrace.client.group_listing import ListedGroup
from headrace.client.lag.rows import LagRow
from headrace.client.lag.snapshot import lag_snapshot, wanted_groups
from headrace.spark.option_parsing import SourceError, one_line

from .options import LagOptions

_SCHEMA = (
    "cluster string, group_id string, group_type string, group_state string, topic string, "
    "partition int, "
    "member_id string, client_id string, host string, start_offset bigint, committed_offset "
    "bigint, end_offset bigint, "
    "last_stable_offset bigint, delivery_complete_count bigint, lag bigint, time_lag_ms "
    "bigint, leader_epoch int, "
    "metadata string, snapshot_time timestamp"
)
_ARROW = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
_CHECK_TIMEOUT_MS = 10_000
_ROWS_PER_BATCH = 10_000
_WARNINGS_SHOWN = 20

_log = logging.getLogger("headrace.spark")


@dataclass(frozen=True)
class LagPartition(InputPartition):
    """One task: the groups that it tells of."""

    groups: tuple[ListedGroup, ...]
    snapshot_time_ms: int


class LagDataSource(DataSource):
    """The progress of groups as a table. Options and columns are described in ``docs/spark.md``.
    Opens nothing.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """``kafka-lag``."""
        return "kafka-lag"

    def schema(self) -> str:
        """The columns, after a look at whether the cluster is there.

        :raises SourceError: an option is wrong, or no broker answers
        """
        options = self._parse()
        try:
            options.kafka.check()
            asyncio.run(_check(options))
        except (ClientError, SourceError) as error:
            raise one_line(error) from None
        return _SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """One snapshot."""
        return LagReader(self._parse())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A snapshot per trigger."""
        return LagStreamReader(self._parse())

    def _parse(self) -> LagOptions:
        try:
            return LagOptions.parse(self.options)
        except SourceError as error:
            raise one_line(error) from None


async def _check(options: LagOptions) -> None:
    cluster = options.kafka.cluster(timeout_ms=_CHECK_TIMEOUT_MS)
    try:
        await cluster.metadata()
    finally:
        await cluster.close()


class LagReader(DataSourceReader):
    """A snapshot. What Spark plans once and runs again has the same groups and ``snapshot_time``,
    and new offsets.
    """

    def __init__(self, options: LagOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[LagPartition]:
        """The tasks: which groups there are now."""
        return plan(self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One task. Runs in an executor."""
        if not isinstance(
            partition, LagPartition
        ):  # Spark makes one up where there are no groups, and so no tasks
            return iter(())
        return read(self._options, partition)


class LagStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A snapshot per trigger. Offsets count them: ``{"snapshot": n}``.

    Nothing of a snapshot is kept. A micro-batch that is replayed after a crash is a new one, and
    says so in its ``snapshot_time``.
    """

    def __init__(self, options: LagOptions) -> None:
        self._options = options
        self._last: int | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Before the first."""
        return {"snapshot": 0}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The next; ``start`` when a query that takes one has had it."""
        if self._last is None:
            return {"snapshot": start["snapshot"] + 1}
        if self._last < 0:
            self._last = start["snapshot"] + 1
        return {"snapshot": max(self._last, start["snapshot"])}

    def prepareForTriggerAvailableNow(self) -> None:
        """Take one snapshot, then end."""
        self._last = -1

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[LagPartition]:
        """The tasks of a snapshot."""
        return [] if start == end else plan(self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One task. Runs in an executor."""
        assert isinstance(partition, LagPartition)
        return read(self._options, partition)


def plan(options: LagOptions) -> list[LagPartition]:
    """Divide the groups that there are now into tasks.

    :raises SourceError: the cluster cannot be reached
    """

    async def groups() -> list[ListedGroup]:
        cluster = options.kafka.cluster()
        try:
            found, warnings = await wanted_groups(cluster, options.query)
        finally:
            await cluster.close()
        _warn(warnings)
        return found

    snapshot_time_ms = time.time_ns() // 1_000_000
    try:
        found = asyncio.run(groups())
    except (ClientError, SourceError) as error:
        raise one_line(error) from None
    step = options.groups_per_task
    return [
        LagPartition(tuple(found[at : at + step]), snapshot_time_ms)
        for at in range(0, len(found), step)
    ]


def read(options: LagOptions, partition: LagPartition) -> Iterator[pa.RecordBatch]:
    """The rows of some groups.

    :raises SourceError: the cluster cannot be reached
    """
    with asyncio.Runner() as runner:
        parts = _parts(options, partition)
        try:
            while (part := runner.run(anext(parts, None))) is not None:
                _warn(part.warnings)
                for at in range(0, len(part.rows), _ROWS_PER_BATCH):
                    yield record_batch(part.rows[at : at + _ROWS_PER_BATCH])
        except (ClientError, SourceError) as error:
            raise one_line(error) from None
        finally:
            runner.run(parts.aclose())


async def _parts(options: LagOptions, partition: LagPartition) -> Any:
    cluster = options.kafka.cluster()
    try:
        async with aclosing(
            lag_snapshot(cluster, partition.groups, options.query, partition.snapshot_time_ms)  # type: ignore[type-var]
        ) as parts:
            async for part in parts:
                yield part
    finally:
        await cluster.close()


def record_batch(rows: Sequence[LagRow]) -> pa.RecordBatch:
    """Rows as Arrow, with the columns of the table."""
    columns = list(zip(*rows, strict=True))
    arrays = []
    fields = [field.split() for field in _SCHEMA.split(", ")]
    for (_, kind), column in zip(fields, columns, strict=True):
        if kind == "timestamp":
            column = tuple(1000 * ms for ms in column)
        arrays.append(pa.array(column, type=_ARROW[kind]))
    return pa.RecordBatch.from_arrays(arrays, names=[name for name, _ in fields])


def _warn(warnings: Sequence[str]) -> None:
    for warning in warnings[:_WARNINGS_SHOWN]:
        _log.warning("kafka-lag: %s", warning)
    if len(warnings) > _WARNINGS_SHOWN:
        _log.warning("kafka-lag: and %d more of that kind", len(warnings) - _WARNINGS_SHOWN)
