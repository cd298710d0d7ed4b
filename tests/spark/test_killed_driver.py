"""A Spark driver killed with -9, in any phase of a micro-batch, loses nothing; a keyed table has each record once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.conftest import Batches, Queue
from tests.support import ROOT, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

PHASES = ("acquired", "read", "sunk", "before acknowledge")
RECORDS = 200
BATCH = 50

DRIVER = """
import sys, time
from pyspark.sql import SparkSession
from headrace.spark import ShareDataSource, acknowledge
from headrace.spark.share_source import ShareStreamReader
from tests.spark.conftest import SHORT_LIVED
from tests.spark.test_killed_driver import merge

reached, phase, checkpoint, table = sys.argv[1:5]
spark = (
    SparkSession.builder.master("local[1]").config("spark.driver.extraJavaOptions", SHORT_LIVED)
    .config("spark.ui.enabled", "false").config("spark.log.level", "OFF").config("spark.sql.shuffle.partitions", "1")
    .config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1").getOrCreate()
)

def here(name):
    if name == phase:
        open(reached, "w").close()
        time.sleep(600)

class Reader(ShareStreamReader):
    def latestOffset(self, start, limit):
        if self._number:  # the micro-batch has been written, and is about to be acknowledged
            here("before acknowledge")
        end = super().latestOffset(start, limit)
        if self._number:
            here("acquired")
        return end

class Source(ShareDataSource):
    def streamReader(self, schema):
        return Reader(self._parse(source=True))

def slow(batches):
    for batch in batches:
        yield batch
        here("read")

def work(batch, batch_id):
    merge(batch, table)
    here("sunk")

spark.dataSource.register(Source)
frame = spark.readStream.format("kafka-share").options(**dict(o.split("=", 1) for o in sys.argv[5:])).load()
if phase == "read":
    frame = frame.mapInArrow(slow, frame.schema)
frame.writeStream.foreachBatch(work).option("checkpointLocation", checkpoint).start().awaitTermination()
"""


def merge(batch: DataFrame, table: str) -> None:
    """Add to a Parquet table what it does not have yet, by topic, partition and offset."""
    key = ["topic", "partition", "offset"]
    if Path(table).exists():
        batch = batch.join(batch.sparkSession.read.parquet(table).select(*key), key, "left_anti")
    batch.select(*key, "value", "deliveryCount").write.mode("append").parquet(table)


def kill_everyone(driver: subprocess.Popen[str]) -> None:
    """The driver, its JVM and all Python workers, at once: nobody gets to say goodbye."""
    everyone = [process.pid for process in psutil.process_iter() if _session(process.pid) == driver.pid]
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in everyone:
            os.kill(pid, number)
    driver.wait()


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def run_until(phase: str, folder: Path, table: str, options: dict[str, str]) -> None:
    """Run a query up to that phase of its first micro-batch, and kill it there."""
    reached = folder / phase.replace(" ", "-")
    driver = subprocess.Popen(
        [
            sys.executable, "-c", DRIVER, str(reached), phase, str(folder / "checkpoint"), table,
            *(f"{name}={value}" for name, value in options.items()),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        },
    )  # fmt: skip
    try:
        wait_until(lambda: reached.exists() or driver.poll() is not None, 120, f"a micro-batch to be {phase}")
    finally:
        kill_everyone(driver)
    assert reached.exists(), driver.stderr.read() if driver.stderr else ""


def test_a_killed_driver_loses_nothing_and_a_keyed_table_has_each_record_once(
    spark: SparkSession, queue: Callable[..., Queue], drain: Callable[..., Batches], tmp_path: Path
) -> None:
    flights = queue(RECORDS, partitions=2)
    table = str(tmp_path / "table")
    # A dead member keeps its partitions to itself until its session ends: the shortest that brokers in tests allow.
    options = {"share.session.timeout.ms": 5000, "share.delivery.count.limit": 10}

    for phase in PHASES:
        run_until(phase, tmp_path, table, flights.options(maxRecordsPerTrigger=BATCH, **options))
    delivered: list[int] = []

    def work(batch: DataFrame) -> None:
        merge(batch, table)
        delivered.extend(row.deliveryCount for row in batch.select("deliveryCount").collect())

    drain(flights, work, **options)

    rows = spark.read.parquet(table).select("partition", "offset", "value").collect()
    assert sorted(int(row.value) for row in rows) == list(range(RECORDS))
    assert sum(count > 1 for count in delivered) >= BATCH, "what the killed drivers held is delivered again"
    assert flights.is_drained()
