"""``kafka-ordered`` on Spark beside Spark's own Kafka source, and beside itself without the order.

    python -m bench.spark_ordered RECORDS CORES [HOST:PORT]

Two topics of four partitions each, records of 100 B with interleaving timestamps, read into the
sink ``noop``, in turns, in one Spark application on ``local[CORES]``. A query reads the topics in
micro-batches of about an eighth; the first ones, in which Python workers start, are not counted. A
batch reads them at once. Prints medians as JSON.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from bench.spark_application import (
    drained,
    idle_trigger_ms,
    own_source,
    print_measured,
    session,
    start,
)
from headrace.spark.ordered.source import OrderedDataSource, OrderedStreamReader
from headrace.spark.reader.log_reader import read
from tests.support import unique

TOPICS = 2
PARTITIONS = 4
RECORD_BYTES = 100
ROUNDS = 3
BATCHES = 8
WARM_UP_BATCHES = 2
IDLE_TRIGGERS = 10
_FIRST_MS = 1_700_000_000_000


class UnorderedSource(OrderedDataSource):
    """The same plan and reader, without the merge."""

    @classmethod
    def name(cls) -> str:
        return "bench-unordered"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return UnorderedReader(self._parse(True))


class UnorderedReader(OrderedStreamReader):
    """A reader that yields records as they are fetched."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read(self._options.kafka, partition.value.ranges, self._options.reading)


def fill(bootstrap_servers: str, records: int) -> str:
    """Create topics with the given number of records; return their names as ``subscribe`` takes
    them. Each has one record every millisecond.
    """
    names = [unique("bench-ordered") for _ in range(TOPICS)]
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for created in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in names]).values():
        created.result(60)
    config = {"linger.ms": 50, "queue.buffering.max.messages": 1_000_000}
    producer = Producer({"bootstrap.servers": bootstrap_servers, **config})
    value = os.urandom(RECORD_BYTES)
    for number in range(records):
        place, name = number // TOPICS, names[number % TOPICS]
        producer.produce(name, value, partition=place % PARTITIONS, timestamp=_FIRST_MS + place)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0
    return ",".join(names)


class Comparison:
    """The queries of one application over one cluster."""

    def __init__(self, spark: SparkSession, bootstrap_servers: str, folder: Path) -> None:
        self._spark, self._servers, self._folder = spark, bootstrap_servers, folder
        spark.dataSource.register(UnorderedSource)

    def read(self, source: str, topics: str, records: int) -> float:
        """Return records/s."""
        options = {
            **self._options(topics, "earliest"),
            "maxOffsetsPerTrigger": str(records // BATCHES),
        }
        query = start(
            self._spark, source, self._folder / unique(source), options, availableNow=True
        )
        return drained(query, WARM_UP_BATCHES)

    def batch(self, source: str, topics: str, records: int) -> float:
        """Read the topics as one batch; return records/s."""
        options = self._options(topics, "earliest")
        began_s = time.perf_counter()
        frame = self._spark.read.format(source).options(**options).load()
        frame.write.format("noop").mode("overwrite").save()
        return records / (time.perf_counter() - began_s)

    def idle_ms(self, topics: str) -> float:
        """Return the duration of a trigger without records."""
        options = self._options(topics, "latest")
        query = start(
            self._spark,
            "kafka-ordered",
            self._folder / unique("idle"),
            options,
            processingTime="0 seconds",
        )
        return idle_trigger_ms(query, IDLE_TRIGGERS)

    def _options(self, topics: str, starting: str) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self._servers,
            "subscribe": topics,
            "startingOffsets": starting,
        }


def measure(bootstrap_servers: str, records: int, cores: int) -> dict[str, float]:
    """Return the medians by name."""
    few, many = fill(bootstrap_servers, records // 4), fill(bootstrap_servers, records)
    spark = session(cores, own_source())
    rounds: defaultdict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        comparison = Comparison(spark, bootstrap_servers, Path(folder))
        for source in ("kafka-ordered", "kafka"):  # warms the JVM up
            comparison.read(source, few, records // 4)
        for _ in range(ROUNDS):
            for source in ("kafka-ordered", UnorderedSource.name(), "kafka"):
                rounds[source].append(comparison.read(source, many, records))
            for source in ("kafka-ordered", "kafka"):
                rounds[f"{source}, batch"].append(comparison.batch(source, many, records))
        idle_ms = comparison.idle_ms(many)
        spark.stop()
    print(dict(rounds), file=sys.stderr)
    medians = {name: statistics.median(values) for name, values in rounds.items()}
    return {**medians, "idle_ms": idle_ms}


if __name__ == "__main__":
    print_measured(measure, *sys.argv[1:])
