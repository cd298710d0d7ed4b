"""A `kafka-ordered` driver that is killed during a micro-batch reads the same rows again."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import headrace.spark
from tests.spark.application import kill_session, start_driver
from tests.spark.ordered_topics import Topics
from tests.support import RUN_SEED

pytestmark = [pytest.mark.spark, pytest.mark.slow]

DRIVER = """
import json, sys, time
from tests.spark.application import SHORT_LIVED, application

spark = application(1, SHORT_LIVED)

def work(batch, batch_id):
    rows = [(row.topic, row.partition, row.offset) for row in batch.collect()]
    print("rows", json.dumps([batch_id, rows]), flush=True)
    if batch_id == 1:
        time.sleep(600)

reader = spark.readStream.format("kafka-ordered")
for option in sys.argv[2:]:
    reader = reader.option(*option.split("=", 1))
writer = reader.load().writeStream.foreachBatch(work)
query = writer.option("checkpointLocation", sys.argv[1]).start()
query.awaitTermination()
"""


def test_a_killed_driver_reads_the_same_rows_in_the_same_order(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path
) -> None:
    seed = RUN_SEED
    print("seed", seed)
    chance = random.Random(seed)
    topics = Topics.create(bootstrap_servers, 2, partitions=2)
    for topic in range(2):
        for partition in topics.numbers:
            topics.produce(
                topic, [1000 + 10 * i + chance.randrange(25) for i in range(100)], partition
            )
    options = topics.options(maxOffsetsPerTrigger=100)
    checkpoint = str(tmp_path / "checkpoint")
    given = (f"{name}={value}" for name, value in options.items())
    driver = start_driver(DRIVER, checkpoint, *given, output=subprocess.PIPE)
    seen: dict[int, list[tuple[str, int, int]]] = {}
    try:
        assert driver.stdout is not None
        for line in driver.stdout:
            if line.startswith("rows"):
                number, rows = json.loads(line.removeprefix("rows"))
                seen[number] = [tuple(row) for row in rows]
            if 1 in seen:
                break
    finally:
        kill_session(driver)
    topics.produce(0, [1001, 1002])  # later records do not change a planned micro-batch

    again: dict[int, list[tuple[str, int, int]]] = {}

    def work(batch: DataFrame, batch_id: int) -> None:
        again[batch_id] = [(row.topic, row.partition, row.offset) for row in batch.collect()]

    frame = spark.readStream.format("kafka-ordered").options(**options).load()
    headrace.spark.drain(
        frame.writeStream.foreachBatch(work).option("checkpointLocation", checkpoint)
    )

    assert again[1] == seen[1]
    assert 0 not in again
    read = [
        place for rows in [seen[0], *(again[number] for number in sorted(again))] for place in rows
    ]
    assert len(read) == 402
    assert set(read) == set(topics.merged())
