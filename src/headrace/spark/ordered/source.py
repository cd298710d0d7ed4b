"""``format("kafka-ordered")``: the data source and its readers. See ``docs/spark/ordered.md``."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from headrace.client import Cluster, ConnectionFailed
from headrace.client.errors import UnknownTopic
from headrace.log_lines import get_logger
from headrace.protocol.partitions import TopicPartition
from headrace.spark.data_source import KafkaDataSource
from headrace.spark.driver_server import exit_on_sigterm, ignore_sigterm
from headrace.spark.errors import SourceError, one_line_errors
from headrace.spark.pyspark_capabilities import (
    HAS_ADMISSION_CONTROL,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    stream_reader,
)
from headrace.spark.reader.columns import spark_schema
from headrace.spark.source_progress import refuse_checkpoint, without_progress

from .broker_log import BrokerLog, Offsets
from .executor import BatchPiece, TaskWork, offset_ranges, read
from .options import OrderedOptions
from .plan import Inputs, Pacing, plan, slices
from .positions import (
    all_partitions,
    check_bounds,
    check_equal_counts,
    check_names,
    detect_losses,
    require_known,
    resolve,
    tasks_of,
    unequal_counts,
)
from .progress import GroupProgress, ReportServer, check_group

_log = get_logger(__name__)

_IDLE_INTERVAL_S = 0.05
"""Shortest interval between questions to idle brokers. Spark asks for new data every 10 ms."""

_RUN_ENDS_TIMEOUT_S = 10.0
"""Time limit for finding the ends of a run with ``Trigger.AvailableNow``. After it the run fails;
with ``maxTaskIdleMs=-1`` it begins without the partitions whose leader does not answer."""
_UNREADABLE_TIMEOUT_S = 60.0
"""Time to wait in a run with ``Trigger.AvailableNow`` for leaders that have stopped answering."""

JsonOffsets = dict[str, dict[str, int]]
"""Topic → partition → the next offset to read, as Spark's own Kafka source writes it. The order of
the topics breaks ties between equal timestamps."""


class OrderedDataSource(KafkaDataSource):
    """Several topics in the order of their timestamps, as a batch or a stream.

    ``docs/spark/ordered.md`` describes options and columns. Creating one opens no connection.
    """

    @classmethod
    def name(cls) -> str:
        """Return ``kafka-ordered``."""
        return "kafka-ordered"

    def schema(self) -> str:
        """Return the columns, after checking the brokers, the topics and the group.

        :raises SourceError: an option is invalid, the brokers do not answer, a topic does not
            exist, or the topics or the group cannot be used
        """
        options = self._parse(None)
        with one_line_errors():
            options.kafka.check(partial(_check, options))
        return spark_schema(headers=options.reading.headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch."""
        return OrderedReader(self._parse(False, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a stream."""
        return stream_reader(OrderedStreamReader(self._parse(True, schema)))

    def _parse(self, streaming: bool | None, schema: StructType | None = None) -> OrderedOptions:
        with one_line_errors():
            options = OrderedOptions.parse(self.options, streaming=streaming)
        if schema is not None:
            self.check_columns(schema, spark_schema(headers=options.reading.headers))
        return options


async def _check(options: OrderedOptions, cluster: Cluster) -> None:
    # With failOnDataLoss=false, a restarted query continues without a topic that no longer exists.
    # A new query checks its topics when it starts.
    topics_of = options.subscription
    find_topics = topics_of.complete if options.fail_on_data_loss else topics_of.existing
    try:
        await find_topics(cluster)
        if options.group_id is not None:
            await check_group(cluster, options.group_id)
    except UnknownTopic as error:
        raise SourceError(
            f"{error}; with failOnDataLoss=false a query that has read it continues without it"
        ) from None


class OrderedReader(DataSourceReader):
    """The reader of one batch.

    There is one Spark task per partition number. With ``minPartitions`` there are several, each
    later in time than the one before.
    """

    def __init__(self, options: OrderedOptions) -> None:
        self._options = options

    @one_line_errors()
    def partitions(self) -> Sequence[InputPartition]:
        """Return the Spark tasks."""
        log = BrokerLog(self._options)
        every_partition = all_partitions(log.complete_topics())
        check_equal_counts(log.topics())
        for bound in (self._options.start, self._options.end):
            check_names(bound, every_partition)
        batch = self._bounds(log, every_partition)
        check_bounds(self._options, batch)
        tasks = tasks_of(every_partition)
        pieces_per_task = max(1, round((self._options.min_partitions or 0) / len(tasks)))
        planned = []
        for partitions in tasks.values():
            inputs = Inputs.bounded(partitions, batch.starts, batch.ends)
            pieces = slices(log, inputs, pieces_per_task) or [inputs]
            for piece in pieces:
                ends = piece is pieces[0], piece is pieces[-1]
                work = BatchPiece(partitions, piece, *ends, len(every_partition))
                planned.append(InputPartition(work))
        return planned

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task. Runs in an executor.

        Spark plans a Python source once for each DataFrame and runs this each time that the
        DataFrame, a view of it, or a stream joined with it is evaluated. So the bounds are looked
        up here.

        :raises SourceError: the topics have got partitions of which the plan does not know
        """
        piece: BatchPiece = partition.value
        with one_line_errors():
            log = BrokerLog(self._options)
            if sum(log.complete_topics().values()) != piece.partition_count:
                raise SourceError(
                    "the topics have other partitions than when this DataFrame was first "
                    "evaluated: call load() again"
                )
            inputs = piece.at(self._bounds(log, piece.partitions))
        work = TaskWork(offset_ranges(inputs))
        return read(work, self._options.kafka, self._options.reading)

    def _bounds(self, log: BrokerLog, partitions: Sequence[TopicPartition]) -> Inputs:
        options = self._options
        bounds = options.start, options.end
        starts, ends = (resolve(log, options, bound, partitions) for bound in bounds)
        if options.max_task_idle_ms >= 0:
            require_known(partitions, starts, ends)
        return Inputs.bounded(partitions, starts, ends)


class OrderedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of one query, in a process of its own on the driver's host.

    Its :meth:`read` runs in the executors. Spark's offsets are the position of each partition, so
    the records of a micro-batch and their order follow from its offsets alone. Idle deadlines and
    metrics live in this process and start anew with it.
    """

    def __init__(self, options: OrderedOptions) -> None:
        self._options = options
        self._pacing = Pacing(options.max_task_idle_ms)
        self._reports: ReportServer | None = None
        self._initial: JsonOffsets | None = None
        self._run_ends: Offsets | None = None
        """Ends of a run with ``Trigger.AvailableNow``."""
        self._log_ends: Offsets = {}
        """Ends of the logs, for the progress."""
        self._readable_ends: Offsets = {}
        """Ends up to which the last micro-batch might have read."""
        self._position: Offsets = {}
        self._unread: list[TopicPartition] = []
        """Partitions that the last plan leaves unread, or whose end is unknown."""
        self._unequal: str | None = None
        self._planned_at_s = 0.0

    def initialOffset(self) -> JsonOffsets:
        """Return the offsets at which a new query starts."""
        options = self._options
        with one_line_errors():
            log = self._log
            topics = log.complete_topics()
            check_equal_counts(topics)
            partitions = all_partitions(topics)
            check_names(options.start, partitions)
            starts = resolve(log, options, options.start, partitions)
            require_known(partitions, starts)
        self._initial = _to_json(starts, topics)
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of ``maxOffsetsPerTrigger``."""
        limit = self._options.max_offsets
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latestOffset(self, start: JsonOffsets, limit: ReadLimit) -> JsonOffsets:
        """Commit what lies before ``start``, and fix the end of the next micro-batch.

        :raises SourceError: records are lost, or a broker refuses; or a leader does not answer for
            too long in a run with ``Trigger.AvailableNow``
        """
        give_up_at_s = time.monotonic() + _UNREADABLE_TIMEOUT_S
        # Returning `start` ends a run with Trigger.AvailableNow; before pyspark 4.2, it ends
        # headrace.spark.drain.
        must_read_all = self._run_ends is not None or not HAS_ADMISSION_CONTROL
        with one_line_errors():
            while True:
                end = self._end_unless_unreachable(start, limit)
                if end == start:
                    time.sleep(max(0.0, self._planned_at_s + _IDLE_INTERVAL_S - time.monotonic()))
                self._planned_at_s = time.monotonic()
                if end != start or not (must_read_all and self._unread):
                    return end
                if self._run_ends is not None and time.monotonic() >= give_up_at_s:
                    names = ", ".join(f"{topic}-{number}" for topic, number in sorted(self._unread))
                    raise SourceError(
                        f"cannot read on: the leaders of {names} have not answered for "
                        f"{_UNREADABLE_TIMEOUT_S:.0f} s: check their brokers, then start the query "
                        "again"
                    )

    def _end_unless_unreachable(self, start: JsonOffsets, limit: ReadLimit) -> JsonOffsets:
        try:
            self.commit(start)
            return self._next_end(start, limit)
        except ConnectionFailed as failure:
            if self._run_ends is not None:
                raise
            _log.warning("no new micro-batch for now: %s", failure)
            self._unread = list(_from_json(start))
            return start

    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> Sequence[InputPartition]:
        """Return the tasks of the micro-batch between two offsets."""
        starts, ends = _from_json(start), _from_json(end)
        reports = self._report_server()
        address = reports.next_batch()
        # With max.task.idle.ms=-1 no partition is waited for, so nothing counts as enforced.
        readable_ends = self._readable_ends if self._pacing.max_task_idle_ms >= 0 else {}
        tasks = []
        for task, partitions in tasks_of(ends).items():
            inputs = Inputs(partitions, {p: starts.get(p, ends[p]) for p in partitions}, ends)
            if not len(inputs):
                continue
            caught_up = frozenset(
                index
                for index, p in enumerate(partitions)
                if p in readable_ends and ends[p] >= readable_ends[p]
            )
            stream_time_ms = reports.stream_times_ms.get(task, -1)
            work = TaskWork(offset_ranges(inputs), caught_up, task, stream_time_ms, address)
            tasks.append(InputPartition(work))
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task. Runs in an executor."""
        return read(partition.value, self._options.kafka, self._options.reading)

    def commit(self, end: JsonOffsets) -> None:
        """Commit a micro-batch that is done.

        Spark calls this late; mostly :meth:`latestOffset` has committed it by then.
        """
        if self._group is not None and end != self._initial:
            self._group.commit(_from_json(end))

    def prepareForTriggerAvailableNow(self) -> None:
        """Read what the topics hold now, then end. Producers are not waited for."""
        with one_line_errors():
            partitions = all_partitions(self._log.topics())
            self._run_ends = _ends_within_timeout(self._log, partitions)
            if self._options.max_task_idle_ms >= 0:
                require_known(partitions, self._run_ends)
                self._pacing = Pacing(0)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return ends, lags, waiting tasks and counts, for ``StreamingQuery.lastProgress``."""
        if not self._log_ends:
            return None
        lags = {p: max(0, end - self._position.get(p, 0)) for p, end in self._log_ends.items()}
        waiting = {
            str(task): str(decision)
            for task, decision in self._pacing.decisions.items()
            if not decision.ready
        }
        totals = self._report_server().totals()
        return {
            "end": _to_json(self._log_ends),
            "lag": _to_json(lags),
            "waiting": waiting,
            "records": totals.records,
            "enforcedProcessing": totals.enforced,
            "lateRecords": totals.late,
        }

    def stop(self) -> None:
        """Stop listening for reports of tasks."""
        reports, self._reports = self._reports, None
        if reports is not None:
            ignore_sigterm()
            reports.close()

    @cached_property
    def _log(self) -> BrokerLog:
        return BrokerLog(self._options)

    @cached_property
    def _group(self) -> GroupProgress | None:
        group_id = self._options.group_id
        return None if group_id is None else GroupProgress(self._log.thread, group_id)

    def _report_server(self) -> ReportServer:
        if self._reports is None:
            self._reports = ReportServer(self._options.kafka.bootstrap_servers)
            exit_on_sigterm()  # stop() removes the socket
        return self._reports

    def _next_end(self, start: JsonOffsets, limit: ReadLimit) -> JsonOffsets:
        log = self._log
        readable, position, ends = detect_losses(
            log, _from_json(start), fail_on_data_loss=self._options.fail_on_data_loss
        )
        # The order breaks ties, and never changes while the query lives. A topic that is subscribed
        # by name keeps its place while it does not exist.
        named = self._options.subscription.topics
        old_then_new = dict.fromkeys((*start, *readable))
        order = [topic for topic in old_then_new if topic in readable or topic in named]
        topics = {topic: readable[topic] for topic in order if topic in readable}
        unequal = unequal_counts(topics)
        if unequal is not None and unequal != self._unequal:
            _log.warning("%s: add partitions; the query continues meanwhile", unequal)
        self._unequal = unequal
        self._log_ends = dict(ends)
        # A new partition starts with the micro-batch after this one, and its task waits for that:
        # its first offset must be in Spark's log before anything is read.
        partitions = all_partitions(topics)
        new = log.starts([p for p in partitions if p not in position])
        if self._run_ends is not None:
            ends = {p: min(end, self._run_ends.get(p, position[p])) for p, end in ends.items()}
        tasks = {
            task: Inputs(
                owned, {p: position[p] for p in owned}, {p: ends[p] for p in owned if p in ends}
            )
            for task, owned in tasks_of(partitions).items()
            if all(p in position for p in owned)
        }
        max_offsets = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        now_ms = int(time.monotonic() * 1000)
        for inputs in plan(log, self._pacing, tasks, now_ms, max_offsets).values():
            position |= inputs.reached
        self._position = position | new
        self._readable_ends = ends
        self._unread = [
            partition
            for partition, offset in self._position.items()
            if (self._run_ends is None or offset < self._run_ends.get(partition, offset))
            and offset < ends.get(partition, offset + 1)
        ]
        for partition, offset in self._position.items():
            # The plan may have learned of later ends.
            self._log_ends[partition] = max(offset, self._log_ends.get(partition, offset))
        log.replaced.clear()
        return _to_json(self._position, order)


def _ends_within_timeout(log: BrokerLog, partitions: Sequence[TopicPartition]) -> Offsets:
    """Return the ends of partitions, without those whose leader does not answer for a while."""
    give_up_at_s = time.monotonic() + _RUN_ENDS_TIMEOUT_S
    ends = log.ends(partitions)
    while len(ends) < len(partitions) and time.monotonic() < give_up_at_s:
        time.sleep(_IDLE_INTERVAL_S)
        ends |= log.ends([partition for partition in partitions if partition not in ends])
    return ends


def _to_json(
    offsets: Mapping[TopicPartition, int], order: Sequence[str] | Mapping[str, int] = ()
) -> JsonOffsets:
    by_topic: JsonOffsets = {topic: {} for topic in order}
    for (topic, partition), offset in sorted(offsets.items(), key=lambda item: item[0][1]):
        by_topic.setdefault(topic, {})[str(partition)] = offset
    return by_topic


def _from_json(offsets: JsonOffsets) -> Offsets:
    offsets = without_progress(offsets)  # of a checkpoint that an earlier pyspark has written
    if not all(isinstance(by_partition, Mapping) for by_partition in offsets.values()):
        refuse_checkpoint("kafka-ordered", offsets)
    return {
        (topic, int(partition)): offset
        for topic, by_partition in offsets.items()
        for partition, offset in by_partition.items()
    }
