"""Each capability of the sources once, with whichever pyspark is installed.

``make spark-versions`` runs all Spark suites with each version; ``make test`` runs these tests with
the oldest one, too.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

import headrace.spark
from headrace.spark import Acknowledged, acknowledge
from headrace.spark.pyspark_capabilities import SelfPacedReader, batches_of_rows
from tests.spark.conftest import Batches, Queue
from tests.spark.ordered_topics import Topics, places
from tests.support import unique

MakeQueue = Callable[..., Queue]


class Count:
    """A source of numbers that notes the calls it gets."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def getDefaultReadLimit(self) -> str:
        return "limit"

    def initialOffset(self) -> dict[str, int]:
        self.calls.append(("initial",))
        return {"next": 5}

    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:
        self.calls.append(("latest", start["next"], limit))
        return {"next": start["next"] + 10}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[tuple[int, int]]:
        return [] if start == end else [(start["next"], end["next"])]

    def stop(self) -> None:
        self.calls.append(("stop",))


def test_a_new_query_is_asked_for_its_end_before_its_start() -> None:
    count = Count()
    reader = SelfPacedReader(count)
    assert reader.latestOffset() == {"next": 15}
    assert reader.initialOffset() == {"next": 5}
    assert reader.partitions({"next": 5}, {"next": 15}) == [(5, 15)]
    assert reader.latestOffset() == {"next": 25}
    assert reader.latestOffset() == {"next": 25}, "nothing has been planned meanwhile"
    assert [call for call in count.calls if call[0] == "latest"] == [
        ("latest", 5, "limit"),
        ("latest", 15, "limit"),
        ("latest", 15, "limit"),
    ]
    assert count.calls.count(("initial",)) == 1


def test_a_restarted_query_learns_its_position_from_an_empty_range(
    caplog: pytest.LogCaptureFixture,
) -> None:
    count = Count()
    reader = SelfPacedReader(count)
    assert reader.partitions({"next": 40}, {"next": 40}) == []
    assert reader.latestOffset() == {"next": 50}
    reader.stop()
    assert count.calls == [("latest", 40, "limit"), ("stop",)]
    assert [record.getMessage().split(": ")[1] for record in caplog.records] == [
        "it ends Trigger.AvailableNow of a Python source after the first. "
        "Use headrace.spark.drain, or pyspark 4.2 or later"
    ]


def test_rows_become_arrow_batches() -> None:
    class Row(dict[str, Any]):
        def asDict(self, recursive: bool) -> dict[str, Any]:
            return dict(self)

    schema = StructType([StructField("topic", StringType()), StructField("n", IntegerType())])
    rows = [Row(topic="t", n=number) for number in range(25_000)]
    written = pa.Table.from_batches(batches_of_rows(iter(rows), schema))
    assert written.column("n").to_pylist() == list(range(25_000))
    assert written.schema.types == [pa.string(), pa.int32()]


@pytest.mark.spark
def test_ordered_batches_and_limited_micro_batches(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path
) -> None:
    topics = Topics.create(bootstrap_servers, 2, partitions=2)
    for topic in range(2):
        for partition in topics.numbers:
            topics.produce(topic, range(1000 + topic, 1400, 4), partition)
    whole = spark.read.format("kafka-ordered").options(**topics.options()).load()
    assert places(whole.collect()) == topics.merged()

    options = topics.options(maxOffsetsPerTrigger=100, kafka__group__id=topics.names[0])
    batches = Batches()

    def run() -> None:
        frame = spark.readStream.format("kafka-ordered").options(**options).load()
        writer = frame.writeStream.foreachBatch(batches)
        headrace.spark.drain(writer.option("checkpointLocation", str(tmp_path / "ordered")))

    run()
    assert len(batches.rows) >= 4
    assert max(map(len, batches.rows)) <= 100
    assert sorted(places(batches.all())) == sorted(topics.merged())
    topics.produce(0, [2000, 2001])
    run()
    assert sorted(places(batches.all())) == sorted(topics.merged())
    assert topics.committed(topics.names[0]) == topics.ends()


@pytest.mark.spark
def test_a_queue_with_outcomes_by_function_and_by_sink(
    spark: SparkSession, queue: MakeQueue, drain: Callable[..., Batches], tmp_path: Path
) -> None:
    flights = queue(300)
    applied: list[Acknowledged] = []

    def work(batch: DataFrame) -> None:
        number = F.col("value").cast("string").cast("int")
        outcome = F.when(number % 10 == 3, "reject").otherwise("accept")
        applied.append(acknowledge(batch.withColumn("outcome", outcome)))

    batches = drain(flights, work, maxOffsetsPerTrigger=100)
    assert batches.values() == list(range(300))
    assert max(map(len, batches.rows)) <= 100
    assert sum(done.accepted for done in applied) == 270
    assert sum(done.rejected for done in applied) == 30
    assert flights.is_drained()

    flights.produce(200, start=300)
    frame = spark.readStream.format("kafka-share").options(**flights.options()).load()
    again = (F.col("deliveryCount") == 1) & (F.col("key") == b"k4")
    outcome = F.when(again, "release").otherwise("accept").alias("outcome")
    writer = frame.select("topic", "partition", "offset", "receipt", outcome).writeStream
    query = headrace.spark.drain(
        writer.format("kafka-share")
        .options(**flights.options())
        .option("checkpointLocation", str(tmp_path / "sink"))
    )
    assert sum(progress.numInputRows for progress in query.recentProgress) == 220
    assert flights.is_drained()


@pytest.mark.spark
def test_lag_as_a_batch_and_a_stream(spark: SparkSession, queue: MakeQueue, tmp_path: Path) -> None:
    flights = queue(40)
    group = unique("dashboard")
    consumer = Consumer({"bootstrap.servers": flights.bootstrap_servers, "group.id": group})
    consumer.commit(offsets=[TopicPartition(flights.topic, 0, 3)], asynchronous=False)
    consumer.close()
    options = {"kafka.bootstrap.servers": flights.bootstrap_servers, "groups": group}
    assert [
        row.lag for row in spark.read.format("kafka-lag").options(**options).load().collect()
    ] == [7]
    batches = Batches()
    frame = spark.readStream.format("kafka-lag").options(**options).load()
    query = (
        frame.writeStream.foreachBatch(batches)
        .option("checkpointLocation", str(tmp_path / "lag"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    assert [[row.lag for row in rows] for rows in batches.rows] == [[7]]
