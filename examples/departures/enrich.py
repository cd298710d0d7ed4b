"""The join: each flight gets the last observation of its airport up to its departure.

The join neither waits nor looks ahead. ``kafka-ordered`` yields both topics as one stream in the
order of their timestamps, so what comes before a flight is what was known when it departed.
"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from .data import WEATHER
from .session import Job

FLIGHT = (
    "year int, month int, day int, dep_time double, sched_dep_time int, dep_delay double, "
    "arr_time double, sched_arr_time int, arr_delay double, carrier string, flight int, "
    "tailnum string, origin string, dest string, air_time double, distance int, hour int, "
    "minute int, time_hour string"
)
"""Columns of a flight, as DDL."""
OBSERVATION = ", ".join(f"{name} double" for name in WEATHER)
"""Columns of an observation that departures keep, as DDL."""
DEPARTURE = f"flight struct<{FLIGHT}>, observation struct<{OBSERVATION}>"
"""Columns of a departure, as DDL."""

_JOINED = "timestamp timestamp, partition int, offset bigint, flight string, observation string"
_STATE = "observation string"


def start(job: Job, weather: str, flights: str, group_id: str, departures: str) -> StreamingQuery:
    """Start the query that joins two topics and produces to a third, until it is stopped.

    Among records with the same timestamp observations come first, because their topic is named
    first.

    :param weather: topic of the observations, as ``flights`` of the flights
    :param departures: topic to produce to
    """
    ordered = (
        job.spark.readStream.format("kafka-ordered")
        .option("kafka.bootstrap.servers", job.bootstrap_servers)
        .option("kafka.group.id", group_id)  # other tools see the query's progress there
        .option("subscribe", f"{weather},{flights}")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", job.records_per_batch)
        .load()
    )
    return (
        departures_of(join(ordered, weather))
        .writeStream.queryName("enrich")
        .format("kafka-produce")
        .option("kafka.bootstrap.servers", job.bootstrap_servers)
        .option("kafka.compression.type", "lz4")
        .option("topic", departures)
        .option("checkpointLocation", job.checkpoint("enrich"))
        .trigger(processingTime="1 second")
        .start()
    )


def join(ordered: DataFrame, weather: str) -> DataFrame:
    """Return a row per flight: its JSON, and that of the last observation of its airport.

    The observation is null before the first one. The last observation of each airport is kept in
    Spark's state, which lasts from one micro-batch to the next, and through a restart.
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
        _join_airport, _JOINED, _STATE, "append", GroupStateTimeout.NoTimeout
    )


def departures_of(joined: DataFrame) -> DataFrame:
    """Return the records to produce: ``key``, ``value`` and ``timestamp``.

    A key names the flight record that the departure was made from. A value is a JSON object: flight
    and observation are JSON already, so they are put into it as they are.
    """
    value = F.concat(
        F.lit('{"flight":'),
        "flight",
        F.lit(',"observation":'),
        F.coalesce("observation", F.lit("null")),
        F.lit("}"),
    )
    return joined.select(
        F.concat_ws("-", "partition", "offset").alias("key"), value.alias("value"), "timestamp"
    )


def _join_airport(
    key: tuple[str], frames: Iterator[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    """Join one airport's rows of a micro-batch.

    Micro-batches are in order. Within one, ``groupBy`` may have changed the order of the rows.
    """
    rows = pd.concat(frames).sort_values(["timestamp", "is_flight", "offset"], ignore_index=True)
    observed = rows["value"].where(~rows["is_flight"]).ffill()
    if state.exists:
        observed = observed.fillna(state.get[0])
    if pd.notna(observed.iloc[-1]):
        state.update((observed.iloc[-1],))
    rows = rows.assign(
        flight=rows["value"],
        observation=observed.astype(object).where(observed.notna(), None),
    )
    yield rows.loc[rows["is_flight"], ["timestamp", "partition", "offset", "flight", "observation"]]
