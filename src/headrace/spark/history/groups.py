"""The histories of groups: from events to one row per group, as DataFrames.

Everything that grows with the cluster stays in Spark: it reduces events to one position per group,
partition and step, and turns them into series in tasks. The driver gets one row per group.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
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

_NUMBERS = ("lag", "time_lag_s", "done_per_s", "produced_per_s", "commits")
"""What a group has at each point; sums over its partitions, but the largest of their time lags."""
_POINTS = "groupId string, at int, " + ", ".join(f"{name} double" for name in _NUMBERS)
_TIMEOUT_S = 60.0
_REQUESTS_AT_ONCE = 8
_CELLS_AT_ONCE = 100_000
"""Partitions times points that a task works on at once, approximately."""


@dataclass(frozen=True, slots=True)
class GroupHistory:
    """The history of one group. None means unknown.

    :param member_count: at the end of the period
    :param gone: the group, or its offsets, have been deleted
    :param partition_count: those with a position
    :param lag: in records
    :param time_lag_ms: of the partition that is furthest behind
    :param done_per_s: records finished per second, the mean of the last quarter of the period, as
        is ``produced_per_s``
    :param busy_per_s: records finished per second while there were records to read
    :param seconds_to_zero: until the lag is zero at the recent rates; -1 if it never will be
    :param consumers_needed: see :func:`consumers_needed`
    """

    group_id: str
    group_type: str
    member_count: int
    gone: bool
    partition_count: int
    lag: int | None
    time_lag_ms: int | None
    done_per_s: float
    produced_per_s: float
    busy_per_s: float
    seconds_to_zero: float | None
    consumers_needed: int | None


def group_histories(
    events: DataFrame, kafka: KafkaOptions, times_ms: range, drain_s: float
) -> Iterator[GroupHistory]:
    """Yield the history of each group that was active in the period, or has members or a lag.

    :param events: rows of :func:`headrace.spark.history.source.history`, which are read twice
    :param times_ms: the points of the period, in milliseconds since 1970; the last is its end
    :param drain_s: time in which the consumers that a group needs finish its lag
    :raises ClientError: the cluster does not answer
    """
    events = events.where(F.unix_millis("timestamp") <= times_ms[-1])
    points = group_points(events, kafka, times_ms)
    for row in _members(events).join(points, "groupId", "left").toLocalIterator():
        group = _history(row, times_ms, drain_s)
        is_active = any(point["commits"] for point in (row["points"] or ())[1:])
        if group.member_count or group.lag is not None or is_active:
            yield group


def group_points(events: DataFrame, kafka: KafkaOptions, times_ms: range) -> DataFrame:
    """Return a row per group with a position: at its ``points``, the number of its partitions and
    the sums of :data:`_NUMBERS`.

    :raises ClientError: the cluster does not answer
    """
    thread = kafka.shared_thread()
    topics = thread.run(thread.cluster.all_topics()).values()
    steps = _steps(events, [(topic.topic_id.bytes, topic.name) for topic in topics], times_ms)
    largest_or_sum = (
        (F.max if name == "time_lag_s" else F.sum)(name).alias(name) for name in _NUMBERS
    )
    return (
        steps.mapInArrow(partial(_points, kafka, times_ms), _POINTS)
        .groupBy("groupId", "at")
        .agg(F.count("*").alias("partitions"), *largest_or_sum)
        .groupBy("groupId")
        .agg(F.sort_array(F.collect_list(F.struct("at", "partitions", *_NUMBERS))).alias("points"))
    )


def _history(row: Any, times_ms: range, drain_s: float) -> GroupHistory:
    points = row["points"] or [dict.fromkeys(("partitions", *_NUMBERS))] * len(times_ms)
    lags, done, produced = (
        np.array([point[name] for point in points], np.float64)  # None becomes NaN
        for name in ("lag", "done_per_s", "produced_per_s")
    )
    last = points[-1]
    lag, time_lag_s = last["lag"], last["time_lag_s"]
    done_per_s, produced_per_s, busy_per_s = recent(done), recent(produced), busy(done, lags)
    left_s, needed = None, None
    if lag is not None:
        left_s = eta_s(lag, done_per_s, produced_per_s)
        left_s = -1.0 if left_s is None else left_s
        needed = consumers_needed(lag, produced_per_s, busy_per_s, row["members"] or 1, drain_s)
    return GroupHistory(
        group_id=row["groupId"],
        group_type=row["groupType"],
        member_count=row["members"],
        gone=row["gone"],
        partition_count=last["partitions"] or 0,
        lag=None if lag is None else int(lag),
        time_lag_ms=None if time_lag_s is None else round(time_lag_s * 1000),
        done_per_s=done_per_s,
        produced_per_s=produced_per_s,
        busy_per_s=busy_per_s,
        seconds_to_zero=left_s,
        consumers_needed=needed,
    )


def _steps(events: DataFrame, topics: Sequence[tuple[bytes, str]], times_ms: range) -> DataFrame:
    """Return a row per group and partition: its ``steps``, as
    :func:`positions` takes them.
    """
    names = events.sparkSession.createDataFrame(topics, "topicId binary, share_topic string")
    since_first_ms = F.unix_millis("timestamp") - F.lit(times_ms[0])
    is_share = F.col("groupType") == "share"
    is_deletion = _is_event(COMMIT_DELETED, SHARE_STATE_DELETED)
    # The coordinator writes snapshots of state that it already had: no member has committed then.
    is_snapshot = is_share & (F.col("recordType") == SHARE_SNAPSHOT)
    done = F.when(is_share, F.col("deliveryCompleteCount")).otherwise(F.lit(0)).cast("bigint")
    last = F.struct(is_deletion.alias("deleted"), done.alias("done"))
    key = ("groupId", "topic", "partition")
    per_step = (
        events.where(_is_event(COMMIT, COMMIT_DELETED, SHARE_STATE, SHARE_STATE_DELETED))
        .join(F.broadcast(names), "topicId", "left")
        .withColumn("topic", F.coalesce("topic", "share_topic", F.hex("topicId")))
        .withColumn("step", F.greatest(F.lit(0), F.ceil(since_first_ms / times_ms.step)))
        .groupBy(*key, F.col("step").cast("int").alias("step"))
        .agg(
            _latest(last).alias("last"),
            _latest("offset", F.col("offset").isNotNull()).alias("start"),
            F.count(F.when(~is_deletion & ~is_snapshot, 1)).cast("int").alias("commits"),
        )
    )
    fields = F.struct("step", "start", "last.done", "last.deleted", "commits")
    return per_step.groupBy(*key).agg(F.sort_array(F.collect_list(fields)).alias("steps"))


def _members(events: DataFrame) -> DataFrame:
    """Return a row per group: its ``groupType``, its number of ``members``, and whether it is
    ``gone``.
    """
    # A group may consist of commits only.
    of_life = _is_event(GROUP, GROUP_DELETED, COMMIT)
    groups = events.groupBy("groupId").agg(
        _latest("groupType", _is_event(GROUP, GROUP_DELETED)).alias("of_group"),
        F.max(F.when(F.col("groupType") == "share", F.lit("share"))).alias("of_share"),
        _latest("event", of_life).alias("latest"),
        _latest("members", F.col("members").isNotNull()).alias("classic_members"),
    )
    alive = (
        events.where(_is_event(MEMBER, MEMBER_LEFT))
        .groupBy("groupId", "memberId")
        .agg(_latest("event").alias("event"))
        .groupBy("groupId")
        .agg(F.count(F.when(_is_event(MEMBER), 1)).alias("new_members"))
    )
    gone = F.coalesce(F.col("latest") == GROUP_DELETED, F.lit(False))
    group_type = F.coalesce("of_share", "of_group", F.lit("classic"))
    members = F.when(group_type == "classic", F.col("classic_members")).otherwise(
        F.col("new_members")
    )
    return groups.join(alive, "groupId", "left").select(
        "groupId",
        group_type.alias("groupType"),
        F.when(gone, 0).otherwise(F.coalesce(members, F.lit(0))).cast("int").alias("members"),
        gone.alias("gone"),
    )


def _latest(column: Column | str, condition: Column | None = None) -> Column:
    """Return the value of a column in the last event for which a condition holds."""
    place = F.struct("timestamp", "logOffset")
    return F.max_by(column, place if condition is None else F.when(condition, place))


def _is_event(*names: str) -> Column:
    return F.col("event").isin(*names)


# -- in tasks


def _points(
    kafka: KafkaOptions, times_ms: range, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield rows of :data:`_POINTS`, one for each partition and point. For ``mapInArrow``.

    :param batches: rows of :func:`_steps`
    :raises SourceError: the leaders do not answer
    """
    points, step_s = len(times_ms), times_ms.step / 1000
    thread = kafka.shared_thread()
    rows_at_once = max(1, _CELLS_AT_ONCE // points)
    for batch in batches:
        for first in range(0, batch.num_rows, rows_at_once):
            rows = batch.slice(first, rows_at_once).to_pylist()
            partitions = {(row["topic"], row["partition"]) for row in rows}
            with one_line_errors():
                ends = thread.run(_ends(thread.cluster, times_ms, partitions))
            numbers = []
            for row in rows:
                position, commits = positions(row["steps"], points)
                end = ends.get((row["topic"], row["partition"]), np.full(points, np.nan))
                lag = np.maximum(end - position, 0.0)
                time_lag_s = time_lags(position, end, step_s)
                numbers.append(
                    (lag, time_lag_s, rates(position, step_s), rates(end, step_s), commits)
                )
            columns = (np.concatenate(series) for series in zip(*numbers, strict=True))
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array([row["groupId"] for row in rows for _ in times_ms]),
                    pa.array(np.tile(np.arange(points, dtype=np.int32), len(rows))),
                    *(pa.array(column, from_pandas=True) for column in columns),
                ],
                names=["groupId", "at", *_NUMBERS],
            )


