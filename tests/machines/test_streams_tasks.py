"""The partitions that the tasks of a streams group read (KIP-1071), as described by its
coordinator.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from headrace.client.cluster import TopicMetadata
from headrace.client.errors import ConnectionFailed, UnknownTopic
from headrace.client.groups import STREAMS, _description
from headrace.client.lag.partition_leaders import PartitionLeaders
from headrace.protocol.partitions import TopicPartition


def assignment_of(
    subtopologies: dict[str, tuple[list[str], list[str]]] | None, **tasks: list[int]
) -> set[TopicPartition]:
    """Return the partitions of a member with active tasks.

    :param subtopologies: source topics and repartition topics by id; None for no topology
    """
    topology = subtopologies and SimpleNamespace(
        epoch=0,
        subtopologies=[
            SimpleNamespace(
                subtopology_id=name,
                source_topics=sources,
                repartition_source_topics=[SimpleNamespace(name=topic) for topic in repartition],
                repartition_sink_topics=[],
                state_changelog_topics=[],
            )
            for name, (sources, repartition) in subtopologies.items()
        ],
    )
    active = [
        SimpleNamespace(subtopology_id=name, partitions=numbers) for name, numbers in tasks.items()
    ]
    assigned = SimpleNamespace(active_tasks=active, standby_tasks=[], warmup_tasks=[])
    member = SimpleNamespace(
        member_id="m",
        client_id="c",
        client_host="h",
        member_epoch=1,
        topology_epoch=0,
        process_id="p",
        instance_id=None,
        rack_id=None,
        assignment=assigned,
        target_assignment=assigned,
    )
    group = SimpleNamespace(
        group_id="g",
        group_state="Stable",
        authorized_operations=0,
        group_epoch=1,
        assignment_epoch=1,
        topology=topology,
        members=[member],
    )
    cluster: Any = SimpleNamespace(coordinators={})
    (described,) = _description(cluster, STREAMS, group).members
    return set(described.assignment)


def test_each_task_reads_its_partition_of_every_source_topic() -> None:
    subtopologies: dict[str, tuple[list[str], list[str]]] = {
        "one": (["orders", "returns"], []),
        "two": ([], ["by-word"]),
    }
    assert assignment_of(subtopologies, one=[0, 2], two=[1]) == {
        ("by-word", 1),
        ("orders", 0),
        ("orders", 2),
        ("returns", 0),
        ("returns", 2),
    }


def test_a_topology_that_is_not_known_yet_says_nothing() -> None:
    assert assignment_of(None, one=[0]) == set()
    assert assignment_of({"other": (["orders"], [])}, one=[0]) == set()


def test_only_a_topic_that_is_there_can_lack_a_partition() -> None:
    class Cluster:
        async def metadata(self, topics: list[str]) -> dict[str, Any]:
            there = TopicMetadata("orders", UUID(int=1), {0: 1, 1: -1})
            return {name: there if name == "orders" else UnknownTopic(name) for name in topics}

    leaders = PartitionLeaders(Cluster())  # type: ignore[arg-type]
    asyncio.run(leaders.learn(["orders", "gone"]))
    asked = [("orders", 0), ("orders", 1), ("orders", 2), ("gone", 0), ("never looked up", 5)]
    assert [leaders.may_exist(one) for one in asked] == [True, True, False, True, True]


def test_a_topic_whose_look_up_failed_is_looked_up_again() -> None:
    class Cluster:
        calls = 0

        async def metadata(self, topics: list[str]) -> dict[str, Any]:
            self.calls += 1
            if self.calls == 1:
                raise ConnectionFailed("no broker answers")
            return {name: TopicMetadata(name, UUID(int=1), {0: 1}) for name in topics}

    leaders = PartitionLeaders(Cluster())  # type: ignore[arg-type]
    with pytest.raises(ConnectionFailed):
        asyncio.run(leaders.learn(["orders"]))
    asyncio.run(leaders.learn(["orders"]))
    assert leaders.partitions("orders") == [0]


def test_two_look_ups_at_once_both_find_the_topic() -> None:
    class Cluster:
        async def metadata(self, topics: list[str]) -> dict[str, Any]:
            await asyncio.sleep(0)
            return {name: TopicMetadata(name, UUID(int=1), {0: 1}) for name in topics}

    async def look_up(leaders: PartitionLeaders) -> list[int] | None:
        await leaders.learn(["orders"])
        return leaders.partitions("orders")

    async def both() -> list[list[int] | None]:
        leaders = PartitionLeaders(Cluster())  # type: ignore[arg-type]
        return await asyncio.gather(look_up(leaders), look_up(leaders))

    assert asyncio.run(both()) == [[0], [0]]
