"""Topics by SQL and by the pandas API, one streaming DataFrame used twice, and queries that are
stopped while they work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import DataFrame, SparkSession

import headrace.spark
from headrace.client.groups import describe_group
from tests.spark.conftest import Batches, Queue
from tests.support import is_soak, unique, wait_until

pytestmark = pytest.mark.spark

MakeQueue = Callable[..., Queue]
STOPS = 12 if is_soak() else 3


def ordered(spark: SparkSession, queue: Queue, *, stream: bool = True) -> DataFrame:
    reader: Any = spark.readStream if stream else spark.read
    options = queue.options(**{"kafka.group.id": None})
    return reader.format("kafka-ordered").options(**options).load()


def test_a_view_has_the_columns_and_rows_that_a_query_needs(
    spark: SparkSession, queue: MakeQueue
) -> None:
    flights, view = queue(100, partitions=2), unique("v").replace("-", "_")
    spark.sql(
        f"CREATE TEMPORARY VIEW {view} USING `kafka-ordered` OPTIONS (subscribe '{flights.topic}',"
        f" kafka.bootstrap.servers '{flights.bootstrap_servers}')"
    )

    def first(what: str) -> Any:
        return spark.sql(f"SELECT {what}").collect()[0][0]

    assert first(f"count(*) FROM {view}") == 100
    assert first(f"sum(one) FROM (SELECT 1 one FROM {view})") == 100
    assert first(f"count(*) FROM {view} WHERE partition = 1 AND offset >= 20") == 30
    assert first(f"max(cast(cast(value AS string) AS int)) FROM {view}") == 99
    assert len(spark.sql(f"SELECT offset, topic FROM {view} LIMIT 3").collect()) == 3
    table = spark.table(view)
    assert table.first() is not None
    assert table.toArrow().num_rows == 100
    assert len(table.pandas_api()[["partition", "value"]].head(3)) == 3
    assert table.select("value").toPandas().value.map(int).sum() == sum(range(100))
    flights.produce(20, start=100)
    assert first(f"count(*) FROM {view}") == 120
    assert spark.sql(f"EXPLAIN EXTENDED SELECT * FROM {view}").count() == 1


def test_a_frame_in_order_of_time_may_be_used_twice(
    spark: SparkSession, queue: MakeQueue, tmp_path: Path
) -> None:
    """Spark reads it once for each use."""
    flights = queue(20, partitions=2)
    frame = ordered(spark, flights)
    joined = frame.alias("a").join(frame.alias("b"), ["topic", "partition", "offset"])
    uses = {"union": frame.union(frame), "join": joined.select("a.value"), "again": frame}
    for name, rows in uses.items():
        batches = Batches()
        writer = rows.select("value").writeStream.foreachBatch(batches)
        headrace.spark.drain(writer.option("checkpointLocation", str(tmp_path / name)))
        times = 2 if name == "union" else 1
        assert Counter(batches.values()) == dict.fromkeys(range(20), times), name


@pytest.mark.parametrize("source", ["kafka-share", "kafka-ordered"])
def test_a_query_that_is_stopped_while_it_works_loses_nothing(
    spark: SparkSession, queue: MakeQueue, tmp_path: Path, source: str
) -> None:
    flights = queue(100, partitions=2)
    works, stops = tmp_path / "works", True
    done: Counter[tuple[int, int]] = Counter()

    def work(batch: DataFrame, batch_id: int) -> None:
        rows = [(row.partition, row.offset) for row in batch.collect()]
        if stops:
            works.touch()
            spark.range(10**12).selectExpr("sum(id)").collect()  # stop() interrupts it
        done.update(rows)

    group = {} if source == "kafka-share" else {"kafka.group.id": None}
    options = flights.options(**group, maxOffsetsPerTrigger=20)
    frame = spark.readStream.format(source).options(**options).load()
    checkpoint = str(tmp_path / "checkpoint")
    writer = frame.writeStream.foreachBatch(work).option("checkpointLocation", checkpoint)
    processes = []
    for _ in range(STOPS):
        query = writer.start()
        wait_until(works.exists, 60, "the micro-batch")
        works.unlink()
        query.stop()
        assert query.exception() is None
        processes.append(len(psutil.Process().children(recursive=True)))
    assert not done
    assert processes[-1] <= processes[0] + 2
    if source == "kafka-share":
        wait_until(lambda: members(flights) == 0, 60, "the readers to leave the group")
    stops = False
    headrace.spark.drain(writer)
    assert done == {(number % 2, number // 2): 1 for number in range(100)}


def members(queue: Queue) -> int:
    group = queue.ask(lambda cluster: describe_group(cluster, queue.group_id))
    assert group is not None
    return len(group.members)
