"""Random heartbeats of share groups' members (KIP-932), with Kafka and headrace at once.

Epochs count from the epoch of the group once its topics are initialised; Kafka takes one more until
then.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.conformance.two_brokers import Conversation
from tests.conformance.world import OK, PATIENCE_S, Topic, World, outcome
from tests.support import RUN_SEED, unique, wait_until

pytestmark = pytest.mark.kafka

STEPS = 80
ROUNDS = 3
EPOCHS = ["now"] * 6 + ["join", "join", "leave", "lower", "higher", "bogus"]


class Side:
    """The group as one of the two brokers has it."""

    def __init__(self, world: World, group_id: str, names: list[str]) -> None:
        self.world, self.group_id = world, group_id
        self.topics: list[Topic] = [world.topic(partitions=4, name=name) for name in names]
        self.labels = {topic.id: topic.name for topic in self.topics}
        self.epochs: dict[str, int] = {}
        self.base = 0
        answer = self.ask("first", "join", subscribed_topic_names=names)
        assert answer[0] == OK, answer
        wait_until(self.has_all, PATIENCE_S, "all partitions")
        for subscribed in (names[:1], names):  # from here on also the previous epoch is the same
            self.ask("first", "now", subscribed_topic_names=subscribed)
        self.base = self.epochs["first"]

    def has_all(self) -> bool:
        self.ask("first", "now")
        (member,) = self.world.describe_groups(self.group_id)[0].members
        return sum(len(one.partitions) for one in member.assignment.topic_partitions) == 4 * len(
            self.topics
        )

    def ask(self, who: str, when: str, **fields: Any) -> tuple[str, int]:
        """Send ShareGroupHeartbeat; return the error and the epoch. The assignment is the
        assignor's choice.
        """
        now = self.epochs.get(who, self.base + 1)
        epoch = {
            "now": now,
            "join": 0,
            "leave": -1,
            "lower": now - 1,
            "higher": now + 1,
            "bogus": -3,
        }[when]
        asked = {
            "group_id": self.group_id,
            "member_id": who,
            "rack_id": None,
            "subscribed_topic_names": None,
        } | fields
        answer = self.world.ask(76, 1, member_epoch=epoch, **asked)
        if answer.error_code == 0:
            self.epochs[who] = answer.member_epoch
        if epoch == 0 and answer.error_code == 0:
            assert answer.assignment is not None
        error = re.sub(r"\d+", "#", outcome(answer.error_code, answer.error_message))
        return error, self.counted(answer.member_epoch)

    def counted(self, epoch: int) -> int:
        return epoch - self.base if epoch > 0 else epoch

    def described(self) -> Any:
        """Send ShareGroupDescribe; return the group."""
        (group,) = self.world.describe_groups(self.group_id)
        members = sorted(
            (
                one.member_id,
                one.rack_id,
                self.counted(one.member_epoch),
                sorted(one.subscribed_topic_names),
            )
            for one in group.members
        )
        epochs = self.counted(group.group_epoch), self.counted(group.assignment_epoch)
        return outcome(group.error_code), group.group_state, epochs, members


@pytest.mark.parametrize("seed", [RUN_SEED + n for n in range(ROUNDS)])
def test_both_answer_the_same(world: World, beside: World, seed: int) -> None:
    group_id, names = unique("group"), [unique("topic"), unique("topic")]
    talk = Conversation([Side(one, group_id, names) for one in (world, beside)], seed)
    rng = talk.rng
    for _ in range(STEPS):
        who, when = rng.choice(["first", "m1", "m2", "m3", ""]), rng.choice(EPOCHS)
        fields: dict[str, Any] = {}
        if when == "join" or rng.random() < 0.15:
            fields["subscribed_topic_names"] = rng.choice(
                [names, names, names[:1], names[1:], ["unknown"], []]
            )
        if rng.random() < 0.1:
            fields["rack_id"] = rng.choice(["", "r"])
        if rng.random() < 0.05 and when != "join":
            fields["group_id"] = rng.choice(["", f"no {group_id}"])
        what = f"{who} {when} {fields}"
        talk.both(what, lambda side: side.ask(who, when, **fields))  # noqa: B023
        talk.both("  is", Side.described)
