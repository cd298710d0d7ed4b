"""``format("kafka-lag")``: the data source, its options and its readers. See ``docs/spark/lag.md``.

A batch read is one snapshot, a stream one snapshot per trigger.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from headrace.client import Cluster
from headrace.client.groups import ListedGroup
from headrace.client.lag.model import GROUP_TYPES, LagQuery, Snapshot, rows
from headrace.client.lag.snapshot import parts, select_groups
from headrace.log_lines import get_logger
from headrace.spark.data_source import KafkaDataSource
from headrace.spark.errors import SourceError, one_line_errors
from headrace.spark.option_parsing import KafkaOptions, UserOptions
from headrace.spark.pyspark_capabilities import (
    ReadLimit,
    SupportsTriggerAvailableNow,
    stream_reader,
)
from headrace.spark.reader.columns import arrow_schema
from headrace.spark.source_progress import FIRST_OFFSETS, check_offsets

SCHEMA = (
    "cluster string, groupId string, groupType string, groupState string, topic string, "
    "partition int, memberId string, clientId string, host string, startOffset bigint, "
    "committedOffset bigint, endOffset bigint, lastStableOffset bigint, "
    "deliveryCompleteCount bigint, lag bigint, timeLagMs bigint, leaderEpoch int, "
    "metadata string, snapshotTime timestamp"
)
"""The columns, as DDL, named as those of Spark's Kafka source; see
:func:`headrace.client.lag.model.rows`, which names them in Python's way."""
_ROWS_PER_BATCH = 10_000
_MOST_WARNINGS = 20

_ARROW_SCHEMA = arrow_schema(SCHEMA)
_ROW_SCHEMA = pa.schema(
    [column.with_name(re.sub("([A-Z])", r"_\1", column.name).lower()) for column in _ARROW_SCHEMA]
)
"""The columns by their names in a row of the model."""
DEFAULT_GROUPS_PER_TASK = 250

_log = get_logger("headrace.spark")

_OPTIONS = (
    "groups",
    "groupsPattern",
    "groupTypes",
    "topics",
    "topicsPattern",
    "timeLag",
    "groupsPerTask",
)


@dataclass(frozen=True, slots=True)
class LagOptions:
    """Validated options. Plain values: Spark sends them to the executors."""

    kafka: KafkaOptions
    query: LagQuery
    groups_per_task: int

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> LagOptions:
        """Parse the user's options.

        :raises SourceError: an option is missing, unknown, or has an invalid value
        """
        user_options = UserOptions(options, _OPTIONS)
        kafka = user_options.kafka()
        groups, groups_pattern = user_options.names_or_pattern("groups", "groupsPattern")
        topics, topics_pattern = user_options.names_or_pattern("topics", "topicsPattern")
        query = LagQuery(
            groups=groups,
            groups_pattern=groups_pattern,
            group_types=_group_types(user_options),
            topics=topics,
            topics_pattern=topics_pattern,
            read_committed=kafka.read_committed,
            time_lag=user_options.boolean("timeLag", default=True),
        )
        return cls(kafka, query, user_options.number("groupsPerTask") or DEFAULT_GROUPS_PER_TASK)


def _group_types(user_options: UserOptions) -> tuple[str, ...]:
    types = tuple(dict.fromkeys(name.lower() for name in user_options.listed("groupTypes")))
    for name in types:
        if name not in GROUP_TYPES:
            raise SourceError(
                f"option groupTypes has '{name}': use some of {', '.join(GROUP_TYPES)}"
            )
    return types or GROUP_TYPES


@dataclass(frozen=True)
class LagPartition(InputPartition):
    """One task: the groups whose progress it yields."""

    groups: tuple[ListedGroup, ...]
    snapshot_time_ms: int


