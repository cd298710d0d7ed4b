"""Streams groups (KIP-1071): what test_side_by_side_streams.py leaves out."""

from __future__ import annotations

from typing import Any

from tests.conformance.streams import beat, heartbeat, subtopology, tasks_of
from tests.conformance.two_brokers import Side
from tests.conformance.world import Group, World
from tests.support import unique


def test_a_refused_join_takes_no_tasks(world: World, differs: Any) -> None:
    side, group_id, topic = Side(world), unique("streams"), world.topic(4)
    topology = {"epoch": 0, "subtopologies": [subtopology("0", topic.name)]}
    for name in ("assignment.interval.ms", "initial.rebalance.delay.ms"):
        Group(world, group_id).configure(f"streams.{name}", "0")

    def send(member_id: str, epoch: int, **fields: Any) -> Any:
        if epoch == 0:
            fields["topology"] = topology
        return beat(side, heartbeat(group_id, member_id, epoch, **fields))

    owner = send("m", 0, instance_id="i")
    tasks = tasks_of(owner["active_tasks"])
    assert tasks == {"0": (0, 1, 2, 3)}
    assert send("n", 0)["error"] == "OK"
    refusal = send("x", 0, instance_id="i")["error"]
    assert refusal.startswith("UNRELEASED_INSTANCE_ID")
    told = send("m", owner["member_epoch"], instance_id="i", owned=(tasks, {}))
    assert [len(kept) for kept in tasks_of(told["active_tasks"]).values()] == differs(
        "a member that joins a streams group with the instance id of another member",
        kafka=[],
        headrace=[2],
    )
