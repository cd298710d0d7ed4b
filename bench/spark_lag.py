"""The duration of ``kafka-lag`` for many groups.

    python -m bench.spark_lag GROUPS CORES

Prints, as JSON, seconds with and without time lag: the minimum of several rounds.

Each group commits for 100 partitions of ten topics. Each partition has 500 records of 100 B. The
committed offsets differ, so that nearly every row has a lag and nearly every position is distinct.
Timed is a whole query from ``load()`` to the sums over its rows; the first one warms Spark up and
is not counted. Broker and Spark share the machine.
"""

from __future__ import annotations

import json
import random
import sys
import time

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from bench.offset_commits import commit
from bench.spark_application import session
from tests.support import HeadraceProcess
from tests.wire_client import Connection

TOPICS, PARTITIONS, RECORDS, RECORD_BYTES = 10, 100, 500, 100
ROUNDS = 3


def fill(bootstrap: str, groups: int) -> None:
    """Create topics with records, and groups with committed offsets."""
    topics = [f"t{number}" for number in range(TOPICS)]
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for future in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in topics]).values():
        future.result(300)
    producer = Producer(
        {"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 1_000_000, "log_level": 0}
    )
    for name in topics:
        for partition in range(PARTITIONS):
            for _ in range(RECORDS):
                producer.produce(name, b"x" * RECORD_BYTES, partition=partition)
        assert producer.flush(300) == 0
    chance = random.Random(1)
    connection = Connection(bootstrap, timeout_s=120)
    for number in range(groups):
        commit(
            connection,
            f"g{number}",
            topics[number % TOPICS],
            [chance.randrange(RECORDS) for _ in range(PARTITIONS)],
        )
    connection.close()


def snapshot(spark: SparkSession, bootstrap: str, *, time_lag: bool) -> tuple[float, int, int]:
    """Take a snapshot; return seconds, rows, and rows with a lag."""
    began = time.perf_counter()
    options = {"kafka.bootstrap.servers": bootstrap, "timeLag": str(time_lag).lower()}
    frame = spark.read.format("kafka-lag").options(**options).load()
    sums = [
        F.count("*"),
        F.sum((F.col("lag") > 0).cast("int")),
        F.sum("lag"),
        F.count("timeLagMs"),
    ]
    rows, lagging, _, timed = frame.agg(*sums).collect()[0]
    assert timed == (rows if time_lag else 0)
    return time.perf_counter() - began, rows, lagging


def measure(groups: int, cores: int) -> dict[str, float]:
    """Measure snapshots of the given number of groups, on a new broker."""
    with HeadraceProcess(None, {}) as broker:
        fill(broker.bootstrap_servers, groups)
        spark = session(cores)
        snapshot(spark, broker.bootstrap_servers, time_lag=True)
        least = {}
        for name, time_lag in (("lag_s", False), ("time_lag_s", True)):
            runs = [
                snapshot(spark, broker.bootstrap_servers, time_lag=time_lag) for _ in range(ROUNDS)
            ]
            least[name], rows, lagging = min(runs)
            assert rows == groups * PARTITIONS, f"{rows} rows"
        spark.stop()
    return {**least, "rows": rows, "lagging": lagging}


if __name__ == "__main__":
    print(json.dumps(measure(*map(int, sys.argv[1:]))))
