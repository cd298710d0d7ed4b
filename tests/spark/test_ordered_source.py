"""`format("kafka-ordered")` with a broker, compared with a merge of one record at a time."""

from __future__ import annotations

import ast
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StreamingQuery

import headrace.spark
from tests.spark.conftest import needs_progress
from tests.spark.ordered_topics import Topics, places
from tests.support import RUN_SEED, unique, wait_until

pytestmark = pytest.mark.spark


def times(chance: random.Random, count: int, disorder: int = 40) -> list[int]:
    """Return mostly ascending timestamps, some of them late or equal."""
    now, found = 1_000_000 + chance.randrange(100), []
    for _ in range(count):
        now += chance.choice([0, 0, 1, 5, 20])
        found.append(now - chance.choice([0, 0, 0, chance.randrange(disorder)]))
    return found


def fill(topics: Topics, chance: random.Random, most: int = 60) -> None:
    """Produce random records to all topics but the last, with markers and aborted records."""
    for topic in range(len(topics.names) - 1):
        for partition in topics.numbers:
            topics.produce(topic, times(chance, chance.randrange(most)), partition)
            if chance.random() < 0.6:
                commit = chance.random() < 0.5
                topics.transaction(
                    topic, times(chance, 1 + chance.randrange(9)), partition, commit=commit
                )
                topics.produce(topic, times(chance, chance.randrange(most)), partition)


def load(spark: SparkSession, topics: Topics, **options: Any) -> DataFrame:
    return spark.read.format("kafka-ordered").options(**topics.options(**options)).load()


class Batches:
    """The rows of each micro-batch by number. A replay must have the same rows in order."""

    def __init__(self, fail_at: int | None = None) -> None:
        self.rows: dict[int, list[Row]] = {}
        self.fail_at = fail_at

    def __call__(self, batch_df: DataFrame, batch_id: int) -> None:
        rows = batch_df.select("topic", "partition", "offset", "value").collect()
        assert self.rows.setdefault(batch_id, rows) == rows
        if batch_id == self.fail_at:
            raise RuntimeError("the test fails here")

    def places(self) -> list[list[tuple[str, int, int]]]:
        return [places(rows) for _, rows in sorted(self.rows.items())]

    def values(self) -> list[int]:
        return [int(row.value) for _, rows in sorted(self.rows.items()) for row in rows]


Start = Callable[..., StreamingQuery]


@pytest.fixture
def start(spark: SparkSession, tmp_path: Path) -> Start:
    """Return start(topics, batches, available=False, **options): a query with one checkpoint."""

    def begin(
        topics: Topics, batches: Batches, available: bool = False, **options: Any
    ) -> StreamingQuery:
        frame = spark.readStream.format("kafka-ordered").options(**topics.options(**options)).load()
        writer = frame.writeStream.foreachBatch(batches).option(
            "checkpointLocation", str(tmp_path / "checkpoint")
        )
        return headrace.spark.drain(writer) if available else writer.start()

    return begin


def test_a_batch_is_in_order(spark: SparkSession, bootstrap_servers: str) -> None:
    seed = RUN_SEED
    print("seed", seed)
    chance = random.Random(seed)
    topics = Topics.create(bootstrap_servers, 4, partitions=2)
    fill(topics, chance)

    assert places(load(spark, topics).collect()) == topics.merged()
    committed = load(spark, topics, kafka__isolation__level="read_committed", minPartitions=6)
    assert places(committed.collect()) == topics.merged(committed=True)
    assert committed.rdd.getNumPartitions() > 2


def test_a_batch_may_begin_and_end_at_times_and_offsets(
    spark: SparkSession, bootstrap_servers: str
) -> None:
    topics = Topics.create(bootstrap_servers, 2)
    topics.produce(0, range(1000, 1100, 10))
    topics.produce(1, range(1005, 1105, 10))
    first, second = topics.names

    def values(**options: Any) -> list[int]:
        given = {
            k: v
            for k, v in topics.options(**options).items()
            if options.keys() & {"startingOffsets"} or k != "startingOffsets"
        }
        return [
            int(row.value)
            for row in spark.read.format("kafka-ordered").options(**given).load().collect()
        ]

    assert values(startingTimestamp=1030, endingTimestamp=1050) == [1030, 1035, 1040, 1045]
    starting = f'{{"{first}": {{"0": 9}}, "{second}": {{"0": -2}}}}'
    ending = f'{{"{first}": {{"0": -1}}, "{second}": {{"0": 2}}}}'
    assert values(startingOffsets=starting, endingOffsets=ending) == [1005, 1015, 1090]


