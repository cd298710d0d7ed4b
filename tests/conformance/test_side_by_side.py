"""Random deliveries and acknowledgements of share groups, with Kafka and headrace at once.

Not compared: the number of elements in which adjoining records come, and the text of an error
beside its code.
"""

from __future__ import annotations

import random

import pytest

from tests.conformance.members import BRIEFLY_MS, Member
from tests.conformance.two_brokers import told
from tests.conformance.world import World
from tests.support import RUN_SEED

pytestmark = pytest.mark.kafka

STEPS = 60
ROUNDS = 5
KAFKA_FAILED = "UNKNOWN_SERVER_ERROR"
"""Kafka's answer to an acknowledgement of records before the first one in flight: it ends the
conversation.
"""


def joined(acquired: str) -> str:
    """Return "0-4 c1, 5-9 c1" as "0-9 c1"."""
    runs: list[tuple[int, int, str]] = []
    for one in filter(None, acquired.split(", ")):
        offsets, count = one.split(" ")
        first, last = map(int, offsets.split("-"))
        if runs and (runs[-1][1] + 1, runs[-1][2]) == (first, count):
            first = runs.pop()[0]
        runs.append((first, last, count))
    return ", ".join(f"{first}-{last} {count}" for first, last, count in runs)


class Conversation:
    """The same group with two members on both brokers, and the conversation so far."""

    def __init__(self, worlds: list[World], rng: random.Random) -> None:
        limit = rng.choice([2, 3, 5, 10])
        self.rng = rng
        self.said = [f"delivery limit {limit}"]
        self.topics = [world.topic() for world in worlds]
        self.groups = [
            world.earliest_group(share_delivery_count_limit=str(limit)) for world in worlds
        ]
        self.members: list[list[Member]] = [
            [group.join(topic) for _ in range(2)]
            for group, topic in zip(self.groups, self.topics, strict=True)
        ]
        for members in self.members:
            for member in members:  # opens the session, and takes nothing
                member.share_fetch(max_records=0, wait_ms=0)
        self.end = 0

    def produce(self) -> None:
        sizes = self.rng.choices([1, 2, 5, 10, 20, 40], k=self.rng.randint(1, 4))
        for topic in self.topics:
            topic.produce(*sizes)
        self.end += sum(sizes)
        self.said.append(f"produce {sizes}")

    def fetch(self, who: int) -> bool:
        options = {
            "max_records": self.rng.choice([1, 3, 7, 20, 50, 500]),
            "batch_size": self.rng.choice([1, 3, 10, 500]),
            "record_limit": self.rng.random() < 0.35,
        }
        got = [
            joined(members[who].fetch(wait_ms=BRIEFLY_MS // 4, **options))
            for members in self.members
        ]
        self.said.append(f"{who} fetches {options}: {got}")
        return got[0] == got[1]

    def acknowledge(self, who: int) -> bool | None:
        first = self.rng.randrange(self.end + 2)
        last = first + self.rng.choice([0, 1, 2, 5, 10, 40])
        kinds = [self.rng.choice(["accept", "release", "release", "reject"])]
        if self.rng.random() < 0.4:
            kinds = self.rng.choices(["accept", "release", "reject", "gap"], k=last - first + 1)
        text = f"{first}-{last} {','.join(kinds)}"
        answers = [members[who].share_acknowledge(text) for members in self.members]
        if answers[0].error == KAFKA_FAILED:
            return None
        got = [
            (one.error, {p: error.split(":")[0] for p, error in one.partitions.items()})
            for one in answers
        ]
        lags = [group.lag(topic) for group, topic in zip(self.groups, self.topics, strict=True)]
        self.said.append(f"{who} acknowledges {text}: {got}, lag {lags}")
        return got[0] == got[1] and lags[0] == lags[1]

    def go_on(self) -> bool | None:
        """Take one step; return whether both agree, or None when the conversation ends."""
        dice, who = self.rng.random(), self.rng.randrange(2)
        if dice < 0.12 or self.end == 0:
            self.produce()
            return True
        return self.fetch(who) if dice < 0.45 else self.acknowledge(who)


@pytest.mark.parametrize("seed", [RUN_SEED + n for n in range(ROUNDS)])
def test_both_answer_the_same(world: World, beside: World, seed: int) -> None:
    talk = Conversation([world, beside], random.Random(seed))
    for _ in range(STEPS):
        agreed = talk.go_on()
        if agreed is None:
            break
        assert agreed, told(seed, talk.said)
