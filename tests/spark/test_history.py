"""The history of groups, compared with a log of the test's own actions."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import pytest
from confluent_kafka import (
    AcknowledgeType,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec, ResourceType
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition

from headrace.cli.main import main
from headrace.spark.history.group_records import COMMIT, COMMIT_DELETED, GROUP_DELETED, SHARE_STATE
from headrace.spark.history.groups import GroupHistory, group_histories, group_points
from headrace.spark.history.source import GroupHistoryReader, history
from headrace.spark.option_parsing import KafkaOptions
from tests.clients.confluent import (
    PATIENCE_S,
    admin,
    create_topic,
    poll_share,
    produce,
    set_configs,
    share_consumer,
    share_from_earliest,
)
from tests.support import unique, wait_until

pytestmark = pytest.mark.spark

STEP_MS = 100
TRANSACTION_TIMEOUT_S = 120.0
STILL_S = 0.6
"""Time in which a group makes no progress: several steps."""


class Done(NamedTuple):
    """An action of the test, and its time."""

    group_id: str
    event: str
    partition: int
    offset: int | None
    began_ms: int
    ended_ms: int


class Story:
    """Actions on groups of a topic of its own, with a log of them."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.servers = bootstrap_servers
        self.prefix = unique("history")
        self.topic = create_topic(bootstrap_servers, f"{self.prefix}-topic", 2)
        self.log: list[Done] = []
        self.produced: list[tuple[int, int, int, int]] = []
        self.began_ms = int(time.time() * 1000)

    def group(self, name: str) -> str:
        return f"{self.prefix}-{name}"

    def produce(self, count: int, partition: int = 0) -> None:
        """Produce records, and log the moments between which the end moved."""
        before = int(time.time() * 1000)
        produce(self.servers, self.topic, [b"x"] * count, partition)
        self.produced.append((partition, before, int(time.time() * 1000), count))

    def did(
        self, name: str, event: str, partition: int, offset: int | None, action: Callable[[], Any]
    ) -> None:
        began_ms = int(time.time() * 1000)
        action()
        self.log.append(
            Done(self.group(name), event, partition, offset, began_ms, int(time.time() * 1000))
        )

    def commit(self, name: str, offset: int, partition: int = 0) -> None:
        wanted = ConsumerGroupTopicPartitions(
            self.group(name), [TopicPartition(self.topic, partition, offset)]
        )

        def act() -> None:
            for future in admin(self.servers).alter_consumer_group_offsets([wanted]).values():
                future.result(PATIENCE_S)

        self.did(name, COMMIT, partition, offset, act)

    def delete_group(self, name: str) -> None:
        def act() -> None:
            for future in admin(self.servers).delete_consumer_groups([self.group(name)]).values():
                future.result(PATIENCE_S)

        self.did(name, COMMIT_DELETED, 0, None, act)

    def accept(self, name: str, count: int) -> None:
        """Accept ``count`` more records of the topic through a share group."""
        accepted: list[int] = []

        def handle(message: Message) -> None:
            if len(accepted) < count:
                accepted.append(message.offset())
                source.acknowledge(message, AcknowledgeType.ACCEPT)
            else:
                source.acknowledge(message, AcknowledgeType.RELEASE)

        with share_consumer(self.servers, self.group(name), [self.topic]) as source:
            poll_share(source, lambda: len(accepted) == count, handle)
            source.commit_sync(PATIENCE_S)


def ends(
    bootstrap_servers: str, isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
) -> list[int]:
    """Return the end offsets of the partitions of `__consumer_offsets`."""
    client, name = admin(bootstrap_servers), "__consumer_offsets"
    partitions = client.list_topics(name, PATIENCE_S).topics[name].partitions
    latest = {TopicPartition(name, number): OffsetSpec.latest() for number in sorted(partitions)}
    found = client.list_offsets(latest, isolation_level=isolation_level)
    return [future.result(PATIENCE_S).offset for future in found.values()]


