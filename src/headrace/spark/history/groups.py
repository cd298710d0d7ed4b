"""The histories of groups: from events to one row per group, as DataFrames.

Everything that grows with the cluster stays in Spark: it reduces events to one position per group,
partition and step, and turns them into series in tasks. The driver gets one row per group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.client import Cluster
from headrace.client.errors import raised
from headrace.client.lag.model import eta_s
from headrace.client.offsets import LATEST, list_offsets
from headrace.protocol.partitions import TopicPartition
from headrace.spark.errors import one_line_errors
from headrace.spark.option_parsing import KafkaOptions
from headrace.spark.reader.cluster_thread import shared_cluster_thread

from .group_records import (
    COMMIT,
    COMMIT_DELETED,
    GROUP,
    GROUP_DELETED,
    MEMBER,
    MEMBER_LEFT,
    SHARE_SNAPSHOT,
    SHARE_STATE,
    SHARE_STATE_DELETED,
)
from .series import SERIES, busy, consumers_needed, recent, series_of

_KEY = ("group_id", "topic", "partition")
_TOPICS = "topic string, topic_id binary, partitions int"
_ENDS = "topic string, partition int, end_offsets array<bigint>"
_POINTS = ("lag", "time_lag_s", "done_per_s", "produced_per_s", "commits")
"""Series of a group; sums over its partitions, but the largest of their time lags."""
_TIMEOUT_S = 60.0
_POINTS_AT_ONCE = 8
_PARTITIONS_AT_ONCE = 2_000


@dataclass(frozen=True, slots=True)
class Period:
    """Points in time, ``step_ms`` apart, the last of them ``until_ms``.

    :param since_ms: milliseconds since 1970, as is ``until_ms``
    """

    since_ms: int
    until_ms: int
    step_ms: int

    @property
    def times_ms(self) -> list[int]:
        """The points; the first is at or before ``since_ms``."""
        first_ms = self.until_ms - self.steps * self.step_ms
        return list(range(first_ms, self.until_ms + 1, self.step_ms))

    @property
    def steps(self) -> int:
        """Number of steps between the points."""
        return max(1, -(-(self.until_ms - self.since_ms) // self.step_ms))


@dataclass(frozen=True, slots=True)
class GroupHistory:
    """The history of one group. None means unknown.

    :param members: number of members at the end of the period
    :param gone: the group, or its offsets, have been deleted
    :param partitions: number of partitions with a position
    :param lag: in records
    :param time_lag_ms: of the partition that is furthest behind
    :param done_per_s: records finished per second, the mean of the last quarter of the period, as
        is ``produced_per_s``
    :param busy_per_s: records finished per second while there were records to read
    :param seconds_to_zero: until the lag is zero at the recent rates; -1 if it never will be
    :param consumers_needed: see :func:`headrace.spark.history.series.consumers_needed`
    """

    group_id: str
    group_type: str
    members: int
    gone: bool
    partitions: int
    lag: int | None
    time_lag_ms: int | None
    done_per_s: float
    produced_per_s: float
    busy_per_s: float
    seconds_to_zero: float | None
    consumers_needed: int | None


def group_histories(
    events: DataFrame, kafka: KafkaOptions, period: Period, drain_s: float
) -> Iterator[GroupHistory]:
    """Yield the history of each group that was active in the period, or has members or a lag.

    :param events: rows of :func:`headrace.spark.history.source.history`, which are read twice
    :param drain_s: time in which the consumers that a group needs finish its lag
    :raises ClientError: the cluster does not answer
    """
    all_series = series(events, kafka, period).cache()
    try:
        rows = members(events, period).join(_of_groups(all_series), "group_id", "left")
        for row in rows.toLocalIterator():
            group = _history(row, period, drain_s)
            is_active = any((row["commits"] or ())[1:])
            if group.members or group.lag is not None or is_active:
                yield group
    finally:
        all_series.unpersist()


def _history(row: Any, period: Period, drain_s: float) -> GroupHistory:
    unknown = [None] * (period.steps + 1)
    lags, done, produced = (
        np.array(row[name] or unknown, np.float64)  # None becomes NaN
        for name in ("lag", "done_per_s", "produced_per_s")
    )
    lag, time_lag_s = ((row[name] or unknown)[-1] for name in ("lag", "time_lag_s"))
    done_per_s, produced_per_s, busy_per_s = recent(done), recent(produced), busy(done, lags)
    left_s, needed = None, None
    if lag is not None:
        left_s = eta_s(lag, done_per_s, produced_per_s)
        left_s = -1.0 if left_s is None else left_s
        needed = consumers_needed(lag, produced_per_s, busy_per_s, row["members"] or 1, drain_s)
    return GroupHistory(
        group_id=row["group_id"],
        group_type=row["group_type"],
        members=row["members"],
        gone=bool(row["gone"]),
        partitions=row["partitions"] or 0,
        lag=None if lag is None else int(lag),
        time_lag_ms=None if time_lag_s is None else round(time_lag_s * 1000),
        done_per_s=done_per_s,
        produced_per_s=produced_per_s,
        busy_per_s=busy_per_s,
        seconds_to_zero=left_s,
        consumers_needed=needed,
    )


# -- DataFrames


def series(events: DataFrame, kafka: KafkaOptions, period: Period) -> DataFrame:
    """Return a row per group and partition, with the columns
    :data:`headrace.spark.history.series.SERIES`: series at the points of the period.

    The end of a partition that no longer exists is unknown.

    :param events: rows of :func:`headrace.spark.history.source.history`
    :raises ClientError: the cluster does not answer
    """
    thread = shared_cluster_thread(kafka)
    topics = [
        (topic.name, bytearray(topic.topic_id.bytes), len(topic.leaders))
        for topic in thread.call(thread.cluster.all_topics()).values()
    ]
    existing = F.broadcast(events.sparkSession.createDataFrame(topics, _TOPICS))
    steps = _positions(events, existing, period).cache()
    partitions = (
        steps.select("topic", "partition")
        .distinct()
        .join(existing, "topic")
        .where("partition < partitions")
        .select("topic", "partition")
    )
    ends = partitions.mapInArrow(partial(_ends_at, kafka, period.times_ms), _ENDS)
    points, step_s = period.steps + 1, period.step_ms / 1000
    to_series = partial(series_of, points, step_s)
    return steps.join(ends, ["topic", "partition"], "left").mapInArrow(to_series, SERIES)


def _positions(events: DataFrame, topics: DataFrame, period: Period) -> DataFrame:
    """Return a row per group and partition: the position after each step that had events."""
    with_position = (COMMIT, COMMIT_DELETED, SHARE_STATE, SHARE_STATE_DELETED)
    time_ms = F.unix_millis("timestamp")
    step = F.ceil((time_ms - F.lit(period.times_ms[0])) / F.lit(period.step_ms))
    share_topics = topics.select("topic_id", F.col("topic").alias("share_topic"))
    named = (
        events.where(_is_event(*with_position) & (time_ms <= period.until_ms))
        .withColumn("step", F.greatest(F.lit(0), step).cast("int"))
        .join(share_topics, "topic_id", "left")
        .withColumn("topic", F.coalesce("topic", "share_topic", F.hex("topic_id")))
    )
    is_share = F.col("group_type") == "share"
    is_deletion = _is_event(COMMIT_DELETED, SHARE_STATE_DELETED)
    # The coordinator writes snapshots of state that it already had: no member has committed then.
    is_snapshot = is_share & (F.col("record_type") == SHARE_SNAPSHOT)
    done = F.when(is_share, F.col("delivery_complete_count")).otherwise(F.lit(0)).cast("bigint")
    last = F.struct(is_deletion.alias("deleted"), done.alias("done"))
    per_step = named.groupBy(*_KEY, "step").agg(
        _latest(last, F.lit(True)).alias("last"),
        _latest("offset", F.col("offset").isNotNull()).alias("start"),
        F.count(F.when(~is_deletion & ~is_snapshot, 1)).cast("int").alias("commits"),
    )
    fields = F.struct("step", "start", "last.done", "last.deleted", "commits")
    return per_step.groupBy(*_KEY).agg(F.sort_array(F.collect_list(fields)).alias("steps"))


def members(events: DataFrame, period: Period) -> DataFrame:
    """Return a row per group at the end of the period.

    Columns: its type, its number of members (``members``), and whether it has been deleted
    (``gone``).
    """
    until_end = events.where(F.unix_millis("timestamp") <= period.until_ms)
    of_group = _is_event(GROUP, GROUP_DELETED)
    # A group may consist of commits only.
    of_life = _is_event(GROUP, GROUP_DELETED, COMMIT)
    groups = until_end.groupBy("group_id").agg(
        _latest("group_type", of_group).alias("of_group"),
        F.max(F.when(F.col("group_type") == "share", F.lit("share"))).alias("of_share"),
        _latest("event", of_life).alias("latest"),
        _latest("members", F.col("members").isNotNull()).alias("classic_members"),
    )
    alive = (
        until_end.where(_is_event(MEMBER, MEMBER_LEFT))
        .groupBy("group_id", "member_id")
        .agg(_latest("event", F.lit(True)).alias("event"))
        .groupBy("group_id")
        .agg(F.count(F.when(_is_event(MEMBER), 1)).alias("new_members"))
    )
    gone = F.coalesce(F.col("latest") == GROUP_DELETED, F.lit(False))
    group_type = F.coalesce("of_share", "of_group", F.lit("classic"))
    classic_members, new_members = F.col("classic_members"), F.col("new_members")
    count = F.when(group_type == "classic", classic_members).otherwise(new_members)
    return groups.join(alive, "group_id", "left").select(
        "group_id",
        group_type.alias("group_type"),
        F.when(gone, 0).otherwise(F.coalesce(count, F.lit(0))).cast("int").alias("members"),
        gone.alias("gone"),
    )


def _of_groups(all_series: DataFrame) -> DataFrame:
    """Return a row per group: its number of partitions and its series."""
    points = all_series.select(
        "group_id", F.posexplode(F.arrays_zip(*_POINTS)).alias("at", "point")
    )
    sums = (F.sum(f"point.{name}").alias(name) for name in _POINTS if name != "time_lag_s")
    largest_time_lag = F.max("point.time_lag_s").alias("time_lag_s")
    by_point = points.groupBy("group_id", "at").agg(*sums, largest_time_lag)
    ordered = F.sort_array(F.collect_list(F.struct("at", *_POINTS)))

    def column(name: str) -> Column:
        return F.transform(ordered, lambda point: point[name]).alias(name)

    series_of_groups = by_point.groupBy("group_id").agg(*map(column, _POINTS))
    partitions = all_series.groupBy("group_id").agg(F.count("*").alias("partitions"))
    return partitions.join(series_of_groups, "group_id")


def _latest(column: Column | str, condition: Column) -> Column:
    """Return the value of a column in the last event for which a condition holds."""
    return F.max_by(column, F.when(condition, F.struct("timestamp", "log_offset")))


def _is_event(*names: str) -> Column:
    return F.col("event").isin(*names)


# -- end offsets, asked of the leaders in tasks


def _ends_at(
    kafka: KafkaOptions, times_ms: Sequence[int], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Add the end offset of each partition at each point in time. For ``mapInArrow``.

    The end at a time is the first offset with a later timestamp (ListOffsets), so that one request
    per point and leader answers for all partitions. Before the first record that retention has
    left, it is that record's offset.

    :raises SourceError: the leaders do not answer
    """
    for batch in batches:
        for start in range(0, batch.num_rows, _PARTITIONS_AT_ONCE):
            piece = batch.slice(start, _PARTITIONS_AT_ONCE)
            topics, numbers = piece.column("topic"), piece.column("partition")
            partitions = list(zip(topics.to_pylist(), numbers.to_pylist(), strict=True))
            with one_line_errors():
                thread = shared_cluster_thread(kafka)
                ends = thread.call(_list_ends(thread.cluster, times_ms, partitions))
            list_starts: Any = np.arange(len(partitions) + 1, dtype=np.int32) * len(times_ms)
            lists = pa.ListArray.from_arrays(pa.array(list_starts), pa.array(ends.reshape(-1)))
            yield pa.RecordBatch.from_arrays(
                [topics, numbers, lists], names=["topic", "partition", "end_offsets"]
            )


async def _list_ends(
    cluster: Cluster, times_ms: Sequence[int], partitions: Sequence[TopicPartition]
) -> Any:
    """Return end offsets as a numpy array: a row per partition, a column per time."""

    async def list_at(timestamp_ms: int) -> list[int | None]:
        timestamps_ms = dict.fromkeys(partitions, timestamp_ms)
        listed = raised(await list_offsets(cluster.within(_TIMEOUT_S), timestamps_ms))
        return [listed[partition].offset for partition in partitions]

    log_ends = await list_at(LATEST)
    columns: list[list[int]] = []
    for first in range(0, len(times_ms), _POINTS_AT_ONCE):
        times = times_ms[first : first + _POINTS_AT_ONCE]
        for offsets in await asyncio.gather(*(list_at(time_ms + 1) for time_ms in times)):
            columns.append(
                [
                    log_end or 0 if offset is None else offset
                    for offset, log_end in zip(offsets, log_ends, strict=True)
                ]
            )
    return np.array(columns, np.int64).T
