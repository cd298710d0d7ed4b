"""``format("kafka-ordered")``: the data source. See ``docs/spark.md``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from headrace.client import Cluster
from headrace.client.errors import UnknownTopic
from headrace.spark.errors import SourceError, one_line_errors
from headrace.spark.ordered.broker_log import BrokerLog
from headrace.spark.ordered.cuts import Inputs
from headrace.spark.ordered.executor import TaskWork, offset_ranges, read
from headrace.spark.ordered.options import OrderedOptions
from headrace.spark.ordered.plan import slices
from headrace.spark.ordered.positions import (
    all_partitions,
    check_equal_counts,
    require_known,
    resolve,
    tasks_of,
)
from headrace.spark.ordered.progress import check_group
from headrace.spark.ordered.stream_reader import OrderedStreamReader
from headrace.spark.pyspark_capabilities import stream_reader
from headrace.spark.reader.columns import SPARK_HEADERS, SPARK_SCHEMA
from headrace.spark.subscription import existing_topics, subscribed_topics
from headrace.spark.worker_check import CheckedInExecutors


class OrderedDataSource(CheckedInExecutors, DataSource):
    """Several topics in the order of their timestamps, as a batch or a stream.

    ``docs/spark.md`` describes options and columns. Creating one opens no connection.
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
        return SPARK_SCHEMA + (f", {SPARK_HEADERS}" if options.include_headers else "")

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch."""
        return OrderedReader(self._parse(False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a stream."""
        reader = OrderedStreamReader(self._parse(True))
        return stream_reader(reader, reader.getDefaultReadLimit())

    def _parse(self, streaming: bool | None) -> OrderedOptions:
        with one_line_errors():
            return OrderedOptions.parse(self.options, streaming=streaming)


async def _check(options: OrderedOptions, cluster: Cluster) -> None:
    # With failOnDataLoss=false, a restarted query continues without a topic that no longer exists.
    # A new query checks its topics when it starts.
    find_topics = subscribed_topics if options.fail_on_data_loss else existing_topics
    try:
        topics = await find_topics(cluster, options.subscription)
        check_equal_counts({name: len(topic.leaders) for name, topic in topics.items()})
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
        """Return the Spark tasks, with their ends fixed."""
        options = self._options
        log = BrokerLog(options)
        topics = log.complete_topics()
        check_equal_counts(topics)
        every_partition = all_partitions(topics)
        starts = resolve(log, options, options.start, every_partition)
        ends = resolve(log, options, options.end, every_partition)
        if options.max_task_idle_ms >= 0:
            require_known(every_partition, starts, ends)
        tasks = tasks_of(every_partition)
        pieces_per_task = max(1, round((options.min_partitions or 0) / len(tasks)))
        planned = []
        for task, partitions in tasks.items():
            inputs = Inputs.bounded(partitions, starts, ends)
            pieces = [inputs]
            if pieces_per_task > 1 and len(inputs):
                pieces = slices(log, inputs, pieces_per_task)
            planned += [InputPartition(TaskWork(task, offset_ranges(piece))) for piece in pieces]
        return planned

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task. Runs in an executor."""
        return read(partition.value, self._options.kafka, self._options.reading)
