"""A Spark driver that is killed in any phase of a micro-batch loses no record.

A keyed table has each record once.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.application import kill_session, start_driver
from tests.spark.conftest import Batches, Queue
from tests.support import RUN_SEED, is_soak, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

PHASES = {"acquired": False, "read": True, "sunk": False, "before acknowledge": True}
"""Phase of a micro-batch → whether the next one is acquired meanwhile."""
CHOSEN = tuple(PHASES) if is_soak() else random.Random(RUN_SEED).sample(sorted(PHASES), 2)
"""The phases in which drivers are killed: `make test` takes two, `make soak` all of them."""
RECORDS = 200
BATCH = 50

DRIVER = """
import sys, time
from headrace.spark import ShareDataSource
from headrace.spark.pyspark_capabilities import stream_reader
from headrace.spark.share.source import ShareStreamReader
from tests.spark.application import SHORT_LIVED, application
from tests.spark.test_killed_driver import merge

reached, phase, checkpoint, table = sys.argv[1:5]
spark = application(1, {**SHORT_LIVED, "spark.sql.shuffle.partitions": "1"})

def here(name):
    if name == phase:
        open(reached, "w").close()
        time.sleep(600)

class Reader(ShareStreamReader):
    def latestOffset(self, start, limit):
        if self._batches:  # the micro-batch has been written, and is about to be acknowledged
            here("before acknowledge")
        end = super().latestOffset(start, limit)
        if self._batches:
            here("acquired")
        return end

class Source(ShareDataSource):
    @classmethod
    def name(cls):
        return "slow-share"

    def streamReader(self, schema):
        return stream_reader(Reader(self._parse(is_source=True), self._load_id))

def slow(batches):
    for batch in batches:
        yield batch
        here("read")

def work(batch, batch_id):
    merge(batch, table)
    here("sunk")

spark.dataSource.register(Source)
options = dict(o.split("=", 1) for o in sys.argv[5:])
frame = spark.readStream.format("slow-share").options(**options).load()
if phase == "read":
    frame = frame.mapInArrow(slow, frame.schema)
writer = frame.writeStream.foreachBatch(work)
writer.option("checkpointLocation", checkpoint).start().awaitTermination()
"""


def merge(batch: DataFrame, table: str) -> None:
    """Add the rows that a Parquet table lacks, by topic, partition and offset."""
    key = ["topic", "partition", "offset"]
    rows = batch.select(*key, "value", "deliveryCount")
    Path(table).mkdir(exist_ok=True)  # a killed driver may have left a table without files
    there = rows.sparkSession.read.schema(rows.schema).parquet(table)
    rows.join(there, key, "left_anti").write.mode("append").parquet(table)


def run_until(phase: str, folder: Path, table: str, options: dict[str, str]) -> None:
    """Run a query up to a phase of its first micro-batch, and kill it there."""
    reached = folder / phase.replace(" ", "-")
    given = (f"{name}={value}" for name, value in options.items())
    driver = start_driver(DRIVER, str(reached), phase, str(folder / "checkpoint"), table, *given)
    try:
        wait_until(
            lambda: reached.exists() or driver.poll() is not None,
            120,
            f"a micro-batch to be {phase}",
        )
    finally:
        kill_session(driver)
    assert reached.exists(), f"the driver ended with {driver.returncode}"


def test_a_killed_driver_loses_nothing_and_a_keyed_table_has_each_record_once(
    spark: SparkSession, queue: Callable[..., Queue], drain: Callable[..., Batches], tmp_path: Path
) -> None:
    flights = queue(RECORDS, partitions=2)
    table = str(tmp_path / "table")
    # A dead member keeps its partitions until its session expires: use the shortest session.
    options = {"share.session.timeout.ms": 5000, "share.delivery.count.limit": 10}

    print(f"HEADRACE_TEST_SEED={RUN_SEED}: {CHOSEN}")
    for phase in CHOSEN:
        given = flights.options(maxOffsetsPerTrigger=BATCH, acquireAhead=PHASES[phase], **options)
        run_until(phase, tmp_path, table, given)
    delivered: list[int] = []

    def work(batch: DataFrame) -> None:
        merge(batch, table)
        delivered.extend(row.deliveryCount for row in batch.select("deliveryCount").collect())

    drain(flights, work, **options)

    rows = spark.read.parquet(table).select("partition", "offset", "value").collect()
    assert sorted(int(row.value) for row in rows) == list(range(RECORDS))
    assert sum(count > 1 for count in delivered) >= BATCH, (
        "records that the killed drivers held are delivered again"
    )
    assert flights.is_drained()
