"""A Spark driver killed with -9 in the middle of a micro-batch loses nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.spark.conftest import Batches, Queue
from tests.support import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.slow]

DRIVER = """
import sys, time
from pyspark.sql import SparkSession
from headrace.spark import register

spark = (
    SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.log.level", "OFF")
    .config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1").getOrCreate()
)
register(spark)

def work(batch, batch_id):
    print("working on", batch.count(), flush=True)
    time.sleep(600)

reader = spark.readStream.format("kafka-share")
for option in sys.argv[2:]:
    reader = reader.option(*option.split("=", 1))
query = reader.load().writeStream.foreachBatch(work).option("checkpointLocation", sys.argv[1]).start()
query.awaitTermination()
"""


def test_a_killed_driver_loses_nothing(
    queue: Callable[..., Queue], drain: Callable[..., Batches], tmp_path: Path
) -> None:
    flights = queue(300)
    options = [f"{name}={value}" for name, value in flights.options().items()]
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(tmp_path / "checkpoint"), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,  # so that the JVM and its workers die with it
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT / "src")},
    )
    try:
        assert driver.stdout is not None
        line = next(line for line in driver.stdout if line.startswith("working on"))
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()

    batches = drain(flights)

    assert batches.values() == list(range(300))
    held = int(line.split()[-1])
    assert Counter(row.deliveryCount for row in batches.all()) == Counter({2: held, 1: 300 - held})
    assert flights.is_drained()
