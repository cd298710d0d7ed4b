"""The join: each flight meets the last observation of its airport that was made before it (or at
its very moment).

Nothing here waits for anything or looks ahead: ``kafka-ordered`` hands out both topics as one
stream in the order of their timestamps, so that whatever comes before a flight is what was known
when it departed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from .data import ANY_PARTITION, WEATHER, Record, produce

FLIGHT = (
    "year int, month int, day int, dep_time double, sched_dep_time int, dep_delay double, "
    "arr_time double, "
    "sched_arr_time int, arr_delay double, carrier string, flight int, tailnum string, "
    "origin string, dest string, "
    "air_time double, distance int, hour int, minute int, time_hour string"
)
OBSERVATION = ", ".join(f"{name} double" for name in WEATHER)

_JOINED = (
    "key string, timestamp timestamp, partition int, offset bigint, flight string, observation "
    "string"
)
_STATE = "observation string"


def start(
    spark: SparkSession,
    bootstrap_servers: str,
    topics: tuple[str, str],
    group_id: str,
    departures: str,
    checkpoint: Path,
    records_per_batch: int,
) -> StreamingQuery:
    """Start the query that reads ``topics`` (weather, flights) to their end, and produces to the
    topic ``departures``.

    The observations come first among records of one timestamp, because their topic is subscribed to
    first.
    """
    ordered = (
        spark.readStream.format("kafka-ordered")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("kafka.group.id", group_id)  # so that the query's progress is seen from outside
        .option("subscribe", ",".join(topics))
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", records_per_batch)
        .load()
    )

    def send(batch: DataFrame, batch_id: int) -> None:
        rows = enriched(batch).select(
            "key", "value", F.unix_millis("timestamp").alias("timestamp_ms")
        )
        sent = rows.mapInArrow(
            lambda batches: _send(bootstrap_servers, departures, batches), "sent bigint"
        )
        sent.collect()

    return (
        join(ordered, weather=topics[0])
        .writeStream.queryName("enrich")
        .foreachBatch(send)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )


def join(ordered: DataFrame, weather: str) -> DataFrame:
    """A row per flight: its JSON, and that of the observation known to its airport (null before the
    first).

    What is known of an airport is Spark's state: it lasts from one micro-batch to the next, and
    through a restart.
    """
    rows = ordered.select(
        F.col("key").cast("string").alias("key"),
        F.col("value").cast("string").alias("value"),
        (F.col("topic") != weather).alias("is_flight"),
        "timestamp",
        "partition",
        "offset",
    )
    return rows.groupBy("key").applyInPandasWithState(
        _know, _JOINED, _STATE, "append", GroupStateTimeout.NoTimeout
    )


def enriched(joined: DataFrame) -> DataFrame:
    """The records to produce: ``key, value, timestamp``. A value says which flight record it was
    made of.
    """
    parsed = joined.select(
        "timestamp",
        F.struct("partition", "offset").alias("source"),
        F.from_json("flight", FLIGHT).alias("f"),
        F.from_json("observation", OBSERVATION).alias("w"),
    )
    return parsed.select(
        "timestamp",
        F.concat("f.carrier", F.col("f.flight").cast("string")).alias("key"),
        F.to_json(F.struct("source", "f.*", "w.*")).alias("value"),
    )


def _know(
    key: tuple[str], frames: Iterator[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    """One airport's part of a micro-batch. The batches are in order; inside one, grouping may have
    mixed the rows.
    """
    rows = pd.concat(frames).sort_values(["timestamp", "is_flight", "offset"], ignore_index=True)
    observed = rows["value"].where(~rows["is_flight"]).ffill()
    if state.exists:
        observed = observed.fillna(state.get[0])
    if pd.notna(observed.iloc[-1]):
        state.update((observed.iloc[-1],))
    rows = rows.assign(
        key=key[0],
        flight=rows["value"],
        observation=observed.astype(object).where(observed.notna(), None),
    )
    yield rows.loc[
        rows["is_flight"], ["key", "timestamp", "partition", "offset", "flight", "observation"]
    ]


def _send(
    bootstrap_servers: str, topic: str, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """One task's records, produced where the task runs."""

    def records() -> Iterator[Record]:
        for batch in batches:
            columns: list[Any] = [
                batch.column(name).to_pylist() for name in ("key", "value", "timestamp_ms")
            ]
            for key, value, timestamp_ms in zip(*columns, strict=True):
                yield Record(ANY_PARTITION, key, value, timestamp_ms)

    yield pa.RecordBatch.from_pydict({"sent": [produce(bootstrap_servers, topic, records())]})
