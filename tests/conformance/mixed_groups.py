"""A group with members of both protocols, on one of two brokers.

Members have names ("m1", "c2"), which stand for their ids on each broker. Answers have the number
of partitions of each topic instead of the partitions, as assignors may choose.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from headrace.protocol.consumer_protocol import read_assignment, write_assignment
from tests.conformance import two_brokers
from tests.conformance.classic import subscription
from tests.conformance.world import PATIENCE_S, Group, World
from tests.support import wait_until
from tests.wire_client import Connection, Sent

Partitions = dict[str, tuple[int, ...]]
COORDINATORS_HEAR_S = 0.3
"""Longest time by which Kafka's group coordinators hear of a deleted topic later than its other
parts.
"""
MADE_ID = re.compile(r"(?<= )[\w-]{22}(?= )")
"""A member id that a coordinator has made."""
NOWHERE = UUID(int=0xDEAD_BEEF)
"""A topic id that no topic has."""
JOIN = 11


@dataclass(slots=True)
class Seat:
    """One member as one broker knows it.

    :ivar epoch: its member epoch or generation
    :ivar held: its last assignment
    :ivar before: the assignment before that
    :ivar leader: the leader that its last JoinGroup answer names
    :ivar follows: the ids of the members in that answer, by name
    :ivar protocol: the protocol in that answer
    :ivar sent: a request without an answer yet
    """

    connection: Connection
    id: str = ""
    epoch: int = 0
    previous_epoch: int = 0
    held: Partitions = field(default_factory=dict)
    before: Partitions = field(default_factory=dict)
    leader: str | None = None
    follows: Mapping[str, str] = field(default_factory=dict)
    protocol: str | None = None
    sent: tuple[int, Sent] | None = None

    def takes(self, held: Partitions) -> None:
        self.before, self.held = self.held, held

    def reaches(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.previous_epoch, self.epoch = self.epoch, epoch


def counts(held: Mapping[str, Collection[int]]) -> dict[str, int]:
    """Return the number of partitions of each topic."""
    return {name: len(numbers) for name, numbers in sorted(held.items()) if numbers}


class Side(two_brokers.Side):
    """The group as one of the two brokers has it."""

    not_compared = two_brokers.NOT_COMPARED - {"error_message"}

    def __init__(self, world: World, group_id: str) -> None:
        super().__init__(world)
        self.group_id = group_id
        self.sizes: dict[str, int] = {}
        self.seats: dict[str, Seat] = {}
        self.labels: dict[UUID, str] = {}
        self.targets: dict[str, Partitions] = {}

    def seat(self, who: str) -> Seat:
        if who not in self.seats:
            self.seats[who] = Seat(self.world.connect(), who if who.startswith("m") else "")
        return self.seats[who]

    def set_id(self, who: str, member_id: str) -> None:
        self.seats[who].id = member_id
        self.call(who, member_id)

    def _plain_field(self, name: str, value: Any) -> Any:
        if name == "error_message":
            for who, seat in self.seats.items():
                if value and seat.id:
                    value = value.replace(seat.id, who)
            return value and MADE_ID.sub("someone", value)
        if isinstance(value, bytes):  # metadata has the partitions that the member owns
            return counts(read_assignment(value)) if name == "assignment" and value else bool(value)
        if name == "partitions" and all(isinstance(one, int) for one in value):
            return len(value)
        return super()._plain_field(name, value)

    # --- topics ---

    def add_topic(self, name: str, partitions: int) -> None:
        self.make(name, partitions)
        self.sizes[name] = partitions
        self.labels[self.topics[name].id] = name

    def _sees(self, name: str, partition: int, error: str) -> None:
        probe = Group(self.world, f"probe-{name}")
        wait_until(
            lambda: str(probe.alter(name, {partition: 0})).find(error) >= 0, PATIENCE_S, "the topic"
        )
        probe.delete()

    def grow_topic(self, name: str, partitions: int) -> None:
        self.topics[name].grow(partitions)
        self.sizes[name] = partitions
        self._sees(name, partitions - 1, "OK")

    def delete_topic(self, name: str) -> None:
        topic = self.topics.pop(name)
        self.labels[topic.id] = f"old {name}"
        self.call(f"old {name}", topic.id)
        topic.delete()
        del self.sizes[name]
        self._sees(name, 0, "UNKNOWN_TOPIC_OR_PARTITION")
        time.sleep(COORDINATORS_HEAR_S)

    def by_name(self, assignment: Any) -> Partitions:
        """Return an assignment as topic name → partitions."""
        return {
            self.labels[one.topic_id]: tuple(sorted(one.partitions))
            for one in assignment.topic_partitions
        }

    def by_id(self, held: Partitions | None) -> list[dict[str, Any]] | None:
        ids = {name: topic_id for topic_id, name in self.labels.items()}
        return (
            None
            if held is None
            else [
                {"topic_id": ids.get(name, NOWHERE), "partitions": list(numbers)}
                for name, numbers in sorted(held.items())
            ]
        )

    # --- the consumer protocol ---

    def beat(
        self, who: str, epoch: int, owned: Partitions | None, version: int = 1, **fields: Any
    ) -> Any:
        """Send ConsumerGroupHeartbeat."""
        seat = self.seat(who)
        asked = {
            "group_id": self.group_id,
            "member_id": seat.id,
            "member_epoch": epoch,
            "topic_partitions": self.by_id(owned),
        } | fields
        answer = self.world.ask(68, version, **asked)
        if answer.error_code == 0:
            self.set_id(who, seat.id or answer.member_id)
            seat.reaches(answer.member_epoch)
            if answer.assignment is not None:
                seat.takes(self.by_name(answer.assignment))
        return self.plain(answer)

    # --- the classic protocol ---

    def send(self, who: str, api_key: int, version: int, **fields: Any) -> None:
        """Send JoinGroup or SyncGroup without waiting; :meth:`received` returns the answer."""
        seat = self.seat(who)
        asked = {"group_id": self.group_id, "member_id": seat.id, **self.outward(fields)}
        seat.sent = api_key, seat.connection.send_message(api_key, version, **asked)

    @staticmethod
    def protocols(names: Sequence[str], topics: Sequence[str], version: int, seat: Seat) -> Any:
        """Return the protocols of a classic member, with what it owns."""
        metadata = subscription(*topics, version=version, owned=seat.held)
        return [{"name": one, "metadata": metadata} for one in names]

    def divided(self, seat: Seat) -> list[dict[str, Any]]:
        """Return a leader's assignments: all partitions, divided among the members of its JoinGroup
        answer.
        """
        return [
            {
                "member_id": member_id,
                "assignment": write_assignment(
                    1,
                    {
                        name: range(place, size, len(seat.follows))
                        for name, size in sorted(self.sizes.items())
                    },
                ),
            }
            for place, (_, member_id) in enumerate(sorted(seat.follows.items()))
        ]

    def received(self, who: str) -> Any:
        """Return the answer to the last request of a classic member."""
        seat = self.seats[who]
        assert seat.sent is not None
        (api_key, sent), seat.sent = seat.sent, None
        answer = seat.connection.receive_message(sent)
        if api_key == JOIN and answer.member_id:
            self.set_id(who, answer.member_id)
        if answer.error_code == 0 and api_key == JOIN:
            seat.leader = self.plain(answer.leader)
            seat.follows = {self.plain(one.member_id): one.member_id for one in answer.members}
            seat.protocol = answer.protocol_name
            seat.reaches(answer.generation_id)
        elif answer.error_code == 0:
            held = read_assignment(answer.assignment)
            seat.takes({name: tuple(numbers) for name, numbers in held.items()})
        return self.plain(answer)

    def classic_beat(self, who: str, generation: int, instance_id: str | None, version: int) -> Any:
        """Send Heartbeat."""
        return self.ask(
            12,
            version,
            group_id=self.group_id,
            generation_id=generation,
            member_id=self.seat(who).id,
            group_instance_id=instance_id,
        )

    # --- what an administrator sees ---

    def described(self, version: int = 1) -> Any:
        """Send ConsumerGroupDescribe; return the group."""
        answer = self.world.ask(69, version, group_ids=[self.group_id])
        self.targets = {
            self.plain(one.member_id): self.by_name(one.target_assignment)
            for one in answer.groups[0].members
        }
        return self.plain(answer)["groups"][0]

    def listed(self) -> tuple[str, str, str] | None:
        return self.world.groups().get(self.group_id)
