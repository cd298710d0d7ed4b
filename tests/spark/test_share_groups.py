"""`format("kafka-share")` and its group: topics, settings, progress and reconnection."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import headrace.spark
from headrace.client.configs import ConfigType, alter_configs
from tests.spark.conftest import Batches, Queue, make_queue, needs_progress
from tests.support import COMMON_CONFIGS, HeadraceProcess, unique, wait_until

pytestmark = pytest.mark.spark

MakeQueue = Callable[..., Queue]
Drain = Callable[..., Batches]


def reported(query: StreamingQuery) -> dict[str, Any]:
    """Return the latest offset in the source's part of the last progress."""
    progress = query.lastProgress
    text = progress.sources[0].latestOffset if progress else None
    return json.loads(text) if text else {}


@needs_progress
def test_a_pattern_adds_new_topics_and_progress_has_counts(
    spark: SparkSession, queue: MakeQueue, tmp_path: Path
) -> None:
    prefix, group_id = unique("delays"), unique("workers")
    topics = [queue(30, 2, f"{prefix}-{name}", group_id) for name in ("east", "west")]
    queue(10, 1, f"not-{prefix}", group_id)
    batches = Batches()
    options = topics[0].options(subscribe=None, subscribePattern=f"{prefix}-.*")
    frame = spark.readStream.format("kafka-share").options(**options).load()
    query = (
        frame.writeStream.foreachBatch(batches)
        .option("checkpointLocation", str(tmp_path / "c"))
        .start()
    )
    try:
        wait_until(lambda: len(batches.all()) == 60, 60, "the first two topics")
        topics.append(queue(30, 2, f"{prefix}-north", group_id))
        wait_until(lambda: len(batches.all()) == 90, 60, "the new topic")
        wait_until(lambda: reported(query).get("accepted") == 90, 60, "all to be accepted")
        no_lag = {topic.topic: {"0": 0, "1": 0} for topic in topics}
        wait_until(lambda: reported(query).get("lag") == no_lag, 60, "the lag to be reported")
        progress = reported(query)
    finally:
        query.stop()

    assert Counter(row.topic for row in batches.all()) == {topic.topic: 30 for topic in topics}
    del progress["lag"]
    assert progress == {
        "acquired": 90,
        "redelivered": 0,
        "accepted": 90,
        "released": 0,
        "rejected": 0,
    }


def test_a_new_group_locks_what_the_broker_allows(queue: MakeQueue, drain: Drain) -> None:
    locks = "share.partition.max.record.locks"
    flights = queue(40)
    drain(flights)
    assert flights.group_configs(locks) == {locks: "4000"}
    configured = queue(40)
    configured.ask(
        lambda cluster: alter_configs(
            cluster, ConfigType.GROUP, configured.group_id, {locks: "500"}
        )
    )
    drain(configured)
    assert configured.group_configs(locks) == {locks: "500"}


def test_a_new_group_gets_settings_and_an_existing_one_keeps_its_own(
    spark: SparkSession, queue: MakeQueue, drain: Drain
) -> None:
    flights = queue(40)
    settings = {"share.delivery.count.limit": "2", "share.isolation.level": "read_committed"}

    batches = drain(flights, defaultOutcome="release", **settings)

    assert flights.group_configs(*settings, "share.auto.offset.reset") == {
        **settings,
        "share.auto.offset.reset": "earliest",
    }
    assert Counter(row.deliveryCount for row in batches.all()) == {1: 40, 2: 40}
    assert flights.is_drained()
    with pytest.raises(AnalysisException) as caught:
        spark.readStream.format("kafka-share").options(
            **flights.options(share__delivery__count__limit=3)
        ).load()
    assert "exists and has share.delivery.count.limit=2" in str(caught.value)
    assert "remove the option" in str(caught.value)
    assert flights.group_configs("share.delivery.count.limit") == {
        "share.delivery.count.limit": "2"
    }


