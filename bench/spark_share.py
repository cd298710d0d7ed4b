"""``kafka-share`` on Spark beside Spark's own Kafka source.

    python -m bench.spark_share RECORDS CORES [HOST:PORT]

Both read the same topics (4 and 16 partitions, 1 KiB records) in micro-batches of the same size
into the sink ``noop``, in turns, in one Spark application on ``local[CORES]``. A query drains a
topic; its first micro-batches, in which Python workers start, are not counted. Prints medians as
JSON.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from bench.spark_application import (
    drained,
    idle_trigger_ms,
    own_source,
    print_measured,
    session,
    start,
)
from tests.support import unique

PARTITIONS = (4, 16)
MICRO_BATCHES = (10_000, 40_000)
"""Numbers of records."""
RECORD_BYTES = 1024
PRODUCER_BATCH = 500
"""Number of records; a divisor of the locks, because whole batches are acquired."""
LOCKS = 2000
"""Kafka's default of group.share.partition.max.record.locks, which bounds a micro-batch."""
MOST_LOCKS = 10_000
"""The most that brokers can be configured to allow; a new group gets what its broker allows."""
CONFIGS = {"group.share.max.partition.max.record.locks": str(MOST_LOCKS)}
ROUNDS = 3
WARM_UP_BATCHES = 2
IDLE_TRIGGERS = 10


def fill(bootstrap_servers: str, partitions: int, records: int) -> str:
    """Create a topic with the given number of records."""
    name = unique("bench-spark")
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(60)
    config = {
        "linger.ms": 50,
        "queue.buffering.max.messages": 1_000_000,
        "batch.num.messages": PRODUCER_BATCH,
    }
    producer = Producer({"bootstrap.servers": bootstrap_servers, **config})
    value = os.urandom(RECORD_BYTES)
    for number in range(records):
        producer.produce(name, value, partition=number // PRODUCER_BATCH % partitions)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0
    return name


class Comparison:
    """The queries of one application over one cluster."""

    def __init__(self, spark: SparkSession, bootstrap_servers: str, folder: Path) -> None:
        self._spark, self._servers, self._folder = spark, bootstrap_servers, folder

    def share(self, topic: str, **more: object) -> float:
        """Return the records/s of ``kafka-share``.

        :param more: further options
        """
        options = self._options(topic) | {"kafka.group.id": unique("bench")}
        return self._drained("kafka-share", options, more)

    def own(self, topic: str, micro_batch: int) -> float:
        """Return the records/s of Spark's own source."""
        return self._drained("kafka", self._options(topic), {"maxOffsetsPerTrigger": micro_batch})

    def idle_ms(self, topic: str) -> float:
        """Return the duration of a trigger without records."""
        options = {
            **self._options(topic),
            "kafka.group.id": unique("bench"),
            "startingOffsets": "latest",
        }
        trigger = {"processingTime": "0 seconds"}
        query = start(self._spark, "kafka-share", self._folder / unique("idle"), options, **trigger)
        return idle_trigger_ms(query, IDLE_TRIGGERS)

    def _options(self, topic: str) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self._servers,
            "subscribe": topic,
            "startingOffsets": "earliest",
        }

    def _drained(
        self, source: str, options: Mapping[str, str], more: Mapping[str, object]
    ) -> float:
        options = {**options, **{name.replace("__", "."): str(v) for name, v in more.items()}}
        checkpoint = self._folder / unique(source)
        return drained(
            start(self._spark, source, checkpoint, options, availableNow=True), WARM_UP_BATCHES
        )


def measure(bootstrap_servers: str, records: int, cores: int) -> dict[str, float]:
    """Return the medians by name."""
    topics = {n: fill(bootstrap_servers, n, records) for n in PARTITIONS}
    most = topics[PARTITIONS[-1]]
    spark = session(cores, own_source())
    rounds: defaultdict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        comparison = Comparison(spark, bootstrap_servers, Path(folder))
        comparison.share(most)  # warms the JVM up
        comparison.own(most, MICRO_BATCHES[-1])
        for _ in range(ROUNDS):
            for partitions, topic in topics.items():
                for micro_batch in MICRO_BATCHES:
                    limit = {"maxOffsetsPerTrigger": micro_batch}
                    of = f"{partitions} partitions, {micro_batch}"
                    rounds[f"share, {of}"].append(comparison.share(topic, **limit))
                    rounds[f"own, {of}"].append(comparison.own(topic, micro_batch))
            rounds["share"].append(comparison.share(most))
            half = {"maxOffsetsPerTrigger": LOCKS // 2 * PARTITIONS[-1]}
            rounds["half"].append(comparison.share(most, **half))
            rounds["half, ahead"].append(comparison.share(most, **half, acquireAhead=True))
        idle_ms = comparison.idle_ms(most)
        spark.stop()
    print(dict(rounds), file=sys.stderr)
    return {
        **{name: statistics.median(values) for name, values in rounds.items()},
        "idle_ms": idle_ms,
    }


if __name__ == "__main__":
    print_measured(measure, *sys.argv[1:], configs=CONFIGS)
