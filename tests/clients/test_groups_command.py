"""``headrace groups`` with groups of all types."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, Message, TopicPartition

from headrace.admin import AdminClient
from headrace.cli.main import main
from tests.clients.confluent import (
    PATIENCE_S,
    admin,
    consumer,
    create_topic,
    poll_share,
    produce,
    share_consumer,
    share_from_earliest,
    take,
)
from tests.conformance.streams import HEARTBEAT, heartbeat, internal, subtopology
from tests.conformance.world import OK, Group, Topic, World
from tests.support import unique, wait_until

pytestmark = pytest.mark.broker
Groups = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def groups(bootstrap_servers: str, capsys: pytest.CaptureFixture[str]) -> Groups:
    """Run a verb; return the rows that it prints as JSON. They are printed as a table, too."""

    def call(verb: str, *words: str, yes: bool = True) -> list[dict[str, Any]]:
        line = ["groups", *verb.split(), *words, "-b", bootstrap_servers]
        assert main([*line, "-o", "jsonl", *["--yes"] * yes]) == 0, capsys.readouterr()
        return [json.loads(row) for row in capsys.readouterr().out.splitlines()]

    return call


def shown(groups: Groups, verb: str, *words: str) -> list[dict[str, Any]]:
    """Return the rows of a verb that changes nothing."""
    return groups(verb, *words, yes=False)


@pytest.fixture
def refused(bootstrap_servers: str, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a verb that fails; return its one line on stderr."""

    def call(verb: str, *words: str, status: int = 1) -> str:
        capsys.readouterr()
        assert main(["groups", *verb.split(), *words, "-b", bootstrap_servers]) == status
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"headrace groups {verb.split()[0]}: ")
        return line

    return call


@pytest.fixture
def billing(bootstrap_servers: str, topic: str, groups: Groups) -> str:
    """A consumer group without members that has committed offset 4 of partition 0."""
    group_id = unique("billing")
    groups("reset", group_id, "--topic", f"{topic}:0", "--to", "4", "--type", "consumer")
    return group_id


@pytest.fixture
def packers(bootstrap_servers: str, topic: str) -> str:
    """A share group without members that has accepted all ten records."""
    group_id = share_from_earliest(bootstrap_servers, unique("packers"))
    offsets = []
    with share_consumer(bootstrap_servers, group_id, [topic]) as source:

        def accept(message: Message) -> None:
            offsets.append(message.offset())
            source.acknowledge(message, AcknowledgeType.ACCEPT)

        poll_share(source, lambda: len(offsets) >= 10, accept)
        source.commit_sync(PATIENCE_S)
    return group_id


@pytest.fixture
def busy(bootstrap_servers: str, topic: str, groups: Groups) -> Iterator[str]:
    """A consumer group with a member that has both partitions."""
    group_id = unique("busy")
    with consumer(
        bootstrap_servers, group_id, client_id="worker-7", group_protocol="consumer"
    ) as source:
        source.subscribe([topic])
        source.commit(message=take(source, 4)[-1], asynchronous=False)

        def is_settled() -> bool:
            (member,) = shown(groups, "members", group_id)
            return member["assignment"] == {topic: [0, 1]}

        wait_until(is_settled, PATIENCE_S, "an assignment")
        yield group_id


def new_offsets(rows: list[dict[str, Any]]) -> dict[int, int]:
    """Return the offsets of a reset, by partition."""
    return {row["partition"]: row["new_offset"] for row in rows}


def test_groups_are_listed(groups: Groups, billing: str, packers: str) -> None:
    rows = {row["group_id"]: row for row in shown(groups, "list")}
    assert rows[billing]["group_type"] == "classic" and rows[billing]["group_state"] == "Empty"
    assert (rows[packers]["group_type"], rows[packers]["protocol_type"]) == ("share", "share")
    for words in (
        ["--type", "Share"],
        ["packers.*"],
        [packers, "--state", "stable, Empty"],
    ):
        listed = {row["group_id"] for row in shown(groups, "list", *words)}
        assert packers in listed and billing not in listed
    assert shown(groups, "list", packers, "--state", "stable,dead") == []


