"""``kafka-share`` on Spark beside a plain source that only tracks offsets.

    python -m bench.spark_share RECORDS CORES [HOST:PORT]

All sources read the same topic (16 partitions, 1 KiB records) with the same executor code into the
sink ``noop``, in turns, in one Spark application on ``local[CORES]``. A query drains the topic; its
first micro-batches, in which Python workers start, are not counted. Prints medians as JSON.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from bench.spark_application import drained, idle_trigger_ms, print_measured, session, start
from headrace.client import AcquiredRange
from headrace.client.errors import raised
from headrace.client.offsets import LATEST, list_offsets
from headrace.spark.share.executor import ShareInputPartition, read, split
from headrace.spark.share.options import ShareOptions
from headrace.spark.share.source import ShareDataSource
from tests.support import unique

PARTITIONS = 16
RECORD_BYTES = 1024
PRODUCER_BATCH = 500
"""Number of records; a divisor of the locks, because whole batches are acquired."""
LOCKS = 2000
"""Kafka's default of group.share.partition.max.record.locks, which bounds a micro-batch."""
MOST_LOCKS = 10_000
"""The most that brokers can be configured to allow."""
CONFIGS = {"group.share.max.partition.max.record.locks": str(MOST_LOCKS)}
ROUNDS = 3
WARM_UP_BATCHES = 3
IDLE_TRIGGERS = 10
_RECEIPT = f"/tmp/blockmgr-{'0' * 36}/headrace-01234567/s/{'0' * 32}"


class PlainSource(DataSource):
    """A source that only tracks offsets: the same options, columns and executor code."""

    @classmethod
    def name(cls) -> str:
        return "bench-plain"

    def schema(self) -> str:
        return ShareDataSource(self.options).schema()

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return PlainReader(ShareOptions.parse(self.options, is_source=True))


class PlainReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader whose offsets are ``{"0": n, "1": n, …}`` of the one topic."""

    def __init__(self, options: ShareOptions) -> None:
        self._options = options
        (self._topic,) = options.subscription.topics
        self._ends: dict[str, int] = {}

    def initialOffset(self) -> dict[str, int]:
        return {}

    def prepareForTriggerAvailableNow(self) -> None:
        async def ask() -> dict[str, int]:
            partitions = {(self._topic, number): LATEST for number in range(PARTITIONS)}
            async with self._options.kafka.cluster() as cluster:
                listed = raised(await list_offsets(cluster, partitions))
            return {str(number): end.offset or 0 for (_, number), end in listed.items()}

        self._ends = asyncio.run(ask())

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        each = (self._options.max_records_per_trigger or 1 << 60) // len(self._ends)
        return {p: min(end, start.get(p, 0) + each) for p, end in self._ends.items()}

    def partitions(
        self, start: dict[str, int], end: dict[str, int]
    ) -> Sequence[ShareInputPartition]:
        ranges = [
            AcquiredRange(self._topic, int(p), start.get(p, 0), last - 1, 1)
            for p, last in end.items()
            if last > start.get(p, 0)
        ]
        return split(ranges, self._options.records_per_task, _RECEIPT)

    def read(self, partition: ShareInputPartition) -> Iterator[pa.RecordBatch]:
        return read(partition, self._options.kafka, headers=self._options.include_headers)


def fill(bootstrap_servers: str, records: int) -> str:
    """Create a topic with the given number of records."""
    name = unique("bench-spark")
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(60)
    config = {
        "linger.ms": 50,
        "queue.buffering.max.messages": 1_000_000,
        "batch.num.messages": PRODUCER_BATCH,
    }
    producer = Producer({"bootstrap.servers": bootstrap_servers, **config})
    value = os.urandom(RECORD_BYTES)
    for number in range(records):
        producer.produce(name, value, partition=number // PRODUCER_BATCH % PARTITIONS)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0
    return name


class Comparison:
    """The queries of one application over one cluster."""

    def __init__(self, spark: SparkSession, bootstrap_servers: str, folder: Path) -> None:
        self._spark, self._servers, self._folder = spark, bootstrap_servers, folder
        spark.dataSource.register(PlainSource)

    def _options(self, topic: str, group_id: str) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self._servers,
            "kafka.group.id": group_id,
            "subscribe": topic,
            "startingOffsets": "earliest",
        }

    def share(self, topic: str, warm_up: int = WARM_UP_BATCHES, **more: object) -> float:
        """Return records/s.

        :param more: further options
        """
        options = self._options(topic, unique("bench"))
        options |= {name.replace("__", "."): str(value) for name, value in more.items()}
        query = start(
            self._spark, "kafka-share", self._folder / unique("share"), options, availableNow=True
        )
        return drained(query, warm_up)

    def plain(self, topic: str, locks: int, warm_up: int) -> float:
        """Return records/s."""
        options = {
            **self._options(topic, "unused"),
            "maxOffsetsPerTrigger": str(locks * PARTITIONS),
        }
        query = start(
            self._spark, "bench-plain", self._folder / unique("plain"), options, availableNow=True
        )
        return drained(query, warm_up)

    def idle_ms(self, topic: str) -> float:
        """Return the duration of a trigger without records."""
        options = {**self._options(topic, unique("bench")), "startingOffsets": "latest"}
        query = start(
            self._spark,
            "kafka-share",
            self._folder / unique("idle"),
            options,
            processingTime="0 seconds",
        )
        return idle_trigger_ms(query, IDLE_TRIGGERS)


def measure(bootstrap_servers: str, records: int, cores: int) -> dict[str, float]:
    """Return the medians by name."""
    few, many = fill(bootstrap_servers, records // 4), fill(bootstrap_servers, records)
    spark = session(cores)
    rounds: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        comparison = Comparison(spark, bootstrap_servers, Path(folder))
        comparison.share(few)  # warms the JVM up
        for _ in range(ROUNDS):
            rounds.setdefault("share", []).append(comparison.share(many))
            rounds.setdefault("plain", []).append(comparison.plain(many, LOCKS, WARM_UP_BATCHES))
            rounds.setdefault("large", []).append(comparison.plain(many, 10 * LOCKS, 0))
            rounds.setdefault("most_locks", []).append(
                comparison.share(many, 0, share__partition__max__record__locks=MOST_LOCKS)
            )
            half = {"maxOffsetsPerTrigger": LOCKS // 2 * PARTITIONS}
            rounds.setdefault("half", []).append(comparison.share(many, **half))
            ahead = comparison.share(many, **half, acquireAhead=True)
            rounds.setdefault("half_ahead", []).append(ahead)
        idle_ms = comparison.idle_ms(many)
        spark.stop()
    print(rounds, file=sys.stderr)
    medians = {name: statistics.median(values) for name, values in rounds.items()}
    return {**medians, "idle_ms": idle_ms}


if __name__ == "__main__":
    print_measured(measure, *sys.argv[1:], configs=CONFIGS)
