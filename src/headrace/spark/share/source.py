"""``format("kafka-share")``: the data source and its driver-side reader.

See ``docs/spark/share.md``.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, BinaryIO

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, DataSourceStreamWriter
from pyspark.sql.types import StructType

from headrace.client import AcquiredRange, ClientError, Cluster, RangeConsumer
from headrace.client.errors import is_missing_group
from headrace.client.loop_thread import LoopThread
from headrace.client.offsets import ShareOffset, share_offsets_of_topics
from headrace.log_lines import get_logger
from headrace.protocol.partitions import TopicPartition
from headrace.spark.data_source import KafkaDataSource
from headrace.spark.driver_server import (
    DriverServer,
    exit_on_sigterm,
    ignore_sigterm,
    lock_of_driver,
    own_address,
)
from headrace.spark.errors import SourceError, describe, one_line_errors
from headrace.spark.pyspark_capabilities import (
    HAS_ADMISSION_CONTROL,
    ReadLimit,
    SupportsTriggerAvailableNow,
    stream_reader,
)
from headrace.spark.reader.columns import spark_schema
from headrace.spark.source_progress import FIRST_OFFSETS, check_offsets

from .acquisitions import Acquisitions
from .executor import ShareInputPartition, read, split
from .options import ShareOptions, ensure_group_settings
from .outcomes import RECEIPT_COLUMN, OutcomeWriter, requested

_log = get_logger(__name__)

_LAG_INTERVAL_S = 1.0
_LAG_TIME_FRACTION = 1 / 20
"""Largest part of the time that is spent on asking for the lag of many partitions."""
_MATCH_INTERVAL_S = 3.0
"""Interval of looking for new topics that match the pattern."""
_LAGS_IN_PROGRESS = 1000
"""Number of partitions up to which the progress has the lag of each."""
_CLOSE_TIMEOUT_S = 12.0
_RELEASE_TIMEOUT_S = 4.0
"""The part of it in which records are released without counting: a query that was stopped twice on
a busy machine would have counted a delivery otherwise."""
_LEAVE_TIMEOUT_MS = 6000
"""The part of it in which the member leaves, half of it for the request itself: a member that has
not left keeps its partitions until its session expires."""
_DISCONNECT_TIMEOUT_S = 1.0
"""Time in which the reader's thread ends after that."""
_MAX_REQUEST_BYTES = 1 << 30
_READER_ENDS_S = _CLOSE_TIMEOUT_S + _DISCONNECT_TIMEOUT_S
"""Time in which the reader of a query that was stopped has ended."""
_READ_TWICE = (
    "a DataFrame of share group '{}' is read twice at once, by two queries, or by a query that "
    "joins it with itself: each record would go to one of them. Join in foreachBatch, where a "
    "micro-batch may be used many times; load() once for each query that shares the work; or use "
    "two groups"
)


