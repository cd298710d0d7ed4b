"""`headrace.spark.process`: outcomes of a handler, and rows with which it fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headrace.spark
from tests.clients.confluent import consumer, create_topic, take
from tests.spark.conftest import Queue
from tests.support import unique, wait_until

pytestmark = pytest.mark.spark

MakeQueue = Callable[..., Queue]
Process = Callable[..., None]


@pytest.fixture
def process(spark: SparkSession, tmp_path: Path) -> Process:
    """Return process(queue, handler, **options): a query over everything there is, to its end."""

    def run(queue: Queue, handler: Callable[[DataFrame], Any], **options: Any) -> None:
        stream = spark.readStream.format("kafka-share").options(**queue.options(**options)).load()
        headrace.spark.process(
            stream, handler, checkpoint=str(tmp_path / queue.topic), availableNow=True
        )

    return run


NUMBER = "cast(cast(value as string) as int)"


def test_a_handler_returns_the_outcomes(queue: MakeQueue, process: Process) -> None:
    orders = queue(100)
    stored: Counter[int] = Counter()

    def handle(batch: DataFrame) -> DataFrame:
        stored.update(int(row.value) for row in batch.select("value").collect())
        number = F.expr(NUMBER)
        outcome = F.when(number % 10 == 3, "reject").when(
            (number == 7) & (F.col("deliveryCount") == 1), "release"
        )
        rows = batch.withColumn("outcome", outcome.otherwise("accept"))
        return rows.withColumn("reason", F.lit("no order")).withColumn("delay", F.lit(0.1))

    process(orders, handle)
    assert stored == {n: 1 + (n == 7) for n in range(100)}
    assert orders.is_drained()


@pytest.mark.parametrize("fails_in", ["handler", "task"])
def test_poison_is_rejected_with_its_error_and_its_neighbours_are_stored_once(
    queue: MakeQueue, process: Process, fails_in: str, caplog: pytest.LogCaptureFixture
) -> None:
    orders = queue(100, partitions=2)
    letters = create_topic(
        orders.bootstrap_servers, unique("dlq.t"), errors_deadletterqueue_group_enable="true"
    )
    stored: Counter[int] = Counter()

    @F.udf("string")
    def outcome(number: int) -> str:
        if number == 37:
            raise ValueError("37 is poison")
        return "accept"

    def handle(batch: DataFrame) -> DataFrame | None:
        numbers = [int(row.value) for row in batch.select("value").collect()]
        rows = None
        if fails_in == "task":
            rows = batch.withColumn("outcome", outcome(F.expr(NUMBER)))
            rows.select("outcome").write.format("noop").mode("overwrite").save()
        elif 37 in numbers:
            raise ValueError("37 is poison")
        stored.update(numbers)
        return rows

    process(orders, handle, errors__deadletterqueue__topic__name=letters)
    assert stored == {n: 1 for n in range(100) if n != 37}
    assert orders.is_drained()
    (line,) = (m for m in caplog.messages if "is rejected" in m)
    assert line == f"{orders.topic}-1 offset 18 is rejected: ValueError: 37 is poison"
    with consumer(orders.bootstrap_servers, unique("group")) as reader:
        reader.subscribe([letters])
        (letter,) = take(reader, 1)
    headers = dict(letter.headers() or ())
    assert headers["__dlq.errors.offset"] == b"18"
    if orders.broker_can_uncount():
        assert (headers["__dlq.errors.message"] or b"").endswith(b": ValueError: 37 is poison")


def test_a_sink_that_is_down_rejects_nothing(queue: MakeQueue, process: Process) -> None:
    orders = queue(100)

    def fail(batch: DataFrame) -> None:
        if not batch.isEmpty():
            raise ConnectionError("the database is down")

    for _ in range(3):
        with pytest.raises(StreamingQueryException, match="the database is down"):
            process(orders, fail, share__delivery__count__limit=3)
    stored: Counter[int] = Counter()
    process(orders, lambda batch: stored.update(int(r.value) for r in batch.collect()))
    assert stored == dict.fromkeys(range(100), 1)
    assert orders.is_drained()


def test_a_query_that_is_stopped_rejects_nothing(
    spark: SparkSession, queue: MakeQueue, process: Process, tmp_path: Path
) -> None:
    """Its jobs are cancelled, which is no fault of rows."""
    orders = queue(20)
    calls: list[int] = []

    def handle(batch: DataFrame) -> None:
        calls.append(batch.count())
        spark.range(10**12).selectExpr("sum(id)").collect()

    stream = spark.readStream.format("kafka-share").options(**orders.options()).load()
    query = headrace.spark.process(stream, handle, checkpoint=str(tmp_path / "c"))
    try:
        wait_until(lambda: bool(calls), 60, "the handler to be called")
        wait_until(
            lambda: bool(spark.sparkContext.statusTracker().getActiveJobsIds()), 60, "its job"
        )
    finally:
        query.stop()
    stored: Counter[int] = Counter()
    process(orders, lambda batch: stored.update(int(r.value) for r in batch.collect()))
    assert stored == dict.fromkeys(range(20), 1)
    assert len(calls) == 1
