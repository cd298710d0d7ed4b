"""The desk: departures are worked as a queue, through a share group, and kept as Parquet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from headrace.spark import Acknowledged, acknowledge

from .enrich import FLIGHT, OBSERVATION
from .session import Job

_DEPARTURE = f"source struct<partition: int, offset: bigint>, {FLIGHT}, {OBSERVATION}"

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
    departure = F.from_json(F.col("value").cast("string"), _DEPARTURE).alias("d")
    departures = records.select("topic", "partition", "offset", "deliveryCount", departure)

    def work(batch: DataFrame, batch_id: int) -> None:
        batch.persist()
        departed = F.col("d.dep_time").isNotNull()
        # A folder per micro-batch, which is replaced if Spark runs the micro-batch again.
        good = batch.where(departed).select("topic", "partition", "offset", "d.*")
        good.write.mode("overwrite").parquet(str(parquet / f"batch={batch_id}"))
        outcome = F.when(departed, "accept").otherwise("reject").alias("outcome")
        acknowledged = acknowledge(batch.select("topic", "partition", "offset", outcome))
        redelivered = batch.where("deliveryCount > 1").count()
        report(BatchResult(acknowledged, redelivered))
        batch.unpersist()

    return (
        departures.writeStream.queryName("desk")
        .foreachBatch(work)
        .option("checkpointLocation", job.checkpoint("desk"))
        .trigger(processingTime="0 seconds")
        .start()
    )
