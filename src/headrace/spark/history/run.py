"""A whole history: from a cluster to Parquet tables and a :class:`Report`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.client.lag.model import eta_s
from headrace.spark.option_parsing import KafkaOptions

from . import tables
from .advice import Advice, Load, Series, Target, advise, busy, recent
from .group_records import UNREADABLE
from .query import HistoryQuery, Period
from .results import GROUPS_SCHEMA, GroupHistory, GroupStall, Plots, Report

CHARTED_GROUPS = 24
"""Number of groups with plots: those with the most lag."""
_MOST_STALLS = 5_000
_NUMBERS = ("lag", "time_lag_s", "consumed_per_s", "produced_per_s", "busy_per_s")
_SUMMARY = "group_id string, active boolean, " + ", ".join(f"{name} double" for name in _NUMBERS)


def write_history(
    spark: SparkSession,
    kafka: KafkaOptions,
    query: HistoryQuery,
    out: Path,
    *,
    begin: Callable[[str], None] = lambda _: None,
) -> Report:
    """Write the Parquet tables ``events``, ``series``, ``stalls`` and ``groups``, and summarize.

    ``docs/spark.md`` describes the tables.

    :param out: folder for the tables, which must not exist yet
    :param begin: called with the name of each phase when it begins
    :raises ClientError: the cluster does not answer
    """
    period = query.period
    begin("reading the internal topics")
    tables.history(spark, kafka, query.groups).write.parquet(f"{out}/events")
    events = spark.read.parquet(f"{out}/events")
    begin("asking for the ends of topics")
    topics = asyncio.run(tables.topics_of(kafka))
    all_series = tables.series(events, kafka, topics, period).cache()
    try:
        begin("writing the series")
        tables.long_form(all_series, period).write.parquet(f"{out}/series")
        begin("looking for stalls")
        tables.stalled(all_series, period).write.parquet(f"{out}/stalls")
        begin("summing up")
        stalls = _stalls_by_group(spark.read.parquet(f"{out}/stalls"))
        groups = _groups(events, all_series, stalls, query)
    finally:
        all_series.unpersist()
    counts = events.agg(
        F.count("*").alias("records"),
        F.count(F.when(F.col("event") == UNREADABLE, 1)).alias("unreadable"),
    ).first()
    if groups:
        rows = [group.as_row() for group in groups]
        (out / "groups").mkdir()
        pq.write_table(pa.Table.from_pylist(rows, GROUPS_SCHEMA), out / "groups" / "groups.parquet")
    return Report(
        bootstrap_servers=kafka.bootstrap_servers,
        period=period,
        target=query.target,
        groups=groups,
        records=counts["records"],
        unreadable=counts["unreadable"],
    )


def _groups(
    events: DataFrame,
    all_series: DataFrame,
    stalls: Mapping[str, Sequence[GroupStall]],
    query: HistoryQuery,
) -> list[GroupHistory]:
    series = tables.group_series(all_series).cache()
    rows = _group_rows(events, all_series, series, query.period)
    charted = [row["group_id"] for row in rows if row["partitions"]][:CHARTED_GROUPS]
    charted_series = series.where(F.col("group_id").isin(charted)).toArrow().to_pylist()
    plots = {
        row["group_id"]: Plots(*(_array(row[name]) for name in Plots.__slots__))
        for row in charted_series
    }
    series.unpersist()
    return [
        _group(row, query.target, stalls.get(row["group_id"], ()), plots.get(row["group_id"]))
        for row in rows
    ]


def _group_rows(
    events: DataFrame, all_series: DataFrame, series: DataFrame, period: Period
) -> list[dict[str, Any]]:
    """Return a row per group that was active in the period; the group with the most lag first."""
    partitions = all_series.groupBy("group_id").agg(F.count("*").alias("partitions"))
    summarize = partial(_summaries, period.steps + 1)
    summaries = series.mapInArrow(summarize, _SUMMARY).join(partitions, "group_id")
    joined = tables.members(events, period).join(summaries, "group_id", "left")
    since = F.timestamp_millis(F.lit(period.times_ms[0]))
    shown = joined.where(
        (F.col("members") > 0)
        | F.col("lag").isNotNull()
        | F.col("active")
        | (F.col("changed") >= since)
    )
    rows: list[dict[str, Any]] = shown.toArrow().to_pylist()
    rows.sort(
        key=lambda row: (
            -(row["lag"] or 0),
            -(row["time_lag_s"] or 0),
            not row["active"],
            row["group_id"],
        )
    )
    return rows


def _array(values: Sequence[float | None]) -> Series:
    return np.array([np.nan if value is None else value for value in values], np.float64)


def _summaries(points: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Reduce rows of :func:`tables.group_series` to numbers. For ``mapInArrow``.

    :param points: number of points in time
    :returns: columns of :data:`_SUMMARY`
    """
    names = ("lag", "time_lag_s", "consumed_per_s", "produced_per_s", "commits")
    for batch in batches:
        matrices = {name: _matrix(batch.column(name), points) for name in names}
        lag = matrices["lag"]
        consumed, produced = matrices["consumed_per_s"], matrices["produced_per_s"]
        is_active = np.nansum(matrices["commits"][:, 1:], axis=1) > 0
        busy_per_s = [busy(rate, lags) for rate, lags in zip(consumed, lag, strict=True)]
        columns = {
            "group_id": batch.column("group_id"),
            "active": pa.array(is_active),
            "lag": _last(lag),
            "time_lag_s": _last(matrices["time_lag_s"]),
            "consumed_per_s": pa.array([recent(rate) for rate in consumed], pa.float64()),
            "produced_per_s": pa.array([recent(rate) for rate in produced], pa.float64()),
            "busy_per_s": pa.array(busy_per_s, pa.float64()),
        }
        yield pa.RecordBatch.from_pydict(columns)