def test_a_setting_that_the_broker_does_not_take_is_refused_on_load(
    spark: SparkSession, queue: MakeQueue
) -> None:
    flights = queue(0)
    with pytest.raises(AnalysisException, match=r"share\.record\.lock\.duration\.ms"):
        spark.readStream.format("kafka-share").options(
            **flights.options(share__record__lock__duration__ms=5)
        ).load()
    assert flights.group_configs("share.auto.offset.reset") == {"share.auto.offset.reset": "latest"}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_of_another_type_is_refused_on_load(
    spark: SparkSession, queue: MakeQueue, protocol: str
) -> None:
    flights = queue(1)
    consumer = Consumer(
        {
            "bootstrap.servers": flights.bootstrap_servers,
            "group.id": flights.group_id,
            "group.protocol": protocol,
        }
    )
    consumer.subscribe([flights.topic])
    wait_until(
        lambda: consumer.poll(0.1) is not None or consumer.assignment(), 30, "a consumer group"
    )
    try:
        with pytest.raises(
            AnalysisException,
            match=rf"is a {protocol} group, not a share group: choose another kafka\.group",
        ):
            spark.readStream.format("kafka-share").options(**flights.options()).load()
    finally:
        consumer.close()


@needs_progress
@pytest.mark.slow
def test_a_query_outlives_a_restart_of_the_broker(spark: SparkSession, tmp_path: Path) -> None:
    with HeadraceProcess(tmp_path / "data", COMMON_CONFIGS) as broker:
        flights = make_queue(broker.bootstrap_servers, 50)
        batches = Batches()
        frame = spark.readStream.format("kafka-share").options(**flights.options()).load()
        query = (
            frame.writeStream.foreachBatch(batches)
            .option("checkpointLocation", str(tmp_path / "c"))
            .start()
        )
        try:
            wait_until(
                lambda: reported(query).get("accepted") == 50,
                60,
                "the first records to be accepted",
            )
            broker.stop()
            broker.start()
            flights.produce(50, start=50)
            wait_until(lambda: reported(query).get("accepted") == 100, 60, "the others")
        finally:
            query.stop()

    assert batches.values() == list(range(100))


def test_a_query_that_joins_a_queue_with_itself_is_refused(
    spark: SparkSession, queue: MakeQueue, drain: Drain, tmp_path: Path
) -> None:
    """Each record would go to one side of the join. A union has one reader."""
    flights = queue(20)
    frame = spark.readStream.format("kafka-share").options(**flights.options()).load()
    seen: Counter[int] = Counter()

    def run(rows: DataFrame, name: str) -> None:
        def work(batch: DataFrame, batch_id: int) -> None:
            seen.update(int(row.value) for row in batch.collect())

        writer = rows.writeStream.foreachBatch(work)
        headrace.spark.drain(writer.option("checkpointLocation", str(tmp_path / name)))

    joined = frame.alias("a").join(frame.alias("b"), ["topic", "partition", "offset"])
    with pytest.raises(StreamingQueryException, match="is read twice at once") as error:
        run(joined.select("a.value"), "join")
    assert "Traceback" not in str(error.value)
    assert not seen
    run(frame.union(frame).select("value"), "union")
    assert seen == dict.fromkeys(range(20), 2)
    assert flights.is_drained()


def test_a_second_query_with_a_queue_at_the_same_time_is_refused(
    spark: SparkSession, queue: MakeQueue, tmp_path: Path
) -> None:
    """The first one goes on."""
    flights, batches = queue(10), Batches()
    writer = (
        spark.readStream.format("kafka-share")
        .options(**flights.options())
        .load()
        .writeStream.foreachBatch(batches)
    )
    first = writer.option("checkpointLocation", str(tmp_path / "first")).start()
    try:
        wait_until(lambda: len(batches.all()) == 10, 60, "the first query to begin")
        second = writer.option("checkpointLocation", str(tmp_path / "second")).start()
        with pytest.raises(StreamingQueryException, match="is read twice at once") as error:
            second.awaitTermination(60)
        assert "Traceback" not in str(error.value)
        flights.produce(10, start=10)
        wait_until(lambda: len(batches.all()) == 20, 60, "the first query to go on")
    finally:
        first.stop()
    assert batches.values() == list(range(20))
