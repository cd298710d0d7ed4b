"""How fast the internal topics are decoded on Spark, and what the application holds meanwhile.

    python -m bench.spark_history                 1,000,000 commits of 1,000 partitions in 50 groups, on local[2]
    python -m bench.spark_history 200000 1        200,000 of them, on local[1]

Each commit is a batch of its own, as coordinators write them. The rows of ``kafka-group-history`` go to Spark's noop
sink. The JVM has a heap of 512 MiB for driver and executors together. The last line is a JSON object of numbers.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median

import psutil
from pyspark.sql import SparkSession

from bench.spark_application import MIB, session
from headrace.broker.broker import Broker
from headrace.broker.config import Config
from headrace.groups.records import CommittedOffset, OffsetCommit
from headrace.outcome import Outcome
from headrace.spark import history
from tests.support import HeadraceProcess

COMMITS = 1_000_000
PARTITIONS, GROUPS = 1_000, 50
ROUNDS = 3
_UNCOMPACTED = {"log.cleaner.enable": "false"}
_HEAP = "--driver-memory 512m pyspark-shell"
_IN_A_ROW = 100
_SAMPLE_S = 0.2


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


class Application:
    """The processes of a Spark application: this one, the JVM, its Python workers."""

    def __init__(self) -> None:
        self.most_mib = 0.0
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            try:
                sizes = [process.memory_info().rss for process in self._processes()]
            except psutil.Error:
                continue
            self.most_mib = max(self.most_mib, sum(sizes) / MIB)
            time.sleep(_SAMPLE_S)

    @staticmethod
    def _processes() -> list[psutil.Process]:
        this = psutil.Process()
        return [this, *this.children(recursive=True)]

    def cpu_s(self) -> float:
        """User and system time of all of them."""
        return sum(sum(process.cpu_times()[:2]) for process in self._processes())


def decode(spark: SparkSession, broker: HeadraceProcess) -> None:
    """Read the whole history, and keep nothing of it."""
    history(spark, broker.bootstrap_servers).write.format("noop").mode("overwrite").save()


def measure(commits: int, cores: int) -> dict[str, float]:
    """Records per second, and per second of CPU; the application's most MiB with a quarter of them, and with all."""
    os.environ["PYSPARK_SUBMIT_ARGS"] = _HEAP
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        data_dir = Path(folder) / "data"
        asyncio.run(fill(data_dir, commits // 4))
        spark, application = session(cores), Application()
        with HeadraceProcess(data_dir, _UNCOMPACTED) as broker:
            decode(spark, broker)
        few_mib = application.most_mib
        asyncio.run(fill(data_dir, commits - commits // 4))
        took: list[tuple[float, float]] = []
        with HeadraceProcess(data_dir, _UNCOMPACTED) as broker:
            for _ in range(ROUNDS):
                begun_s, cpu_s = time.perf_counter(), application.cpu_s()
                decode(spark, broker)
                took.append((time.perf_counter() - begun_s, application.cpu_s() - cpu_s))
        spark.stop()
    wall_s, cpu_s = (median(column) for column in zip(*took, strict=True))
    return {
        "records_per_s": commits / wall_s,
        "records_per_cpu_s": commits / cpu_s,
        "few_mib": few_mib,
        "many_mib": application.most_mib,
    }


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:]]
    print(json.dumps(measure(given[0] if given else COMMITS, given[1] if given[1:] else 2)))
