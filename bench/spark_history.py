"""How fast the internal topics are decoded on Spark, on one core and on two.

    python -m bench.spark_history             1,000,000 commits of 1,000 partitions in 50 groups
    python -m bench.spark_history 200000

Each commit is a batch of its own, as coordinators write them. The rows of ``kafka-group-history`` go to Spark's noop
sink. The JVM has a heap of 512 MiB for driver and executors together, less than the decoded rows take: what passes does
not hold them.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import psutil

from headrace.broker.broker import Broker
from headrace.broker.config import Config
from headrace.groups.records import CommittedOffset, OffsetCommit
from headrace.outcome import Outcome
from headrace.spark.group_history import history
from tests.support import HeadraceProcess

COMMITS = 1_000_000
PARTITIONS, GROUPS = 1_000, 50
ROUNDS = 3
WANTED_PER_S = 300_000
_UNCOMPACTED = {"log.cleaner.enable": "false"}
_HEAP = "512m"
_IN_A_ROW = 100


async def fill(data_dir: Path, commits: int) -> None:
    """Commit, through the same door as clients do, and stop."""
    broker = Broker(Config(_UNCOMPACTED), data_dir)
    broker.start()
    for n in range(commits):
        value = CommittedOffset(n // PARTITIONS, commit_timestamp_ms=broker.now_ms())
        record = OffsetCommit(f"group-{n % GROUPS}", "a-topic", n % PARTITIONS, value)
        broker.submit(broker.groups, record.group_id, Outcome(None, (record,)))
        if not n % _IN_A_ROW:
            await asyncio.sleep(0)
    broker.close()


def decode(bootstrap_servers: str, cores: int) -> None:
    """In a process of its own: print the seconds and the CPU seconds of each round, the first of which warms up."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local[{cores}]").config("spark.driver.memory", _HEAP)
    for name, value in {"spark.ui.enabled": "false", "spark.log.level": "OFF"}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    rows = history(spark, bootstrap_servers)
    for _ in range(ROUNDS + 1):
        begun_s, cpu_s = time.perf_counter(), _cpu_s()
        rows.write.format("noop").mode("overwrite").save()
        print(f"took {time.perf_counter() - begun_s} {_cpu_s() - cpu_s}", flush=True)
    spark.stop()


def _cpu_s() -> float:
    """Of this process, Spark's JVM and its Python workers."""
    process = psutil.Process()
    return sum(sum(one.cpu_times()[:2]) for one in [process, *process.children(recursive=True)])


def measure(commits: int = COMMITS) -> dict[int, tuple[float, float]]:
    """Records per second, and per second of CPU, by cores; the medians of some rounds."""
    rates = {}
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        asyncio.run(fill(Path(folder) / "data", commits))
        with HeadraceProcess(Path(folder) / "data", _UNCOMPACTED) as broker:
            for cores in (1, 2):
                command = [
                    sys.executable,
                    "-m",
                    "bench.spark_history",
                    "--decode",
                    broker.bootstrap_servers,
                    str(cores),
                ]
                environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
                done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
                took = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("took ")][1:]
                wall, cpu = (median(map(float, column)) for column in zip(*took, strict=True))
                rates[cores] = commits / wall, commits / cpu
    return rates


if __name__ == "__main__":
    if sys.argv[1:2] == ["--decode"]:
        decode(sys.argv[2], int(sys.argv[3]))
    else:
        for cores, (rate, of_cpu) in measure(int(sys.argv[1]) if sys.argv[1:] else COMMITS).items():
            print(f"local[{cores}]: {rate:10,.0f} internal records per second, {of_cpu:10,.0f} per second of CPU")
