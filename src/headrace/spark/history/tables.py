"""DataFrames of a history: events, positions, series and stalls.

Everything that grows with the cluster stays in Spark: it reduces events to one position per group,
partition and step, and turns them into series in tasks. The driver gets one row per group.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from headrace.client.cluster import TopicMetadata
from headrace.patterns import matches
from headrace.spark.option_parsing import KafkaOptions

from .end_offsets import END_OFFSETS, ends_at
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
from .query import Period
from .series import SERIES, series_of
from .source import NAME, GroupHistorySource

_KEY = ("group_id", "topic", "partition")
_TOPICS = "topic string, topic_id binary, partitions int"


def history(spark: SparkSession, kafka: KafkaOptions | str, groups: str | None = None) -> DataFrame:
    """Return the events in the groups of a cluster.

    Columns are those of :data:`headrace.spark.history.group_records.SCHEMA`, described in
    ``docs/spark.md``.

    :param kafka: settings of connections, or ``"host:port,host:port"``
    :param groups: a regular expression (RE2's) that whole group ids must match; None for all groups
    """
    if isinstance(kafka, str):
        kafka = KafkaOptions(kafka)
    spark.dataSource.register(GroupHistorySource)
    reader = spark.read.format(NAME).option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    for name, value in kafka.librdkafka.items():
        reader = reader.option(f"kafka.{name}", value)
    events = reader.load()
    if groups is None:
        return events
    # Spark reads the type hints of a function, and cannot read those of a partial one.
    matching = F.udf(lambda group_id: is_chosen(groups, group_id), "boolean")
    return events.where(matching("group_id"))


def is_chosen(groups: str, group_id: str | None) -> bool:
    """Return whether a pattern matches a group id; unreadable records may have none."""
    return group_id is not None and matches(groups, group_id)


async def topics_of(kafka: KafkaOptions) -> list[tuple[str, bytearray, int]]:
    """Return name, id and number of partitions of each topic that can be read.

    :raises ClientError: the cluster does not answer
    """
    async with kafka.cluster() as cluster:
        topics = (await cluster.metadata(None)).values()
    return [
        (topic.name, bytearray(topic.topic_id.bytes), len(topic.leaders))
        for topic in topics
        if isinstance(topic, TopicMetadata)
    ]


def series(
    events: DataFrame,
    kafka: KafkaOptions,
    topics: Sequence[tuple[str, bytearray, int]],
    period: Period,
) -> DataFrame:
    """Return a row per group and partition: series at the points of the period, and stalls.

    :param events: rows of :func:`history`, or of a table to which they were written
    :param topics: from :func:`topics_of`; the end of a partition that no longer exists is unknown
    """
    existing = F.broadcast(events.sparkSession.createDataFrame(list(topics), _TOPICS))
    steps = _positions(events, existing, period).cache()
    partitions = (
        steps.select("topic", "partition")
        .distinct()
        .join(existing, "topic")
        .where("partition < partitions")
        .select("topic", "partition")
    )
    ends = partitions.mapInArrow(partial(ends_at, kafka, period.times_ms), END_OFFSETS)
    points, step_s = period.steps + 1, period.step_ms / 1000
    to_series = partial(series_of, points, step_s, period.least_steps)
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
    age = F.struct("timestamp", "log_offset")
    is_share = F.col("group_type") == "share"
    is_deletion = _is_event(COMMIT_DELETED, SHARE_STATE_DELETED)
    # The coordinator writes snapshots of state that it already had: no member has committed then.
    is_snapshot = is_share & (F.col("record_type") == SHARE_SNAPSHOT)
    done = F.when(is_share, F.col("delivery_complete_count")).otherwise(F.lit(0)).cast("bigint")
    last = F.struct(is_deletion.alias("deleted"), done.alias("done"))
    per_step = named.groupBy(*_KEY, "step").agg(
        F.max_by(last, age).alias("last"),
        F.max_by("offset", F.when(F.col("offset").isNotNull(), age)).alias("start"),
        F.count(F.when(~is_deletion & ~is_snapshot, 1)).cast("int").alias("commits"),
        F.max(is_share).alias("share"),
    )
    fields = F.struct("step", "start", "last.done", "last.deleted", "commits")
    return per_step.groupBy(*_KEY).agg(
        F.max(F.coalesce("share", F.lit(False))).alias("share"),
        F.sort_array(F.collect_list(fields)).alias("steps"),
    )


def _is_event(*names: str) -> Column:
    return F.col("event").isin(*names)


def members(events: DataFrame, period: Period) -> DataFrame:
    """Return a row per group at the end of the period.

    Columns: its type, its number of members (``members``), the number of members that it had when
    it last had some (``members_before``), whether it has been deleted (``gone``), and when its
    group record last changed (``changed``).
    """
    age = F.struct("timestamp", "log_offset")
    until_end = events.where(F.unix_millis("timestamp") <= period.until_ms)
    of_group = _is_event(GROUP, GROUP_DELETED)
    # A group may consist of commits only.
    of_life = _is_event(GROUP, GROUP_DELETED, COMMIT)
    groups = until_end.groupBy("group_id").agg(
        F.max_by("group_type", F.when(of_group, age)).alias("of_group"),
        F.max(F.when(F.col("group_type") == "share", F.lit("share"))).alias("of_share"),
        F.max_by("event", F.when(of_life, age)).alias("latest"),
        F.max_by("members", F.when(F.col("members").isNotNull(), age)).alias("classic_members"),
        F.max_by("members", F.when(F.col("members") > 0, age)).alias("classic_members_before"),
        F.max(F.when(of_group, F.col("timestamp"))).alias("changed"),
    )
    by_age = Window.partitionBy("group_id", "member_id").orderBy(
        F.desc("timestamp"), F.desc("log_offset")
    )
    alive = (
        until_end.where(_is_event(MEMBER, MEMBER_LEFT))
        .withColumn("place", F.row_number().over(by_age))
        .where("place = 1")
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
        F.coalesce("classic_members_before", F.lit(0)).cast("int").alias("members_before"),
        gone.alias("gone"),
        "changed",
    )


def long_form(all_series: DataFrame, period: Period) -> DataFrame:
    """Return a row per group, partition and point in time.

    :param all_series: rows of :func:`series`
    """
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
    point = F.explode(F.arrays_zip(times.alias("time"), *names)).alias("point")
    columns = (F.col(f"point.{name}").alias(name) for name in ("time", *names))
    return all_series.select(*_KEY, point).select(*_KEY, *columns)


def group_series(all_series: DataFrame) -> DataFrame:
    """Return a row per group: sums over its partitions, and the largest of their time lags.

    :param all_series: rows of :func:`series`
    """
    names = ("lag", "time_lag_s", "consumed_per_s", "produced_per_s", "commits")
    points = all_series.select("group_id", F.posexplode(F.arrays_zip(*names)).alias("at", "point"))
    sums = (F.sum(f"point.{name}").alias(name) for name in names if name != "time_lag_s")
    largest_time_lag = F.max("point.time_lag_s").alias("time_lag_s")
    by_point = points.groupBy("group_id", "at").agg(*sums, largest_time_lag)
    ordered = F.sort_array(F.collect_list(F.struct("at", *names)))

    def column(name: str) -> Column:
        return F.transform(ordered, lambda point: point[name]).alias(name)

    return by_point.groupBy("group_id").agg(*(column(name) for name in names))


def stalled(all_series: DataFrame, period: Period) -> DataFrame:
    """Return a row per stall: group, partition, kind, first and last time, and lag at its end.

    :param all_series: rows of :func:`series`
    """
    step, start = F.lit(period.step_ms), F.lit(period.times_ms[0])

    def time(name: str) -> Column:
        return F.timestamp_millis(start + F.col(f"stall.{name}") * step).alias(name)

    stalls = all_series.select(*_KEY, "lag", F.explode("stalls").alias("stall"))
    return stalls.select(
        *_KEY,
        F.col("stall.kind").alias("kind"),
        time("first"),
        time("last"),
        F.get("lag", F.col("stall.last")).alias("lag"),
    )