async def _ends(
    cluster: Cluster, times_ms: Sequence[int], partitions: set[TopicPartition]
) -> dict[TopicPartition, Any]:
    """Return the end offsets of those partitions that exist, a series of each.

    The end at a time is the first offset with a later timestamp (ListOffsets), so that one request
    per point and leader answers for all partitions. Before the first record that retention has
    left, it is that record's offset.
    """
    topics = await cluster.existing_topics(sorted({topic for topic, _ in partitions}))
    existing = [(t, p) for t, p in partitions if t in topics and p in topics[t].leaders]
    limit = asyncio.Semaphore(_REQUESTS_AT_ONCE)

    async def list_at(timestamp_ms: int) -> list[int | None]:
        async with limit:
            timestamps_ms = dict.fromkeys(existing, timestamp_ms)
            listed = raised(await list_offsets(cluster.within(_TIMEOUT_S), timestamps_ms))
            return [listed[partition].offset for partition in existing]

    log_ends, *at_times = await asyncio.gather(
        list_at(LATEST), *(list_at(time_ms + 1) for time_ms in times_ms)
    )
    offsets: Any = np.array([log_ends, *at_times], np.float64)  # None becomes NaN
    offsets = np.where(np.isnan(offsets), np.nan_to_num(offsets[0]), offsets)[1:]
    return dict(zip(existing, offsets.T, strict=True))