class ShareDataSource(KafkaDataSource):
    """A share group as a streaming source, and as a sink for outcomes of its records.

    ``docs/spark/share.md`` describes options and columns. Creating one opens no connection.
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        # Spark makes the readers of one load() from copies of one source.
        self._load_id = secrets.token_hex(8)

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
        return _columns(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the source's reader."""
        options = self._parse(is_source=True)
        self.check_columns(schema, _columns(options))
        return stream_reader(ShareStreamReader(options, self._load_id))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the sink for outcomes."""
        self._parse(is_source=False)
        with one_line_errors():
            return OutcomeWriter(schema)

    def _parse(self, *, is_source: bool) -> ShareOptions:
        with one_line_errors():
            return ShareOptions.parse(self.options, is_source=is_source)


def _columns(options: ShareOptions) -> str:
    own_columns = "deliveryCount int", f"{RECEIPT_COLUMN} string"
    return spark_schema(*own_columns, headers=options.include_headers)


async def _check(options: ShareOptions, cluster: Cluster) -> None:
    await options.subscription.complete(cluster)
    await ensure_group_settings(
        cluster, options.group_id, options.group_settings, validate_only=True
    )


class ShareStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of one query, in a process of its own on the driver's host.

    Its :meth:`read` runs in the executors. Spark's offsets number the micro-batches of one reader
    (``session``, ``batch``): the broker keeps track of the records. A micro-batch of an earlier
    reader that Spark replays after a failure is empty, and the broker delivers its records again:
    the offset tells which (``records``, their number, ``spans``, and ``alone``).

    :param load_id: of the ``load()`` whose DataFrame the query reads, which one reader may read at
        a time: each record would go to one of several
    """

    def __init__(self, options: ShareOptions, load_id: str) -> None:
        self._options = options
        self._load_id = load_id
        self._lock: BinaryIO | None = None
        self._member: ShareMember | None = None
        self._is_available_now = False
        """True until a query with Trigger.AvailableNow has joined."""
        self._ranges: Sequence[AcquiredRange] = ()
        self._offset: dict[str, Any] | None = None
        self._batches = 0
        self._lag: Mapping[str, Mapping[str, int]] = {}
        self._next_lag_s = 0.0

    def initialOffset(self) -> dict[str, Any]:
        """Join the group, and return the offset of a new query."""
        self._join()
        return dict(FIRST_OFFSETS["kafka-share"])

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Acknowledge the micro-batch that has just ended, and acquire the next one.

        :returns: the offset of the next micro-batch; ``start`` if there is none
        """
        check_offsets("kafka-share", start)
        member = self._join()
        if self._offset is not None and start != self._offset:
            return self._offset  # acquired, and not run yet
        self._acknowledge_batch()
        with one_line_errors():
            # Before pyspark 4.2 an answer without records ends headrace.spark.drain.
            must_finish = not HAS_ADMISSION_CONTROL
            ranges = member.run(member.acquisitions.acquire(unless_finished=must_finish))
        if not ranges:
            return start
        self._batches += 1
        self._ranges = ranges
        records = sum(r.count for r in ranges)
        self._offset = {
            "session": member.id,
            "batch": self._batches,
            "records": records,
            "spans": _bounds(ranges),
            "alone": list(
                map(list, member.acquisitions.suspects.alone)
            ),  # equal to what JSON makes of it
        }
        return self._offset

    def partitions(
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> Sequence[ShareInputPartition]:
        """Return the tasks of the micro-batch that ends at ``end``."""
        check_offsets("kafka-share", start, end)
        member = self._join()
        if start != end and end["session"] != member.id:
            spans = {
                (topic, int(partition)): (first, last)
                for topic, by_partition in end["spans"].items()
                for partition, (first, last) in by_partition.items()
            }
            alone = [tuple(position) for position in end["alone"]]
            member.run(member.acquisitions.suspect(end["records"], spans, alone))
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
        return {"lag": self._lag, **self._member.acquisitions.counts}

    def stop(self) -> None:
        """Leave the group and release what is held."""
        member, self._member = self._member, None
        if member is not None:
            ignore_sigterm()
            member.close()
        if self._lock is not None:
            self._lock.close()

    def _join(self) -> ShareMember:
        """Join the group when the first micro-batch is planned.

        Not before: Spark stops no reader if another source of the query fails earlier.
        """
        if self._member is None:
            with one_line_errors():
                self._lock = lock_of_driver(self._load_id, _READER_ENDS_S)
                if self._lock is None:
                    raise SourceError(_READ_TWICE.format(self._options.group_id))
                self._member = ShareMember(self._options)
            exit_on_sigterm()
        member = self._member
        with one_line_errors():
            member.join()
            if self._is_available_now:
                member.run(member.acquisitions.stop_at_current_end())
                self._is_available_now = False
        return member

    def _acknowledge_batch(self) -> None:
        if self._offset is not None and self._member is not None:
            outcome = self._options.default_outcome
            self._member.run(self._member.acquisitions.acknowledge(self._ranges, outcome))
        self._offset, self._ranges = None, ()


class ShareMember:
    """A member of a share group in the driver-side reader's process.

    It joins with :meth:`join`, takes outcomes from then on, and holds records until they are
    acknowledged. Creating one opens nothing. All methods are called from the reader's main thread.
    An event loop on a thread of its own does the work, so that heartbeats and lock renewals
    continue while Spark runs the micro-batch.

    :ivar id: distinguishes the micro-batches of this member from those of an earlier one
    :ivar acquisitions: its records; :attr:`run` runs what it does
    :ivar run: runs a coroutine on the event loop
    :ivar receipt: text of the column ``receipt`` of its records, once it has joined
    """

    def __init__(self, options: ShareOptions) -> None:
        self.id = secrets.token_hex(8)
        self._options = options
        cluster = options.kafka.connections().cluster()
        self._consumer = RangeConsumer(cluster, options.group_id, ())
        self.acquisitions = Acquisitions(self._consumer, options)
        self._server = DriverServer(self._take_outcomes, _MAX_REQUEST_BYTES)
        self.receipt = ""
        self._background: list[asyncio.Task[None]] = []
        self._thread = LoopThread("headrace-share")
        self.run = self._thread.run

    def join(self) -> None:
        """Join the group, unless the member has joined.

        :raises SourceError: the member cannot join
        """
        if self.has_joined:
            return
        try:
            self.run(self._join())
        except (ClientError, SourceError) as error:
            self.close()
            raise SourceError(_with_advice(error)) from None

    @property
    def has_joined(self) -> bool:
        """True once the member has joined the group."""
        return bool(self._background)

    def lag(self) -> Mapping[str, Mapping[str, int]]:
        """Return topic → partition → unfinished records, of the partitions whose lag is known.

        With very many partitions, topic → ``"sum"``.
        """
        cluster, topics = self._consumer.cluster, self.acquisitions.topics
        try:
            group_id = self._options.group_id
            return _by_topic(self.run(share_offsets_of_topics(cluster, group_id, topics)))
        except ClientError:
            return {}

    def close(self) -> None:
        """Leave the group; the broker releases at once what is held. May be called twice."""
        if self._thread.is_closed:
            return
        try:
            self.run(self._close(), _CLOSE_TIMEOUT_S)
        except Exception as error:
            _log.warning("leaving share group %s: %r", self._options.group_id, error)
        self._thread.close(_DISCONNECT_TIMEOUT_S)

    # The methods below run on the event loop's thread.

    async def _join(self) -> None:
        options, cluster = self._options, self._consumer.cluster
        try:
            if options.receipts_over_tcp:
                host = own_address(options.kafka.bootstrap_servers)
                address = await self._server.listen_at(host)
            else:
                address = await self._server.listen_on_host()
            self.receipt = str(address)
            self.acquisitions.subscribe(await options.subscription.complete(cluster))
            await ensure_group_settings(cluster, options.group_id, options.group_settings)
            await self._consumer.start()
        except BaseException:
            await cluster.close()
            raise
        self._background.append(asyncio.create_task(self._consumer.keep_locks()))
        if options.subscription.pattern is not None:
            self._background.append(asyncio.create_task(self._follow_pattern()))

    async def _take_outcomes(self, request: Any) -> dict[str, Any]:
        return {"counts": await self.acquisitions.apply(requested(request))}

    async def _close(self) -> None:
        self._server.close()
        if self._background:
            for task in self._background:
                task.cancel()
            try:
                async with asyncio.timeout(_RELEASE_TIMEOUT_S):
                    await self.acquisitions.close()
            except (TimeoutError, ClientError) as error:
                _log.warning("releasing the records of a micro-batch: %r", error)
            await self._consumer.close(_LEAVE_TIMEOUT_MS)

    async def _follow_pattern(self) -> None:
        subscription, group_id = self._options.subscription, self._options.group_id
        while True:
            await asyncio.sleep(_MATCH_INTERVAL_S)
            try:
                topics = tuple(await subscription.complete(self._consumer.cluster))
            except (ClientError, SourceError) as error:
                _log.warning("looking for topics of share group %s: %s", group_id, error)
                continue
            if topics != self.acquisitions.topics:
                _log.warning("share group %s: subscribed to %s", group_id, ", ".join(topics))
                self.acquisitions.subscribe(topics)


def _bounds(ranges: Sequence[AcquiredRange]) -> dict[str, dict[str, list[int]]]:
    """Return topic → partition → the first and the last offset, as JSON has it."""
    bounds: dict[str, dict[str, list[int]]] = {}
    for r in ranges:
        of_topic = bounds.setdefault(r.topic, {})
        first, last = of_topic.get(str(r.partition), r.span)
        of_topic[str(r.partition)] = [min(first, r.first_offset), max(last, r.last_offset)]
    return bounds


def _by_topic(progress: Mapping[TopicPartition, ShareOffset]) -> Mapping[str, Mapping[str, int]]:
    lags = {
        partition: offset.lag for partition, offset in progress.items() if offset.lag is not None
    }
    by_topic = defaultdict[str, Counter[str]](Counter)
    for (topic, partition), records in lags.items():
        name = str(partition) if len(lags) <= _LAGS_IN_PROGRESS else "sum"
        by_topic[topic][name] += records
    return by_topic


def _with_advice(error: Exception) -> str:
    if is_missing_group(error):
        return f"{error}: choose another kafka.group.id, or delete that group"
    return describe(error)
