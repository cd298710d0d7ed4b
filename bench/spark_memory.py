"""The memory of a Spark application's driver while queries process a backlog, and 4 and 16 times as
much.

    python -m bench.spark_memory RECORDS

RECORDS is the largest backlog of ``kafka-share`` (16 partitions, 1 KiB records); that of ``kafka-
ordered`` (two topics, 100 B records) is twice that, that of a history (of 1,000 partitions) three
quarters of it. Each backlog has an application of its own, because Spark keeps metrics and plans of
earlier queries. It is on ``local-cluster[1,2,1024]``: its executor is a process of its own, below
the driver's JVM.

:mod:`bench.driver_memory` takes a sample every second. Processes of their own write the backlogs.
Prints, as JSON, the peak MiB by source and part for each backlog, and its number of records; a
first query of the smallest backlog warms the JVM up and is not counted.
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
from pyspark import StorageLevel
from pyspark.sql import SparkSession

from bench import spark_history, spark_ordered, spark_share
from bench.driver_memory import PARTS, Driver
from bench.spark_application import session, start
from headrace.spark import history
from headrace.spark.history.groups import group_histories
from headrace.spark.option_parsing import KafkaOptions
from tests.spark.application import SHORT_LIVED
from tests.support import HeadraceProcess, unique

BACKLOGS = (1, 4, 16)
_EXECUTOR_MIB = 1024
_PERIOD_MS, _STEP_MS = 3_600_000, 60_000
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


def create_topic(broker: HeadraceProcess) -> None:
    """Create the topic of the histories."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    topic = NewTopic(spark_history.TOPIC, spark_history.PARTITIONS, 1)
    admin.create_topics([topic])[topic.topic].result(60)


class Application:
    """An application that processes one backlog.

    :param smallest: records in the smallest backlog
    :param times: how many times as many records this one has
    """

    def __init__(self, spark: SparkSession, folder: Path, smallest: int, times: int) -> None:
        self._spark, self._folder = spark, folder
        self._smallest, self._records = smallest, smallest * times
        self._driver = Driver(spark)

    def share(self) -> dict[str, float]:
        """Run ``kafka-share``."""
        with HeadraceProcess(self._folder / "share", {}) as broker:

            def drain(topic: str, count: int) -> None:
                options = {"kafka.group.id": unique("bench"), "startingOffsets": "earliest"}
                self._drain("kafka-share", broker, topic, count, options)

            return self._watch(
                partial(
                    elsewhere,
                    spark_share.fill,
                    broker.bootstrap_servers,
                    spark_share.PARTITIONS[-1],
                ),
                drain,
            )

    def ordered(self) -> dict[str, float]:
        """Run ``kafka-ordered`` in micro-batches of half the smallest backlog."""
        with HeadraceProcess(self._folder / "ordered", {}) as broker:

            def drain(topics: str, count: int) -> None:
                most = str(self._smallest // 2)
                options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": most}
                self._drain("kafka-ordered", broker, topics, count, options)

            return self._watch(
                partial(elsewhere, spark_ordered.fill, broker.bootstrap_servers), drain
            )

    def history(self) -> dict[str, float]:
        """Run the job of ``headrace lag history``."""
        folder, written = self._folder / "history", 0
        with HeadraceProcess(folder, spark_history.UNCOMPACTED) as broker:
            create_topic(broker)

        def fill(count: int) -> str:
            nonlocal written
            elsewhere(spark_history.fill, folder, written, count)
            written = count
            return spark_history.TOPIC

        def work(_: str, count: int) -> None:
            with HeadraceProcess(folder, spark_history.UNCOMPACTED) as broker:
                read = self._history(KafkaOptions(broker.bootstrap_servers))
            assert read >= count, f"{read} of {count} commits"

        return self._watch(fill, work)

    def _history(self, kafka: KafkaOptions) -> int:
        now_ms = int(time.time() * 1000)
        times_ms = range(now_ms - _PERIOD_MS, now_ms + 1, _STEP_MS)
        events = history(self._spark, kafka).persist(StorageLevel.DISK_ONLY)
        try:
            assert list(group_histories(events, kafka, times_ms, _DRAIN_S))
            return events.count()
        finally:
            events.unpersist()

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

    def _watch(
        self, fill: Callable[[int], str], work: Callable[[str, int], None]
    ) -> dict[str, float]:
        """Return the peak MiB by part while the backlog is processed, and its number of records."""
        work(fill(self._smallest), self._smallest)  # warms the JVM up
        topics = fill(self._records)
        with self._driver.watched() as most:
            work(topics, self._records)
        return {"records": self._records, **most}


SOURCES: dict[str, tuple[Callable[[Application], dict[str, float]], float]] = {
    "kafka-share": (Application.share, 1),
    "kafka-ordered": (Application.ordered, 2),
    "headrace lag history": (Application.history, 3 / 4),
}
"""What is measured, and the records of its backlog as a multiple of RECORDS."""


def run_application(source: str, records: int, times: int) -> dict[str, float]:
    """Return the peak MiB by part of an application that processes one backlog."""
    run, share = SOURCES[source]
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        folder = Path(name)
        os.environ["SPARK_HOME"] = str(spark_home(folder))
        spark = session(2, _CONFIGS)
        smallest = int(records * share) // BACKLOGS[-1]
        found = run(Application(spark, folder, smallest, times))
        spark.stop()
    return found


def measure(records: int) -> dict[str, dict[str, list[float]]]:
    """Return the peak MiB by source and part for each backlog, and the numbers of records."""
    found: dict[str, dict[str, list[float]]] = {}
    for source in SOURCES:
        each = [elsewhere(run_application, source, records, times) for times in BACKLOGS]
        found[source] = {part: [one[part] for one in each] for part in ("records", *PARTS)}
    return found


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]))))
