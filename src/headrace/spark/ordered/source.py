"""``format("kafka-ordered")``: several topics as one, in the order of their records' timestamps
(KIP-695).

Task *i* owns partition *i* of every subscribed topic. The driver decides from the brokers' metadata
how far each task may go, and writes that down as the micro-batch's offsets; the tasks read and
merge. See docs/spark.md.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from headrace.client import ClientError, ConnectionFailed
from headrace.client.cluster import parse_bootstrap
from headrace.client.errors import UnknownTopic
from headrace.protocol.partitions import TopicPartition
from headrace.spark.option_parsing import SourceError, one_line
from headrace.spark.reader.columns import SPARK_HEADERS, SPARK_SCHEMA
from headrace.spark.reader.log_reader import OffsetRange
from headrace.spark.subscription import existing_topics, subscribed_topics

from .executor import OrderedPartition, TaskWork, read
from .log import BrokerLog
from .losses import look
from .options import OrderedOptions
from .plan import Inputs, Offsets, Pacing, plan, slices
from .positions import all_partitions, check_equal_counts, resolve, tasks_of
from .progress import GroupProgress, check_group
from .task_reports import Tally

_log = logging.getLogger(__name__)

_CHECK_TIMEOUT_MS = 10_000
_QUIET_S = 0.05
"""Spark asks for new data every 10 ms when there is none; the brokers are asked this often."""

JsonOffsets = dict[str, dict[str, int]]
"""Topic → partition → the next offset to read, as Spark's own Kafka source writes it. Topics stand
in the order that breaks ties between equal timestamps."""


class OrderedDataSource(DataSource):
    """Several topics in timestamp order, as a batch or a stream.

    Options and columns are described in ``docs/spark.md``. Making one opens nothing.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """``kafka-ordered``."""
        return "kafka-ordered"

    def schema(self) -> str:
        """The columns, after a look at whether the brokers, the topics and the group are as the
        options say.

        :raises SourceError: they are not, or an option is wrong
        """
        options = self._parse(None)
        try:
            options.kafka.check()
            asyncio.run(_check(options))
        except UnknownTopic as error:
            hint = "; with failOnDataLoss=false a query that was reading it goes on without it"
            raise one_line(SourceError(f"{error}{hint}")) from None
        except (ClientError, SourceError) as error:
            raise one_line(error) from None
        return SPARK_SCHEMA + (f", {SPARK_HEADERS}" if options.include_headers else "")

    def reader(self, schema: StructType) -> DataSourceReader:
        """What is there, once."""
        return OrderedReader(self._parse(False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """What is there and what comes."""
        return OrderedStreamReader(self._parse(True))

    def _parse(self, streaming: bool | None) -> OrderedOptions:
        try:
            return OrderedOptions.parse(self.options, streaming=streaming)
        except SourceError as error:
            raise one_line(error) from None


async def _check(options: OrderedOptions) -> None:
    cluster = options.kafka.cluster(timeout_ms=_CHECK_TIMEOUT_MS)
    try:
        # A restarted query goes on without a topic that is gone; a new one will see to it when it
        # starts.
        topics = await (subscribed_topics if options.fail_on_data_loss else existing_topics)(
            cluster, options.subscription
        )
        check_equal_counts({name: len(topic.leaders) for name, topic in topics.items()})
        if options.group_id is not None:
            await check_group(cluster, options.group_id, _CHECK_TIMEOUT_MS)
    finally:
        await cluster.close()


def _ranges(inputs: Inputs) -> tuple[OffsetRange, ...]:
    reached = inputs.reached
    return tuple(OffsetRange(*p, inputs.starts[p], reached[p]) for p in inputs.partitions)


class OrderedReader(DataSourceReader):
    """Everything between two bounds, in order; one Spark task per partition number, or several one
    after the other.
    """

    def __init__(self, options: OrderedOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[OrderedPartition]:
        """The Spark tasks, with their ends fixed."""
        try:
            return self._plan()
        except (ClientError, SourceError) as error:
            raise one_line(error) from None

    def _plan(self) -> list[OrderedPartition]:
        options = self._options
        log = BrokerLog(options)
        topics = log.all_topics()
        check_equal_counts(topics)
        wanted = all_partitions(topics)
        starts = resolve(
            log, options.start, wanted, options.group_id, fail=options.fail_on_data_loss
        )
        ends = resolve(log, options.end, wanted, None, fail=options.fail_on_data_loss)
        if options.max_task_idle_ms >= 0:
            _refuse_unknown(wanted, starts, ends)
        work = []
        tasks = tasks_of(topics)
        for task, partitions in tasks.items():
            known = tuple(p for p in partitions if p in starts and p in ends)
            inputs = Inputs(known, {p: starts[p] for p in known}, {p: ends[p] for p in known})
            pieces = max(1, round((options.min_partitions or 0) / len(tasks)))
            cut = [inputs] if pieces == 1 or not len(inputs) else slices(log, inputs, pieces)
            work += [TaskWork(task, number, _ranges(piece)) for number, piece in enumerate(cut)]
        return [OrderedPartition(one) for one in work]

    def read(self, partition: OrderedPartition) -> Iterator[pa.RecordBatch]:
        """One task. Runs in an executor."""
        return read(partition.value, self._options.kafka, self._options.reading)


class OrderedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of one query, in a driver-side process of its own; its :meth:`read` runs in the
    executors.

    Spark's offsets say where each partition is. So what a micro-batch holds, and in which order,
    follows from its offsets alone; idle deadlines and metrics live in this process, and begin anew
    with it.
    """

    def __init__(self, options: OrderedOptions) -> None:
        self._options = options
        self._log: BrokerLog | None = None
        self._pacing = Pacing(options.max_task_idle_ms)
        self._group: GroupProgress | None = None
        self._tally: Tally | None = None
        self._initial: JsonOffsets | None = None
        self._targets: Offsets | None = None
        self._ends: Offsets = {}
        self._known: Offsets = {}
        """How far the last micro-batch might have gone in each partition."""
        self._position: Offsets = {}
        self._asked_at_s = 0.0

    def initialOffset(self) -> JsonOffsets:
        """Where a new query begins."""
        try:
            log = self._open()
            options, topics = self._options, log.all_topics()
            check_equal_counts(topics)
            wanted = all_partitions(topics)
            starts = resolve(
                log, options.start, wanted, options.group_id, fail=options.fail_on_data_loss
            )
            _refuse_unknown(wanted, starts)
        except (ClientError, SourceError) as error:
            raise one_line(error) from None
        self._initial = _to_json(starts, topics)
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        """``maxOffsetsPerTrigger``."""
        limit = self._options.max_offsets
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latestOffset(self, start: JsonOffsets, limit: ReadLimit) -> JsonOffsets:
        """Commit what lies before ``start``, which has been processed, and fix the end of the next
        micro-batch.
        """
        try:
            self._finished(start)
            end = self._next_end(start, limit)
        except ConnectionFailed as failure:
            if self._targets is not None:
                raise one_line(failure) from None
            _log.warning("no new micro-batch for now: %s", failure)
            end = start
        except (ClientError, SourceError) as error:
            raise one_line(error) from None
        if end == start:
            time.sleep(max(0.0, self._asked_at_s + _QUIET_S - time.monotonic()))
        self._asked_at_s = time.monotonic()
        return end

    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> Sequence[OrderedPartition]:
        """The tasks of the micro-batch between two offsets."""
        starts, ends = _from_json(start), _from_json(end)
        desk = self._desk().next_batch()
        stream_times = self._desk().stream_times()
        never = self._pacing.max_task_idle_ms < 0  # nothing is waited for, so nothing is enforced
        work = []
        for task, partitions in tasks_of(
            {t: max(map(int, by)) + 1 if by else 0 for t, by in end.items()}
        ).items():
            here = tuple(p for p in partitions if p in ends)
            inputs = Inputs(here, {p: starts.get(p, ends[p]) for p in here}, ends)
            if len(inputs):
                caught_up = tuple(
                    not never and p in self._known and ends[p] >= self._known[p] for p in here
                )
                work.append(
                    TaskWork(task, 0, _ranges(inputs), caught_up, stream_times.get(task, -1), desk)
                )
        return [OrderedPartition(one) for one in work]

    def read(self, partition: OrderedPartition) -> Iterator[pa.RecordBatch]:
        """One task. Runs in an executor."""
        return read(partition.value, self._options.kafka, self._options.reading)

    def commit(self, end: JsonOffsets) -> None:
        """Spark says that the micro-batch is done; by then :meth:`latestOffset` has mostly
        committed it.
        """
        self._finished(end)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read what is there now, then end. Nothing more is to come, so nothing is waited for."""
        try:
            log = self._open()
            wanted = all_partitions(log.topics())
            self._targets = log.ends(wanted)
            if self._options.max_task_idle_ms >= 0:
                _refuse_unknown(wanted, self._targets)
                self._pacing = Pacing(0)
        except (ClientError, SourceError) as error:
            raise one_line(error) from None

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """For ``StreamingQuery.lastProgress``: ends, lags, what tasks wait for, and the metrics of
        the merge.
        """
        if not self._ends:
            return None
        lags = {p: max(0, end - self._position.get(p, 0)) for p, end in self._ends.items()}
        totals = self._desk().totals()
        return {
            "end": _to_json(self._ends),
            "lag": _to_json(lags),
            "waiting": {
                str(task): str(d) for task, d in self._pacing.decisions.items() if not d.ready
            },
            "records": totals.records,
            "enforcedProcessing": totals.enforced_processing,
            "lateRecords": totals.late_records,
        }

    def stop(self) -> None:
        """Listen to tasks no longer."""
        tally, self._tally = self._tally, None
        if tally is not None:
            tally.close()

    def _open(self) -> BrokerLog:
        if self._log is None:
            self._log = BrokerLog(self._options)
            if self._options.group_id is not None:
                self._group = GroupProgress(self._log.link, self._options.group_id)
        return self._log

    def _desk(self) -> Tally:
        if self._tally is None:
            self._tally = Tally(parse_bootstrap(self._options.kafka.bootstrap_servers)[0][0])
        return self._tally

    def _finished(self, offsets: JsonOffsets) -> None:
        self._open()
        if self._group is not None and offsets != self._initial:
            self._group.commit(_from_json(offsets))

    def _next_end(self, start: JsonOffsets, limit: ReadLimit) -> JsonOffsets:
        log = self._open()
        found = look(log, _from_json(start), fail=self._options.fail_on_data_loss)
        position, ends = found.position, found.ends
        # What breaks ties, so it never changes: a topic that was named keeps its place when it is
        # gone.
        named = self._options.subscription.topics
        order = [topic for topic in start if topic in found.topics or topic in named]
        order += [topic for topic in found.topics if topic not in start]
        topics = {topic: found.topics[topic] for topic in order if topic in found.topics}
        self._ends = dict(ends)
        # A partition that is new begins with the micro-batch after this one, and its task waits for
        # that: so its first offset is in Spark's log before anything is read.
        new = log.starts([p for p in all_partitions(topics) if p not in position])
        if self._targets is not None:
            ends = {p: min(end, self._targets.get(p, position[p])) for p, end in ends.items()}
        tasks = {
            task: Inputs(own, {p: position[p] for p in own}, {p: ends[p] for p in own if p in ends})
            for task, own in tasks_of(topics).items()
            if all(p in position for p in own)
        }
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        planned = plan(log, self._pacing, tasks, int(time.monotonic() * 1000), most)
        for inputs in planned.values():
            position |= inputs.reached
        self._position, self._known = position | new, ends
        for partition, offset in self._position.items():  # what a plan has learned of meanwhile
            self._ends[partition] = max(offset, self._ends.get(partition, offset))
        log.accept_replaced()
        return _to_json(self._position, order)


def _refuse_unknown(wanted: Sequence[TopicPartition], *known: Mapping[TopicPartition, int]) -> None:
    missing = [p for p in wanted if any(p not in one for one in known)]
    if missing:
        topic, partition = missing[0]
        raise SourceError(
            f"the leader of {topic}-{partition} does not answer: see to its broker, then "
            f"start again"
        )


def _to_json(
    offsets: Mapping[TopicPartition, int], order: Sequence[str] | Mapping[str, int] = ()
) -> JsonOffsets:
    found: JsonOffsets = {topic: {} for topic in order}
    for (topic, partition), offset in sorted(offsets.items(), key=lambda item: item[0][1]):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def _from_json(offsets: JsonOffsets) -> Offsets:
    return {
        (topic, int(p)): offset
        for topic, by_partition in offsets.items()
        for p, offset in by_partition.items()
    }
