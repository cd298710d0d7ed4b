"""The history of groups, compared with a log of the test's own actions."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
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
from headrace.spark.history.advice import GONE, NO_PROGRESS, SILENT, Advice, Bounds, Target
from headrace.spark.history.group_records import COMMIT, COMMIT_DELETED, GROUP_DELETED, SHARE_STATE
from headrace.spark.history.html_report import page
from headrace.spark.history.query import HistoryQuery, Period
from headrace.spark.history.results import Report
from headrace.spark.history.run import write_history
from headrace.spark.history.source import GroupHistoryReader
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
def period(story: Story) -> Period:
    return Period(story.began_ms - STEP_MS, story.log[-1].ended_ms + 1, STEP_MS, 3 * STEP_MS)


@dataclass(frozen=True)
class Written:
    """A report, and the tables beside it."""

    report: Report
    folder: Path

    def rows(self, table: str, **wanted: Any) -> list[dict[str, Any]]:
        """Return the rows of a table that have these values."""
        rows = pq.read_table(self.folder / table).to_pylist()
        return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


@pytest.fixture(scope="module")
def written(
    spark: SparkSession, story: Story, period: Period, tmp_path_factory: pytest.TempPathFactory
) -> Written:
    folder = tmp_path_factory.mktemp("history") / "lag"
    query = HistoryQuery(period, Target(10.0, Bounds(1, 5)), groups=f"{story.prefix}-.*")
    return Written(write_history(spark, KafkaOptions(story.servers), query, folder), folder)


def at_ms(when: datetime) -> int:
    return round(when.timestamp() * 1000)


def test_events_are_the_actions_and_their_times(written: Written, story: Story) -> None:
    for group_id in {done.group_id for done in story.log}:
        done = [one for one in story.log if one.group_id == group_id]
        rows = [
            row
            for row in written.rows("events", group_id=group_id)
            if row["event"] in (COMMIT, COMMIT_DELETED)
        ]
        rows.sort(key=lambda row: (row["timestamp"], row["log_offset"]))
        assert [(row["event"], row["topic"], row["partition"], row["offset"]) for row in rows] == [
            (one.event, story.topic, one.partition, one.offset) for one in done
        ]
        for row, one in zip(rows, done, strict=True):
            assert one.began_ms <= at_ms(row["timestamp"]) <= one.ended_ms
    assert len(written.rows("events", group_id=story.group("gone"), event=GROUP_DELETED)) == 1


def finished_records(written: Written, story: Story) -> dict[int, int]:
    """Return the number of finished records of the share group by partition, where known."""
    states = written.rows("events", group_id=story.group("sharing"), event=SHARE_STATE)
    states.sort(key=lambda row: (row["timestamp"], row["log_offset"]))
    start: dict[int, int] = {}
    found: dict[int, int] = {}
    for row in states:
        if row["offset"] is not None:
            start[row["partition"]] = row["offset"]
        if row["partition"] in start:
            found[row["partition"]] = start[row["partition"]] + (
                row["delivery_complete_count"] or 0
            )
    return found


def test_share_state_has_the_number_of_finished_records(written: Written, story: Story) -> None:
    assert sum(finished_records(written, story).values()) == 30


def test_positions_and_ends_at_every_point(written: Written, story: Story, period: Period) -> None:
    points = written.rows("series", group_id=story.group("steady"), partition=0)
    points.sort(key=lambda point: point["time"])
    assert [at_ms(point["time"]) for point in points] == period.times_ms
    commits = [
        one for one in story.log if one.group_id == story.group("steady") and one.partition == 0
    ]
    checked = 0
    for point in points:
        now_ms = at_ms(point["time"])
        if any(one.began_ms <= now_ms <= one.ended_ms for one in commits):
            continue
        before = [one.offset for one in commits if one.ended_ms < now_ms]
        assert point["position"] == (before[-1] if before else None)
        least = sum(
            count for partition, _, ms, count in story.produced if partition == 0 and ms < now_ms
        )
        most = sum(
            count for partition, ms, _, count in story.produced if partition == 0 and ms <= now_ms
        )
        assert least <= point["end_offset"] <= most
        if point["position"] is not None:
            assert point["lag"] == max(0, point["end_offset"] - point["position"])
            checked += 1
    assert checked >= 3
    assert sum(point["commits"] for point in points) == len(commits)
    moved = [point["consumed_per_s"] for point in points if point["consumed_per_s"] is not None]
    known = [point["position"] for point in points if point["position"] is not None]
    assert sum(moved) * STEP_MS / 1000 == pytest.approx(known[-1] - known[0])


def test_stalls(written: Written, story: Story, period: Period) -> None:
    found = {
        (row["group_id"], row["partition"], row["kind"]): row for row in written.rows("stalls")
    }
    stuck = found[story.group("stuck"), 0, NO_PROGRESS]
    commits = [one for one in story.log if one.group_id == story.group("stuck")]
    assert abs(at_ms(stuck["first"]) - commits[0].ended_ms) <= 2 * STEP_MS
    assert at_ms(stuck["last"]) <= period.until_ms
    assert (story.group("steady"), 0, SILENT) in found
    assert (story.group("steady"), 0, NO_PROGRESS) not in found
    deleted = next(one for one in story.log if one.event == COMMIT_DELETED)
    gone = found[story.group("gone"), 0, GONE]
    assert deleted.began_ms <= at_ms(gone["first"]) <= deleted.ended_ms + STEP_MS
    assert at_ms(gone["last"]) == period.until_ms


def test_the_report(written: Written, story: Story) -> None:
    report = written.report
    groups = {group.group_id.removeprefix(f"{story.prefix}-"): group for group in report.groups}
    assert groups.keys() == {"steady", "stuck", "gone", "back", "sharing"}
    end = 100 + sum(count for *_, count in story.produced[2:])
    assert groups["stuck"].lag == end - 7
    assert groups["steady"].lag == (end - 100) + 45
    assert groups["sharing"].group_type == "share"
    ends = {0: end, 1: 50}  # a partition without an acknowledgement has no lag
    assert groups["sharing"].lag == sum(
        ends[partition] - done for partition, done in finished_records(written, story).items()
    )
    assert groups["gone"].lag is None
    assert groups["gone"].gone
    assert groups["gone"].advice == Advice(None)
    assert (groups["back"].lag, groups["back"].gone) == (end - 30, False)
    assert groups["stuck"].eta_s is None
    assert 1 <= (groups["steady"].advice.consumers or 0) <= 2, "the topic has two partitions"
    assert report.unreadable == 0
    assert len(written.rows("events")) == report.records
    assert [row["group_id"] for row in written.rows("groups")] == [
        group.group_id for group in report.groups
    ]
    assert json.loads(json.dumps([group.as_row() for group in report.groups])) == written.rows(
        "groups"
    )


def test_the_report_loads_nothing(written: Written) -> None:
    text = page(written.report)
    assert text.count("<svg") == 5
    assert all(group.group_id in text for group in written.report.groups)
    assert not re.search(r"<(script|link|img|iframe)|url\((?!#)|\bsrc=", text), (
        "nothing is loaded from other places"
    )


def test_a_cluster_without_groups_has_no_history() -> None:
    reader = GroupHistoryReader(KafkaOptions("127.0.0.1:1"), 1)
    made_up_by_spark = InputPartition(None)
    assert list(reader.read(made_up_by_spark)) == []


@pytest.mark.slow
def test_the_command_prints_json_and_replaces_its_folder(story: Story, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "report.html").write_text("of before")
    out = tmp_path / "out"
    out.symlink_to(folder)
    command = [
        sys.executable,
        "-m",
        "headrace",
        "lag",
        "history",
        "--bootstrap-server",
        story.servers,
        "--json",
    ]
    done = subprocess.run(
        [*command, "--out", str(out), "--groups", f"{story.prefix}-nobody"],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert (done.returncode, json.loads(done.stdout)) == (0, []), done.stderr
    assert done.stderr == f"0 groups; see {out}/report.html\n"
    assert "<svg" not in (out / "report.html").read_text()
    assert out.is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "out"]
    written = [folder, *folder.rglob("*")]
    assert [path for path in written if path.stat().st_mode & 0o077] == []
    unreachable = ["--bootstrap-server", "127.0.0.1:1"]
    assert main(["lag", "history", "--out", str(out), *unreachable]) == 1  # it is a report


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--since", "yesterday"], "'yesterday' is not of the form"),
        (["--since", "1h", "--until", "2h"], "--since is not before --until"),
        (["--since", "2999-01-01", "--until", "2999-01-02"], "--since is not before --until"),
        (["--step", "1ms"], "--step makes 3600001 points of this period, but the limit is 2000"),
        (["--groups", "("], "--groups is not a regular expression"),
        (
            ["--min-consumers", "4", "--max-consumers", "3"],
            "--max-consumers is less than --min-consumers",
        ),
        (["--target-drain", "soon"], "'soon' is not a duration, such as 10m, 6h or 2d"),
    ],
)
def test_invalid_options_are_one_line(
    arguments: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lag", "history", "--out", str(tmp_path / "out"), *arguments]) == 2
    error = capsys.readouterr().err
    assert complaint in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("names", [["mine"], ["mine", "report.html"], ["events"]])
def test_a_folder_that_is_no_report_is_not_touched(
    names: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other tools write a ``report.html``, too."""
    for name in names:
        (tmp_path / name).write_text("dear")
    unreachable = ["--bootstrap-server", "127.0.0.1:1"]
    assert main(["lag", "history", "--out", str(tmp_path), *unreachable]) == 2
    assert "exists and is not a report" in capsys.readouterr().err
    file = tmp_path / names[-1]
    assert main(["lag", "history", "--out", str(file), *unreachable]) == 2
    assert "exists and is not a report" in capsys.readouterr().err
    assert all((tmp_path / name).read_text() == "dear" for name in names)


def test_the_current_folder_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "report.html").write_text("of before")
    monkeypatch.chdir(tmp_path)
    assert main(["lag", "history", "--out", ".", "--bootstrap-server", "127.0.0.1:1"]) == 2
    assert "--out is the current directory" in capsys.readouterr().err


def test_an_unreachable_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main(["lag", "history", "--out", str(out), "--bootstrap-server", "127.0.0.1:1"]) == 1
    assert "no broker answers at 127.0.0.1:1" in capsys.readouterr().err
    assert not out.exists()