def test_batches_are_cut_in_order_and_replayed_alike(start: Start, bootstrap_servers: str) -> None:
    seed = RUN_SEED
    print("seed", seed)
    chance = random.Random(seed)
    topics = Topics.create(bootstrap_servers, 3, partitions=2)
    fill(topics, chance, most=120)
    before = topics.ends()
    group = unique("dashboard")
    options = {"kafka.group.id": group, "maxOffsetsPerTrigger": 60}

    batches = Batches(fail_at=1 + chance.randrange(2))
    with pytest.raises(StreamingQueryException, match="the test fails here"):
        start(topics, batches, available=True, **options)
    batches.fail_at = None
    # late, compared with the records that were read
    topics.produce(0, times(chance, 30, disorder=2000))
    topics.produce(2, times(chance, 30, disorder=2000), partition=1)
    query = start(topics, batches, available=True, **options)

    progress = {p.batchId: p.sources[0] for p in query.recentProgress if p.sources[0].numInputRows}
    for number, source in progress.items():
        merged = topics.merged(_offsets(source.startOffset), _offsets(source.endOffset))
        assert places(batches.rows[number]) == merged
    seen = [place for batch in batches.places() for place in batch]
    assert len(seen) == len(set(seen))
    assert sorted(seen) == sorted(topics.merged())
    # Records from before the restart are one sequence, wherever it was cut.
    old = [place for place in seen if place[2] < before[place[0]][str(place[1])]]
    assert sorted(old, key=lambda place: place[1]) == topics.merged(end=before)
    assert topics.committed(group) == topics.ends()


def _offsets(text: Any) -> dict[str, dict[str, int]]:
    # pyspark 4.0 and 4.1 give the offsets as Python writes them.
    return dict(json.loads(text) if text.startswith('{"') else ast.literal_eval(text))


@needs_progress
def test_a_caught_up_topic_is_waited_for(start: Start, bootstrap_servers: str) -> None:
    topics = Topics.create(bootstrap_servers, 2)
    topics.produce(0, [10, 20, 30, 40])
    topics.produce(1, [15])
    batches = Batches()
    committed = {"kafka.isolation.level": "read_committed"}
    query = start(topics, batches, maxTaskIdleMs=600_000, **committed)
    try:
        wait_until(
            lambda: len(batches.values()) >= 2, 60, "records before the end of the second topic"
        )
        topics.transaction(1, [25, 35])  # the marker, with a timestamp of today, must not count
        topics.transaction(1, [45], commit=False)
        wait_until(lambda: len(batches.values()) >= 6, 60, "records up to the second topic's end")
        waiting = wait_until(lambda: _waiting(query), 30, "a decision to wait")
    finally:
        query.stop()
    assert batches.values() == [10, 15, 20, 25, 30, 35]
    assert waiting.startswith(f"Partition {topics.names[1]}-0 has current lag 0")
    assert "Waiting for new data to be produced for configured idle time 600000" in waiting

    # A restart waits again. Without idle time no task waits for producers.
    query = start(topics, batches, maxTaskIdleMs=0, **committed)
    try:
        wait_until(lambda: len(batches.values()) >= 7, 60, "the rest")
        topics.produce(1, [36])
        wait_until(lambda: len(batches.values()) >= 8, 60, "a late record")
        wait_until(lambda: _total(query, "lateRecords") == 1, 30, "the late record to be counted")
        assert _total(query, "enforcedProcessing") >= 1
    finally:
        query.stop()
    assert batches.values() == [10, 15, 20, 25, 30, 35, 40, 36]


def _reported(query: StreamingQuery) -> dict[str, Any]:
    progress = query.lastProgress
    return (
        _offsets(progress.sources[0].latestOffset)
        if progress and progress.sources[0].latestOffset
        else {}
    )


def _waiting(query: StreamingQuery) -> str:
    return str(_reported(query).get("waiting", {}).get("0", ""))


def _total(query: StreamingQuery, name: str) -> int:
    return int(_reported(query).get(name, 0))


