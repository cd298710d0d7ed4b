"""How groups got on: from what happened (:mod:`headrace.spark.history.source`) to series, stalls
and advice.

Everything that grows with the cluster stays in Spark: events are reduced to a position per group,
partition and step by Spark itself, and rows of series are made of them in tasks. The driver sees
one row per group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from headrace.client import Cluster
from headrace.client.cluster import TopicMetadata
from headrace.spark.option_parsing import KafkaOptions

from . import end_offsets
from . import group_records as events
from .series import SCHEMA as SERIES_SCHEMA
from .series import series_of
from .source import NAME, GroupHistorySource

KEY = ("group_id", "topic", "partition")
_WITH_POSITION = (
    events.COMMIT,
    events.COMMIT_DELETED,
    events.SHARE_STATE,
    events.SHARE_STATE_DELETED,
)


@dataclass(frozen=True, slots=True)
class Period:
    """Points in time, ``step_ms`` apart, the last of them ``until_ms``.

    :param stall_ms: how long a partition must not get on to be called stalled
    """

    since_ms: int
    until_ms: int
    step_ms: int
    stall_ms: int

    @property
    def times_ms(self) -> list[int]:
        """The points; the first is at or before ``since_ms``."""
        return list(
            range(self.until_ms - self.steps * self.step_ms, self.until_ms + 1, self.step_ms)
        )

    @property
    def steps(self) -> int:
        """How many steps lie between the points."""
        return max(1, -(-(self.until_ms - self.since_ms) // self.step_ms))

    @property
    def least_steps(self) -> int:
        """Steps that make a stall."""
        return max(1, -(-self.stall_ms // self.step_ms))


def history(
    spark: SparkSession,
    kafka: KafkaOptions | str,
    groups: str | None = None,
    *,
    records_per_task: int | None = None,
) -> DataFrame:
    """What happened in the groups of a cluster:
    :data:`headrace.spark.history.group_records.SCHEMA`.

    :param kafka: how to reach the cluster, or just its ``host:port,host:port``
    :param groups: a Java regular expression that the whole group id must match; None for all groups
    :param records_per_task: how many offsets of an internal topic's partition one task reads, at
        most
    """
    if isinstance(kafka, str):
        kafka = KafkaOptions(kafka)
    spark.dataSource.register(GroupHistorySource)
    reader = spark.read.format(NAME).option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    for name, value in kafka.librdkafka.items():
        reader = reader.option(f"kafka.{name}", value)
    if records_per_task is not None:
        reader = reader.option("recordsPerTask", records_per_task)
    happened = reader.load()
    return (
        happened if groups is None else happened.where(F.col("group_id").rlike(f"^(?:{groups})$"))
    )


async def topics_of(kafka: KafkaOptions) -> list[tuple[str, bytearray, int]]:
    """Name, id and number of partitions of each topic that can be read."""
    cluster: Cluster = kafka.cluster()
    try:
        found = (await cluster.metadata(None)).values()
    finally:
        await cluster.close()
    readable = [topic for topic in found if isinstance(topic, TopicMetadata)]
    return [(topic.name, bytearray(topic.topic_id.bytes), len(topic.leaders)) for topic in readable]


def series(
    happened: DataFrame,
    kafka: KafkaOptions,
    topics: Sequence[tuple[str, bytearray, int]],
    period: Period,
) -> DataFrame:
    """A row per group and partition: its series at the points of the period, and its stalls.

    :param happened: rows of :func:`history`, or of a table that they were written to
    :param topics: of :func:`topics_of`; of a partition that is not there (any more) the end is
        unknown
    """
    spark = happened.sparkSession
    known = F.broadcast(
        spark.createDataFrame(list(topics), "topic string, topic_id binary, partitions int")
        if topics
        else spark.createDataFrame([], "topic string, topic_id binary, partitions int")
    )
    steps = _positions(happened, known, period).cache()
    partitions = steps.select("topic", "partition").distinct().join(known, "topic")
    ends = (
        partitions.where("partition < partitions")
        .select("topic", "partition")
        .mapInArrow(partial(end_offsets.ends_at, kafka, period.times_ms), end_offsets.SCHEMA)
    )
    made = partial(series_of, period.steps + 1, period.step_ms / 1000, period.least_steps)
    return steps.join(ends, ["topic", "partition"], "left").mapInArrow(made, SERIES_SCHEMA)


def _positions(happened: DataFrame, topics: DataFrame, period: Period) -> DataFrame:
    """A row per group and partition, with what its position was after each step in which something
    happened.
    """
    at_ms = (F.unix_millis("timestamp") - F.lit(period.times_ms[0])) / F.lit(period.step_ms)
    is_last = F.struct("timestamp", "log_offset")
    named = (
        happened.where(
            F.col("event").isin(*_WITH_POSITION) & (F.unix_millis("timestamp") <= period.until_ms)
        )
        .withColumn("step", F.greatest(F.lit(0), F.ceil(at_ms)).cast("int"))
        .join(topics.select("topic_id", F.col("topic").alias("share_topic")), "topic_id", "left")
        .withColumn("topic", F.coalesce("topic", "share_topic", F.hex("topic_id")))
    )
    is_share = F.col("group_type") == "share"
    deleted = F.col("event").isin(events.COMMIT_DELETED, events.SHARE_STATE_DELETED)
    # The coordinator writes snapshots of what it has known all along, too: no member has said
    # anything then.
    said = ~deleted & ~(is_share & (F.col("record_type") == events.SHARE_SNAPSHOT))
    done = F.when(is_share, F.col("delivery_complete_count").cast("bigint")).otherwise(
        F.lit(0).cast("bigint")
    )
    per_step = named.groupBy(*KEY, "step").agg(
        F.max_by(F.struct(deleted.alias("deleted"), done.alias("done")), is_last).alias("last"),
        F.max_by("offset", F.when(F.col("offset").isNotNull(), is_last)).alias("start"),
        F.count(F.when(said, 1)).cast("int").alias("commits"),
        F.max(is_share).alias("share"),
    )
    return per_step.groupBy(*KEY).agg(
        F.max(F.coalesce("share", F.lit(False))).alias("share"),
        F.sort_array(
            F.collect_list(F.struct("step", "start", "last.done", "last.deleted", "commits"))
        ).alias("steps"),
    )


def members(happened: DataFrame, period: Period) -> DataFrame:
    """A row per group: its type, how many members it has at the end, whether it has gone, since
    when.
    """
    by = F.struct("timestamp", "log_offset")
    before = happened.where(F.unix_millis("timestamp") <= period.until_ms)
    of_life = F.col("event").isin(
        events.GROUP, events.GROUP_DELETED, events.COMMIT
    )  # a commit may be all of a group
    groups = before.groupBy("group_id").agg(
        F.max_by(
            "group_type", F.when(F.col("event").isin(events.GROUP, events.GROUP_DELETED), by)
        ).alias("of_group"),
        F.max(F.when(F.col("group_type") == "share", F.lit("share"))).alias("of_share"),
        F.max_by("event", F.when(of_life, by)).alias("latest"),
        F.max_by("members", F.when(F.col("members").isNotNull(), by)).alias("classic_members"),
        F.max_by("members", F.when(F.col("members") > 0, by)).alias("classic_members_before"),
        F.max(
            F.when(F.col("event").isin(events.GROUP, events.GROUP_DELETED), F.col("timestamp"))
        ).alias("changed"),
        F.count(F.when(F.col("event") == events.UNREADABLE, 1)).alias("unreadable"),
    )
    last = Window.partitionBy("group_id", "member_id").orderBy(
        F.desc("timestamp"), F.desc("log_offset")
    )
    alive = (
        before.where(F.col("event").isin(events.MEMBER, events.MEMBER_LEFT))
        .withColumn("place", F.row_number().over(last))
        .where("place = 1")
        .groupBy("group_id")
        .agg(F.count(F.when(F.col("event") == events.MEMBER, 1)).alias("new_members"))
    )
    gone = F.coalesce(F.col("latest") == events.GROUP_DELETED, F.lit(False))
    kind = F.coalesce("of_share", "of_group", F.lit("classic"))
    count = F.when(kind == "classic", F.col("classic_members")).otherwise(F.col("new_members"))
    return groups.join(alive, "group_id", "left").select(
        "group_id",
        kind.alias("group_type"),
        F.when(gone, 0).otherwise(F.coalesce(count, F.lit(0))).cast("int").alias("members"),
        F.coalesce(F.col("classic_members_before"), F.lit(0)).cast("int").alias("members_before"),
        gone.alias("gone"),
        "changed",
        "unreadable",
    )


def long_form(made: DataFrame, period: Period) -> DataFrame:
    """Of :func:`series`: a row per group, partition and point in time."""
    names = (
        "position",
        "end_offset",
        "lag",
        "time_lag_s",
        "consumed_per_s",
        "produced_per_s",
        "commits",
    )
    times = F.array(*(F.timestamp_millis(F.lit(time_ms)) for time_ms in period.times_ms))
    rows = made.select(*KEY, F.explode(F.arrays_zip(times.alias("time"), *names)).alias("point"))
    return rows.select(*KEY, *(F.col(f"point.{name}").alias(name) for name in ("time", *names)))


def group_series(made: DataFrame) -> DataFrame:
    """Of :func:`series`: a row per group, its partitions summed up; the largest time lag of
    them."""
    names = ("lag", "time_lag_s", "consumed_per_s", "produced_per_s", "commits")
    points = made.select("group_id", F.posexplode(F.arrays_zip(*names)).alias("at", "point"))
    summed = points.groupBy("group_id", "at").agg(
        *(F.sum(f"point.{name}").alias(name) for name in names if name != "time_lag_s"),
        F.max("point.time_lag_s").alias("time_lag_s"),
    )
    ordered = F.sort_array(F.collect_list(F.struct("at", *names)))

    def column(name: str) -> Column:
        return F.transform(ordered, lambda point: point[name]).alias(name)

    return summed.groupBy("group_id").agg(*(column(name) for name in names))


def stalled(made: DataFrame, period: Period) -> DataFrame:
    """Of :func:`series`: a row per stall: group, partition, kind, from when to when, and the lag at
    its end.
    """
    step, start = F.lit(period.step_ms), F.lit(period.times_ms[0])

    def at(name: str) -> Any:
        return F.timestamp_millis(start + F.col(f"stall.{name}") * step).alias(name)

    return made.select(*KEY, "lag", F.explode("stalls").alias("stall")).select(
        *KEY,
        F.col("stall.kind").alias("kind"),
        at("first"),
        at("last"),
        F.get("lag", F.col("stall.last")).alias("lag"),
    )
