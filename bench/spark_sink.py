"""``kafka-produce`` on Spark beside Spark's own Kafka sink, and confluent-kafka alone.

    python -m bench.spark_sink RECORDS CORES [HOST:PORT]

Writes a DataFrame with records of 100 B to a topic of four partitions, in turns, in one Spark
application on ``local[CORES]``. A first round, in which Python workers start, is not counted.
Prints medians of records/s as JSON.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from bench.spark_application import own_source, print_measured, session
from tests.support import unique

PARTITIONS = 4
RECORD_BYTES = 100
ROUNDS = 3


def write(frame: DataFrame, sink: str, servers: str, topic: str, **options: str) -> None:
    """Write a batch to a topic."""
    writer = frame.write.format(sink).mode("append").option("topic", topic)
    writer.option("kafka.bootstrap.servers", servers).options(**options).save()


def produce_alone(servers: str, topic: str, records: int) -> None:
    """Write as many records with confluent-kafka, in this process."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    value = os.urandom(RECORD_BYTES)
    for _ in range(records):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def measure(servers: str, records: int, cores: int) -> dict[str, float]:
    """Return the medians of records/s by name."""
    topic = unique("bench-sink")
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(60)
    spark = session(cores, own_source())
    value = F.lit(os.urandom(RECORD_BYTES)).alias("value")
    frame = spark.range(records, numPartitions=cores).select(value)
    prefix = {"transactionalIdPrefix": topic}
    ways: dict[str, Callable[[], None]] = {
        "kafka-produce": lambda: write(frame, "kafka-produce", servers, topic),
        "in transactions": lambda: write(frame, "kafka-produce", servers, topic, **prefix),
        "Spark's own": lambda: write(frame, "kafka", servers, topic),
        "confluent-kafka": lambda: produce_alone(servers, topic, records),
    }
    rounds: dict[str, list[float]] = {name: [] for name in ways}
    for counted in (False, *[True] * ROUNDS):
        for name, way in ways.items():
            began_s = time.perf_counter()
            way()
            if counted:
                rounds[name].append(records / (time.perf_counter() - began_s))
    spark.stop()
    print(rounds, file=sys.stderr)
    return {name: statistics.median(values) for name, values in rounds.items()}


if __name__ == "__main__":
    print_measured(measure, *sys.argv[1:])