@pytest.fixture(scope="module")
def uncompacted(bootstrap_servers: str) -> Iterator[None]:
    """Keep all new commits from being compacted away."""
    told = Story(bootstrap_servers)
    told.commit("first", 0)  # creates the internal topic
    set_configs(
        bootstrap_servers, ResourceType.TOPIC, "__consumer_offsets", min_compaction_lag_ms="3600000"
    )
    wait_until(
        lambda: ends(bootstrap_servers, IsolationLevel.READ_COMMITTED) == ends(bootstrap_servers),
        TRANSACTION_TIMEOUT_S,
        "the transactions of other tests to time out, as they hide later commits",
        interval_s=1,
    )
    yield
    set_configs(
        bootstrap_servers, ResourceType.TOPIC, "__consumer_offsets", min_compaction_lag_ms="0"
    )


@pytest.fixture(scope="module")
def story(bootstrap_servers: str, uncompacted: None) -> Story:
    told = Story(bootstrap_servers)
    told.produce(100)
    told.produce(50, partition=1)
    told.commit("steady", 10)
    told.commit("steady", 5, partition=1)
    told.commit("gone", 20)
    share_from_earliest(bootstrap_servers, told.group("sharing"))
    told.accept("sharing", 30)
    time.sleep(STEP_MS / 1000)  # or the first commit has no point of its own, and the next no rate
    told.commit("steady", 60)
    told.delete_group("gone")
    told.commit("back", 20)
    told.delete_group("back")
    told.commit("back", 30)
    deadline = time.monotonic() + STILL_S
    while time.monotonic() < deadline:
        # One group commits without progress, the other does not commit.
        told.commit("stuck", 7)
        told.produce(1)
    told.commit("steady", 100)
    return told


@pytest.fixture(scope="module")
def times_ms(story: Story) -> range:
    return range(story.began_ms - STEP_MS, story.log[-1].ended_ms + STEP_MS, STEP_MS)


@dataclass(frozen=True)
class Past:
    """What a history tells."""

    events: list[dict[str, Any]]
    points: dict[str, list[dict[str, Any]]]
    groups: dict[str, GroupHistory]

    def of_group(self, group_id: str, *events: str) -> list[dict[str, Any]]:
        """Return the events of a group, in their order."""
        rows = [e for e in self.events if e["groupId"] == group_id and e["event"] in events]
        return sorted(rows, key=lambda row: (row["timestamp"], row["logOffset"]))


@pytest.fixture(scope="module")
def past(spark: SparkSession, story: Story, times_ms: range) -> Past:
    kafka = KafkaOptions(story.servers)
    events = history(spark, kafka, groups=f"{story.prefix}-.*").persist()
    groups = {
        group.group_id.removeprefix(f"{story.prefix}-"): group
        for group in group_histories(events, kafka, times_ms, drain_s=10.0)
    }
    points = {
        row["groupId"]: row["points"]
        for row in group_points(events, kafka, times_ms).toArrow().to_pylist()
    }
    return Past(events.toArrow().to_pylist(), points, groups)


def at_ms(when: datetime) -> int:
    return round(when.timestamp() * 1000)


def test_events_are_the_actions_and_their_times(past: Past, story: Story) -> None:
    for group_id in {done.group_id for done in story.log}:
        done = [action for action in story.log if action.group_id == group_id]
        rows = past.of_group(group_id, COMMIT, COMMIT_DELETED)
        assert [(row["event"], row["topic"], row["partition"], row["offset"]) for row in rows] == [
            (action.event, story.topic, action.partition, action.offset) for action in done
        ]
        for row, action in zip(rows, done, strict=True):
            assert action.began_ms <= at_ms(row["timestamp"]) <= action.ended_ms
    assert len(past.of_group(story.group("gone"), GROUP_DELETED)) == 1


def finished_records(past: Past, story: Story) -> dict[int, int]:
    """Return the number of finished records of the share group by partition, where known."""
    start: dict[int, int] = {}
    finished: dict[int, int] = {}
    for row in past.of_group(story.group("sharing"), SHARE_STATE):
        if row["offset"] is not None:
            start[row["partition"]] = row["offset"]
        if row["partition"] in start:
            done = row["deliveryCompleteCount"] or 0
            finished[row["partition"]] = start[row["partition"]] + done
    return finished


