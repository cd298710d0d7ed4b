"""The desk: departures are worked as a queue, through a share group, and kept as Parquet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from headrace.spark import Acknowledged, acknowledge

from .enrich import DEPARTURE
from .session import Job

_LOCKS_PER_PARTITION = 4000
"""The most that brokers allow by default: it bounds a micro-batch, and each costs seconds."""


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The result of one micro-batch.

    :param acknowledged: numbers of records by outcome
    :param redelivered: number of records that had been delivered before
    """

    acknowledged: Acknowledged
    redelivered: int


def start(
    job: Job, topic: str, group_id: str, parquet: Path, report: Callable[[BatchResult], None]
) -> StreamingQuery:
    """Start the query that works on ``topic`` until it is stopped.

    Flights that departed are accepted and written to ``parquet``; cancelled ones are rejected.
    """
    records = (
        job.spark.readStream.format("kafka-share")
        .option("kafka.bootstrap.servers", job.bootstrap_servers)
        .option("kafka.group.id", group_id)
        .option("subscribe", topic)
        .option("auto.offset.reset", "earliest")
        .option("maxRecordsPerTrigger", job.records_per_batch)
        .option("share.partition.max.record.locks", _LOCKS_PER_PARTITION)
        .load()
    )
    departures = records.select(
        "topic", "partition", "offset", "deliveryCount", "value", _departed().alias("departed")
    )

    def work(batch: DataFrame, batch_id: int) -> None:
        batch.persist()
        # A folder per micro-batch, which is replaced if Spark runs the micro-batch again.
        folder = str(parquet / f"batch={batch_id}")
        _rows(batch.where("departed")).write.mode("overwrite").parquet(folder)
        seen = Observation()
        outcomes = batch.observe(
            seen, F.count_if(F.col("deliveryCount") > 1).alias("redelivered")
        ).withColumn("outcome", F.when(F.col("departed"), "accept").otherwise("reject"))
        acknowledged = acknowledge(outcomes)
        report(BatchResult(acknowledged, seen.get["redelivered"]))
        batch.unpersist()

    return (
        departures.writeStream.queryName("desk")
        .foreachBatch(work)
        .option("checkpointLocation", job.checkpoint("desk"))
        .trigger(processingTime="0 seconds")
        .start()
    )


def _departed() -> Column:
    """Return whether a flight departed, from the one field that tells it."""
    departure = F.from_json(F.col("value").cast("string"), "flight struct<dep_time: double>")
    return departure["flight"]["dep_time"].isNotNull()


def _rows(departures: DataFrame) -> DataFrame:
    """Return the rows of the table."""
    departure = F.from_json(F.col("value").cast("string"), DEPARTURE).alias("d")
    return departures.select("topic", "partition", "offset", departure).select(
        "topic", "partition", "offset", "d.source", "d.flight.*", "d.observation.*"
    )
