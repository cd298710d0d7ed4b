"""The desk: departures are worked as a queue, through a share group, and kept as Parquet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from headrace.spark import Acknowledged, acknowledge

from .enrich import DEPARTURE
from .session import Job

_LOCKS_PER_PARTITION = 4000
"""The most that brokers allow by default: it bounds a micro-batch, and each costs seconds."""
_POSITION = ("topic", "partition", "offset")


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
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", job.records_per_batch)
        .option("share.partition.max.record.locks", _LOCKS_PER_PARTITION)
        .load()
    )
    departures = records.select(
        *_POSITION,
        "receipt",
        "deliveryCount",
        F.col("key").cast("string").alias("source"),
        F.from_json(F.col("value").cast("string"), DEPARTURE).alias("departure"),
    )
    departed = F.col("departure.flight.dep_time").isNotNull()
    columns = (*_POSITION, "source", "departure.flight.*", "departure.observation.*")

    def work(batch: DataFrame, batch_id: int) -> None:
        batch.persist()
        # A folder per micro-batch, which is replaced if Spark runs the micro-batch again.
        folder = str(parquet / f"batch={batch_id}")
        batch.where(departed).select(*columns).write.mode("overwrite").parquet(folder)
        seen = Observation()
        outcomes = batch.observe(
            seen, F.count_if(F.col("deliveryCount") > 1).alias("redelivered")
        ).withColumn("outcome", F.when(departed, "accept").otherwise("reject"))
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
