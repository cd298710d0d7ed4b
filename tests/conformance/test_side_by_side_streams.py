"""Random lives of streams groups (KIP-1071), with Kafka and headrace at once.

Members join, report tasks, leave, commit and are described; source topics are created and grown;
internal topics come with the heartbeats. Member and process ids are single letters: Kafka visits
such ids in their order, as headrace does, so both assign the same tasks.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from headrace.protocol.errors import ErrorCode
from tests.conformance.streams import (
    HEARTBEAT,
    beat,
    describe,
    heartbeat,
    internal,
    subtopology,
    tasks_of,
)
from tests.conformance.two_brokers import Conversation, Side
from tests.conformance.world import OK, PATIENCE_S, Group, World
from tests.support import RUN_SEED, unique

pytestmark = pytest.mark.kafka

STEPS = 60
ROUNDS = 4
HEARD_S = 0.4
"""Longest time by which Kafka's coordinators hear of a topic later than its other parts."""
MISSING_INTERNAL_TOPICS = 3
MEMBERS, PROCESSES = "abcde", "hi"


class StreamsGroup(Conversation[Side]):
    """The same group on both brokers.

    :ivar epochs: the epoch of each member
    :ivar held: the active and standby tasks of each member
    :ivar shares_instances: members join with the instance id of another member, too
    """

    def __init__(self, worlds: list[World], seed: int) -> None:
        self.group_id = unique("streams")
        super().__init__([Side(world, self.group_id) for world in worlds], seed)
        rng = self.rng
        self.sources = [unique("t"), unique("u")]
        self.sizes: dict[str, int] = {}
        # A thread of an application stays in its process, and Kafka counts on it.
        self.processes = {member_id: rng.choice(PROCESSES) for member_id in MEMBERS}
        self.epochs: dict[str, int] = {}
        self.held: dict[str, tuple[Any, Any]] = {}
        # Kafka fails where a member has an endpoint and topics are missing (docs/differences.md).
        self.has_endpoints = rng.random() < 0.3
        self.topology = {"epoch": 0, "subtopologies": self.subtopologies()}
        self.configure("streams.assignment.interval.ms", "0")
        self.configure("streams.initial.rebalance.delay.ms", "0")
        self.configure("streams.num.standby.replicas", rng.choice("011"))
        warmup_replicas = rng.choice("02")
        self.configure("streams.num.warmup.replicas", warmup_replicas)
        # With warm-up replicas, a refused join costs the owner of its instance id the tasks in
        # Kafka (docs/differences.md).
        self.shares_instances = warmup_replicas == "0"
        for name in self.sources[: 2 if self.has_endpoints else rng.choice([1, 2, 2, 2])]:
            self.make(name, 2 if self.has_endpoints else rng.choice([1, 2, 3]))

    def subtopologies(self) -> list[Any]:
        first, second = self.sources
        words, counts = f"{first}-words", f"{first}-counts"
        shape = self.rng.choice(["source", "count", "join", "copartitioned"])
        if shape == "source":
            return [subtopology("0", first), subtopology("1", second)]
        if shape == "copartitioned":
            return [subtopology("0", first, second, groups=[((0, 1), ())])]
        fixed = self.rng.choice([0, 0, 0, 2])
        sources, groups = ((), [((), (0,))]) if shape == "count" else ((second,), [((0,), (0,))])
        return [
            subtopology("0", first, sinks=[words]),
            subtopology(
                "1",
                *sources,
                changelogs=[internal(counts, cleanup_policy="compact")],
                repartitions=[internal(words, fixed)],
                groups=groups,
            ),
        ]

    # --- topics and configs ---

    def make(self, name: str, partitions: int) -> None:
        self.said.append(f"{name} is created with {partitions}")
        for side in self.sides:
            side.make(name, partitions)
        self.sizes[name] = partitions
        time.sleep(HEARD_S)

    def grow(self) -> None:
        if self.has_endpoints:
            return
        name = self.rng.choice(self.sources)
        if name not in self.sizes:
            self.make(name, self.rng.choice([1, 2, 3]))
            return
        self.sizes[name] += 1
        self.said.append(f"{name} grows to {self.sizes[name]}")
        for side in self.sides:
            side.topics[name].grow(self.sizes[name])
        time.sleep(HEARD_S)

    def configure(self, name: str, value: str) -> None:
        self.both(
            f"{name}={value}", lambda side: Group(side.world, self.group_id).configure(name, value)
        )

    # --- members ---

    def beat(self, member_id: str, epoch: int, **fields: Any) -> Any:
        asked = heartbeat(self.group_id, member_id, epoch, **fields)
        told = {name: fields[name] for name in fields if name != "topology"}
        answer = self.both(f"{member_id} e{epoch} {told}", lambda side: beat(side, asked))
        if answer["error"] != OK:
            if epoch > 0 and answer["error"].startswith(("UNKNOWN", "FENCED", "GROUP_ID")):
                self.forget(member_id)
            return answer
        if epoch < 0:
            self.forget(member_id)
            return answer
        self.epochs[member_id] = answer["member_epoch"]
        if answer["active_tasks"] is not None:
            self.held[member_id] = (
                tasks_of(answer["active_tasks"]),
                tasks_of(answer["standby_tasks"]),
            )
        if any(one["status_code"] == MISSING_INTERNAL_TOPICS for one in answer["status"]):
            self.await_internal_topics()
        return answer

    def await_internal_topics(self) -> None:
        """Wait until both have created the internal topics."""
        names = sorted(
            topic["name"]
            for one in self.topology["subtopologies"]
            for kind in ("state_changelog_topics", "repartition_source_topics")
            for topic in one[kind]
        )

        def known(side: Side) -> Any:
            asked = [{"name": name} for name in names]
            answer = side.world.ask(3, 12, topics=asked, allow_auto_topic_creation=False)
            return [
                (one.name, ErrorCode(one.error_code).name, len(one.partitions))
                for one in sorted(answer.topics, key=lambda one: one.name)
            ]

        self.both("internal topics", known, PATIENCE_S)
        time.sleep(HEARD_S)

    def forget(self, member_id: str) -> None:
        self.epochs.pop(member_id, None)
        self.held.pop(member_id, None)

    def join(self, member_id: str) -> None:
        rng = self.rng
        fields: dict[str, Any] = {"process_id": self.processes[member_id]}
        if rng.random() < 0.1:
            fields["client_tags"] = [{"key": "zone", "value": rng.choice("xy")}]
        if rng.random() < 0.2:
            owner = rng.choice([member_id, "a"]) if self.shares_instances else member_id
            fields["instance_id"] = f"instance of {owner}"
        if self.has_endpoints and rng.random() < 0.3:
            fields["user_endpoint"] = {"host": "host", "port": 9_000 + ord(member_id)}
        topology = self.topology
        if rng.random() < 0.05:
            topology = {**topology, "epoch": rng.choice([1, 2])}
        self.beat(member_id, 0, topology=topology, **fields)

    def report(self, member_id: str) -> None:
        rng, fields = self.rng, {}
        if rng.random() < 0.8:
            fields["owned"] = self.held[member_id]
        if rng.random() < 0.05:
            fields["endpoint_information_epoch"] = rng.choice([-1, 1, 2])
        if rng.random() < 0.02:
            fields["shutdown_application"] = True
        for kind in ("task_offsets", "task_end_offsets"):
            if rng.random() < 0.1:
                fields[kind] = [
                    {"subtopology_id": "0", "partition": 0, "offset": rng.randrange(9)}
                    for _ in range(rng.randrange(3))  # two for one task are refused
                ]
        off = rng.choice([0] * 18 + [-1, 1])
        epoch = self.epochs[member_id] + off
        if epoch > 0:
            self.beat(member_id, epoch, **fields)

    def bad(self, member_id: str) -> None:
        """Send a heartbeat that is refused."""
        rng = self.rng
        epoch, fields = rng.choice(
            [
                (0, {"topology": None}),
                (0, {"topology": self.topology, "rebalance_timeout": -1}),
                (0, {"topology": self.topology, "owned": ({"0": (0,)}, {})}),
                (0, {"topology": self.topology, "active_tasks": None}),
                (0, {"topology": self.topology, "instance_id": " "}),
                (1, {"instance_id": "unknown"}),
                (-1, {"instance_id": "unknown"}),
                (-2, {"instance_id": "unknown"}),
                (0, {"topology": self.topology, "rack_id": ""}),
                (0, {"topology": self.topology, "member_id": ""}),
                (0, {"topology": self.topology, "group_id": ""}),
                (0, {"topology": self.topology, "warmup_tasks": _tasks("0")}),
                (0, {"topology": self.changed(subtopology("0", regex=["a.*"]))}),
                (0, {"topology": self.changed(subtopology("0", "__consumer_offsets"))}),
                (0, {"topology": self.changed(subtopology("0", "no/name"))}),
                (0, {"topology": self.changed(subtopology("9", self.sources[0]))}),
                (0, {"topology": self.changed(subtopology("0", changelogs=[internal("c", 1)]))}),
                (1, {"topology": self.topology}),
                (1, {"member_id": "x"}),
                (1, {"group_id": f"{self.group_id}-no"}),
                (1, {"standby_tasks": []}),
                (-1, {"member_id": "x"}),
                (-1, {"group_id": f"{self.group_id}-no"}),
                (-2, {}),
                (-3, {}),
            ]
        )
        asked = heartbeat(self.group_id, member_id, epoch, **fields)
        self.both(
            f"{member_id} e{epoch} bad {list(fields)} {fields.get('topology')}",
            lambda side: beat(side, asked),
        )

    def changed(self, one: Any) -> Any:
        return {"epoch": 0, "subtopologies": [one]}

    def wrong_task(self, member_id: str) -> None:
        owned = self.rng.choice([({"7": (0,)}, {}), ({"0": (99,)}, {}), ({}, {"0": (-1,)})])
        asked = heartbeat(self.group_id, member_id, self.epochs[member_id], owned=owned)
        self.both(f"{member_id} reports {owned}", lambda side: beat(side, asked)["error"])

    # --- the group ---

    def describe(self) -> None:
        self.both("is", lambda side: describe(side, self.group_id))
        self.ask("listed", 16, 5, types_filter=["streams"])

    def commit(self, member_id: str) -> None:
        rng = self.rng
        epoch = self.epochs.get(member_id, 1) + rng.choice([0, 0, 0, -1, -2, 1])
        partitions = [{"partition_index": rng.randrange(3), "committed_offset": rng.randrange(9)}]
        who, epoch = rng.choice([(member_id, epoch)] * 5 + [("", -1), ("x", 1)])
        self.ask(
            f"{who} e{epoch} commits",
            8,
            rng.choice([8, 9, 9, 9]),
            group_id=self.group_id,
            generation_id_or_member_epoch=epoch,
            member_id=who,
            topics=[{"name": rng.choice([*self.sizes]), "partitions": partitions}],
        )

    def fetch_offsets(self, member_id: str) -> None:
        epoch = self.epochs.get(member_id, 1) + self.rng.choice([0, 0, 1])
        who: tuple[str | None, int] = self.rng.choice([(member_id, epoch), (None, -1), ("x", 1)])
        group = {
            "group_id": self.group_id,
            "member_id": who[0],
            "member_epoch": who[1],
            "topics": None,
        }
        self.ask(f"{who} fetches", 9, 9, groups=[group])

    def other_kinds(self) -> None:
        """Send requests for other kinds of groups."""
        rng, group_id = self.rng, self.group_id
        kind = rng.choice(["consumer", "share", "classic", "describe", "delete offsets", "delete"])
        if kind == "consumer" and self.epochs:
            self.ask(
                "a consumer joins",
                68,
                0,
                group_id=group_id,
                member_id="c",
                member_epoch=0,
                rebalance_timeout=1_000,
                subscribed_topic_names=[self.sources[0]],
            )
        elif kind == "share" and self.epochs:
            self.ask(
                "a share consumer joins",
                76,
                1,
                group_id=group_id,
                member_id="c",
                member_epoch=0,
                subscribed_topic_names=[self.sources[0]],
            )
        elif kind == "classic" and self.epochs:
            self.ask(
                "a classic consumer joins",
                11,
                5,
                group_id=group_id,
                member_id="",
                protocol_type="consumer",
                session_timeout=10_000,
                rebalance_timeout=10_000,
                protocols=[{"name": "range", "metadata": b""}],
            )
        elif kind == "describe":
            self.ask("described as another kind", 69, 0, group_ids=[group_id])
        elif kind == "delete offsets":
            topics = [{"name": name, "partitions": [{"partition_index": 0}]} for name in self.sizes]
            self.ask("offsets are deleted", 47, 0, group_id=group_id, topics=topics)
        elif kind == "delete" and (self.epochs or rng.random() < 0.3):
            self.ask("is deleted", 42, 2, groups_names=[group_id])

    def step(self) -> None:
        rng, dice = self.rng, self.rng.random()
        member_id = rng.choice(MEMBERS)
        if dice < 0.6:
            (self.report if member_id in self.epochs else self.join)(member_id)
        elif dice < 0.65:
            self.join(member_id)
        elif dice < 0.69 and member_id in self.epochs:
            self.beat(member_id, -1)
        elif dice < 0.72 and member_id in self.epochs:
            self.beat(member_id, -2, instance_id=f"instance of {member_id}")
        elif dice < 0.78 and self.epochs:
            self.bad(member_id)
        elif dice < 0.8 and member_id in self.epochs:
            self.wrong_task(member_id)
        elif dice < 0.82:
            self.grow()
        elif dice < 0.84:
            self.configure("streams.num.standby.replicas", rng.choice("0123"))
            self.configure("streams.rack.aware.assignment.tags", rng.choice(["", "", "zone,row"]))
        elif dice < 0.9:
            self.commit(member_id)
        elif dice < 0.94:
            self.fetch_offsets(member_id)
        else:
            self.other_kinds()
        if rng.random() < 0.4:
            self.describe()