def test_share_state_has_the_number_of_finished_records(past: Past, story: Story) -> None:
    assert sum(finished_records(past, story).values()) == 30


def test_the_lag_and_the_rates_at_every_point(past: Past, story: Story, times_ms: range) -> None:
    steady = story.group("steady")
    points = past.points[steady]
    commits = [action for action in story.log if action.group_id == steady]
    checked = 0
    for point, now_ms in zip(points, times_ms, strict=True):
        if any(action.began_ms <= now_ms <= action.ended_ms for action in commits):
            continue
        positions = {
            action.partition: action.offset or 0 for action in commits if action.ended_ms < now_ms
        }
        produced = [done for done in story.produced if done[0] in positions]
        done = sum(positions.values())
        least = sum(count for _, _, ended_ms, count in produced if ended_ms < now_ms)
        most = sum(count for _, began_ms, _, count in produced if began_ms <= now_ms)
        if positions:
            assert least - done <= point["lag"] <= most - done
            checked += 1
        else:
            assert point["lag"] is None
    assert checked >= 3
    assert sum(point["commits"] for point in points) == len(commits)
    moved = sum(point["done_per_s"] or 0 for point in points) * STEP_MS / 1000
    assert moved == pytest.approx(100 - 10)  # the first commit of a partition has no rate


def test_groups(past: Past, story: Story) -> None:
    groups = past.groups
    assert groups.keys() == {"steady", "stuck", "gone", "back", "sharing"}
    end = 100 + sum(count for *_, count in story.produced[2:])
    assert groups["stuck"].lag == end - 7
    assert groups["steady"].lag == (end - 100) + 45
    assert groups["sharing"].group_type == "share"
    ends = {0: end, 1: 50}  # a partition without an acknowledgement has no lag
    assert groups["sharing"].lag == sum(
        ends[partition] - done for partition, done in finished_records(past, story).items()
    )
    assert groups["gone"].lag is None
    assert groups["gone"].gone
    assert groups["gone"].consumers_needed is None
    assert (groups["back"].lag, groups["back"].gone) == (end - 30, False)
    assert groups["stuck"].seconds_to_zero == -1
    assert groups["steady"].consumers_needed == 1


def test_a_cluster_without_groups_has_no_history() -> None:
    reader = GroupHistoryReader(KafkaOptions("127.0.0.1:1"), None, 1)
    made_up_by_spark = InputPartition(None)
    assert list(reader.read(made_up_by_spark)) == []


@pytest.mark.slow
@pytest.mark.parametrize("groups", ["nobody", "steady|stuck"])
def test_the_command(story: Story, groups: str) -> None:
    command = [sys.executable, "-m", "headrace", "lag", "history", "-o", "json"]
    command += ["--bootstrap-server", story.servers, "--groups", f"{story.prefix}-({groups})"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stderr) == (0, "")
    names = [story.group(name) for name in groups.split("|") if name != "nobody"]
    described = json.loads(done.stdout)
    assert sorted(group["group_id"] for group in described) == names
    assert all(group["lag"] > 0 and group["time_lag_ms"] > 0 for group in described)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--since", "tomorrow"], "'tomorrow' is not a time"),
        (["--since", "1h", "--until", "2h"], "--since is not before --until"),
        (["--since", "2999-01-01", "--until", "2999-01-02"], "--since is not before --until"),
        (["--groups", "("], "argument --groups"),
        (["--target-drain", "soon"], "'soon' is not a duration"),
    ],
)
def test_invalid_options_are_one_line(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lag", "history", *arguments]) == 2
    error = capsys.readouterr().err
    assert complaint in error
    assert error.count("\n") == 1


def test_an_unreachable_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lag", "history", "--bootstrap-server", "127.0.0.1:1"]) == 1
    assert "no broker answers at 127.0.0.1:1" in capsys.readouterr().err
