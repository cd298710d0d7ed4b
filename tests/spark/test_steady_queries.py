"""Three worker queries of one share group keep up with a producer, in constant memory.

`make soak` runs it for HEADRACE_TEST_STEADY_S seconds, ten minutes by default. A query of
`kafka-lag` beside them measures the lag.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import psutil
import pytest
from confluent_kafka import Producer

from tests.spark.application import kill_session, start_driver
from tests.spark.conftest import Queue
from tests.support import is_soak, wait_until

SECONDS = int(os.environ.get("HEADRACE_TEST_STEADY_S", "600"))
RECORDS_PER_S = int(os.environ.get("HEADRACE_TEST_STEADY_RATE", "2000"))
QUERIES = 3
MOST_LAG = 8000
MOST_GROWTH_MIB = 10
SAMPLE_S = 2
START_S = 600
"""Time for four queries to start one after the other, on a machine that may be busy."""

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(SECONDS + 3 * START_S),
    pytest.mark.skipif(not is_soak(), reason="takes ten minutes: `make soak`"),
]

DRIVER = """
import json, sys, time
from pyspark.sql import functions as F
from headrace.spark import acknowledge
from tests.spark.application import application

folder, queries, sample_s, *options = sys.argv[1:]
options = dict(option.split("=", 1) for option in options)
spark = application(2, {"spark.sql.shuffle.partitions": "1"})

def note(**values):
    with open(f"{folder}/journal", "a") as journal:
        journal.write(json.dumps(values) + "\\n")

def work(batch, _):
    note(accepted=acknowledge(batch).accepted)

def measure(batch, _):
    row = batch.agg(F.sum("lag")).collect()[0]
    note(lag=row[0])

def start(writer, name):
    # Spark waits 10 s for the Python process of a source: a busy machine needs another try.
    writer = writer.option("checkpointLocation", f"{folder}/checkpoint-{name}")
    query = writer.start()
    while query.status["message"] == "Initializing sources" or not query.isActive:
        if not query.isActive:
            query = writer.start()
        time.sleep(0.2)

for number in range(int(queries)):
    frame = spark.readStream.format("kafka-share").options(**options).load()
    start(frame.writeStream.foreachBatch(work), number)
lag = (
    spark.readStream.format("kafka-lag")
    .option("kafka.bootstrap.servers", options["kafka.bootstrap.servers"])
    .option("groups", options["kafka.group.id"])
    .load()
)
measured = lag.writeStream.foreachBatch(measure)
start(measured.trigger(processingTime=f"{sample_s} seconds"), "lag")
spark.streams.resetTerminated()
spark.streams.awaitAnyTermination()
"""


def test_memory_and_lag(queue: Callable[..., Queue], tmp_path: Path) -> None:
    flights = queue(0, partitions=6)
    arguments = [str(tmp_path), str(QUERIES), str(SAMPLE_S)]
    arguments += [f"{name}={value}" for name, value in flights.options().items()]
    driver = start_driver(DRIVER, *arguments)

    def noted(name: str) -> list[int]:
        journal = tmp_path / "journal"
        lines = journal.read_text().splitlines() if journal.exists() else []
        return [line[name] or 0 for line in map(json.loads, lines) if name in line]

    def has_accepted(count: int) -> bool:
        assert driver.poll() is None
        return sum(noted("accepted")) >= count

    try:
        flights.produce(60)
        wait_until(lambda: has_accepted(60), START_S, "the queries to run", 0.5)
        samples: list[dict[int, float]] = []
        with _producing(flights) as produced:
            started_s = time.monotonic()
            while time.monotonic() - started_s < SECONDS:
                samples.append(_readers_mib(driver.pid))
                time.sleep(SAMPLE_S)
        lags = noted("lag")
        everything = 60 + produced[0]
        wait_until(lambda: has_accepted(everything), START_S, "all records to be accepted", 0.5)
    finally:
        kill_session(driver)

    print(f"{produced[0]} records, largest lag {max(lags)}")
    assert sum(noted("accepted")) == 60 + produced[0]
    assert flights.is_drained()
    assert len(lags) >= len(samples) // 4
    for reader in samples[-1]:
        sizes_mib = [sample[reader] for sample in samples if reader in sample]
        early, late = (
            sizes_mib[len(sizes_mib) // 4 : len(sizes_mib) // 2],
            sizes_mib[-len(sizes_mib) // 4 :],
        )
        print(f"reader {reader}: {median(early):.0f} MiB, then {median(late):.0f} MiB")
        assert median(late) <= median(early) + MOST_GROWTH_MIB
    assert len(samples[-1]) == QUERIES + 1
    assert max(lags) < MOST_LAG


@contextmanager
def _producing(queue: Queue) -> Iterator[list[int]]:
    """Produce records at a steady rate; yield their number, which is final after the block."""
    produced = [0]
    ends = threading.Event()
    producer = Producer({"bootstrap.servers": queue.bootstrap_servers, "linger.ms": 20})

    def produce() -> None:
        started_s = time.monotonic()
        while not ends.wait(0.05):
            due = int((time.monotonic() - started_s) * RECORDS_PER_S)
            for number in range(produced[0], due):
                producer.produce(queue.topic, b"%0100d" % number, partition=number % 6)
            produced[0] = due
            producer.poll(0)
        assert producer.flush(60) == 0

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield produced
    finally:
        ends.set()
        thread.join()


def _readers_mib(driver: int) -> dict[int, float]:
    """Return the resident memory of the queries' reader processes."""
    found = {}
    for process in psutil.Process(driver).children(recursive=True):
        try:
            if any("streaming_source_runner" in word for word in process.cmdline()):
                found[process.pid] = process.memory_info().rss / 2**20
        except psutil.NoSuchProcess:
            continue
    return found
