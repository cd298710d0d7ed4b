"""`format("kafka-share")` with a broker: deliveries, and records left afterwards."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headrace.spark
from headrace.client import RangeConsumer
from headrace.spark import Acknowledged, SourceError, acknowledge
from tests.spark.conftest import Batches, Queue, finish
from tests.support import unique, wait_until

pytestmark = pytest.mark.spark

MakeQueue = Callable[..., Queue]
Drain = Callable[..., Batches]


def test_available_now_drains_everything_once_and_acknowledges_it(
    queue: MakeQueue, drain: Drain
) -> None:
    flights = queue(1000)
    flights.produce(200, start=1000, origin=b"JFK")

    batches = drain(flights, includeHeaders="true")

    assert batches.values() == list(range(1200))
    rows = {int(row.value): row for row in batches.all()}
    assert {row.deliveryCount for row in rows.values()} == {1}
    assert {row.topic for row in rows.values()} == {flights.topic}
    assert len({(row.partition, row.offset) for row in rows.values()}) == 1200
    assert rows[17].key == b"k7" and rows[17].timestampType == 0
    assert abs(rows[17].timestamp.timestamp() - time.time()) < 3600
    assert rows[5].headers is None
    assert [(header.key, bytes(header.value)) for header in rows[1005].headers] == [
        ("origin", b"JFK")
    ]
    assert flights.is_drained()


def test_later_records_are_drained_by_the_next_run_with_the_same_checkpoint(
    spark: SparkSession, queue: MakeQueue, tmp_path: Path
) -> None:
    flights = queue(100)
    batches = Batches()

    def run() -> None:
        frame = spark.readStream.format("kafka-share").options(**flights.options()).load()
        stream = frame.writeStream.foreachBatch(batches)
        headrace.spark.drain(stream.option("checkpointLocation", str(tmp_path / "checkpoint")))

    run()
    flights.produce(50, start=100)
    run()

    assert batches.values() == list(range(150))


def test_rejected_records_do_not_come_back_and_released_ones_do(
    queue: MakeQueue, drain: Drain
) -> None:
    flights = queue(500)
    applied: list[Acknowledged] = []

    def work(batch: DataFrame) -> None:
        number = F.col("value").cast("string").cast("int")
        first_time = F.col("deliveryCount") == 1
        outcome = F.when(number % 10 == 3, "reject").when(
            (number % 10 == 7) & first_time, "release"
        )
        applied.append(acknowledge(batch.withColumn("outcome", outcome.otherwise("accept"))))

    batches = drain(flights, work)

    deliveries = Counter(int(row.value) for row in batches.all())
    assert deliveries == {i: 2 if i % 10 == 7 else 1 for i in range(500)}
    assert {row.deliveryCount for row in batches.all() if int(row.value) % 10 != 7} == {1}
    assert sum(row.deliveryCount for row in batches.all() if int(row.value) % 10 == 7) == 50 * (
        1 + 2
    )
    assert sum(a.accepted for a in applied) == 450
    assert sum(a.rejected for a in applied) == 50
    assert sum(a.released for a in applied) == 50
    assert flights.is_drained()


def test_rows_without_an_outcome_follow_the_default(queue: MakeQueue, drain: Drain) -> None:
    flights = queue(200)

    def accept_half_on_first_delivery(batch: DataFrame) -> None:
        even = F.col("value").cast("string").cast("int") % 2 == 0
        acknowledge(
            batch.withColumn("outcome", F.when(even | (F.col("deliveryCount") > 1), "accept"))
        )

    batches = drain(flights, accept_half_on_first_delivery, defaultOutcome="release")

    assert Counter(int(row.value) for row in batches.all()) == {i: 1 + i % 2 for i in range(200)}
    assert flights.is_drained()


def test_outcomes_can_be_a_stream_of_their_own(
    spark: SparkSession, queue: MakeQueue, tmp_path: Path
) -> None:
    flights = queue(300)
    frame = spark.readStream.format("kafka-share").options(**flights.options()).load()
    outcome = F.when((F.col("deliveryCount") == 1) & (F.col("key") == b"k4"), "release").otherwise(
        "accept"
    )

    query = headrace.spark.drain(
        frame.select("topic", "partition", "offset", "receipt", outcome.alias("outcome"))
        .writeStream.format("kafka-share")
        .options(**flights.options())
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
    )

    assert sum(progress.numInputRows for progress in query.recentProgress) == 330
    assert flights.is_drained()


def test_batches_keep_to_the_limit_and_tasks_may_outnumber_partitions(
    queue: MakeQueue, drain: Drain
) -> None:
    flights = queue(600, partitions=1)

    batches = drain(flights, maxOffsetsPerTrigger=250, recordsPerTask=50)

    assert batches.values() == list(range(600))
    assert max(len(rows) for rows in batches.rows) <= 250
    assert max(batches.tasks) == 5


def test_records_that_are_acquired_ahead_are_delivered_once(queue: MakeQueue, drain: Drain) -> None:
    flights = queue(600)
    counts: list[int] = []

    batches = drain(
        flights,
        lambda batch: counts.append(acknowledge(batch).accepted),
        maxOffsetsPerTrigger=100,
        acquireAhead=True,
    )

    assert batches.values() == list(range(600))
    assert {row.deliveryCount for row in batches.all()} == {1}
    assert max(len(rows) for rows in batches.rows) <= 100
    assert sum(counts) == 600
    assert flights.is_drained()


def test_two_queries_of_one_group_share_the_work(
    spark: SparkSession, queue: MakeQueue, tmp_path: Path
) -> None:
    flights = queue(0, partitions=4)
    workers = [Batches(), Batches()]
    queries = [
        spark.readStream.format("kafka-share")
        .options(**flights.options(maxOffsetsPerTrigger=100))
        .load()
        .writeStream.foreachBatch(worker)
        .option("checkpointLocation", str(tmp_path / f"checkpoint-{number}"))
        .start()
        for number, worker in enumerate(workers)
    ]
    try:
        produced = 0
        while not all(worker.rows for worker in workers):
            flights.produce(400, start=produced)
            produced += 400
            assert produced <= 40_000, "one of the queries gets no records"
            wait_until(flights.is_drained, 60, "the backlog to be drained")
    finally:
        for query in queries:
            query.stop()

    assert sorted(workers[0].values() + workers[1].values()) == list(range(produced))


def test_stopping_a_query_releases_what_it_holds_at_once(
    spark: SparkSession, queue: MakeQueue, tmp_path: Path
) -> None:
    flights = queue(100, partitions=1)
    started = tmp_path / "started"

    def hang(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            started.touch()
            time.sleep(600)
            yield batch

    frame = (
        spark.readStream.format("kafka-share").options(**flights.options()).load().select("offset")
    )
    stream = frame.mapInArrow(hang, "offset bigint").writeStream.format("noop")
    query = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    wait_until(started.exists, 60, "the batch to start")
    query.stop()

    # Locks last 30 s: records that come within 20 s were released.
    delivery_count = 1 if flights.broker_can_uncount() else 2
    assert acquire_all(flights, 100, timeout_s=20) == Counter({delivery_count: 100})


def test_a_batch_may_take_longer_than_the_locks_last(queue: MakeQueue, drain: Drain) -> None:
    flights = queue(100)

    batches = drain(flights, lambda batch: time.sleep(4), share__record__lock__duration__ms=1500)

    assert flights.group_configs("share.record.lock.duration.ms") == {
        "share.record.lock.duration.ms": "1500"
    }
    assert batches.values() == list(range(100))
    assert {row.deliveryCount for row in batches.all()} == {1}
    assert flights.is_drained()


@pytest.mark.parametrize(
    ("wrong", "advice"),
    [
        ({"kafka.bootstrap.servers": ""}, "set the option kafka.bootstrap.servers"),
        ({"kafka.bootstrap.servers": "somewhere"}, "'somewhere' is not HOST:PORT"),
        ({"kafka.bootstrap.servers": "127.0.0.1:1"}, "no broker answers at 127.0.0.1:1"),
        ({"kafka.group.id": ""}, "set the option kafka.group.id"),
        ({"subscribe": ""}, "set the option subscribe"),
        ({"subscribe": "no-such-topic"}, "topic 'no-such-topic' does not exist: create it first"),
        ({"maxRecordPerTrigger": "5"}, "did you mean maxOffsetsPerTrigger?"),
        ({"recordsPerTask": "many"}, "use a whole number from 1"),
        ({"defaultOutcome": "ignore"}, "use accept, release, reject"),
        ({"kafka.enable.auto.commit": "true"}, "remove the option kafka.enable.auto.commit"),
        ({"kafka.isolation.level": "read_committed"}, "set share.isolation.level"),
        ({"kafka.fetch.min.byte": "5"}, 'No such configuration property: "fetch.min.byte"'),
        (
            {"kafka.security.protocol": "sasl_plaintext", "kafka.sasl.mechanism": "PLAIN"},
            "sasl.username and sasl.pass",
        ),
        ({"startingOffsets": "first"}, "use earliest, latest or by_duration:PT1H"),
        ({"subscribe": "", "subscribePattern": "no-such-topic.*"}, "no topic matches the pattern"),
    ],
)
def test_wrong_options_are_one_clear_line_on_load(
    spark: SparkSession, bootstrap_servers: str, wrong: dict[str, str], advice: str
) -> None:
    options = {
        "kafka.bootstrap.servers": bootstrap_servers,
        "kafka.group.id": "g",
        "subscribe": "no-such-topic",
    }
    with pytest.raises(AnalysisException) as caught:
        spark.readStream.format("kafka-share").options(**{**options, **wrong}).load()
    text = str(caught.value)
    assert advice in text
    assert "Traceback" not in text


def test_two_groups_may_work_on_one_topic(
    spark: SparkSession, queue: MakeQueue, tmp_path: Path
) -> None:
    flights = queue(200)
    groups = [flights, replace(flights, group_id=unique("others"))]
    applied: list[Acknowledged] = []
    for number, group in enumerate(groups):

        def work(batch: DataFrame) -> None:
            applied.append(acknowledge(batch))

        frame = spark.readStream.format("kafka-share").options(**group.options()).load()
        stream = frame.writeStream.foreachBatch(Batches(work)).trigger(availableNow=True)
        stream.option("checkpointLocation", str(tmp_path / f"checkpoint-{number}")).start()
    for query in spark.streams.active:
        finish(query)

    assert sum(a.accepted for a in applied) == 400
    assert all(group.is_drained() for group in groups)


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ({"outcome": "keep"}, "outcome 'keep' of t-0 offset 1: use accept, release, reject"),
        ({"receipt": None}, "the outcome of t-0 offset 1 has no receipt: keep the column receipt"),
        ({"receipt": "x"}, "column receipt has 'x', which is no receipt of kafka-share"),
    ],
)
def test_wrong_outcomes_are_refused(
    spark: SparkSession, columns: dict[str, str | None], error: str
) -> None:
    row = {"topic": "t", "partition": 0, "offset": 1, "receipt": "h:1/a", "outcome": "accept"}
    schema = "topic string, partition int, offset bigint, receipt string, outcome string"
    with pytest.raises(SourceError, match=error):
        acknowledge(spark.createDataFrame([row | columns], schema))


def test_outcomes_need_the_receipts(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("t", 0, 1)], "topic string, partition int, offset bigint")
    with pytest.raises(SourceError, match=r"of kafka-share, and outcome: receipt missing"):
        acknowledge(rows)


def acquire_all(flights: Queue, count: int, timeout_s: float) -> Counter[int]:
    """Acquire `count` records as another member; return the numbers by delivery count."""

    async def acquire() -> Counter[int]:
        seen: Counter[int] = Counter()
        async with RangeConsumer(
            flights.bootstrap_servers, flights.group_id, [flights.topic]
        ) as consumer:
            async with asyncio.timeout(timeout_s):
                while seen.total() < count:
                    for acquired in (
                        await consumer.acquire(max_records=count, max_wait_ms=500)
                    ).ranges:
                        seen[acquired.delivery_count] += acquired.count
        return seen

    return asyncio.run(acquire())
