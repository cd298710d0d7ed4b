"""A group with members of both protocols, on one of two brokers.

Members have names ("m1", "c2"); `Seat` maps them to the ids of one broker. Answers come as plain
values that can be compared: names for ids, and the number of partitions of each topic instead of
the partitions, as assignors may choose.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from headrace.protocol.consumer_protocol import read_assignment, write_assignment
from tests.conformance.classic import subscription
from tests.conformance.world import PATIENCE_S, Group, Topic, World, outcome
from tests.support import wait_until
from tests.wire_client import Connection

Partitions = dict[str, tuple[int, ...]]
COORDINATORS_HEAR_S = 0.3
"""Longest time by which Kafka's group coordinators hear of a deleted topic later than its other
parts.
"""
MADE_ID = re.compile(r"(?<= )[\w-]{22}(?= )")
"""A member id that a coordinator has made."""
NOWHERE = UUID(int=0xDEAD_BEEF)
"""A topic id that no topic has."""


@dataclass(slots=True)
class Seat:
    """One member as one broker knows it.

    :ivar epoch: its member epoch or generation
    :ivar held: its last assignment
    :ivar before: the assignment before that
    :ivar sent: a request without an answer yet, and the handling of its answer
    """

    connection: Connection
    id: str = ""
    epoch: int = 0
    previous_epoch: int = 0
    held: Partitions = field(default_factory=dict)
    before: Partitions = field(default_factory=dict)
    answer: Any = None
    sent: tuple[str, tuple[int, int, int]] | None = None

    def takes(self, held: Partitions) -> None:
        self.before, self.held = self.held, held

    def reaches(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.previous_epoch, self.epoch = self.epoch, epoch


def counts(held: Mapping[str, Collection[int]]) -> dict[str, int]:
    """Return the number of partitions of each topic."""
    return {name: len(numbers) for name, numbers in sorted(held.items()) if numbers}


class Side:
    """The group as one of the two brokers has it."""

    def __init__(self, world: World, group_id: str) -> None:
        self.world, self.group_id = world, group_id
        self.topics: dict[str, Topic] = {}
        self.sizes: dict[str, int] = {}
        self.seats: dict[str, Seat] = {}
        self.labels: dict[UUID, str] = {}
        self.targets: dict[str, Partitions] = {}

    def seat(self, who: str) -> Seat:
        if who not in self.seats:
            self.seats[who] = Seat(self.world.connect(), who if who.startswith("m") else "")
        return self.seats[who]

    def name_of(self, member_id: str) -> str:
        known = next((who for who, seat in self.seats.items() if seat.id == member_id), "someone")
        return known if member_id else ""

    def plain(self, text: str | None) -> str | None:
        """Return a message without the ids that the broker made up."""
        for who, seat in self.seats.items():
            if text and seat.id and seat.id != who:
                text = text.replace(seat.id, who)
        return text and MADE_ID.sub("someone", text)

    # --- topics ---

    def add_topic(self, name: str, partitions: int) -> None:
        topic = self.world.topic(partitions, name=name)
        self.topics[name], self.sizes[name] = topic, partitions
        self.labels[topic.id] = name

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
        self.labels[self.topics[name].id] = f"old {name}"
        self.topics.pop(name).delete()
        del self.sizes[name]
        self._sees(name, 0, "UNKNOWN_TOPIC_OR_PARTITION")
        time.sleep(COORDINATORS_HEAR_S)

    def by_name(self, assignment: Any) -> Partitions:
        """Return an assignment as topic name → partitions."""
        return {
            self.labels[one.topic_id]: tuple(sorted(one.partitions))
            for one in assignment.topic_partitions
        }

    def by_id(self, held: Mapping[str, Sequence[int]]) -> list[dict[str, Any]]:
        ids = {name: topic_id for topic_id, name in self.labels.items()}
        return [
            {"topic_id": ids.get(name, NOWHERE), "partitions": list(numbers)}
            for name, numbers in sorted(held.items())
        ]

    # --- the consumer protocol ---

    def beat(
        self, who: str, epoch: int, owned: Partitions | None, version: int = 1, **fields: Any
    ) -> Any:
        """Send ConsumerGroupHeartbeat; return error, epoch, partitions of each topic and member."""
        seat = self.seat(who)
        asked = {
            "group_id": self.group_id,
            "member_id": seat.id,
            "member_epoch": epoch,
            "topic_partitions": None if owned is None else self.by_id(owned),
        } | fields
        answer = self.world.ask(68, version, **asked)
        told = None if answer.assignment is None else self.by_name(answer.assignment)
        if answer.error_code == 0:
            seat.id = seat.id or answer.member_id
            seat.reaches(answer.member_epoch)
            if told is not None:
                seat.takes(told)
        error = outcome(answer.error_code, self.plain(answer.error_message))
        return (
            error,
            answer.member_epoch,
            None if told is None else counts(told),
            self.name_of(answer.member_id or ""),
        )

    # --- the classic protocol ---

    def send_join(
        self,
        who: str,
        topics: Sequence[str],
        protocols: Sequence[str],
        instance_id: str | None,
        version: int,
        metadata_version: int,
        **fields: Any,
    ) -> None:
        """Send JoinGroup without waiting; :meth:`received` returns the answer."""
        seat = self.seat(who)
        said = subscription(*topics, version=metadata_version, owned=seat.held)
        asked: dict[str, Any] = {
            "group_id": self.group_id,
            "session_timeout": 10_000,
            "member_id": seat.id,
            "protocol_type": "consumer",
            "protocols": [{"name": one, "metadata": said} for one in protocols],
            "rebalance_timeout": 60_000,
            "group_instance_id": instance_id,
        }
        seat.sent = "join", seat.connection.send_message(11, version, **asked | fields)

    def send_sync(
        self, who: str, generation: int, instance_id: str | None, version: int, **fields: Any
    ) -> None:
        """Send SyncGroup without waiting. A leader divides all partitions among the members of its
        JoinGroup answer.
        """
        seat = self.seat(who)
        asked: dict[str, Any] = {
            "group_id": self.group_id,
            "generation_id": generation,
            "member_id": seat.id,
            "assignments": self._divided(seat),
            "group_instance_id": instance_id,
            "protocol_type": "consumer",
            "protocol_name": getattr(seat.answer, "protocol_name", None),
        }
        seat.sent = "sync", seat.connection.send_message(14, version, **asked | fields)

    def _divided(self, seat: Seat) -> list[dict[str, Any]]:
        members = sorted(
            (self.name_of(one.member_id), one.member_id)
            for one in getattr(seat.answer, "members", ())
        )
        return [
            {
                "member_id": member_id,
                "assignment": write_assignment(
                    1,
                    {
                        name: range(place, size, len(members))
                        for name, size in sorted(self.sizes.items())
                    },
                ),
            }
            for place, (_, member_id) in enumerate(members)
        ]

    def received(self, who: str) -> Any:
        """Return the answer to the last request of a classic member."""
        seat = self.seats[who]
        assert seat.sent is not None
        (kind, sent), seat.sent = seat.sent, None
        answer = seat.connection.receive_message(sent)
        error = outcome(answer.error_code)
        if kind == "sync":
            held = read_assignment(answer.assignment) if answer.error_code == 0 else {}
            if answer.error_code == 0:
                seat.takes({name: tuple(numbers) for name, numbers in held.items()})
            kinds = getattr(answer, "protocol_type", None), getattr(answer, "protocol_name", None)
            return kind, error, counts(held), kinds
        seat.id = answer.member_id or seat.id
        if answer.error_code == 0:
            seat.answer = answer
            seat.reaches(answer.generation_id)
        members = sorted(
            (self.name_of(one.member_id), getattr(one, "group_instance_id", None))
            for one in answer.members
        )
        told = answer.generation_id, getattr(answer, "protocol_type", None), answer.protocol_name
        names = (
            self.name_of(answer.leader),
            self.name_of(answer.member_id),
            getattr(answer, "skip_assignment", None),
        )
        return kind, error, told, names, members

    def classic_beat(self, who: str, generation: int, instance_id: str | None, version: int) -> str:
        """Send Heartbeat; return the error."""
        seat = self.seat(who)
        answer = self.world.ask(
            12,
            version,
            group_id=self.group_id,
            generation_id=generation,
            member_id=seat.id,
            group_instance_id=instance_id,
        )
        return outcome(answer.error_code)

    def classic_leave(self, leavers: Sequence[tuple[str, str | None]], version: int) -> Any:
        """Send LeaveGroup for members by name and instance id; an unknown name is taken as a member
        id.
        """
        ids = [
            (self.seats[who].id if who in self.seats else who, instance_id)
            for who, instance_id in leavers
        ]
        members = [{"member_id": one, "group_instance_id": instance_id} for one, instance_id in ids]
        answer = self.world.ask(
            13, version, group_id=self.group_id, member_id=ids[0][0], members=members
        )
        if version < 3:
            return outcome(answer.error_code)
        each = [
            (self.name_of(one.member_id), one.group_instance_id, outcome(one.error_code))
            for one in answer.members
        ]
        return outcome(answer.error_code), each

    # --- offsets ---

    def commit(
        self,
        member_id: str,
        epoch: int,
        offsets: Mapping[str, Mapping[int, int]],
        instance_id: str | None,
        version: int,
    ) -> Any:
        """Send OffsetCommit; return the errors of each topic's partitions."""
        topics = [
            {
                **self._reference(name),
                "partitions": [
                    {
                        "partition_index": number,
                        "committed_offset": offset,
                        "committed_metadata": "x",
                    }
                    for number, offset in of.items()
                ],
            }
            for name, of in offsets.items()
        ]
        answer = self.world.ask(
            8,
            version,
            group_id=self.group_id,
            member_id=member_id,
            generation_id_or_member_epoch=epoch,
            group_instance_id=instance_id,
            topics=topics,
        )
        return [[outcome(one.error_code) for one in topic.partitions] for topic in answer.topics]

    def fetch(
        self,
        member_id: str | None,
        epoch: int,
        asked: Mapping[str, Sequence[int]] | None,
        version: int,
    ) -> Any:
        """Send OffsetFetch v8 to v10; return the group's error and the offsets by topic."""
        topics = None
        if asked is not None:
            topics = [
                {**self._reference(name), "partition_indexes": list(of)}
                for name, of in asked.items()
            ]
        group = {
            "group_id": self.group_id,
            "topics": topics,
            "member_id": member_id,
            "member_epoch": epoch,
        }
        (found,) = self.world.ask(9, version, groups=[group]).groups
        each = sorted(
            (
                self.labels.get(one.topic_id, "none") if version >= 10 else one.name,
                sorted(
                    (p.partition_index, p.committed_offset, p.metadata, outcome(p.error_code))
                    for p in one.partitions
                ),
            )
            for one in found.topics
        )
        return outcome(found.error_code), each

    def _reference(self, name: str) -> dict[str, Any]:
        """Return the fields that refer to a topic, by name and by id."""
        return {"name": name, "topic_id": self.topics[name].id if name in self.topics else NOWHERE}

    def delete_offsets(self, asked: Mapping[str, Sequence[int]]) -> Any:
        topics = [
            {"name": n, "partitions": [{"partition_index": p} for p in of]}
            for n, of in asked.items()
        ]
        answer = self.world.ask(47, 0, group_id=self.group_id, topics=topics)
        each = sorted(
            (t.name, p.partition_index, outcome(p.error_code))
            for t in answer.topics
            for p in t.partitions
        )
        return outcome(answer.error_code), each

    # --- what an administrator sees ---

    def described(self, version: int = 1) -> dict[str, Any]:
        """Send ConsumerGroupDescribe; return the group, member by member."""
        (group,) = self.world.ask(69, version, group_ids=[self.group_id]).groups
        self.targets = {
            self.name_of(one.member_id): self.by_name(one.target_assignment)
            for one in group.members
        }
        members = {
            self.name_of(one.member_id): {
                "instance": one.instance_id,
                "rack": one.rack_id,
                "epoch": one.member_epoch,
                "topics": sorted(one.subscribed_topic_names),
                "regex": one.subscribed_topic_regex,
                "has": counts(self.by_name(one.assignment)),
                "target": counts(self.by_name(one.target_assignment)),
                "type": getattr(one, "member_type", None),
            }
            for one in group.members
        }
        return {
            "error": outcome(group.error_code, self.plain(group.error_message) or None),
            "state": group.group_state,
            "epochs": (group.group_epoch, group.assignment_epoch),
            "assignor": group.assignor_name,
            "members": dict(sorted(members.items())),
        }

    def classic_described(self, version: int) -> Any:
        """Send DescribeGroups; return the group."""
        (group,) = self.world.ask(15, version, groups=[self.group_id]).groups
        members = sorted(
            (
                self.name_of(one.member_id),
                getattr(one, "group_instance_id", None),
                bool(one.member_assignment),
            )
            for one in group.members
        )
        error = outcome(group.error_code, self.plain(getattr(group, "error_message", None)))
        return error, group.group_state, group.protocol_type, group.protocol_data, members

    def listed(self) -> tuple[str, str, str] | None:
        return self.world.groups().get(self.group_id)

    def delete(self) -> str:
        (result,) = self.world.ask(42, 2, groups_names=[self.group_id]).results
        return outcome(result.error_code)