def _tasks(id_: str) -> list[dict[str, Any]]:
    return [{"subtopology_id": id_, "partitions": [0]}]


@pytest.mark.parametrize("seed", [RUN_SEED + n for n in range(ROUNDS)])
def test_both_answer_the_same(world: World, beside: World, seed: int) -> None:
    assert all(one.serves(HEARTBEAT) for one in (world, beside))
    group = StreamsGroup([world, beside], seed)
    for _ in range(STEPS):
        group.step()
    for _ in range(6):
        for member_id in sorted(group.epochs):
            group.beat(member_id, group.epochs[member_id], owned=group.held[member_id])
    group.describe()


class Topologies(Conversation[Side]):
    """Odd topologies, each of a group of its own.

    :ivar run: a part of the names of all topics
    """

    def __init__(self, worlds: list[World]) -> None:
        super().__init__([Side(world) for world in worlds], 0)
        self.run = unique("")
        for name, partitions in (("one", 1), ("two", 2), ("three", 3)):
            for side in self.sides:
                side.make(self.name(name), partitions)
        time.sleep(HEARD_S)

    def name(self, name: str) -> str:
        return f"{name}{self.run}"

    def internal(self, name: str, *numbers: int, **configs: str) -> dict[str, Any]:
        return internal(self.name(name), *numbers, **configs)

    def subtopology(self, id_: str, *sources: str, **fields: Any) -> dict[str, Any]:
        if "sinks" in fields:
            fields["sinks"] = [self.name(one) for one in fields["sinks"]]
        return subtopology(id_, *map(self.name, sources), **fields)

    def ask_both(self, what: str, *subtopologies: Any, epoch: int = 0) -> None:
        topology = {"epoch": epoch, "subtopologies": subtopologies}
        group_id = unique("streams")

        def error_and_statuses(side: Side) -> Any:
            Group(side.world, group_id).configure("streams.initial.rebalance.delay.ms", "0")
            asked = heartbeat(group_id, "m", 0, topology=topology)
            answer = beat(side, asked)
            return answer["error"], answer["status"], describe(side, group_id)

        self.both(what, error_and_statuses)


