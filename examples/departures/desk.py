"""The desk: departures are worked as a queue, through a share group; good ones are kept as
Parquet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from headrace.spark import Acknowledged, acknowledge

from .enrich import FLIGHT, OBSERVATION

_DEPARTURE = f"source struct<partition: int, offset: bigint>, {FLIGHT}, {OBSERVATION}"


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What one micro-batch came to: outcomes applied, and records that had been delivered
    before."""

    acknowledged: Acknowledged
    redelivered: int


def start(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: str,
    group_id: str,
    parquet: Path,
    checkpoint: Path,
    report: Callable[[BatchResult], None],
    records_per_batch: int,
) -> StreamingQuery:
    """Start the query that works on ``topic`` until it is stopped: flights that departed are
    accepted and go to ``parquet``, cancelled ones are rejected."""
    records = (
        spark.readStream.format("kafka-share")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("kafka.group.id", group_id)
        .option("subscribe", topic)
        .option("auto.offset.reset", "earliest")
        .option("maxRecordsPerTrigger", records_per_batch)
        .load()
    )
    departures = records.select(
        "topic",
        "partition",
        "offset",
        "deliveryCount",
        F.from_json(F.col("value").cast("string"), _DEPARTURE).alias("d"),
    )

    def work(batch: DataFrame, batch_id: int) -> None:
        batch.persist()
        departed = F.col("d.dep_time").isNotNull()
        # One folder a micro-batch, replaced if Spark runs the batch again.
        good = batch.where(departed).select("topic", "partition", "offset", "d.*")
        good.write.mode("overwrite").parquet(str(parquet / f"batch={batch_id}"))
        outcome = F.when(departed, "accept").otherwise("reject")
        acknowledged = acknowledge(
            batch.select("topic", "partition", "offset", outcome.alias("outcome"))
        )
        report(BatchResult(acknowledged, batch.where("deliveryCount > 1").count()))
        batch.unpersist()

    return (
        departures.writeStream.queryName("desk")
        .foreachBatch(work)
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="0 seconds")
        .start()
    )
