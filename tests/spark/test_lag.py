"""`format("kafka-lag")`: the progress of groups as a table, and its options."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from headrace.admin import AdminClient
from headrace.client.groups import ListedGroup
from headrace.client.lag.model import PartitionLag, Snapshot, group_lag
from headrace.spark.errors import SourceError
from headrace.spark.lag.source import (
    DEFAULT_GROUPS_PER_TASK,
    SCHEMA,
    LagDataSource,
    LagOptions,
    LagReader,
    LagStreamReader,
    record_batches,
)
from headrace.spark.reader.columns import arrow_schema
from tests.clients.confluent import PATIENCE_S, create_topic
from tests.spark.conftest import Batches, finish
from tests.support import unique, wait_until

COLUMNS = [
    "cluster",
    "groupId",
    "groupType",
    "groupState",
    "topic",
    "partition",
    "memberId",
    "clientId",
    "host",
    "startOffset",
    "committedOffset",
    "endOffset",
    "lastStableOffset",
    "deliveryCompleteCount",
    "lag",
    "timeLagMs",
    "leaderEpoch",
    "metadata",
    "snapshotTime",
]


class Team:
    """Groups with a common prefix, on two partitions with five records each, an hour old."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.prefix = unique("team")
        self.topic = create_topic(bootstrap_servers, unique("topic"), partitions=2)
        producer = Producer({"bootstrap.servers": bootstrap_servers})
        for number in range(10):
            hour_ago_ms = int(time.time() * 1000) - 3_600_000
            producer.produce(self.topic, b"x", partition=number % 2, timestamp=hour_ago_ms)
        assert producer.flush(PATIENCE_S) == 0
        self.admin = AdminClient({"bootstrap.servers": bootstrap_servers})

    def commit(self, name: str, offset: int) -> None:
        from confluent_kafka import ConsumerGroupTopicPartitions

        group_id = f"{self.prefix}-{name}"
        partitions = [TopicPartition(self.topic, number, offset) for number in range(2)]
        asked = ConsumerGroupTopicPartitions(group_id, partitions)
        self.admin.alter_consumer_group_offsets([asked])[group_id].result(PATIENCE_S)

    def share(self, name: str, offset: int) -> None:
        starts = [TopicPartition(self.topic, number, offset) for number in range(2)]
        for future in self.admin.alter_share_group_offsets(
            f"{self.prefix}-{name}", starts
        ).values():
            future.result(PATIENCE_S)

    def options(self, **more: Any) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.bootstrap_servers,
            "groupsPattern": f"{self.prefix}-.*",
            **{name.replace("__", "."): str(value) for name, value in more.items()},
        }


@pytest.fixture
def team(bootstrap_servers: str) -> Team:
    made = Team(bootstrap_servers)
    made.commit("billing", 2)
    made.commit("mailing", 5)
    made.share("packing", 4)
    return made


def lags(rows: list[Row] | DataFrame, team: Team) -> dict[tuple[str, int], int]:
    found = rows if isinstance(rows, list) else rows.collect()
    return {(row.groupId.removeprefix(team.prefix), row.partition): row.lag for row in found}


ALL = {
    (name, number): lag
    for name, lag in (("-billing", 3), ("-mailing", 0), ("-packing", 1))
    for number in (0, 1)
}


@pytest.mark.spark
def test_a_batch_is_a_snapshot(spark: SparkSession, team: Team) -> None:
    frame = spark.read.format("kafka-lag").options(**team.options(groupsPerTask=2)).load()
    assert frame.columns == COLUMNS
    assert frame.rdd.getNumPartitions() == 2
    rows = frame.collect()
    assert lags(rows, team) == ALL
    assert {row.groupType for row in rows} == {"classic", "share"}
    (taken,) = {row.snapshotTime for row in rows}
    assert abs(taken.timestamp() - time.time()) < 300
    assert {round(row.timeLagMs / 3_600_000) for row in rows if row.lag} == {1}
    assert {row.timeLagMs for row in rows if not row.lag} == {0}
    (billing, *_) = sorted(row for row in rows if row.groupId.endswith("billing"))
    assert (billing.topic, billing.committedOffset, billing.endOffset) == (team.topic, 2, 5)
    assert billing.memberId is None and billing.metadata == ""

    team.commit("billing", 5)
    team.commit("new", 0)
    again = (
        spark.read.format("kafka-lag")
        .options(**team.options(timeLag="false", groupTypes="Classic"))
        .load()
    )
    expected = {("-billing", 0): 0, ("-mailing", 0): 0, ("-new", 0): 5}
    assert lags(again.where(F.col("partition") == 0), team) == expected
    nobody = spark.read.format("kafka-lag").options(**team.options(groupsPattern="nobody.*")).load()
    assert nobody.collect() == []


@pytest.mark.spark
def test_a_stream_is_a_snapshot_per_trigger(
    spark: SparkSession, team: Team, tmp_path: Path
) -> None:
    batches = Batches()
    stream = spark.readStream.format("kafka-lag").options(**team.options(timeLag="false")).load()
    writer = stream.writeStream.foreachBatch(batches).option(
        "checkpointLocation", str(tmp_path / "checkpoint")
    )
    finish(writer.trigger(availableNow=True).start())
    assert [lags(rows, team) for rows in batches.rows] == [ALL]

    team.commit("billing", 4)
    query = writer.trigger(processingTime="100 milliseconds").start()
    try:
        wait_until(lambda: len(batches.rows) >= 3 or query.exception(), 120, "two more snapshots")
    finally:
        query.stop()
    assert query.exception() is None
    first, second, third = ({row.snapshotTime for row in rows} for rows in batches.rows[:3])
    assert len(first) == len(second) == len(third) == 1 and max(first) < max(second) < max(third)
    assert lags(batches.rows[2], team)["-billing", 0] == 1


