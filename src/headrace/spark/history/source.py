"""``format("kafka-group-history")``: the internal topics of a cluster as rows of what happened in
which group.

A batch source. Each task reads a range of one partition of ``__consumer_offsets`` or
``__share_group_state``, and decodes it as columns. Transactional commits count when their
transaction is committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from headrace.client import ClientError
from headrace.client.cluster import TopicMetadata
from headrace.client.list_offsets import EARLIEST, LATEST, READ_COMMITTED, list_offsets
from headrace.protocol.record_batch import CorruptBatch
from headrace.spark.option_parsing import GivenOptions, KafkaOptions, SourceError, one_line
from headrace.spark.reader.log_reader import LogReader, OffsetRange, ReadOptions

from .group_records import OFFSETS_TOPIC, SCHEMA, SHARE_STATE_TOPIC, events

NAME = "kafka-group-history"
DEFAULT_RECORDS_PER_TASK = 250_000
_TIMEOUT_MS = 30_000
_READING = ReadOptions(read_committed=True, skip_lost=True)
"""Retention and pruning of the internal topics go on while they are read: what went is history no
more.
"""


class GroupHistorySource(DataSource):
    """What happened in the groups of a cluster; see ``docs/spark.md``. Making one opens nothing."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """``kafka-group-history``."""
        return NAME

    def schema(self) -> str:
        """The columns."""
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of one query.

        :raises SourceError: an option is wrong
        """
        try:
            given = GivenOptions(NAME, self.options, ("kafka.bootstrap.servers", "recordsPerTask"))
            kafka = given.kafka()
            _ = kafka.security
            return GroupHistoryReader(
                kafka, given.number("recordsPerTask") or DEFAULT_RECORDS_PER_TASK
            )
        except SourceError as error:
            raise one_line(error) from None


class _Work(InputPartition):
    """Ranges of internal topics: what one task reads."""

    def __init__(self, ranges: Sequence[OffsetRange]) -> None:
        super().__init__(tuple(map(tuple, ranges)))


def split(ranges: Sequence[OffsetRange], records_per_task: int) -> list[list[OffsetRange]]:
    """Ranges by task: about as many offsets each, at most ``records_per_task``; partitions are cut
    and put together.
    """
    total = sum(max(0, part.end - part.start) for part in ranges)
    size = -(-total // max(1, -(-total // records_per_task)))
    work: list[list[OffsetRange]] = []
    room = 0
    for topic, partition, start, end in ranges:
        while start < end:
            if not room:
                work.append([])
                room = size
            until = min(end, start + room)
            work[-1].append(OffsetRange(topic, partition, start, until))
            room -= until - start
            start = until
    return work


class GroupHistoryReader(DataSourceReader):
    """Plans in a process of the driver, reads in the executors."""

    def __init__(self, kafka: KafkaOptions, records_per_task: int) -> None:
        self._kafka = kafka
        self._records_per_task = records_per_task

    def partitions(self) -> Sequence[InputPartition]:
        """Ranges of all partitions of the internal topics that there are."""
        try:
            ranges = asyncio.run(_ranges(self._kafka))
        except (ClientError, SourceError) as error:
            raise one_line(error) from None
        return [_Work(work) for work in split(ranges, self._records_per_task)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """One task: rows of its ranges."""
        if not isinstance(
            partition, _Work
        ):  # Spark makes one up where nothing was written yet, and so no tasks are
            return
        try:
            with LogReader(
                self._kafka, [OffsetRange(*work) for work in partition.value], _READING
            ) as reader:
                for (topic, index), records in reader.records():
                    yield events(records, topic, index)
        except (SourceError, CorruptBatch) as error:
            raise one_line(error) from None


async def _ranges(kafka: KafkaOptions) -> list[OffsetRange]:
    cluster = kafka.cluster()
    try:
        topics = await cluster.metadata((OFFSETS_TOPIC, SHARE_STATE_TOPIC))
        partitions = [
            (name, partition)
            for name, topic in topics.items()
            if isinstance(topic, TopicMetadata)  # a cluster makes them when its first group comes
            for partition in topic.leaders
        ]
        bounds = [
            await list_offsets(
                cluster,
                dict.fromkeys(partitions, which),
                isolation_level=READ_COMMITTED,
                timeout_ms=_TIMEOUT_MS,
            )
            for which in (EARLIEST, LATEST)
        ]
        return [
            OffsetRange(*key, *(bound[key].offset or 0 for bound in bounds))
            for key in sorted(partitions)
        ]
    finally:
        await cluster.close()
