"""The throughput of decoding the internal topics on Spark.

    python -m bench.spark_history                 1,000,000 commits, 1,000 partitions, 50 groups,
                                                  on local[2]
    python -m bench.spark_history 200000 1        200,000 commits, on local[1]

Each commit is a batch of its own, as coordinators write them. The rows of ``kafka-group-history``
go to Spark's noop sink. The JVM has a heap of 512 MiB for driver and executors together. The last
line is a JSON object of numbers.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import psutil
from pyspark.sql import SparkSession

from bench.spark_application import session
from headrace.broker.broker import Broker
from headrace.broker.config.broker_config import Config
from headrace.groups.records import CommittedOffset, OffsetCommit
from headrace.outcome import Outcome
from headrace.spark import history
from tests.support import HeadraceProcess

COMMITS = 1_000_000
PARTITIONS, GROUPS = 1_000, 50
TOPIC = "a-topic"
ROUNDS = 3
UNCOMPACTED = {"log.cleaner.enable": "false"}
_HEAP = "--driver-memory 512m pyspark-shell"
_IN_A_ROW = 100


def fill(data_dir: Path, first: int, end: int) -> None:
    """Write the commits ``first`` to ``end - 1`` through the coordinator, and stop."""
    asyncio.run(_commit(data_dir, first, end))


async def _commit(data_dir: Path, first: int, end: int) -> None:
    broker = Broker(Config(UNCOMPACTED), data_dir)
    broker.start()
    for n in range(first, end):
        value = CommittedOffset(n // PARTITIONS, commit_timestamp_ms=broker.clock.wall_ms())
        record = OffsetCommit(f"group-{n % GROUPS}", TOPIC, n % PARTITIONS, value)
        broker.coordinators.group_runtime.write_now(record.group_id, Outcome(None, (record,)))
        if not n % _IN_A_ROW:
            await asyncio.sleep(0)
    broker.close()


def cpu_s() -> float:
    """Return the user and system time of the application's processes: this one, the JVM, its Python
    workers.
    """
    this = psutil.Process()
    return sum(sum(process.cpu_times()[:2]) for process in (this, *this.children(recursive=True)))


def decode(spark: SparkSession, broker: HeadraceProcess) -> None:
    """Read the whole history, and discard it."""
    history(spark, broker.bootstrap_servers).write.format("noop").mode("overwrite").save()


def measure(commits: int, cores: int) -> dict[str, float]:
    """Return records per second, and per second of CPU."""
    os.environ["PYSPARK_SUBMIT_ARGS"] = _HEAP
    took: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        data_dir = Path(folder) / "data"
        fill(data_dir, 0, commits)
        spark = session(cores)
        with HeadraceProcess(data_dir, UNCOMPACTED) as broker:
            decode(spark, broker)  # warms the JVM up
            for _ in range(ROUNDS):
                begun_s, used_s = time.perf_counter(), cpu_s()
                decode(spark, broker)
                took.append((time.perf_counter() - begun_s, cpu_s() - used_s))
        spark.stop()
    wall_s, used_s = (median(column) for column in zip(*took, strict=True))
    return {"records_per_s": commits / wall_s, "records_per_cpu_s": commits / used_s}


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:]]
    print(json.dumps(measure(given[0] if given else COMMITS, given[1] if given[1:] else 2)))
