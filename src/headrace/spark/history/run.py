"""A whole history: from a cluster to tables in Parquet, and what the driver needs of them for a
report.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.spark.option_parsing import KafkaOptions

from . import group_history as tables
from . import group_records as events
from .advice import Advice, Bounds, Series, advise, busy, eta_s, recent
from .group_history import Period

CHARTED_GROUPS = 24
"""Of so many groups, those with the most lag, the report has plots."""
_MOST_STALLS = 5_000
_NUMBERS = ("lag", "time_lag_s", "consumed_per_s", "produced_per_s", "busy_per_s")
_SUMMARY = "group_id string, active boolean, " + ", ".join(f"{name} double" for name in _NUMBERS)


@dataclass(frozen=True, slots=True)
class Target:
    """What consumers are advised for: the lag gone within ``drain_s``, their number within
    ``bounds``.
    """

    drain_s: float
    bounds: Bounds


@dataclass(frozen=True, slots=True)
class GroupStall:
    """Some partitions of a group did not get on, from one point in time to another.

    :param kind: as in :mod:`headrace.spark.history.advice`
    """

    kind: str
    first: datetime
    last: datetime
    partitions: int


@dataclass(frozen=True, slots=True)
class Plots:
    """The series of a group, its partitions summed up: arrays with an element per point in time."""

    lag: Series
    time_lag_s: Series
    consumed_per_s: Series
    produced_per_s: Series


@dataclass(frozen=True, slots=True)
class GroupHistory:
    """How one group got on. None is unknown.

    :param members: at the end of the period
    :param gone: the group was deleted, or its offsets were
    :param time_lag_s: of the partition that is furthest behind
    :param consumed_per_s: records, the mean of the last quarter of the period; so is
        ``produced_per_s``
    :param busy_per_s: records consumed per second while there were some to consume
    :param eta_s: until the lag is zero at the recent rates; None when it never will be
    :param plots: of the groups with the most lag
    """

    group_id: str
    group_type: str
    members: int
    gone: bool
    partitions: int
    lag: float | None
    time_lag_s: float | None
    consumed_per_s: float
    produced_per_s: float
    busy_per_s: float
    eta_s: float | None
    advice: Advice
    stalls: Sequence[GroupStall]
    plots: Plots | None

    def as_row(self) -> dict[str, Any]:
        """For Parquet and JSON."""
        return {
            "group_id": self.group_id,
            "group_type": self.group_type,
            "members": self.members,
            "gone": self.gone,
            "partitions": self.partitions,
            "lag": None if self.lag is None else int(self.lag),
            "time_lag_s": self.time_lag_s,
            "consumed_per_s": self.consumed_per_s,
            "produced_per_s": self.produced_per_s,
            "busy_per_s": self.busy_per_s,
            "eta_s": self.eta_s,
            "recommended_consumers": self.advice.consumers,
            "wanted_consumers": self.advice.wanted,
            "limited_by": self.advice.limited_by,
            "drain_s": self.advice.drain_s,
            "stalls": [
                {
                    "kind": stall.kind,
                    "first": stall.first.isoformat(timespec="seconds"),
                    "last": stall.last.isoformat(timespec="seconds"),
                    "partitions": stall.partitions,
                }
                for stall in self.stalls
            ],
        }


@dataclass(frozen=True, slots=True)
class Report:
    """All of it.

    :param groups: the most lag first
    :param unreadable: records of the internal topics of which the type or version is not known
    """

    bootstrap_servers: str
    period: Period
    target: Target
    groups: Sequence[GroupHistory]
    records: int
    unreadable: int


def run(
    spark: SparkSession,
    kafka: KafkaOptions,
    period: Period,
    target: Target,
    out: Path,
    *,
    groups: str | None = None,
    begin: Callable[[str], None] = lambda _: None,
) -> Report:
    """Write ``events``, ``series``, ``stalls`` and ``groups`` as Parquet tables into ``out``; see
    ``docs/spark.md``.

    :param groups: a regular expression that whole group ids match
    :param begin: is told what is about to be done
    """
    begin("reading the internal topics")
    tables.history(spark, kafka, groups).write.parquet(f"{out}/events")
    happened = spark.read.parquet(f"{out}/events")
    begin("asking where topics ended")
    made = tables.series(happened, kafka, asyncio.run(tables.topics_of(kafka)), period).cache()
    try:
        begin("writing the series")
        tables.long_form(made, period).write.parquet(f"{out}/series")
        begin("looking for stalls")
        tables.stalled(made, period).write.parquet(f"{out}/stalls")
        begin("summing up")
        found = _groups(happened, made, spark.read.parquet(f"{out}/stalls"), period, target)
    finally:
        made.unpersist()
    counted = happened.agg(
        F.count("*").alias("records"),
        F.count(F.when(F.col("event") == events.UNREADABLE, 1)).alias("unreadable"),
    ).first()
    rows = [group.as_row() for group in found]
    if rows:
        (out / "groups").mkdir()
        pq.write_table(pa.Table.from_pylist(rows, _GROUPS), out / "groups" / "groups.parquet")
    return Report(
        kafka.bootstrap_servers, period, target, found, counted["records"], counted["unreadable"]
    )


_GROUPS = pa.schema(
    [
        ("group_id", pa.string()),
        ("group_type", pa.string()),
        ("members", pa.int32()),
        ("gone", pa.bool_()),
        ("partitions", pa.int32()),
        ("lag", pa.int64()),
        *((name, pa.float64()) for name in (*_NUMBERS[1:], "eta_s")),
        ("recommended_consumers", pa.int32()),
        ("wanted_consumers", pa.int32()),
        ("limited_by", pa.string()),
        ("drain_s", pa.float64()),
        (
            "stalls",
            pa.list_(
                pa.struct(
                    [
                        ("kind", pa.string()),
                        ("first", pa.string()),
                        ("last", pa.string()),
                        ("partitions", pa.int32()),
                    ]
                )
            ),
        ),
    ]
)


def _groups(
    happened: DataFrame, made: DataFrame, stalled: DataFrame, period: Period, target: Target
) -> list[GroupHistory]:
    series = tables.group_series(made).cache()
    counted = made.groupBy("group_id").agg(F.count("*").alias("partitions"))
    summed = series.mapInArrow(partial(_summaries, period.steps + 1), _SUMMARY).join(
        counted, "group_id"
    )
    joined = tables.members(happened, period).join(summed, "group_id", "left")
    since = F.timestamp_millis(F.lit(period.times_ms[0]))
    shown = joined.where(
        (F.col("members") > 0)
        | F.col("lag").isNotNull()
        | F.col("active")
        | (F.col("changed") >= since)
    )
    rows = shown.toArrow().to_pylist()
    rows.sort(
        key=lambda row: (
            -(row["lag"] or 0),
            -(row["time_lag_s"] or 0),
            not row["active"],
            row["group_id"],
        )
    )
    charted = [row["group_id"] for row in rows if row["partitions"]][:CHARTED_GROUPS]
    plots = {
        row["group_id"]: Plots(*(_array(row[name]) for name in Plots.__slots__))
        for row in series.where(F.col("group_id").isin(charted)).toArrow().to_pylist()
    }
    series.unpersist()
    stalls = _stalls(stalled)
    return [
        _group(row, target, stalls.get(row["group_id"], ()), plots.get(row["group_id"]))
        for row in rows
    ]


def _array(values: Sequence[float | None]) -> Series:
    return np.array([np.nan if value is None else value for value in values], np.float64)


def _summaries(points: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For ``mapInArrow``: rows of :func:`~headrace.spark.history.group_history.group_series` in,
    their numbers out.
    """
    for batch in batches:
        flat = {
            name: np.asarray(
                batch.column(name).flatten().cast(pa.float64()).fill_null(float("nan"))
            ).reshape(-1, points)
            for name in ("lag", "time_lag_s", "consumed_per_s", "produced_per_s", "commits")
        }
        rows = range(batch.num_rows)
        columns = {
            "group_id": batch.column("group_id"),
            "active": pa.array([bool(np.nansum(flat["commits"][row][1:]) > 0) for row in rows]),
            "lag": _last(flat["lag"]),
            "time_lag_s": _last(flat["time_lag_s"]),
            "consumed_per_s": pa.array(
                [recent(flat["consumed_per_s"][row]) for row in rows], pa.float64()
            ),
            "produced_per_s": pa.array(
                [recent(flat["produced_per_s"][row]) for row in rows], pa.float64()
            ),
            "busy_per_s": pa.array(
                [busy(flat["consumed_per_s"][row], flat["lag"][row]) for row in rows], pa.float64()
            ),
        }
        yield pa.RecordBatch.from_pydict(columns)