class LagDataSource(KafkaDataSource):
    """The progress of groups as a table.

    ``docs/spark/lag.md`` describes options and columns. Creating one opens no connection.
    """

    @classmethod
    def name(cls) -> str:
        """Return ``kafka-lag``."""
        return "kafka-lag"

    def schema(self) -> str:
        """Return the columns, after checking that the cluster answers.

        :raises SourceError: an option is invalid, or no broker answers
        """
        with one_line_errors():
            LagOptions.parse(self.options).kafka.check(Cluster.metadata)
        return SCHEMA

    def reader(self, schema: StructType) -> LagReader:
        """Return the reader of one snapshot."""
        self.check_columns(schema, SCHEMA)
        with one_line_errors():
            return LagReader(LagOptions.parse(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a snapshot per trigger."""
        return stream_reader(LagStreamReader(self.reader(schema)))


class LagReader(DataSourceReader):
    """The reader of one snapshot.

    When Spark runs a plan again, groups and ``snapshotTime`` stay the same, and offsets are new.
    """

    def __init__(self, options: LagOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[LagPartition]:
        """Divide the groups that exist now into tasks.

        :raises SourceError: the cluster does not answer
        """
        options, snapshot_time_ms = self._options, time.time_ns() // 1_000_000
        with one_line_errors():
            thread = options.kafka.shared_thread()
            groups, warnings = thread.run(select_groups(thread.cluster, options.query))
        _warn(warnings)
        step = options.groups_per_task
        return [
            LagPartition(tuple(groups[start : start + step]), snapshot_time_ms)
            for start in range(0, len(groups), step)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task's groups. Runs in an executor.

        :raises SourceError: the cluster does not answer
        """
        if not isinstance(partition, LagPartition):
            return  # without groups there are no tasks, and Spark passes one of its own
        options = self._options
        with one_line_errors():
            thread = options.kafka.shared_thread()
            snapshots: Any = parts(
                thread.cluster, partition.groups, options.query, partition.snapshot_time_ms
            )
            while (part := thread.run(anext(snapshots, None))) is not None:
                _warn(part.warnings)
                yield from record_batches(part)


class LagStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a snapshot per trigger. Offsets count snapshots: ``{"snapshot": n}``.

    Nothing of a snapshot is kept. When Spark replays a micro-batch after a crash, it takes a new
    snapshot with a new ``snapshotTime``.
    """

    def __init__(self, reader: LagReader) -> None:
        self._reader = reader
        self._takes_one = False
        self._last = 0

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset before the first snapshot."""
        return dict(FIRST_OFFSETS["kafka-lag"])

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the offset of the next snapshot; ``start`` after the last one."""
        check_offsets("kafka-lag", start)
        if not (self._takes_one and self._last):
            self._last = start["snapshot"] + 1
        return {"snapshot": max(self._last, start["snapshot"])}

    def prepareForTriggerAvailableNow(self) -> None:
        """Take one snapshot, then end."""
        self._takes_one, self._last = True, 0

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[LagPartition]:
        """Divide the groups that exist now into tasks."""
        check_offsets("kafka-lag", start, end)
        return [] if start == end else self._reader.partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task. Runs in an executor."""
        return self._reader.read(partition)


def record_batches(snapshot: Snapshot) -> Iterator[pa.RecordBatch]:
    """Yield a snapshot as Arrow batches with the columns of the table."""
    snapshot_time_us = 1000 * snapshot.at_ms
    lags = rows(snapshot)
    while part := list(islice(lags, _ROWS_PER_BATCH)):
        for row in part:
            row["snapshot_time"] = snapshot_time_us
        yield pa.RecordBatch.from_pylist(part, _ROW_SCHEMA).rename_columns(_ARROW_SCHEMA.names)


def _warn(warnings: Sequence[str]) -> None:
    for warning in warnings[:_MOST_WARNINGS]:
        _log.warning("kafka-lag: %s", warning)
    if len(warnings) > _MOST_WARNINGS:
        _log.warning("kafka-lag: and %d more warnings", len(warnings) - _MOST_WARNINGS)