def _matrix(column: pa.ListArray, points: int) -> Series:
    flat = column.flatten().cast(pa.float64()).fill_null(float("nan"))
    return np.asarray(flat).reshape(-1, points)


def _last(values: Series) -> pa.Array:
    return pa.array(values[:, -1], mask=np.isnan(values[:, -1]))


def _stalls_by_group(stalled: DataFrame) -> Mapping[str, Sequence[GroupStall]]:
    by_time = stalled.groupBy("group_id", "kind", "first", "last")
    counted = by_time.agg(F.count("*").alias("partitions"))
    largest = counted.orderBy(F.desc("partitions"), "first").limit(_MOST_STALLS)
    found: dict[str, list[GroupStall]] = {}
    for row in largest.toArrow().to_pylist():
        first, last = (row[name].astimezone(UTC) for name in ("first", "last"))
        stall = GroupStall(row["kind"], first, last, row["partitions"])
        found.setdefault(row["group_id"], []).append(stall)
    return found


def _group(
    row: Mapping[str, Any], target: Target, stalls: Sequence[GroupStall], plots: Plots | None
) -> GroupHistory:
    lag = row["lag"]
    partitions = row["partitions"] or 0
    consumed_per_s = row["consumed_per_s"] or 0.0
    produced_per_s = row["produced_per_s"] or 0.0
    busy_per_s = row["busy_per_s"] or 0.0
    advice, eta = Advice(None), None
    if lag is not None:
        load = Load(
            lag=lag,
            produced_per_s=produced_per_s,
            busy_per_s=busy_per_s,
            consumers=row["members"] or row["members_before"] or 1,
            max_consumers=None if row["group_type"] == "share" else partitions,
        )
        advice = advise(load, target)
        eta = eta_s(lag, consumed_per_s, produced_per_s)
    return GroupHistory(
        group_id=row["group_id"],
        group_type=row["group_type"],
        members=row["members"],
        gone=bool(row["gone"]),
        partitions=partitions,
        lag=lag,
        time_lag_s=row["time_lag_s"],
        consumed_per_s=consumed_per_s,
        produced_per_s=produced_per_s,
        busy_per_s=busy_per_s,
        eta_s=eta,
        advice=advice,
        stalls=stalls,
        plots=plots,
    )
