"""The duration of a rebalance when one more member joins: classic and consumer protocol (KIP-848).

    python -m bench.rebalances HOST:PORT

Each member has a connection and answers at once. Measured is the broker's part: no heartbeat
intervals, no initial delay, no assignment interval. One loop sends to all members before it reads
their responses.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from headrace.protocol.errors import ErrorCode
from headrace.protocol.primitives import i32
from tests.subscriptions import subscription
from tests.support import unique
from tests.wire_client import Connection

JOIN_GROUP, SYNC_GROUP, FIND_COORDINATOR, CONSUMER_GROUP_HEARTBEAT = 11, 14, 10, 68
MEMBERS, ROUNDS, PARTITIONS = 50, 5, 100
PATIENCE_S = 60.0
FORMING_S = 0.5


@contextmanager
def create(bootstrap: str) -> Iterator[str]:
    """Yield a topic, and delete it afterwards."""
    client, name = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2}), unique("bench")
    client.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(60)
    yield name
    client.delete_topics([name])[name].result(60)


@contextmanager
def connections(bootstrap: str, count: int) -> Iterator[list[Connection]]:
    opened = [Connection(bootstrap, timeout_s=PATIENCE_S) for _ in range(count)]
    try:
        yield opened
    finally:
        for one in opened:
            one.close()


def at_once(
    opened: Sequence[Connection], api_key: int, version: int, fields: Sequence[dict[str, Any]]
) -> list[Any]:
    """Send a request on each connection before reading the first response."""
    sent = [
        one.send_message(api_key, version, **asked)
        for one, asked in zip(opened, fields, strict=True)
    ]
    return [one.receive_message(ticket) for one, ticket in zip(opened, sent, strict=True)]


class ClassicGroup:
    """A classic group whose members rebalance on demand."""

    def __init__(self, opened: Sequence[Connection], topic: str) -> None:
        self.opened, self.id = opened, unique("bench")
        self.topic = topic
        self.round = 0
        self.member_ids = [""] * len(opened)
        opened[0].ask(FIND_COORDINATOR, 6, key_type=0, coordinator_keys=[self.id])

    def joining(self, member_id: str) -> dict[str, Any]:
        metadata = subscription(0, (self.topic,), user_data=i32(self.round))
        return {
            "group_id": self.id,
            "session_timeout": 30_000,
            "rebalance_timeout": 30_000,
            "member_id": member_id,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "reason": None,
            "protocols": [{"name": "range", "metadata": metadata}],
        }

    def introduce(self) -> None:
        """Get an id for each member; retry until the coordinator has loaded."""
        for number, one in enumerate(self.opened):
            while not self.member_ids[number]:
                answer = one.ask(JOIN_GROUP, 9, **self.joining(""))
                self.member_ids[number] = answer.member_id
                if answer.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                    time.sleep(0.1)

    def form(self) -> None:
        """Join with the first member, then with all others; then the first rejoins."""
        alone = self.opened[0].ask(JOIN_GROUP, 9, **self.joining(self.member_ids[0]))
        self.sync(self.opened[:1], [alone])
        asked = [self.joining(member_id) for member_id in self.member_ids]
        first, *others = self.opened
        waiting = [
            one.send_message(JOIN_GROUP, 9, **fields)
            for one, fields in zip(others, asked[1:], strict=True)
        ]
        time.sleep(FORMING_S)
        joined = [first.ask(JOIN_GROUP, 9, **asked[0])]
        joined += [one.receive_message(sent) for one, sent in zip(others, waiting, strict=True)]
        self.sync(self.opened, joined)

    def rebalance(self) -> None:
        """Have all members join with changed metadata, and sync."""
        self.round += 1
        joined = at_once(
            self.opened, JOIN_GROUP, 9, [self.joining(member_id) for member_id in self.member_ids]
        )
        self.sync(self.opened, joined)

    def sync(self, opened: Sequence[Connection], joined: Sequence[Any]) -> None:
        assert all(one.error_code == 0 for one in joined), joined
        given = [{"member_id": member_id, "assignment": b"a" * 40} for member_id in self.member_ids]
        syncing = [
            {
                "group_id": self.id,
                "generation_id": one.generation_id,
                "member_id": one.member_id,
                "group_instance_id": None,
                "protocol_type": "consumer",
                "protocol_name": "range",
                "assignments": given if one.leader == one.member_id else [],
            }
            for one in joined
        ]
        synced = at_once(opened, SYNC_GROUP, 5, syncing)
        assert all(one.error_code == 0 for one in synced), synced


def classic_ms(bootstrap: str, topic: str, members: int = MEMBERS, rounds: int = ROUNDS) -> float:
    """Return the median of the milliseconds until all members have joined and synced."""
    with connections(bootstrap, members) as opened:
        group = ClassicGroup(opened, topic)
        group.introduce()
        group.form()
        times = []
        for _ in range(rounds):
            started = time.perf_counter()
            group.rebalance()
            times.append(1000 * (time.perf_counter() - started))
        return sorted(times)[len(times) // 2]


class ConsumerGroup:
    """A consumer group whose members revoke partitions at once."""

    def __init__(self, opened: Sequence[Connection], topic: str) -> None:
        self.opened, self.topic, self.id = opened, topic, unique("bench")
        self.epochs = [0] * len(opened)
        self.held: list[dict[UUID, tuple[int, ...]]] = [{} for _ in opened]

    def beat(self, numbers: Sequence[int]) -> None:
        """Send a heartbeat of each member."""
        asked = [
            {
                "group_id": self.id,
                "member_id": f"m{number}",
                "member_epoch": self.epochs[number],
                "instance_id": None,
                "rack_id": None,
                "server_assignor": None,
                "subscribed_topic_regex": None,
                "rebalance_timeout": -1 if self.epochs[number] else 30_000,
                "subscribed_topic_names": None if self.epochs[number] else [self.topic],
                "topic_partitions": [
                    {"topic_id": t, "partitions": list(p)} for t, p in self.held[number].items()
                ],
            }
            for number in numbers
        ]
        answers = at_once(
            [self.opened[number] for number in numbers], CONSUMER_GROUP_HEARTBEAT, 1, asked
        )
        for number, answer in zip(numbers, answers, strict=True):
            assert answer.error_code == 0, answer
            self.epochs[number] = answer.member_epoch
            if answer.assignment is not None:
                told = answer.assignment.topic_partitions
                self.held[number] = {one.topic_id: tuple(one.partitions) for one in told}

    def settle(self, members: int) -> None:
        """Send heartbeats until all members have the same epoch and all partitions are assigned."""
        begun = time.perf_counter()
        while len(set(self.epochs[:members])) > 1 or self.partitions(members) < PARTITIONS:
            assert time.perf_counter() - begun < PATIENCE_S
            self.beat(range(members))

    def partitions(self, members: int) -> int:
        return sum(len(numbers) for held in self.held[:members] for numbers in held.values())

    def leave(self, number: int) -> None:
        self.epochs[number], self.held[number] = -1, {}
        self.beat([number])
        self.epochs[number] = 0


def consumer_ms(bootstrap: str, topic: str, members: int = MEMBERS, rounds: int = ROUNDS) -> float:
    """Return the median of the milliseconds from the join of the last member until all members have
    their partitions.
    """
    with connections(bootstrap, members) as opened:
        group = ConsumerGroup(opened, topic)
        resource = ConfigResource(ResourceType.GROUP, group.id)
        resource.add_incremental_config(
            ConfigEntry(
                "consumer.assignment.interval.ms", "0", incremental_operation=AlterConfigOpType.SET
            )
        )
        client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
        client.incremental_alter_configs([resource])[resource].result(60)
        group.beat(range(members - 1))
        times = []
        for _ in range(rounds):
            group.settle(members - 1)
            started = time.perf_counter()
            group.beat([members - 1])
            group.settle(members)
            times.append(1000 * (time.perf_counter() - started))
            group.leave(members - 1)
        return sorted(times)[len(times) // 2]


def main(bootstrap: str) -> None:
    with create(bootstrap) as topic:
        time.sleep(1)  # coordinators hear of a new topic a moment after its creator does
        print(f"{MEMBERS} classic members: {classic_ms(bootstrap, topic):.1f} ms")
        print(f"{MEMBERS} members of the consumer protocol: {consumer_ms(bootstrap, topic):.1f} ms")


if __name__ == "__main__":
    main(*sys.argv[1:])
