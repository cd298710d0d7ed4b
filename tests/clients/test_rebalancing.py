"""Clients of several kinds in one classic group, and cooperative rebalancing (KIP-429)."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from kafka import KafkaConsumer
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from tests.clients.confluent import PATIENCE_S, consumer, create_topic
from tests.clients.test_java_clients import run_java
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
    def run(self) -> None:
        source = KafkaConsumer(
            bootstrap_servers=self.where, group_id=self.group_id, heartbeat_interval_ms=300,
            partition_assignment_strategy=[RoundRobinPartitionAssignor],
        )  # fmt: skip
        source.subscribe([self.topic])
        while not self._leave.is_set():
            source.poll(timeout_ms=100)
            self.owned = frozenset(one.partition for one in source.assignment())
        source.close()


class AioKafka(Member):
    def run(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        source = AIOKafkaConsumer(
            self.topic, bootstrap_servers=self.where, group_id=self.group_id, heartbeat_interval_ms=300
        )
        async with source:
            while not self._leave.is_set():
                await source.getmany(timeout_ms=100)
                self.owned = frozenset(one.partition for one in source.assignment())


class Librdkafka(Member):
    def run(self) -> None:
        configs = {"heartbeat_interval_ms": 300, "partition_assignment_strategy": "roundrobin"}
        with consumer(self.where, self.group_id, **configs) as source:
            source.subscribe([self.topic])
            while not self._leave.is_set():
                source.poll(0.1)
                self.owned = frozenset(one.partition for one in source.assignment())


def share(*members: Member) -> None:
    """Wait until these members own all partitions, each as many."""
    each = PARTITIONS // len(members)

    def done() -> bool:
        owned = [member.owned for member in members]
        return all(len(one) == each for one in owned) and len(frozenset().union(*owned)) == PARTITIONS

    wait_until(done, PATIENCE_S, f"{len(members)} members to own {each} partitions each")


def test_clients_of_three_kinds_rebalance_among_each_other(
    bootstrap_servers: str, topic_name: str, group_id: str
) -> None:
    create_topic(bootstrap_servers, topic_name, partitions=PARTITIONS)
    one, two, three = (kind(bootstrap_servers, topic_name, group_id) for kind in (KafkaPython, AioKafka, Librdkafka))
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
def test_java_members_rebalance_cooperatively(
    kafka_libs: Path, bootstrap_servers: str, topic_name: str, group_id: str
) -> None:
    seen = run_java(kafka_libs, "Cooperative.java", bootstrap_servers, topic_name, group_id)
    assert seen == {"moved": "true", "kept": "true", "back": "true"}