def _last(values: Series) -> pa.Array:
    return pa.array(values[:, -1], mask=np.isnan(values[:, -1]))


def _stalls(stalled: DataFrame) -> Mapping[str, Sequence[GroupStall]]:
    grouped = stalled.groupBy("group_id", "kind", "first", "last").agg(
        F.count("*").alias("partitions")
    )
    found: dict[str, list[GroupStall]] = {}
    for row in (
        grouped.orderBy(F.desc("partitions"), "first").limit(_MOST_STALLS).toArrow().to_pylist()
    ):
        first, last = (row[name].astimezone(UTC) for name in ("first", "last"))
        found.setdefault(row["group_id"], []).append(
            GroupStall(row["kind"], first, last, row["partitions"])
        )
    return found


def _group(
    row: Mapping[str, Any], target: Target, stalls: Sequence[GroupStall], plots: Plots | None
) -> GroupHistory:
    number = {name: row[name] or 0.0 for name in _NUMBERS}
    advice = Advice(None)
    if row["lag"] is not None:
        advice = advise(
            lag=row["lag"],
            produced_per_s=number["produced_per_s"],
            busy_per_s=number["busy_per_s"],
            consumers=row["members"] or row["members_before"] or 1,
            partitions=row["partitions"] or 0,
            target_drain_s=target.drain_s,
            bounds=target.bounds,
            share=row["group_type"] == "share",
        )
    return GroupHistory(
        row["group_id"],
        row["group_type"],
        row["members"],
        bool(row["gone"]),
        row["partitions"] or 0,
        row["lag"],
        row["time_lag_s"],
        number["consumed_per_s"],
        number["produced_per_s"],
        number["busy_per_s"],
        None
        if row["lag"] is None
        else eta_s(row["lag"], number["consumed_per_s"], number["produced_per_s"]),
        advice,
        stalls,
        plots,
    )
