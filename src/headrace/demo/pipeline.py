"""The Spark side: a Structured Streaming query that drains a topic through a share group into Parquet."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.spark import Acknowledged, acknowledge

from .data import DemoError

_FLIGHT = (
    "year int, month int, day int, dep_time double, sched_dep_time int, dep_delay double, arr_time double, "
    "sched_arr_time int, arr_delay double, carrier string, flight int, tailnum string, origin string, dest string, "
    "air_time double, distance int, hour int, minute int, time_hour timestamp"
)


_LOOK_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What one micro-batch came to: outcomes applied, and records that had been delivered before."""

    acknowledged: Acknowledged
    redelivered: int


@contextmanager
def spark_session(log: Path) -> Iterator[SparkSession]:
    """A local Spark session whose own output goes to the file ``log``.

    :raises DemoError: Spark does not start
    """
    warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it logs whatever a foreachBatch function raises
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with log.open("ab") as file, _stderr_to(file.fileno()):
        try:
            session = (
                SparkSession.builder.master("local[*]")
                .appName("headrace demo")
                .config("spark.ui.enabled", "false")
                .config("spark.ui.showConsoleProgress", "false")
                .config("spark.driver.bindAddress", "127.0.0.1")
                .config("spark.driver.host", "127.0.0.1")
                .config("spark.sql.shuffle.partitions", "4")
                .config("spark.sql.session.timeZone", "UTC")
                .getOrCreate()
            )
        except Exception as error:
            reason = str(error).strip().splitlines()[0]
            raise DemoError(f"Spark does not start (it needs Java 17): {reason}; see {log}") from None
        session.sparkContext.setLogLevel("WARN")
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def _stderr_to(descriptor: int) -> Iterator[None]:
    """What is started meanwhile inherits it: here the JVM."""
    kept = os.dup(2)
    sys.stderr.flush()
    os.dup2(descriptor, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def drain(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: str,
    group_id: str,
    parquet: Path,
    checkpoint: Path,
    report: Callable[[BatchResult], None],
    records_per_batch: int,
) -> None:
    """Work on everything in ``topic``: rows with a departure time go to ``parquet`` and are accepted, others rejected.

    :raises DemoError: the query failed
    """
    records = (
        spark.readStream.format("kafka-share")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("kafka.group.id", group_id)
        .option("subscribe", topic)
        .option("auto.offset.reset", "earliest")
        .option("maxRecordsPerTrigger", records_per_batch)
        .load()
    )
    flights = records.select(
        "topic", "partition", "offset", "deliveryCount", F.from_json(F.col("value").cast("string"), _FLIGHT).alias("f")
    )

    def work(batch: DataFrame, batch_id: int) -> None:
        batch.persist()
        departed = F.col("f.dep_time").isNotNull()
        # One folder a micro-batch, replaced if Spark runs the batch again.
        good = batch.where(departed).select("topic", "partition", "offset", "f.*")
        good.write.mode("overwrite").parquet(str(parquet / f"batch={batch_id}"))
        outcome = F.when(departed, "accept").otherwise("reject")
        acknowledged = acknowledge(batch.select("topic", "partition", "offset", outcome.alias("outcome")))
        report(BatchResult(acknowledged, batch.where("deliveryCount > 1").count()))
        batch.unpersist()

    with _deferred_interrupts() as interrupted:
        query = (
            flights.writeStream.foreachBatch(work)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            while not interrupted.is_set() and not query.awaitTermination(_LOOK_EVERY_S):
                pass
        except Exception as error:
            lines = str(error).splitlines()
            reason = next((line for line in lines if "Error: " in line), lines[0])
            raise DemoError(f"the query failed: {reason.strip()}") from None
        finally:
            query.stop()
    if interrupted.is_set():
        raise KeyboardInterrupt


@contextmanager
def _deferred_interrupts() -> Iterator[threading.Event]:
    """Ctrl-C and SIGTERM set the event: raised inside a call to the JVM they would break the connection to it."""
    interrupted = threading.Event()
    kept = {number: signal.signal(number, lambda *_: interrupted.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupted
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def written(spark: SparkSession, parquet: Path) -> tuple[int, int]:
    """(rows in the Parquet files, rows after de-duplication by topic, partition and offset)."""
    rows = spark.read.parquet(str(parquet))
    return rows.count(), rows.dropDuplicates(["topic", "partition", "offset"]).count()


def delay_by_carrier(spark: SparkSession, parquet: Path) -> list[dict[str, Any]]:
    """carrier, flights, dep_delay, arr_delay (mean minutes) of what was accepted, the most delayed first."""
    rows = spark.read.parquet(str(parquet)).dropDuplicates(["topic", "partition", "offset"])
    table = rows.groupBy("carrier").agg(
        F.count("*").alias("flights"), F.avg("dep_delay").alias("dep_delay"), F.avg("arr_delay").alias("arr_delay")
    )
    return [row.asDict() for row in table.orderBy(F.desc("dep_delay")).collect()]
