"""Streams groups (KIP-1071): what test_side_by_side_streams.py leaves out or seldom meets."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.streams import beat, describe, heartbeat, subtopology, tasks_of
from tests.conformance.two_brokers import Side
from tests.conformance.world import Group, World
from tests.support import unique

SHUTDOWN_APPLICATION = 4


class StreamsGroup:
    """A streams group that reads a topic of four partitions and assigns at once."""

    def __init__(self, world: World) -> None:
        self.side, self.id = Side(world), unique("streams")
        for name in ("assignment.interval.ms", "initial.rebalance.delay.ms"):
            Group(world, self.id).configure(f"streams.{name}", "0")
        source = subtopology("0", world.topic(4).name)
        self.topology = {"epoch": 0, "subtopologies": [source]}

    def beat(self, member_id: str, epoch: int, **fields: Any) -> Any:
        if epoch == 0:
            fields.update(topology=self.topology, process_id="p")
        return beat(self.side, heartbeat(self.id, member_id, epoch, **fields))


@pytest.fixture
def group(world: World) -> StreamsGroup:
    return StreamsGroup(world)


def statuses(answer: Any) -> list[int]:
    return [status["status_code"] for status in answer["status"]]


def test_a_refused_join_takes_no_tasks(group: StreamsGroup, differs: Any) -> None:
    owner = group.beat("m", 0, instance_id="i")
    tasks = tasks_of(owner["active_tasks"])
    assert tasks == {"0": (0, 1, 2, 3)}
    assert group.beat("n", 0)["error"] == "OK"
    assert group.beat("x", 0, instance_id="i")["error"].startswith("UNRELEASED_INSTANCE_ID")
    told = group.beat("m", owner["member_epoch"], instance_id="i", owned=(tasks, {}))
    assert [len(kept) for kept in tasks_of(told["active_tasks"]).values()] == differs(
        "a member that joins a streams group with the instance id of another member",
        kafka=[],
        headrace=[2],
    )


@pytest.mark.parametrize("returns_as", ["m", "another"])
def test_a_static_member_comes_back_without_its_offsets(
    group: StreamsGroup, returns_as: str
) -> None:
    epoch = group.beat("m", 0, instance_id="i")["member_epoch"]
    offsets = [{"subtopology_id": "0", "partition": 0, "offset": 5}]
    group.beat("m", epoch, instance_id="i", task_offsets=offsets)
    group.beat("m", -2, instance_id="i")
    (away,) = describe(group.side, group.id)["members"]
    assert (away["member_epoch"], len(away["task_offsets"])) == (-2, 1)
    group.beat(returns_as, 0, instance_id="i")
    (back,) = describe(group.side, group.id)["members"]
    assert (back["member_epoch"], back["task_offsets"]) == (epoch, [])


@pytest.mark.parametrize("returns_as", ["m", "another"])
def test_an_only_static_member_that_comes_back_ends_a_shutdown(
    group: StreamsGroup, returns_as: str
) -> None:
    epoch = group.beat("m", 0, instance_id="i")["member_epoch"]
    group.beat("m", epoch, instance_id="i", shutdown_application=True)
    group.beat("m", -2, instance_id="i")
    assert statuses(group.beat(returns_as, 0, instance_id="i")) == [SHUTDOWN_APPLICATION]
    assert statuses(group.beat(returns_as, epoch, instance_id="i")) == []
