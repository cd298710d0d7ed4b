"""`headrace streams-groups` and its Python API, with members that send raw requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headrace.admin import AdminClient
from tests.clients.confluent import PATIENCE_S
from tests.clients.conftest import Run, objects
from tests.conformance.streams import HEARTBEAT, heartbeat, internal, subtopology
from tests.conformance.world import OK, Group, Topic, World
from tests.support import unique

COMMAND = "streams-groups"


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


def test_a_group_from_its_beginning_to_its_end(world: World, run: Run) -> None:
    app = Application(world)
    app.commit(app.topic, 1)
    assert app.group_id in run("list")
    assert [app.group_id, "Stable"] in [line.split() for line in run("list", "--state", "stable")]
    described = [line.split() for line in run("describe", app.group_id)]
    assert described[1:] == [
        ["GROUP", "TOPIC", "PARTITION", "OFFSET-LAG"],
        [app.group_id, app.topic.name, "0", "2"],
        [app.group_id, app.topic.name, "1", "-"],
    ]
    (row, _) = objects(run("describe", app.group_id, "--json"))
    assert (row["current_offset"], row["log_end_offset"], row["offset_lag"]) == (1, 3, 2)
    (member,) = objects(run("describe", app.group_id, "--members", "--json"))
    assert member["tasks"] == {"active": {"0": [0, 1]}, "standby": {}, "warmup": {}}
    assert member["tasks"] == member["target_tasks"] and member["process"] == "pm"
    assert "ACTIVE: 0:[0,1];" in run("describe", app.group_id, "--members")[-1]
    (state,) = objects(run("describe", app.group_id, "--state", "--json"))
    assert (state["state"], state["members"], state["topology_epoch"]) == ("Stable", 1, 0)
    refused = run("delete", app.group_id, status=1)[-1]
    assert "could not be deleted: The group is not empty." in refused
    app.beat(-1)
    assert run("delete", app.group_id) == [
        f"Deletion of requested streams groups ('{app.group_id}') was successful."
    ]
    assert app.group_id not in run("list")
    gone = run("describe", app.group_id, status=1)[-1]
    assert f"Group {app.group_id} not found." in gone


def test_groups_of_other_types_are_refused(world: World, run: Run) -> None:
    group_id = world.classic_group(world.topic())
    for action in ("describe", "delete"):
        assert "is not a streams group" in run(action, group_id, status=1)[-1]
    assert group_id not in run("list")


def test_the_python_api(world: World, bootstrap_servers: str) -> None:
    app = Application(world)
    with AdminClient({"bootstrap.servers": bootstrap_servers}) as admin:
        described = admin.describe_streams_groups([app.group_id, "nobody"])
        group = described[app.group_id].result(PATIENCE_S)
        assert described["nobody"].exception(PATIENCE_S) is not None
    assert (group.state_name, group.topology_epoch) == ("Stable", 0)
    (one,) = group.subtopologies
    assert (one.subtopology_id, one.source_topics) == ("0", (app.topic.name,))
    assert len(one.state_changelog_topics) == 1
    (member,) = group.members
    assert member.tasks.active == member.target_tasks.active == {"0": (0, 1)}
    assert {(p.topic, p.partition) for p in member.assignment.topic_partitions} == {
        (app.topic.name, 0),
        (app.topic.name, 1),
    }
    app.beat(-1)
