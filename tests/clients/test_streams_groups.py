"""Streams groups (KIP-1071): our tools on an application of Kafka Streams."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from headrace.admin import AdminClient
from headrace.cli.main import main
from headrace.client import Cluster
from headrace.protocol.internal_topics import CONSUMER_OFFSETS
from headrace.spark.errors import SourceError
from headrace.spark.history.group_records import (
    COMMIT,
    GROUP,
    MEMBER,
    MEMBER_LEFT,
    UNREADABLE,
    events,
)
from headrace.spark.ordered.progress import check_group
from headrace.spark.share.options import ensure_group_settings
from tests.clients.confluent import PATIENCE_S, consumer, create_topic, produce
from tests.clients.test_exporter import Running
from tests.clients.test_java_streams import App
from tests.support import unique, wait_until

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]

PARTITIONS = 2
LINES = 10


@dataclass(frozen=True, slots=True)
class Count:
    """A word count that runs as the streams group `group_id`, with two threads."""

    app: App
    group_id: str
    source: str

    @property
    def repartition(self) -> str:
        return f"{self.group_id}-KSTREAM-AGGREGATE-STATE-STORE-0000000003-repartition"

    @property
    def partitions(self) -> set[tuple[str, int]]:
        return {
            (topic, number)
            for topic in (self.source, self.repartition)
            for number in range(PARTITIONS)
        }


@pytest.fixture(scope="module")
def count(
    bootstrap_servers: str, kafka_libs: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Count]:
    source, counted = (
        create_topic(bootstrap_servers, unique(kind), PARTITIONS) for kind in ("lines", "counts")
    )
    group_id, state = unique("streams"), tmp_path_factory.mktemp("state")
    app = App(
        bootstrap_servers,
        source,
        counted,
        group_id,
        str(state),
        "at_least_once",
        "streams",
    )
    try:
        for number in range(PARTITIONS):
            produce(bootstrap_servers, source, [b"one dog and one more"] * LINES, number)
        yield Count(app, group_id, source)
    finally:
        if app.process.poll() is None:
            app.process.kill()
            app.process.wait()


@dataclass(frozen=True, slots=True)
class Tools:
    """A runner of our commands."""

    bootstrap_servers: str
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str, status: int = 0) -> tuple[str, str]:
        """Run a command; return its output on stdout and stderr."""
        self.capsys.readouterr()
        ended = main([*arguments, "--bootstrap-server", self.bootstrap_servers])
        said = self.capsys.readouterr()
        assert ended == status, said
        return said.out, said.err

    def objects(self, *arguments: str) -> list[dict[str, Any]]:
        form = ("--json",) if arguments[0] == "lag" else ("-o", "json")
        found: list[dict[str, Any]] = json.loads(self(*arguments, *form)[0])
        return found

    def lags(self, group_id: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self("lag", "show", group_id, "-o", "json")[0])
        return found


@pytest.fixture
def tools(bootstrap_servers: str, capsys: pytest.CaptureFixture[str]) -> Tools:
    return Tools(bootstrap_servers, capsys)


def test_what_the_tools_say_of_a_running_application(tools: Tools, count: Count) -> None:
    def at_work() -> list[dict[str, Any]] | None:
        assert count.app.process.poll() is None, count.app.output[-20:]
        if not tools.objects("groups", "list", count.group_id):
            return None
        rows = tools.lags(count.group_id)
        done = {
            (row["topic"], row["partition"]) for row in rows if row["lag"] == 0 and row["member_id"]
        }
        told = sum(
            row["committed_offset"]
            for row in rows
            if row["topic"] == count.source and row["committed_offset"]
        )
        return rows if done == count.partitions and told == PARTITIONS * LINES else None

    rows = wait_until(at_work, 120, "all to be counted", 0.5)
    assert {(row["topic"], row["partition"]) for row in rows} == count.partitions
    assert {(row["group_type"], row["group_state"]) for row in rows} == {("streams", "Stable")}
    assert all(
        row["client_id"].startswith(count.group_id) and row["host"].startswith("/") for row in rows
    )
    assert len({row["member_id"] for row in rows}) == 2
    (listed,) = tools.objects("groups", "list", count.group_id, "--type", "streams")
    assert (listed["protocol_type"], listed["group_state"]) == ("streams", "Stable")
    table, _ = tools("lag", "show", "--groups-pattern", count.group_id, "--type", "streams")
    header, *lines = table.splitlines()
    expected = []
    for topic in sorted((count.source, count.repartition)):
        members = [row["member_id"] for row in rows if row["topic"] == topic]
        expected.append(
            [
                count.group_id,
                "streams",
                "Stable",
                topic,
                str(len(members)),
                str(len({*members})),
                "0",
            ]
        )
    assert [line.split()[:7] for line in lines] == expected
    assert header.startswith("GROUP")
    with Running("--groups-pattern", count.group_id, servers=tools.bootstrap_servers) as exporter:
        exported = exporter.get()
    for topic in (count.source, count.repartition):
        of_topic = frozenset({("group", count.group_id), ("type", "streams"), ("topic", topic)})
        assert exported["headrace_group_lag", of_topic] == 0
        assert exported["headrace_group_lag_seconds", of_topic] == 0
    of_group = frozenset({("group", count.group_id), ("type", "streams")})
    assert exported["headrace_group_members", of_group] == 2


@pytest.mark.parametrize(
    "words", [("reset", "--all-topics", "--to", "earliest"), ("delete-offsets", "--topic", "any")]
)
def test_its_offsets_are_left_alone(tools: Tools, count: Count, words: tuple[str, ...]) -> None:
    _, err = tools("groups", *words, count.group_id, "--yes", status=1)
    (said,) = err.splitlines()
    assert "neither a consumer group nor a share group" in said and count.group_id in said


def test_only_the_list_of_all_groups_has_it(
    tools: Tools, count: Count, bootstrap_servers: str
) -> None:
    for group_type in ("consumer", "share"):
        assert tools.objects("groups", "list", count.group_id, "--type", group_type) == []
    with AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 2}) as admin:
        listed = {
            one.group_id: one
            for one in admin.list_all_groups(types=["streams"]).result(PATIENCE_S).valid
        }
        assert (listed[count.group_id].type, listed[count.group_id].protocol_type) == (
            "streams",
            "streams",
        )
        committed = admin.list_consumer_group_offsets([count.group_id])[count.group_id].result(
            PATIENCE_S
        )
        assert {
            (one.topic, one.partition) for one in committed.topic_partitions
        } <= count.partitions
        described = admin.describe_groups([count.group_id], types=["consumer", "classic"])
        with pytest.raises(KafkaException) as refused:
            described[count.group_id].result(PATIENCE_S)
        assert refused.value.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND


def test_spark_queries_leave_it_alone(count: Count, bootstrap_servers: str) -> None:
    async def on_cluster(check: Callable[[Cluster], Any]) -> None:
        async with Cluster(bootstrap_servers) as cluster:
            await check(cluster)

    with pytest.raises(SourceError, match="is a streams group, not a share group"):
        asyncio.run(on_cluster(lambda cluster: ensure_group_settings(cluster, count.group_id, {})))
    with pytest.raises(SourceError, match="has consumers that commit offsets themselves"):
        asyncio.run(on_cluster(lambda cluster: check_group(cluster, count.group_id)))


def test_its_history_and_what_is_left_of_it(
    tools: Tools, count: Count, bootstrap_servers: str
) -> None:
    count.app.close()
    produce(bootstrap_servers, count.source, [b"later"] * 3, 0)
    rows = {(row["topic"], row["partition"]): row for row in tools.lags(count.group_id)}
    assert rows.keys() == count.partitions
    assert {row["member_id"] for row in rows.values()} == {None}
    assert {row["group_state"] for row in rows.values()} == {"Empty"}
    assert (rows[count.source, 0]["lag"], rows[count.source, 1]["lag"]) == (3, 0)
    happened = [row for row in history(bootstrap_servers) if row["groupId"] == count.group_id]
    assert {row["event"] for row in happened} == {GROUP, MEMBER, MEMBER_LEFT, COMMIT}
    assert {row["groupType"] for row in happened if row["event"] != COMMIT} == {"streams"}
    epochs = [row["epoch"] for row in happened if row["event"] == GROUP]
    assert epochs == sorted(epochs) and epochs[-1] >= 2
    joined, left = (
        {row["memberId"] for row in happened if row["event"] == event}
        for event in (MEMBER, MEMBER_LEFT)
    )
    assert joined == left and len(joined) == 2
    last = {
        (row["topic"], row["partition"]): row["offset"]
        for row in happened
        if row["event"] == COMMIT
    }
    assert last == {key: row["committed_offset"] for key, row in rows.items()}


def history(bootstrap_servers: str) -> list[dict[str, Any]]:
    """Return the decoded rows of `__consumer_offsets`, all of them readable."""
    found: list[dict[str, Any]] = []
    with consumer(bootstrap_servers, unique("reader"), enable_partition_eof=True) as reader:
        partitions = (
            reader.list_topics(CONSUMER_OFFSETS, PATIENCE_S).topics[CONSUMER_OFFSETS].partitions
        )
        for number in partitions:
            reader.assign([TopicPartition(CONSUMER_OFFSETS, number, 0)])
            messages = list(iter(partial(_next, reader), None))
            columns = {
                "topic": [CONSUMER_OFFSETS] * len(messages),
                "partition": [number] * len(messages),
                "offset": range(len(messages)),
                "timestamp": range(len(messages)),
                "key": [message.key() for message in messages],
                "value": [message.value() for message in messages],
            }
            if messages:
                for batch in events(pa.RecordBatch.from_pydict(columns)):
                    found += batch.to_pylist()
    assert UNREADABLE not in {row["event"] for row in found}
    return found


def _next(reader: Consumer) -> Message | None:
    """Return the next record; None at the end of the partition."""
    message = reader.poll(PATIENCE_S)
    assert message is not None
    if message.error() is None:
        return message
    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
    return None