def test_an_id_comes_before_the_expression_that_it_is(
    groups: Groups, refused: Callable[..., str], topic: str
) -> None:
    prefix = unique("c")
    ids = [f"{prefix}++", f"{prefix}.", f"{prefix}a"]
    for group_id in ids:
        groups("reset", group_id, "--topic", topic, "--to", "latest", "--type", "consumer")
    for group_id in ids[:2]:
        assert [row["group_id"] for row in shown(groups, "list", group_id)] == [group_id]
    assert len(shown(groups, "list", f"{prefix}.", f"{prefix}a")) == 2
    assert "is not a regular expression" in refused("list", f"{prefix}+++", status=2)


def test_groups_are_described(
    groups: Groups, refused: Callable[..., str], topic: str, busy: str, packers: str
) -> None:
    rows = {row["group_id"]: row for row in shown(groups, "describe", busy, packers)}
    assert (rows[busy]["group_type"], rows[busy]["member_count"]) == ("consumer", 1)
    assert (rows[packers]["group_state"], rows[packers]["member_count"]) == ("Empty", 0)
    assert rows[packers]["group_epoch"] >= 0
    assert {busy, packers} <= {row["group_id"] for row in shown(groups, "describe", "--all")}
    (member,) = shown(groups, "members", busy, packers)
    assert (member["client_id"], member["assignment"]) == ("worker-7", {topic: [0, 1]})
    missing = unique("missing")
    assert f"describing group '{missing}': GROUP_ID_NOT_FOUND" in refused(
        "describe", missing, packers
    )
    assert "is not a share group" in refused("describe", busy, "--in-flight")
    assert "name groups, or give --all" in refused("describe", status=2)


def test_offsets_and_lag(
    groups: Groups, bootstrap_servers: str, topic: str, billing: str, packers: str
) -> None:
    produce(bootstrap_servers, topic, [b"y"] * 3, partition=0)
    rows = {
        (row["group_id"], row["partition"]): row
        for row in shown(groups, "offsets", billing, packers)
    }
    of_billing, of_packers = rows[billing, 0], rows[packers, 0]
    assert (of_billing["committed_offset"], of_billing["end_offset"]) == (4, 13)
    assert (of_billing["lag"], of_billing["start_offset"], of_packers["lag"]) == (9, None, 3)
    assert of_packers["topic"] == topic and of_packers["committed_offset"] is None


def test_records_in_flight(
    groups: Groups,
    refused: Callable[..., str],
    target: str,
    bootstrap_servers: str,
    topic: str,
) -> None:
    group_id = share_from_earliest(bootstrap_servers, unique("holders"))
    with share_consumer(bootstrap_servers, group_id, [topic]) as source:
        held: list[Message] = []
        poll_share(source, lambda: len(held) >= 10, held.append)
        if target == "kafka":
            assert "only headrace's broker tells" in refused("describe", group_id, "--in-flight")
            return
        (span,) = shown(groups, "describe", group_id, "--in-flight")
    assert (span["first_offset"], span["last_offset"], span["delivery_count"]) == (0, 9, 1)
    assert span["state"] == "locked" and span["member_id"] and span["remaining_ms"] > 0
    assert span["client_id"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--to", "earliest"], 0),
        (["--to", "latest"], 10),
        (["--to", "7"], 7),
        (["--to", "99"], 10),
        (["--to", "2026-06-01T05:30"], 6),
        (["--to", "2026-06-01T05:30:00+02:00"], 4),
        (["--to", "now"], 10),
        (["--shift", "2"], 6),
        (["--shift", "-9"], 0),
    ],
)
def test_where_a_group_may_go(
    groups: Groups, topic: str, billing: str, words: list[str], expected: int
) -> None:
    rows = groups("reset", billing, "--topic", f"{topic}:0", *words, "--dry-run")
    assert new_offsets(rows) == {0: expected}
    assert [row["result"] for row in rows] == ["would be reset"]
    (offset,) = shown(groups, "offsets", billing)
    assert offset["committed_offset"] == 4