@pytest.mark.spark
def test_an_unreachable_cluster_fails_the_load_with_one_line(spark: SparkSession) -> None:
    with pytest.raises(
        AnalysisException, match=r"no broker answers at 127\.0\.0\.1:1: Connection refused"
    ) as raised:
        spark.read.format("kafka-lag").option("kafka.bootstrap.servers", "127.0.0.1:1").load()
    assert "Traceback" not in str(raised.value)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({}, "there are no options, such as kafka.bootstrap.servers"),
        ({"group": "g"}, "unknown option 'group': did you mean groups?"),
        (
            {"groups": "a,b", "groupsPattern": "x"},
            "set one of the options groups and groupsPattern, not both",
        ),
        (
            {"topicsPattern": "("},
            "option topicsPattern is not a regular expression: missing ): (",
        ),
        (
            {"groupTypes": "share,queue"},
            "option groupTypes has 'queue': use some of classic, consumer, share, streams",
        ),
        ({"timeLag": "yes"}, "option timeLag is 'yes': use true, false"),
        ({"groupsPerTask": "0"}, "option groupsPerTask is '0': use a whole number from 1"),
        (
            {"kafka.isolation.level": "none"},
            "option kafka.isolation.level is 'none': use read_uncommitted or read_com",
        ),
    ],
)
def test_wrong_options(given: dict[str, str], complaint: str) -> None:
    servers = {"kafka.bootstrap.servers": "127.0.0.1:1"} if given else {}
    with pytest.raises(SourceError) as raised:
        LagOptions.parse({**servers, **given})
    assert str(raised.value).startswith(complaint)


def test_options() -> None:
    servers = {"kafka.bootstrap.servers": "127.0.0.1:1"}
    bare = LagOptions.parse(servers)
    assert bare.groups_per_task == DEFAULT_GROUPS_PER_TASK
    assert bare.query.time_lag and not bare.query.read_committed and bare.query.all_topics
    given = {
        "groups": "a, b",
        "topics": "t",
        "kafka.isolation.level": "read_committed",
        "groupTypes": "SHARE",
    }
    query = LagOptions.parse({**servers, **given}).query
    assert (query.groups, query.topics, query.read_committed, query.group_types) == (
        ("a", "b"),
        ("t",),
        True,
        ("share",),
    )


def test_making_a_source_and_its_readers_opens_nothing() -> None:
    source = LagDataSource({"kafka.bootstrap.servers": "127.0.0.1:1"})
    assert source.name() == "kafka-lag"
    columns = from_arrow_schema(arrow_schema(SCHEMA))
    source.reader(columns), source.streamReader(columns)


def test_offsets_count_snapshots() -> None:
    reader = LagStreamReader(
        LagReader(LagOptions.parse({"kafka.bootstrap.servers": "127.0.0.1:1"}))
    )
    start = reader.initialOffset()
    assert reader.latestOffset(start, None) == {"snapshot": 1}  # type: ignore[arg-type]
    assert reader.latestOffset({"snapshot": 41}, None) == {"snapshot": 42}  # type: ignore[arg-type]
    assert reader.partitions({"snapshot": 3}, {"snapshot": 3}) == []
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset({"snapshot": 42}, None) == {"snapshot": 43}  # type: ignore[arg-type]
    assert reader.latestOffset({"snapshot": 43}, None) == {"snapshot": 43}  # type: ignore[arg-type]


def test_groups_are_divided_into_tasks_by_coordinator(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def listed(*_: object) -> tuple[list[ListedGroup], list[str]]:
        return [ListedGroup(f"g{number}", "share", "share", "Empty", 1) for number in range(7)], [
            "beware"
        ] * 30

    monkeypatch.setattr("headrace.spark.lag.source.select_groups", listed)
    options = LagOptions.parse({"kafka.bootstrap.servers": "127.0.0.1:1", "groupsPerTask": "3"})
    with caplog.at_level(logging.WARNING, "headrace.spark"):
        tasks = LagReader(options).partitions()
    assert [len(task.groups) for task in tasks] == [3, 3, 1]
    assert len({task.snapshot_time_ms for task in tasks}) == 1
    assert len(caplog.messages) == 21 and caplog.messages[-1].endswith("and 10 more warnings")


def test_rows_become_columns() -> None:
    partitions = [
        PartitionLag(topic="t", partition=3, position=5, records=3, seconds=0.02, end_offset=9),
        PartitionLag(topic="t", partition=4),
    ]
    group = group_lag("g", "share", "Stable", (), partitions)
    (batch,) = record_batches(Snapshot(groups=[group], warnings=(), at_ms=1_700_000_000_123))
    assert batch.schema.names == COLUMNS
    first, second = batch.to_pylist()
    assert first["snapshotTime"].timestamp() == pytest.approx(1_700_000_000.123)
    assert (first["startOffset"], first["committedOffset"], first["timeLagMs"]) == (5, None, 20)
    assert (second["partition"], second["endOffset"], second["lag"]) == (4, None, None)
