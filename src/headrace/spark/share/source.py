"""``format("kafka-share")``: the data source and its driver-side reader. See ``docs/spark.md``."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, DataSourceStreamWriter
from pyspark.sql.types import StructType

from headrace.client import AcquiredRange, Cluster
from headrace.spark.driver_server import exit_on_sigterm, ignore_sigterm
from headrace.spark.errors import one_line_errors
from headrace.spark.pyspark_capabilities import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
    stream_reader,
)
from headrace.spark.reader.columns import SPARK_HEADERS, SPARK_SCHEMA
from headrace.spark.source_progress import check_offset
from headrace.spark.subscription import subscribed_topics
from headrace.spark.worker_check import CheckedInExecutors

from .executor import ShareInputPartition, read, split
from .member import ShareMember
from .options import ShareOptions, ensure_group_settings
from .outcomes import RECEIPT_COLUMN, OutcomeWriter

_NO_OFFSET: dict[str, Any] = {"session": "", "batch": 0}
_LAG_INTERVAL_S = 1.0
_LAG_TIME_FRACTION = 1 / 20
"""Largest part of the time that is spent on asking for the lag of many partitions."""


class ShareDataSource(CheckedInExecutors, DataSource):
    """A share group as a streaming source, and as a sink for outcomes of its records.

    ``docs/spark.md`` describes options and columns. Creating one opens no connection.
    """

    @classmethod
    def name(cls) -> str:
        """Return ``kafka-share``."""
        return "kafka-share"

    def schema(self) -> str:
        """Return the columns, after checking the broker, the topics and the group.

        :raises SourceError: an option is invalid, the broker does not answer, a topic does not
            exist, or the group is of another type or has other settings
        """
        options = self._parse(is_source=True)
        with one_line_errors():
            options.kafka.check(partial(_check, options))
        headers = [SPARK_HEADERS] if options.include_headers else []
        own = ["deliveryCount int", f"{RECEIPT_COLUMN} string"]
        return ", ".join([SPARK_SCHEMA, *headers, *own])

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the source's reader."""
        return stream_reader(ShareStreamReader(self._parse(is_source=True)), ReadAllAvailable())

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the sink for outcomes."""
        self._parse(is_source=False)
        with one_line_errors():
            return OutcomeWriter(schema)

    def _parse(self, *, is_source: bool) -> ShareOptions:
        with one_line_errors():
            return ShareOptions.parse(self.options, is_source=is_source)


async def _check(options: ShareOptions, cluster: Cluster) -> None:
    await subscribed_topics(cluster, options.subscription)
    await ensure_group_settings(
        cluster, options.group_id, options.group_settings, validate_only=True
    )


class ShareStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of one query, in a process of its own on the driver's host.

    Its :meth:`read` runs in the executors. Spark's offsets only number the micro-batches of one
    reader (``{"session": …, "batch": …}``): the broker keeps track of the records. A micro-batch of
    an earlier reader that Spark replays after a crash is empty, and the broker delivers its records
    again.
    """

    def __init__(self, options: ShareOptions) -> None:
        self._options = options
        self._member: ShareMember | None = None
        self._is_available_now = False
        """True until a query with Trigger.AvailableNow has joined."""
        self._ranges: Sequence[AcquiredRange] = ()
        self._offset: dict[str, Any] | None = None
        self._batches = 0
        self._lag: dict[str, Any] = {}
        self._next_lag_s = 0.0

    def getDefaultReadLimit(self) -> ReadLimit:
        """Leave the size of micro-batches to the options."""
        return ReadAllAvailable()

    def initialOffset(self) -> dict[str, Any]:
        """Join the group, and return the offset of a new query."""
        self._join()
        return dict(_NO_OFFSET)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Acknowledge the micro-batch that has just ended, and acquire the next one.

        :returns: the offset of the next micro-batch; ``start`` if there is none
        """
        check_offset("kafka-share", start, _NO_OFFSET)
        member = self._join()
        if self._offset is not None and start != self._offset:
            return self._offset  # acquired, and not run yet
        self._acknowledge_batch()
        with one_line_errors():
            ranges = member.acquire()
        if not ranges:
            return start
        self._batches += 1
        self._ranges = ranges
        self._offset = {"session": member.id, "batch": self._batches}
        return self._offset

    def partitions(
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> Sequence[ShareInputPartition]:
        """Return the tasks of the micro-batch that ends at ``end``."""
        for offset in (start, end):
            check_offset("kafka-share", offset, _NO_OFFSET)
        member = self._join()
        if start == end or end != self._offset:
            return []
        return split(self._ranges, self._options.records_per_task, member.receipt)

    def read(self, partition: ShareInputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task. Runs in an executor."""
        return read(partition, self._options.kafka, headers=self._options.include_headers)

    def commit(self, end: dict[str, Any]) -> None:
        """Acknowledge a micro-batch that is done.

        Spark calls this late; mostly :meth:`latestOffset` has acknowledged it by then.
        """
        if self._member is not None and end == self._offset:
            self._acknowledge_batch()

    def prepareForTriggerAvailableNow(self) -> None:
        """Read what the topics hold when the reader joins, then end."""
        self._is_available_now = True

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the group's lag and this query's counts, for ``StreamingQuery.lastProgress``."""
        if self._member is None or not self._member.has_joined:
            return None
        began_s = time.monotonic()
        if began_s >= self._next_lag_s:
            self._lag = self._member.lag()
            took_s = time.monotonic() - began_s
            self._next_lag_s = began_s + max(_LAG_INTERVAL_S, took_s / _LAG_TIME_FRACTION)
        return {"lag": self._lag, **asdict(self._member.counts)}

    def stop(self) -> None:
        """Leave the group and release what is held."""
        member, self._member = self._member, None
        if member is not None:
            ignore_sigterm()
            member.close()

    def _join(self) -> ShareMember:
        """Join the group when the first micro-batch is planned.

        Not before: Spark stops no reader if another source of the query fails earlier.
        """
        if self._member is None:
            with one_line_errors():
                self._member = ShareMember(self._options)
            exit_on_sigterm()
        member = self._member
        with one_line_errors():
            member.join()
            if self._is_available_now:
                member.stop_at_current_end()
                self._is_available_now = False
        return member

    def _acknowledge_batch(self) -> None:
        if self._offset is not None and self._member is not None:
            self._member.acknowledge_rest(self._ranges)
        self._offset, self._ranges = None, ()
