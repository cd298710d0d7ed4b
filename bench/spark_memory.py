"""The memory of a Spark application's driver while queries process a backlog, and 4 and 16 times as
much.

    python -m bench.spark_memory RECORDS

RECORDS is the largest backlog of ``kafka-share`` (16 partitions, 1 KiB records); that of ``kafka-
ordered`` (two topics, 100 B records) is twice that, that of a history (of 1,000 partitions) three
quarters of it. All run one after another in one application on ``local-cluster[1,2,1024]``: its
executor is a process of its own, below the driver's JVM.

:mod:`bench.driver_memory` takes a sample every second. Processes of their own write the backlogs.
Prints, as JSON, the peak MiB by source and part for each backlog, and its number of records; a
first query of each kind warms the JVM up and is not counted.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pyspark
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from bench import spark_history, spark_ordered, spark_share
from bench.driver_memory import PARTS, Driver
from bench.spark_application import session, start
from headrace.spark.history.advice import Bounds, Target
from headrace.spark.history.query import HistoryQuery, Period
from headrace.spark.history.run import write_history
from headrace.spark.option_parsing import KafkaOptions
from tests.spark.application import SHORT_LIVED
from tests.support import HeadraceProcess, unique

BACKLOGS = (1, 4, 16)
_EXECUTOR_MIB = 1024
_PERIOD_MS, _STEP_MS, _STALL_MS = 3_600_000, 60_000, 600_000
_DRAIN_S = 600
_GIVE_BACK = "-Xms32m -XX:MinHeapFreeRatio=5 -XX:MaxHeapFreeRatio=20"
"""JVM options that return unused heap after a collection, so that resident memory shows the need.
"""
_CONFIGS = {
    "spark.master": f"local-cluster[1,2,{_EXECUTOR_MIB}]",
    "spark.executor.memory": f"{_EXECUTOR_MIB}m",
    "spark.driver.extraJavaOptions": " ".join([*SHORT_LIVED.values(), _GIVE_BACK]),
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.numRecentProgressUpdates": "100",
}


def elsewhere(work: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a process of its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


def spark_home(folder: Path) -> Path:
    """Link the installed Spark into ``folder``, because a local cluster writes beside it."""
    home = folder / "spark"
    home.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        (home / entry.name).symlink_to(entry)
    return home


class Backlogs:
    """The same work in several sizes, by sources that share an application."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._folder = spark, folder
        self._driver = Driver(spark)

    def share(self, records: int) -> dict[str, list[float]]:
        """Run ``kafka-share`` up to the given number of records."""
        with HeadraceProcess(self._folder / "share", {}) as broker:

            def drain(topic: str, count: int) -> None:
                options = {"kafka.group.id": unique("bench"), "auto.offset.reset": "earliest"}
                self._drain("kafka-share", broker, topic, count, options)

            return self._each(
                records, partial(elsewhere, spark_share.fill, broker.bootstrap_servers), drain
            )

    def ordered(self, records: int) -> dict[str, list[float]]:
        """Run ``kafka-ordered`` in micro-batches of half the smallest backlog."""
        with HeadraceProcess(self._folder / "ordered", {}) as broker:

            def drain(topics: str, count: int) -> None:
                most = records // BACKLOGS[-1] // 2
                options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(most)}
                self._drain("kafka-ordered", broker, topics, count, options)

            return self._each(
                records, partial(elsewhere, spark_ordered.fill, broker.bootstrap_servers), drain
            )

    def history(self, commits: int) -> dict[str, list[float]]:
        """Run the job of ``headrace lag history``."""
        folder, written = self._folder / "history", 0
        with HeadraceProcess(folder, spark_history.UNCOMPACTED) as broker:
            admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
            topic = NewTopic(spark_history.TOPIC, spark_history.PARTITIONS, 1)
            admin.create_topics([topic])[topic.topic].result(60)

        def fill(count: int) -> str:
            nonlocal written
            elsewhere(spark_history.fill, folder, written, count)
            written = count
            return spark_history.TOPIC

        def work(_: str, count: int) -> None:
            with HeadraceProcess(folder, spark_history.UNCOMPACTED) as broker:
                read = self._history(KafkaOptions(broker.bootstrap_servers))
            assert read >= count, f"{read} of {count} commits"

        return self._each(commits, fill, work)

    def _history(self, kafka: KafkaOptions) -> int:
        now_ms = int(time.time() * 1000)
        period = Period(now_ms - _PERIOD_MS, now_ms, _STEP_MS, _STALL_MS)
        query = HistoryQuery(period, Target(_DRAIN_S, Bounds()))
        return write_history(self._spark, kafka, query, self._folder / unique("history")).records

    def _drain(
        self,
        source: str,
        broker: HeadraceProcess,
        topics: str,
        records: int,
        options: dict[str, str],
    ) -> None:
        options |= {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topics}
        query = start(
            self._spark, source, self._folder / unique(source), options, availableNow=True
        )
        query.awaitTermination()
        read = sum(progress.numInputRows for progress in query.recentProgress)
        assert read >= records, f"{source}: {read} of {records} records"

    def _each(
        self, records: int, fill: Callable[[int], str], work: Callable[[str, int], None]
    ) -> dict[str, list[float]]:
        """Return the peak MiB by part for each backlog, and the numbers of records."""
        found: dict[str, list[float]] = {part: [] for part in ("records", *PARTS)}
        for times in BACKLOGS:
            backlog = records // BACKLOGS[-1] * times
            topics = fill(backlog)
            if times == BACKLOGS[0]:
                work(topics, backlog)  # warms the JVM up
            with self._driver.watched() as most:
                work(topics, backlog)
            for part, value in {"records": backlog, **most}.items():
                found[part].append(value)
        return found


def measure(records: int) -> dict[str, dict[str, list[float]]]:
    """Return the peak MiB by source and part for each backlog, and the numbers of records."""
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        folder = Path(name)
        os.environ["SPARK_HOME"] = str(spark_home(folder))
        spark = session(2, _CONFIGS)
        backlogs = Backlogs(spark, folder)
        found = {
            "kafka-share": backlogs.share(records),
            "kafka-ordered": backlogs.ordered(2 * records),
            "headrace lag history": backlogs.history(records * 3 // 4),
        }
        spark.stop()
    return found


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]))))