# Series -------------------------------------------------------------------------------------------

# A series is a numpy array of floats, one for each point in time, NaN where unknown. The points are
# ``step_s`` seconds apart.


Series = Any
"""A numpy array of float64."""

_RECENT_FRACTION = 0.25
"""Recent rates are those of the last quarter of the period."""
_BUSY_QUANTILE = 0.9
_ROUNDING = 1e-9


def positions(steps: Iterable[Mapping[str, Any]], points: int) -> tuple[Series, Series]:
    """Return positions, and numbers of commits since the point before.

    A position is kept until the next step. It is unknown after a deletion.

    :param steps: what changed, ascending: the point from which it counts (``step``), the start
        offset (``start``, None if it did not change), the number of records that are ``done`` from
        there on, ``deleted``, and the number of ``commits``
    """
    position: Series = np.full(points, np.nan)
    commits: Series = np.zeros(points)
    start = math.nan
    for step in steps:
        start = start if step["start"] is None else step["start"]
        is_unknown = step["deleted"] or step["done"] is None
        position[step["step"] :] = math.nan if is_unknown else start + step["done"]
        commits[step["step"]] = step["commits"]
    return position, commits


def rates(offsets: Series, step_s: float) -> Series:
    """Return records per second since the point before.

    NaN for the first point, and where an offset is unknown or went back.
    """
    per_s = np.diff(offsets, prepend=np.nan) / step_s
    return np.where(per_s >= 0, per_s, np.nan)


def time_lags(position: Series, end: Series, step_s: float) -> Series:
    """Return the age in seconds of the record at the position; 0 if there is none.

    The age follows from the movement of the end: records are assumed to have arrived evenly within
    a step. A record from before the first point counts as old as that point.

    :param end: known at every point, or at none
    """
    points = np.arange(len(end))
    arrived = np.interp(position, np.maximum.accumulate(end), points)
    lags_s = np.where(position >= end, 0.0, np.maximum(points - arrived, 0.0) * step_s)
    return np.where(np.isnan(position) | np.isnan(end), np.nan, lags_s)


def recent(rate: Series) -> float:
    """Return the mean of a series over the last quarter of the period; 0 if nothing is known."""
    values = rate[-max(1, math.ceil(len(rate) * _RECENT_FRACTION)) :]
    numbers = values[~np.isnan(values)]
    return float(numbers.mean()) if len(numbers) else 0.0


def busy(rate: Series, lag: Series) -> float:
    """Return the records per second that a group finishes while it has records to read.

    It is the 0.9 quantile of the rates of steps that began with a lag; 0 without such steps.

    :param rate: records per second since the point before
    :param lag: the lag at each point
    """
    done = rate[1:]
    chosen = done[(lag[:-1] > 0) & (done > 0)]
    return float(np.quantile(chosen, _BUSY_QUANTILE)) if len(chosen) else 0.0


def consumers_needed(
    lag: float, produced_per_s: float, busy_per_s: float, consumers: int, drain_s: float
) -> int | None:
    """Return the number of consumers that have finished the lag in ``drain_s`` seconds.

    Each is assumed to do an equal part of what the group does while it is busy.

    :param busy_per_s: from :func:`busy`
    :param consumers: the number that reached it
    :returns: at least 1; None if the rate of one consumer is unknown
    """
    needed_per_s = produced_per_s + lag / drain_s
    each_per_s = busy_per_s / max(1, consumers)
    if each_per_s <= 0:
        return None if needed_per_s > 0 else 1
    # Without it, a rounding error just above a whole number would add a consumer.
    return max(1, math.ceil(needed_per_s / each_per_s - _ROUNDING))