def test_both_answer_the_same_to_odd_topologies(world: World, beside: World) -> None:
    talk = Topologies([world, beside])
    sub, topic, ask = talk.subtopology, talk.internal, talk.ask_both
    ask("nothing")
    ask("no sources", sub("0"))
    ask("a negative epoch", sub("0", "one"), epoch=-1)
    ask("an id twice", sub("0", "one"), sub("0", "two"))
    ask("missing sources", sub("0", "d", "c", "b", "a"))
    ask("a source twice", sub("0", "one"), sub("1", "one"))
    ask("copartitioned", sub("0", "one", "two", groups=[((0, 1), ())]))
    ask("a group out of bounds", sub("0", "one", groups=[((1,), ())]))
    ask("a group below bounds", sub("0", "one", groups=[((-1,), ())]))
    ask("an empty group", sub("0", "one", groups=[((), ())]))
    for fixed in (0, 1, 4, -1):
        ask(
            f"repartition {fixed}",
            sub("0", "three", sinks=[f"r{fixed}"]),
            sub("1", repartitions=[topic(f"r{fixed}", fixed)], groups=[((), (0,))]),
        )
        ask(
            f"repartition {fixed} with a source",
            sub("0", "three", sinks=[f"s{fixed}"]),
            sub("1", "two", repartitions=[topic(f"s{fixed}", fixed)], groups=[((0,), (0,))]),
        )
    ask("a repartition topic that is never written", sub("0", "one", repartitions=[topic("rr")]))
    ask("a loop", sub("0", sinks=["l"], repartitions=[topic("l")]))
    ask("a loop with a source", sub("0", "two", sinks=["ls"], repartitions=[topic("ls")]))
    ask(
        "two fixed ones",
        sub("0", "three", sinks=["f1", "f2"]),
        sub("1", repartitions=[topic("f1", 2), topic("f2", 4)], groups=[((), (0, 1))]),
    )
    ask(
        "a fixed and a free one",
        sub("0", "three", sinks=["g1", "g2"]),
        sub("1", repartitions=[topic("g1", 2), topic("g2")], groups=[((), (0, 1))]),
    )
    ask("an existing changelog", sub("0", "two", changelogs=[topic("two")]))
    ask("an existing changelog of another size", sub("0", "two", changelogs=[topic("three")]))
    ask("an existing repartition topic", sub("0", "two", sinks=["three"]), sub("1", "three"))
    ask("a changelog with partitions", sub("0", "two", changelogs=[topic("c", 1)]))
    ask("a bad config", sub("0", "two", changelogs=[topic("bad", cleanup_policy="what")]))
    ask("too many replicas", sub("0", "two", changelogs=[topic("rf", 0, 3)]))
    ask("negative replicas", sub("0", "two", changelogs=[topic("nr", 0, -2)]))