def test_an_offset_outside_of_the_log_is_told(
    bootstrap_servers: str, groups: Groups, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, group_id = create_topic(bootstrap_servers, unique("short")), unique("g")
    produce(bootstrap_servers, topic, [b"x"] * 6)
    groups("reset", group_id, "--topic", topic, "--to", "5", "--type", "consumer")
    start = TopicPartition(topic, 0, 4)
    admin(bootstrap_servers).delete_records([start])[start].result(PATIENCE_S)
    for words, offset in (
        (["--to", "0"], 0),
        (["--to", "earliest"], None),
        (["--to", "4"], None),
        (["--to", "-9"], None),
        (["--shift", "-1"], None),
        (["--shift", "-9"], -4),
    ):
        line = ["groups", "reset", group_id, "--topic", topic, *words, "--dry-run"]
        assert main([*line, "-o", "json", "-b", bootstrap_servers]) == 0
        out, err = capsys.readouterr()
        assert new_offsets(json.loads(out)) == {0: 4}
        told = f"offset {offset} is not in the log of {topic}-0: 4 is\n"
        assert err == ("" if offset is None else told)


def test_groups_are_reset(groups: Groups, topic: str, billing: str, packers: str) -> None:
    for group_id in (billing, packers):
        rows = groups("reset", group_id, "--topic", topic, "--to", "2")
        assert new_offsets(rows) == {0: 2, 1: 0}, "the nearest in the log"
        rows = groups("reset", group_id, "--all-topics", "--shift", "5")
        assert new_offsets(rows) == {0: 7, 1: 0}
        assert [row["lag"] for row in shown(groups, "offsets", group_id)] == [3, 0]
    new = unique("new")
    groups("reset", new, "--topic", topic, "--to", "earliest", "--type", "share")
    assert [row["group_type"] for row in shown(groups, "describe", new)] == ["share"]


def test_what_is_not_reset(
    refused: Callable[..., str], topic: str, busy: str, billing: str
) -> None:
    words = ("--to", "earliest", "--topic")
    assert "has members (1): stop them" in refused("reset", busy, *words, topic)
    assert "does not exist: give --type share" in refused("reset", unique("no"), *words, topic)
    assert f"topic '{topic}' has no partition 2" in refused("reset", billing, *words, f"{topic}:2")
    assert "does not exist: create it" in refused("reset", billing, *words, unique("no"))
    said = refused("reset", billing, "--topic", f"{topic}:1", "--shift", "1", "--yes")
    assert f"no offset in {topic}-1 to shift" in said
    assert "There is no terminal to ask" in refused("reset", billing, *words, topic, status=2)
    assert "say which topics" in refused("reset", billing, "--to", "latest", status=2)
    assert "nor earliest, latest or" in refused("reset", billing, *words[:1], "soon", status=2)


def test_offsets_are_deleted(
    groups: Groups, refused: Callable[..., str], topic: str, billing: str, packers: str, busy: str
) -> None:
    assert groups("delete-offsets", billing, "--topic", f"{topic}:0,1", "--dry-run")
    rows = groups("delete-offsets", billing, "--topic", topic)
    assert [(row["partition"], row["result"]) for row in rows] == [(0, "deleted")]
    assert groups("delete-offsets", packers, "--topic", topic)
    for group_id in (packers, billing):
        said = refused("delete-offsets", group_id, "--topic", topic, "--yes")
        assert "has no offsets in" in said or "does not exist" in said
    said = refused("delete-offsets", busy, "--topic", topic, "--yes")
    assert "GROUP_SUBSCRIBED_TO_TOPIC" in said and "stop it first" in said
    said = refused("delete-offsets", packers, "--topic", f"{topic}:0", "--yes", status=2)
    assert "leave out the partitions" in said


def test_groups_are_deleted(
    groups: Groups, refused: Callable[..., str], billing: str, packers: str, busy: str
) -> None:
    assert "would be deleted" in str(groups("delete", "--all", "--type", "share", "--dry-run"))
    assert "There is no terminal to ask" in refused("delete", billing, status=2)
    rows = groups("delete", billing, packers)
    assert [(row["group_type"], row["result"]) for row in rows] == [
        ("classic", "deleted"),
        ("share", "deleted"),
    ]
    assert "NON_EMPTY_GROUP" in refused("delete", busy, "--yes")
    assert "GROUP_ID_NOT_FOUND" in refused("delete", packers, "--yes")


def test_configs_are_set(groups: Groups, refused: Callable[..., str], group_id: str) -> None:
    setting = "share.auto.offset.reset=earliest"
    (row,) = shown(groups, "set", group_id, setting)
    assert (row["config"], row["value"], row["result"]) == (*setting.split("="), "set")
    deletion = (group_id, "--delete", "share.auto.offset.reset")
    assert "There is no terminal to ask on" in refused("set", *deletion, status=2)
    (row,) = groups("set", *deletion)
    assert row["result"] == "deleted"
    assert "INVALID_CONFIG" in refused("set", group_id, "no=1")


# Streams groups -----------------------------------------------------------------------------------


@pytest.fixture
def world(bootstrap_servers: str, target: str) -> Iterator[World]:
    world = World(bootstrap_servers, target)
    world.warm_up()
    yield world
    world.close()


class Application:
    """A streams group with a member that has all tasks."""

    def __init__(self, world: World) -> None:
        self.world, self.topic = world, world.topic(partitions=2, records=3)
        self.group_id = unique("app")
        group = Group(world, self.group_id)
        assert group.configure("streams.assignment.interval.ms", "0") == OK
        assert group.configure("streams.initial.rebalance.delay.ms", "0") == OK
        changelog = unique("changelog")
        world.topic(partitions=2, name=changelog, cleanup_policy="compact")
        store = [internal(changelog, cleanup_policy="compact")]
        self.topology = {
            "epoch": 0,
            "subtopologies": [subtopology("0", self.topic.name, changelogs=store)],
        }
        answer = self.beat(0, topology=self.topology)
        assert answer.status == () and answer.active_tasks, answer
        self.epoch = answer.member_epoch

    def beat(self, epoch: int, **fields: Any) -> Any:
        answer = self.world.ask(HEARTBEAT, 0, **heartbeat(self.group_id, "m", epoch, **fields))
        assert answer.error_code == 0, answer
        return answer

    def commit(self, topic: Topic, offset: int) -> None:
        partition = {
            "partition_index": 0,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        answer = self.world.ask(
            8,
            9,
            group_id=self.group_id,
            generation_id_or_member_epoch=self.epoch,
            member_id="m",
            group_instance_id=None,
            topics=[{"name": topic.name, "partitions": [partition]}],
        )
        assert answer.topics[0].partitions[0].error_code == 0


def test_a_streams_group(world: World, groups: Groups, refused: Callable[..., str]) -> None:
    app = Application(world)
    app.commit(app.topic, 1)
    (row,) = shown(groups, "list", app.group_id, "--type", "streams")
    assert row["group_state"] == "Stable"
    rows = {row["partition"]: row for row in shown(groups, "offsets", app.group_id)}
    assert (rows[0]["committed_offset"], rows[0]["end_offset"], rows[0]["lag"]) == (1, 3, 2)
    (member,) = shown(groups, "members", app.group_id)
    assert member["tasks"] == {"active 0": [0, 1]} and member["process_id"] == "pm"
    assert member["assignment"] == {app.topic.name: [0, 1]}
    (state,) = shown(groups, "describe", app.group_id)
    assert (state["member_count"], state["topology_epoch"]) == (1, 0)
    for verb in ("reset", "delete-offsets"):
        words = ("--topic", app.topic.name, *["--to", "earliest"] * (verb == "reset"))
        assert "neither a consumer group nor a share group" in refused(verb, app.group_id, *words)
    app.beat(-1)
    groups("delete", app.group_id)


def test_the_python_api(world: World, bootstrap_servers: str) -> None:
    app = Application(world)
    with AdminClient({"bootstrap.servers": bootstrap_servers}) as admin:
        described = admin.describe_groups([app.group_id, "nobody"])
        group = described[app.group_id].result(PATIENCE_S)
        assert described["nobody"].exception(PATIENCE_S) is not None
    assert (group.state, group.topology_epoch) == ("Stable", 0)
    (member,) = group.members
    assert member.tasks["active"] == {"0": (0, 1)}
    assert set(member.assignment) == {(app.topic.name, 0), (app.topic.name, 1)}
    app.beat(-1)
