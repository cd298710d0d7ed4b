"""Clients of several kinds in one classic group, and cooperative rebalancing (KIP-429)."""

from __future__ import annotations

import asyncio
import subprocess
import threading
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from kafka import KafkaConsumer
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from headrace.admin import AdminClient
from tests.clients.confluent import PATIENCE_S, consumer, create_topic
from tests.clients.test_java_clients import run_java
from tests.peer import VERSION, java_program
from tests.support import wait_until

PARTITIONS = 6


class Member(threading.Thread):
    """A member that polls until it is told to leave.

    :ivar owned: its partitions as of its last poll
    """

    def __init__(self, bootstrap_servers: str, topic: str, group_id: str) -> None:
        super().__init__(daemon=True)
        self.where, self.topic, self.group_id = bootstrap_servers, topic, group_id
        self.owned: frozenset[int] = frozenset()
        self._leave = threading.Event()

    def leave(self) -> None:
        self._leave.set()
        self.join(PATIENCE_S)
        self.owned = frozenset()


class KafkaPython(Member):
    # kafka-python 3.0 loses its assignment for good when a poll times out while it joins. It joins
    # again when it has the metadata, after 100 ms, so polls of 100 ms would often time out then.
    poll_ms = 500

    def run(self) -> None:
        source = KafkaConsumer(
            bootstrap_servers=self.where,
            group_id=self.group_id,
            heartbeat_interval_ms=300,
            partition_assignment_strategy=[RoundRobinPartitionAssignor],
        )
        source.subscribe([self.topic])
        while not self._leave.is_set():
            source.poll(timeout_ms=self.poll_ms)
            self.owned = frozenset(one.partition for one in source.assignment())
        source.close()


class AioKafka(Member):
    def run(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        source = AIOKafkaConsumer(
            self.topic,
            bootstrap_servers=self.where,
            group_id=self.group_id,
            heartbeat_interval_ms=300,
        )
        async with source:
            while not self._leave.is_set():
                await source.getmany(timeout_ms=100)
                self.owned = frozenset(one.partition for one in source.assignment())


class Librdkafka(Member):
    configs = {"heartbeat_interval_ms": 300, "partition_assignment_strategy": "roundrobin"}

    def run(self) -> None:
        configs = self.configs
        with consumer(self.where, self.group_id, **configs) as source:
            source.subscribe([self.topic])
            while not self._leave.is_set():
                source.poll(0.1)
                self.owned = frozenset(one.partition for one in source.assignment())


class NewLibrdkafka(Librdkafka):
    """A member of the consumer protocol (KIP-848)."""

    configs = {"group_protocol": "consumer"}


class Java(Member):
    """A Java process that leaves when its input ends."""

    protocol = "consumer"

    def run(self) -> None:
        arguments = self.where, self.topic, self.group_id, self.protocol
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        with subprocess.Popen(
            java_program("GroupMember", *arguments), text=True, **pipes
        ) as process:
            threading.Thread(target=self._end, args=(process,), daemon=True).start()
            assert process.stdout is not None
            for line in process.stdout:
                self.owned = frozenset(map(int, line.split()))

    def _end(self, process: subprocess.Popen[str]) -> None:
        self._leave.wait()
        assert process.stdin is not None
        process.stdin.write("leave\n")
        process.stdin.flush()


class ClassicJava(Java):
    protocol = "classic"


def share(*members: Member) -> None:
    """Wait until the members own all partitions, evenly."""

    def done() -> bool:
        sizes = [len(member.owned) for member in members]
        everything = frozenset().union(*(member.owned for member in members))
        return sum(sizes) == len(everything) == PARTITIONS and max(sizes) - min(sizes) <= 1

    wait_until(done, PATIENCE_S, f"{len(members)} members to share {PARTITIONS} partitions")


def test_clients_of_three_kinds_rebalance_among_each_other(
    bootstrap_servers: str, topic_name: str, group_id: str
) -> None:
    create_topic(bootstrap_servers, topic_name, partitions=PARTITIONS)
    one, two, three = (
        kind(bootstrap_servers, topic_name, group_id)
        for kind in (KafkaPython, AioKafka, Librdkafka)
    )
    try:
        one.start()
        share(one)
        two.start()
        share(one, two)
        three.start()
        share(one, two, three)
        one.leave()  # the leader
        share(two, three)
        two.leave()
        share(three)
    finally:
        for member in (one, two, three):
            if member.is_alive():
                member.leave()


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (KafkaPython, Java),
        (AioKafka, NewLibrdkafka),
        (Librdkafka, Java),
        (ClassicJava, NewLibrdkafka),
    ],
)
def test_a_group_changes_its_protocol_and_back_with_any_client(
    kafka_libs: Path,
    bootstrap_servers: str,
    topic_name: str,
    group_id: str,
    old: type[Member],
    new: type[Member],
) -> None:
    """Clients of the classic protocol beside one of the consumer protocol."""
    create_topic(bootstrap_servers, topic_name, partitions=PARTITIONS)

    def group_type() -> str:
        with AdminClient({"bootstrap.servers": bootstrap_servers}) as admin:
            (found,) = (
                one for one in admin.list_all_groups().result().valid if one.group_id == group_id
            )
        return found.type

    members = [kind(bootstrap_servers, topic_name, group_id) for kind in (old, old, new, old)]
    first, second, newcomer, last = members
    try:
        first.start()
        share(first)
        second.start()
        share(first, second)
        newcomer.start()
        share(first, second, newcomer)
        assert group_type() == "consumer"
        first.leave()
        share(second, newcomer)
        second.leave()
        share(newcomer)
        last.start()
        share(newcomer, last)
        assert group_type() == "consumer"
        newcomer.leave()
        share(last)
        assert group_type() == "classic"
    finally:
        for member in members:
            if member.is_alive():
                member.leave()


@pytest.mark.java
@pytest.mark.slow
def test_java_members_rebalance_cooperatively(
    kafka_libs: Path, bootstrap_servers: str, topic_name: str, group_id: str
) -> None:
    seen = run_java(VERSION, "Cooperative", bootstrap_servers, topic_name, group_id)
    assert seen == {"moved": "true", "kept": "true", "back": "true"}
