"""A member of a consumer group of the new protocol (KIP-848)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.conformance.world import OK, PATIENCE_S, Topic, World, outcome
from tests.support import unique, wait_until

ASK_AGAIN_S = 0.2


@dataclass(frozen=True, slots=True)
class Beat:
    """The answer to a heartbeat.

    :param assignment: topic name → partitions; None when the answer has none
    """

    error: str
    epoch: int
    assignment: dict[str, list[int]] | None


class ConsumerMember:
    """One member, which counts its epoch and reports its partitions as a client does."""

    def __init__(
        self, world: World, group_id: str, member_id: str = "", instance_id: str | None = None
    ) -> None:
        self.world, self.group_id, self.id = world, group_id, member_id or unique("member")
        self.instance_id = instance_id
        self.epoch = 0
        self.assignment: dict[str, list[int]] = {}
        self.topics: dict[str, Topic] = {}

    def heartbeat(
        self,
        *topics: Topic,
        epoch: int | None = None,
        owned: Mapping[str, Sequence[int]] | None = None,
        regex: str | None = None,
        **fields: Any,
    ) -> Beat:
        """Send ConsumerGroupHeartbeat, with a subscription if `topics` or `regex` are given."""
        epoch = self.epoch if epoch is None else epoch
        joins = epoch == 0
        self.topics |= {topic.name: topic for topic in topics}
        owned = {} if joins and owned is None else owned
        held = None
        if owned is not None:
            held = [
                {"topic_id": self.topics[name].id, "partitions": list(numbers)}
                for name, numbers in owned.items()
            ]
        asked = {
            "group_id": self.group_id,
            "member_id": self.id,
            "member_epoch": epoch,
            "instance_id": self.instance_id,
            "rebalance_timeout": 30_000 if joins else -1,
            "subscribed_topic_names": [topic.name for topic in topics] if topics else None,
            "subscribed_topic_regex": regex,
            "topic_partitions": held,
            **fields,
        }
        response = self.world.ask(68, 1, **asked)
        told = None
        if response.assignment is not None:
            names = {topic.id: topic.name for topic in self.topics.values()}
            told = {
                names[one.topic_id]: sorted(one.partitions)
                for one in response.assignment.topic_partitions
            }
        beat = Beat(
            outcome(response.error_code, response.error_message), response.member_epoch, told
        )
        if beat.error == OK:
            self.epoch = beat.epoch
            self.assignment = self.assignment if told is None else told
        return beat

    def join(self, *topics: Topic, regex: str | None = None, **fields: Any) -> ConsumerMember:
        """Join and wait for an assignment that is not empty."""
        for topic in topics:
            self.topics[topic.name] = topic
        beat = self.heartbeat(*topics, epoch=0, regex=regex, **fields)
        assert beat.error == OK, beat
        wait_until(
            lambda: self.follow().assignment, PATIENCE_S, "partitions", interval_s=ASK_AGAIN_S
        )
        return self

    def follow(self) -> ConsumerMember:
        """Send a heartbeat, and give up at once what it asks to be given up."""
        assert self.heartbeat(owned=self.assignment).error == OK
        return self

    def leave(self, epoch: int = -1) -> Beat:
        return self.heartbeat(epoch=epoch)

    def commit(
        self, topic: Topic, *, epoch: int | None = None, member_id: str | None = None, **fields: int
    ) -> str:
        """Commit offset 1 of partition 0 or another as this member; return the error."""
        return commit(
            self.world,
            self.group_id,
            topic,
            self.id if member_id is None else member_id,
            self.epoch if epoch is None else epoch,
            **fields,
        )

    def fetch(self, topic: Topic, *, epoch: int | None = None, member_id: str | None = None) -> str:
        """Send OffsetFetch v9 for partition 0 as this member; return the error of the group."""
        asked = {
            "group_id": self.group_id,
            "member_id": self.id if member_id is None else member_id,
            "member_epoch": self.epoch if epoch is None else epoch,
            "topics": [{"name": topic.name, "partition_indexes": [0]}],
        }
        (group,) = self.world.ask(9, 9, groups=[asked]).groups
        return outcome(group.error_code)


def commit(
    world: World,
    group_id: str,
    topic: Topic,
    member_id: str,
    epoch: int,
    version: int = 9,
    partition: int = 0,
) -> str:
    """Commit offset 1 of one partition; return the error."""
    asked = {"partition_index": partition, "committed_offset": 1, "committed_metadata": None}
    (answer,) = world.ask(
        8,
        version,
        group_id=group_id,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        topics=[{"name": topic.name, "partitions": [asked]}],
    ).topics
    (one,) = answer.partitions
    return outcome(one.error_code)


def describe(world: World, group_id: str) -> Any:
    """Return the answer to ConsumerGroupDescribe for one group."""
    (group,) = world.ask(69, 1, group_ids=[group_id]).groups
    return group


def assigned(member: Any) -> list[int]:
    """Return the partitions of a described member in its only topic."""
    return sorted(
        number for topic in member.assignment.topic_partitions for number in topic.partitions
    )
