"""``format("kafka-group-history")``: events in groups, from the internal topics of a cluster.

A batch source. Each task reads a range of one partition of ``__consumer_offsets`` or
``__share_group_state``. Transactional commits appear when their transaction has been committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from headrace.client import Cluster
from headrace.client.offsets import READ_COMMITTED, log_bounds
from headrace.protocol.internal_topics import CONSUMER_OFFSETS, SHARE_GROUP_STATE
from headrace.spark.data_source import KafkaDataSource, register_format
from headrace.spark.errors import one_line_errors
from headrace.spark.option_parsing import KafkaOptions, UserOptions
from headrace.spark.reader.log_reader import read
from headrace.spark.reader.ranges import OffsetRange, ReadOptions, split_evenly

from .group_records import SCHEMA, events

NAME = "kafka-group-history"
DEFAULT_RECORDS_PER_TASK = 250_000
# The internal topics may be compacted while they are read.
_READING = ReadOptions(read_committed=True, skip_lost=True)


def history(spark: SparkSession, kafka: KafkaOptions | str, groups: str | None = None) -> DataFrame:
    """Return the events in the groups of a cluster.

    Columns are those of :data:`headrace.spark.history.group_records.SCHEMA`, described in
    ``docs/spark/lag.md``.

    :param kafka: settings of connections, or ``"host:port,host:port"``
    :param groups: a regular expression (RE2's) that whole group ids must match; None for all groups
    """
    if isinstance(kafka, str):
        kafka = KafkaOptions(kafka)
    register_format(spark, GroupHistorySource)
    options = {f"kafka.{name}": value for name, value in kafka.librdkafka.items()}
    if groups is not None:
        options["groupsPattern"] = groups
    reader = spark.read.format(NAME).option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    return reader.options(**options).load()


class GroupHistorySource(KafkaDataSource):
    """Events in the groups of a cluster.

    ``docs/spark/lag.md`` describes options and columns. Creating one opens no connection.
    """

    @classmethod
    def name(cls) -> str:
        """Return ``kafka-group-history``."""
        return NAME

    def schema(self) -> str:
        """Return the columns."""
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of one query.

        :raises SourceError: an option is invalid
        """
        self.check_columns(schema, SCHEMA)
        with one_line_errors():
            user_options = UserOptions(self.options, ("groupsPattern", "recordsPerTask"))
            kafka = user_options.kafka()
            kafka.connections()  # fails if a setting is wrong
            return GroupHistoryReader(
                kafka,
                user_options.pattern("groupsPattern"),
                user_options.number("recordsPerTask") or DEFAULT_RECORDS_PER_TASK,
            )


class GroupHistoryReader(DataSourceReader):
    """The reader of one query. It plans in a process on the driver's host."""

    def __init__(self, kafka: KafkaOptions, groups: str | None, records_per_task: int) -> None:
        self._kafka = kafka
        self._groups = groups
        self._records_per_task = records_per_task

    def partitions(self) -> Sequence[InputPartition]:
        """Divide the internal topics into tasks."""
        with one_line_errors():
            thread = self._kafka.shared_thread()
            ranges = thread.run(_ranges(thread.cluster))
        return [InputPartition(parts) for parts in split_evenly(ranges, self._records_per_task)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the events of one task. Runs in an executor."""
        if partition.value is None:
            return  # without records there are no tasks, and Spark passes one of its own
        with one_line_errors():
            for batch in read(self._kafka, partition.value, _READING):
                yield from events(batch, self._groups)


async def _ranges(cluster: Cluster) -> list[OffsetRange]:
    # A cluster creates the topics for its first group.
    topics = await cluster.existing_topics((CONSUMER_OFFSETS, SHARE_GROUP_STATE))
    partitions = [(name, number) for name, topic in topics.items() for number in topic.leaders]
    bounds = await log_bounds(cluster, partitions, READ_COMMITTED)
    return [OffsetRange(*partition, *bounds[partition]) for partition in sorted(partitions)]