def test_new_topics_and_partitions_are_added(start: Start, bootstrap_servers: str) -> None:
    topics = Topics.create(bootstrap_servers, 1)
    topics.produce(0, [10])
    batches = Batches()
    pattern = topics.names[0].rsplit("-", 1)[0] + "-.*"
    query = start(
        topics, batches, subscribe="", subscribePattern=pattern, kafka__metadata__max__age__ms=200
    )
    try:
        wait_until(lambda: batches.values() == [10], 60, "the first topic's record")
        new = topics.names[0][:-1] + "9"
        topics.add(new)
        topics.produce(new, [20])
        topics.widen(topics.names[0], 2)
        topics.produce(0, [30], partition=1)
        wait_until(lambda: sorted(batches.values()) == [10, 20, 30], 60, "records of what is new")
    finally:
        query.stop()


def test_a_query_continues_without_a_deleted_topic(start: Start, bootstrap_servers: str) -> None:
    topics = Topics.create(bootstrap_servers, 2)
    first, second = topics.names
    topics.produce(0, [10])
    topics.produce(1, [20])
    batches = Batches()
    query = start(topics, batches, failOnDataLoss="false", kafka__metadata__max__age__ms=200)
    try:
        wait_until(lambda: batches.values() == [10, 20], 60, "what both topics have")
        topics.drop(second)
        topics.produce(first, [30])
        wait_until(lambda: batches.values() == [10, 20, 30], 60, "what the other topic gets")
        topics.add(second)
        topics.produce(second, [1, 2])
        wait_until(
            lambda: batches.values() == [10, 20, 30, 1, 2], 60, "the new topic from its beginning"
        )
    finally:
        query.stop()


@pytest.mark.parametrize(
    ("wrong", "advice"),
    [
        ({"kafka.bootstrap.servers": "127.0.0.1:1"}, "no broker answers at 127.0.0.1:1"),
        ({"subscribe": "no-such-topic"}, "topic 'no-such-topic' does not exist: create it first"),
        ({"maxTaskIdle": "5"}, "did you mean maxTaskIdleMs?"),
    ],
)
def test_errors_are_one_line_on_load(
    spark: SparkSession, bootstrap_servers: str, wrong: dict[str, str], advice: str
) -> None:
    options = {
        "kafka.bootstrap.servers": bootstrap_servers,
        "subscribe": "none",
        "startingOffsets": "earliest",
    }
    with pytest.raises(AnalysisException) as caught:
        spark.readStream.format("kafka-ordered").options(**{**options, **wrong}).load()
    assert advice in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_topics_and_groups_that_cannot_be_used_are_refused(
    spark: SparkSession, bootstrap_servers: str
) -> None:
    topics = Topics.create(bootstrap_servers, 2)
    group = unique("busy")
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group})
    consumer.subscribe([topics.names[0]])
    wait_until(
        lambda: consumer.poll(0.1) is not None or consumer.assignment(),
        30,
        "a consumer of the group",
    )
    try:
        with pytest.raises(
            AnalysisException, match="has consumers that commit offsets themselves: choose another"
        ):
            load(spark, topics, kafka__group__id=group)
    finally:
        consumer.close()
    with pytest.raises(
        Exception, match=r"remove the option maxOffsetsPerTrigger: it is for spark\.readStream"
    ):
        load(spark, Topics(bootstrap_servers, topics.names[:1], 1), maxOffsetsPerTrigger=5).count()


def test_a_lost_position_is_an_error(start: Start, bootstrap_servers: str) -> None:
    topics = Topics.create(bootstrap_servers, 1)
    topics.produce(0, range(1, 11))
    batches = Batches()
    start(topics, batches, available=True)
    for gone in topics.admin.delete_topics(list(topics.names)).values():
        gone.result(30)

    def recreate() -> bool:
        try:
            topics.add(topics.names[0])
        except Exception:  # the old topic still exists
            return False
        return True

    wait_until(recreate, 30, "the topic to be created again")
    topics.produce(0, [5, 6])
    with pytest.raises(
        StreamingQueryException, match="set failOnDataLoss=false to read it from its start"
    ):
        start(topics, batches, available=True)
    start(topics, batches, available=True, failOnDataLoss="false")
    assert batches.values()[10:] == [5, 6]
