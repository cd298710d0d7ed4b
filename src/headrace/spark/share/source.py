"""``format("kafka-share")``: drain topics as a queue, through a share group (KIP-932).

The driver holds the locks, the executors read the bytes: one member in the driver-side reader
acquires offsets and keeps their locks renewed while the micro-batch runs; tasks read the values of
the acquired offsets. See docs/spark.md.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import asdict
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from headrace.client import AcquiredRange, ClientError
from headrace.spark.option_parsing import SourceError, one_line
from headrace.spark.reader.columns import SPARK_HEADERS, SPARK_SCHEMA
from headrace.spark.subscription import subscribed_topics

from .executor import SharePartition, read, split
from .group_settings import settle
from .options import ShareOptions
from .outcomes import OutcomeWriter
from .session import ShareSession

_CHECK_TIMEOUT_MS = 10_000
_LAG_INTERVAL_S = 1.0
# Asking for the lag of many partitions takes no more than this part of the time.
_LAG_PAUSES = 20


class ShareDataSource(DataSource):
    """A share group as a streaming source, and as a sink for what became of its records.

    Options and columns are described in ``docs/spark.md``. Making one opens nothing.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """``kafka-share``."""
        return "kafka-share"

    def schema(self) -> str:
        """The columns, after a look at whether the broker, the topics and the group are as the
        options say.

        :raises SourceError: an option is wrong, the broker does not answer, a topic does not exist,
            or the group is of another type or has other settings
        """
        options = self._parse(source=True)
        try:
            options.kafka.check()
            asyncio.run(_check(options))
        except (ClientError, SourceError) as error:
            raise one_line(error) from None
        return ", ".join(
            [
                SPARK_SCHEMA,
                *([SPARK_HEADERS] if options.include_headers else []),
                "deliveryCount int",
            ]
        )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The source."""
        return ShareStreamReader(self._parse(source=True))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """The sink for outcomes."""
        options = self._parse(source=False)
        try:
            return OutcomeWriter(options, schema)
        except SourceError as error:
            raise one_line(error) from None

    def _parse(self, *, source: bool) -> ShareOptions:
        try:
            return ShareOptions.parse(self.options, source=source)
        except SourceError as error:
            raise one_line(error) from None


async def _check(options: ShareOptions) -> None:
    cluster = options.kafka.cluster(timeout_ms=_CHECK_TIMEOUT_MS)
    try:
        await subscribed_topics(cluster, options.subscription)
        await settle(cluster, options.group_id, options.group_settings, only_check=True)
    finally:
        await cluster.close()


class ShareStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of one query, in a driver-side process of its own; its :meth:`read` runs in the
    executors.

    Spark's offsets only number the micro-batches of one reader (``{"session": …, "batch": …}``):
    which records are whose is the broker's to know. A batch of an earlier reader, replayed after a
    crash, is empty: the broker delivers its records again.
    """

    def __init__(self, options: ShareOptions) -> None:
        self._options = options
        self._session: ShareSession | None = None
        self._ranges: Sequence[AcquiredRange] = ()
        self._offset: dict[str, Any] | None = None
        self._number = 0
        self._lag: dict[str, Any] = {}
        self._next_lag_s = 0.0

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins."""
        self._open()
        return {"session": "", "batch": 0}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Acknowledge the batch that has just ended, and acquire the next; ``start`` when there is
        nothing.
        """
        session = self._open()
        if self._offset is not None and start != self._offset:
            return self._offset  # acquired, but not run yet
        self._finish()
        try:
            ranges = session.acquire()
        except (ClientError, SourceError) as error:
            raise one_line(error) from None
        if not ranges:
            return start
        self._number += 1
        self._ranges = ranges
        self._offset = {"session": session.id, "batch": self._number}
        return self._offset

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[SharePartition]:
        """The tasks of the batch that ends at ``end``."""
        self._open()
        if start == end or end != self._offset:
            return []
        return split(self._ranges, self._options.records_per_task)

    def read(self, partition: SharePartition) -> Iterator[pa.RecordBatch]:
        """One task: the values of its offsets. Runs in an executor."""
        return read(partition, self._options.kafka, headers=self._options.include_headers)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark says that the batch is done; by then :meth:`latestOffset` has mostly acknowledged
        it.
        """
        if self._session is not None and end == self._offset:
            self._finish()

    def prepareForTriggerAvailableNow(self) -> None:
        """Drain what is there now, then end."""
        try:
            self._open().stop_at_end()
        except (ClientError, SourceError) as error:
            raise one_line(error) from None

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """For ``StreamingQuery.lastProgress``: the group's lag per topic and partition, and what
        this query did.
        """
        if self._session is None:
            return None
        began_s = time.monotonic()
        if began_s >= self._next_lag_s:
            self._lag = self._session.lag()
            took_s = time.monotonic() - began_s
            self._next_lag_s = began_s + max(_LAG_INTERVAL_S, _LAG_PAUSES * took_s)
        return {"lag": self._lag, **asdict(self._session.counts)}

    def stop(self) -> None:
        """Leave the group and release what is held."""
        session, self._session = self._session, None
        if session is not None:
            signal.signal(
                signal.SIGTERM, signal.SIG_IGN
            )  # which may come while the goodbye is being said
            session.close()

    def _open(self) -> ShareSession:
        if self._session is None:
            try:
                self._session = ShareSession(self._options)
            except SourceError as error:
                raise one_line(error) from None
            # Spark ends this process with SIGTERM: leave by the door, which calls stop().
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        return self._session

    def _finish(self) -> None:
        if self._offset is not None and self._session is not None:
            self._session.acknowledge_rest(self._ranges)
        self._offset, self._ranges = None, ()
