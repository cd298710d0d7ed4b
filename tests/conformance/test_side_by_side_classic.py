"""Random conversations of classic groups and their committed offsets, with Kafka and headrace at
once.

After the leader of a group has gone, the brokers may choose different leaders; then a new group
takes the place of that group.
"""

from __future__ import annotations

import time
from typing import Any
from uuid import uuid4

import pytest

from headrace.protocol.errors import ErrorCode
from tests.conformance.classic import ClassicGroup
from tests.conformance.classic_talk import MINUTE_MS, Members, Who
from tests.conformance.producers import Transactional
from tests.conformance.two_brokers import TopicId
from tests.conformance.world import OK, Group, World
from tests.support import RUN_SEED, wait_until

pytestmark = pytest.mark.kafka

STEPS, ROUNDS = 120, 4
HASTY_SECONDS = 4
"""Duration of a conversation about members that come too late."""

TOO_LONG = "x" * 5_000
STATES = (
    "Stable",
    "empty",
    " Empty ",
    "PreparingRebalance",
    "CompletingRebalance",
    "dead",
    "Assigning",
    "what",
)
TYPES = ("classic", "Consumer", "share", "streams", "what")


class Talk(Members):
    """The requests of members and administrators."""

    def __init__(
        self, worlds: list[World], seed: int, hasty: tuple[list[int], list[int]] | None = None
    ) -> None:
        super().__init__(worlds, seed, hasty)
        self.producers: list[Transactional] = []
        self.taking_part: set[str] = set()  # groups in the transaction that is open

    # --- offsets ---

    def commit(self, who: Who) -> None:
        anybody = self.rng.random() < 0.4
        fields = {
            **self._as(who),
            "group_id": self._any_group() if anybody else who.group,
            **(
                {"member_id": "", "generation_id": -1, "group_instance_id": None} if anybody else {}
            ),
            **self._odd(self._not_quite()),
        }
        if not fields["group_id"]:
            # what is committed for the empty id, everybody on the broker has
            fields["group_id"] = who.group
        fields["generation_id_or_member_epoch"] = fields.pop("generation_id")
        if fields["group_id"] == self.others[2] and self.rng.random() < 0.6:
            fields |= {
                "member_id": f"of-{self.others[2]}",
                "generation_id_or_member_epoch": self.rng.randint(-1, 4),
            }
        known = any(one.generation > 0 for one in self.people if one.group == fields["group_id"])
        metadata = ["", "m", None, "müll", *([TOO_LONG] if known else [])]
        partitions = [
            {
                "partition_index": index,
                "committed_offset": self.rng.randint(-1, 99),
                "committed_leader_epoch": self.rng.choice([-1, 0, 7]),
                "committed_metadata": self.rng.choice(metadata),
            }
            for index in self._partitions()
        ]
        topics = [
            {"name": name, "topic_id": topic_id, "partitions": partitions}
            for name, topic_id in self._some()
        ]
        retention = self.rng.choice([-1, 10**8])
        self.both.ask(8, self.rng.randint(2, 10), topics=topics, retention_time=retention, **fields)

    def fetch(self, who: Who) -> None:
        groups = []
        for _ in range(self.rng.choice([1, 1, 2, 4])):
            topics = (
                None
                if self.rng.random() < 0.4
                else [
                    {"name": name, "topic_id": topic_id, "partition_indexes": self._partitions()}
                    for name, topic_id in self._some()
                ]
            )
            group = {
                "group_id": self._any_group(),
                "topics": topics,
                "member_id": None,
                "member_epoch": -1,
            }
            groups.append(
                self._odd(
                    [
                        {"member_id": who.id, "member_epoch": who.generation},
                        {"member_id": "nobody", "member_epoch": 3},
                        {"member_id": "", "member_epoch": 0},
                        {"member_id": f"of-{self.others[2]}", "member_epoch": 1},
                    ],
                    group,
                    0.3,
                )
            )
        version = self.rng.randint(1, 10)
        if version == 1 and groups[0]["topics"] is None:
            version = 2
        one = groups[0]
        stable = self.rng.random() < 0.5
        self.both.ask(
            9,
            version,
            groups=groups,
            require_stable=stable,
            group_id=one["group_id"],
            topics=one["topics"],
        )

    def transact(self, who: Who) -> None:
        """Commit offsets in a transaction, or end the transaction."""
        if not self.producers:
            self.producers = [
                Transactional(world, f"{self.prefix}-producer") for world in self.worlds
            ]
            assert {one.init() for one in self.producers} == {"p0 e0"}
            for side, one in zip(self.conversation.sides, self.producers, strict=True):
                side.call("producer", one.who[0])
        if self.taking_part and self.rng.random() < 0.3:
            self._end_transaction(commit=self.rng.random() < 0.7)
            return
        group = self.rng.choice([who.group, who.group, self.others[0], self.others[4]])
        if group not in self.taking_part:
            assert {one.add_group(group) for one in self.producers} == {OK}
            self.taking_part.add(group)
        member = {**self._as(who), "group_id": group} if self.rng.random() < 0.6 else {}
        fields: dict[str, Any] = {
            "member_id": "",
            "generation_id": -1,
            "transactional_id": self.producers[0].id,
            "producer_id": "producer",
            "producer_epoch": 0,
            **member,
            **self._odd(self._not_quite()),
            "group_id": group,
        }
        partitions = [
            {
                "partition_index": index,
                "committed_offset": self.rng.randint(0, 99),
                "committed_metadata": "",
                "committed_leader_epoch": -1,
            }
            for index in self._partitions()
        ]
        topics = [{"name": name, "partitions": partitions} for name, _ in self._some()]
        self.both.ask(28, self.rng.randint(0, 4), topics=topics, **fields)

    def _end_transaction(self, *, commit: bool) -> None:
        assert {one.end(commit=commit) for one in self.producers} == {OK}
        named = {name: [0, 1, 2, 3] for name in self.topics}
        for world in self.worlds:
            for group in [ClassicGroup(world, one) for one in self.taking_part]:
                wait_until(
                    lambda group=group: "UNSTABLE" not in str(group.fetch(named, stable=True)),
                    20,
                    "the marker",
                )
        self.taking_part.clear()
        self.said.append(f"the transaction is {'committed' if commit else 'aborted'}")

    def delete_offsets(self, who: Who) -> None:
        topics = [
            {
                "name": name,
                "partitions": [{"partition_index": index} for index in self._partitions()],
            }
            for name, _ in self._some()
        ]
        group = "" if self.rng.random() < 0.05 else self._any_group()
        self.both.ask(47, 0, group_id=group, topics=topics)

    def _partitions(self) -> list[int]:
        return self.rng.choices(
            [0, 1, 2, 3, 9, -1], [8, 5, 4, 2, 1, 1], k=self.rng.choice([0, 1, 1, 2, 3])
        )

    def _some(self) -> list[tuple[str, Any]]:
        """Return topics by name and id, and perhaps an unknown one."""
        found: list[tuple[str, Any]] = [
            (name, TopicId(name)) for name in self.rng.sample(self.topics, 2)
        ]
        if self.rng.random() < 0.15:
            found.append((self.rng.choice(["nope", f"{self.prefix}-t999"]), uuid4()))
        return self.rng.sample(
            found, self.rng.randint(0 if self.rng.random() < 0.1 else 1, len(found))
        )

    def _any_group(self) -> str:
        return self.rng.choice([*self.groups, *self.groups, *self.others])

    # --- administrators ---

    def describe(self, who: Who) -> None:
        groups = self.rng.choices(
            [*self.groups, *self.groups, *self.others, ""], k=self.rng.choice([0, 1, 1, 2, 3])
        )
        self.both.ask(15, self.rng.randint(0, 6), groups=groups)

    def list(self, who: Who) -> None:
        version = self.rng.randint(0, 5)
        filters = {
            "states_filter": self.rng.choices(STATES, k=self.rng.choice([0, 1, 2])),
            "types_filter": self.rng.choices(TYPES, k=self.rng.choice([0, 0, 1, 2])),
        }
        self.both.ask(16, version, **filters)

    def delete(self, who: Who) -> None:
        groups = [self._any_group() for _ in range(self.rng.choice([0, 1, 1, 2]))]

        def then(answer: Any) -> None:
            deleted = [
                one["group_id"] for one in answer["results"] if one["error_code"] == ErrorCode.NONE
            ]
            for one in self.people:
                if one.group in deleted:
                    one.generation = -1
            for group in self.founded & set(deleted):
                self.founded.remove(group)
                if self.hasty:
                    self._found(group)

        self.both.ask(42, self.rng.randint(0, 3), then, groups_names=groups)

    def find(self, who: Who) -> None:
        partition = f"{self.groups[0]}:{'A' * 22}:0"
        keys = [
            "",
            self.groups[0],
            "x",
            partition,
            f"{partition}:",
            f"a:{partition}",
            f"{self.groups[0]}:x:0",
            ":::",
        ]
        version = self.rng.randint(0, 6)
        some = self.rng.choices(keys, k=self.rng.choice([0, 1, 1, 2]))
        kind = self.rng.choice([0, 0, 1, 2, 2, 3, -1])
        self.both.ask(10, version, key=self.rng.choice(keys), key_type=kind, coordinator_keys=some)

    def change_topic(self, who: Who) -> None:
        """Grow a topic, or delete it and create another, perhaps with the same name."""
        number = self.rng.randrange(1, 3)
        name = self.topics[number]
        topics = [side.topics[name] for side in self.conversation.sides]
        if self.rng.random() < 0.4:
            for topic in topics:
                topic.grow(self.grown)
                probe = Group(topic.world, f"probe-{name}")
                there = {self.grown - 1: OK}
                wait_until(
                    lambda probe=probe, there=there: (
                        probe.alter(name, {self.grown - 1: 0}) == there
                    ),
                    20,
                    "growth",
                )
            self.grown += 1
            self.said.append(f"{name} has grown")
            return
        ours = [*self.groups, self.others[0]]
        for topic in topics:
            topic.delete()
            groups = [ClassicGroup(topic.world, one) for one in ours]
            wait_until(
                lambda groups=groups: all(name not in one.committed for one in groups),
                20,
                "tombstones",
            )
        self.said.append(f"{name} is deleted")
        self.topics[number] = self._topic(self.rng.randint(1, 3), self.rng.choice([name, None]))

    # --- the conversation ---

    def step(self) -> None:
        who = self.rng.choice(self.people)
        alive = bool(who.id) and who.generation > 0
        steps = {
            self.join: 1 if alive else 6,
            self.sync: 4 if alive else 0.3,
            self.heartbeat: 2 if alive else 0.3,
            self.leave: 0.5,
            self.commit: 3,
            self.fetch: 2,
            self.delete_offsets: 1,
            self.describe: 1,
            self.list: 0.5,
            self.delete: 0.25,
            self.find: 0.3,
            self.change_topic: 0.04,
            self.transact: 0.8,
        }
        if who.waits and self.rng.random() < 0.9:
            del steps[self.join], steps[self.sync]
        if self.hasty:
            del steps[self.change_topic], steps[self.transact]
        (do,) = self.rng.choices(list(steps), list(steps.values()))
        do(who)
        self.settle()

    def settle(self) -> None:
        self.both.settle()
        for group in self.lost & set(self.groups):
            self.both.drop(group)
            self.groups.remove(group)
            self._begin_group()

    def look(self) -> None:
        """Describe all groups and fetch their offsets."""
        self.both.ask(15, 6, groups=[*self.groups, *self.others])
        asked = [
            {"group_id": one, "topics": None, "member_id": None, "member_epoch": -1}
            for one in self.groups
        ]
        self.both.ask(9, 9, groups=asked)
        self.settle()

    def hold(self, steps: int) -> None:
        """Hold a conversation in which nobody is late."""
        for _ in range(steps):
            self.step()
        self.look()

    def hold_by_the_clock(self, seconds: int) -> None:
        """Send requests at the beginning of each second only: timeouts of some tenths more end
        while nobody sends.
        """
        for _ in range(seconds):
            time.sleep(-time.time() % 1)
            while time.time() % 1 < 0.15:
                self.step()
            time.sleep(max(0.0, 0.95 - time.time() % 1))
            self.said.append("later")
            self.settle()
            self.look()


@pytest.mark.parametrize("seed", [RUN_SEED + n for n in range(ROUNDS)])
def test_both_answer_the_same(world: World, beside: World, seed: int) -> None:
    talk = Talk([world, beside], seed)
    talk.hold(STEPS)


def test_both_wait_for_the_same(world: World, beside: World) -> None:
    talk = Talk([world, beside], RUN_SEED, hasty=([200, 1_200], [MINUTE_MS]))
    talk.hold_by_the_clock(HASTY_SECONDS)
