"""librdkafka with `group.protocol=consumer` (KIP-848), alone and beside members of the classic
protocol.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import NewPartitions

from tests.clients.confluent import PATIENCE_S, admin, create_topic
from tests.support import wait_until

CONSUMER = {"group.protocol": "consumer"}
CLASSIC = {
    "group.protocol": "classic",
    # A group whose assignments have user data cannot be converted, and librdkafka's
    # cooperative-sticky assignor writes some now and then.
    "partition.assignment.strategy": "range",
    "heartbeat.interval.ms": 300,
    "session.timeout.ms": 10_000,
}


class Group:
    """A group whose members join and leave, and the records they have read and committed."""

    def __init__(self, bootstrap_servers: str, group_id: str, topic: str) -> None:
        self.configs = {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group_id,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        self.topic = topic
        self.seen: Counter[int] = Counter()
        self.failures: list[str] = []
        self.members: list[Member] = []

    def join(self, configs: dict[str, object]) -> Member:
        member = Member(self, configs)
        self.members.append(member)
        member.start()
        return member

    def owned(self) -> list[list[int]]:
        return [sorted(member.owned) for member in self.members if not member.done.is_set()]

    def share(self, partitions: int) -> None:
        """Wait until the given number of members share the partitions evenly."""

        def evenly() -> bool:
            owned = self.owned()
            sizes = [len(one) for one in owned]
            all_of_them = sorted(partition for one in owned for partition in one)
            return all_of_them == list(range(partitions)) and max(sizes) - min(sizes) <= 1

        wait_until(
            evenly, PATIENCE_S, f"{len(self.owned())} members to share {partitions} partitions"
        )


class Member(threading.Thread):
    """A member that commits each record before the next."""

    def __init__(self, group: Group, configs: dict[str, object]) -> None:
        super().__init__(daemon=True)
        self.group, self.configs = group, configs
        self.owned: Sequence[int] = ()
        self.done = threading.Event()

    def run(self) -> None:
        source = Consumer({**self.group.configs, **self.configs})
        source.subscribe([self.group.topic])
        while not self.done.is_set():
            message = source.poll(0.05)
            if message is not None and message.error() is None:
                self.group.seen[int(message.value())] += 1
                try:
                    source.commit(message=message, asynchronous=False)
                except KafkaException as error:
                    self.group.failures.append(str(error))
            self.owned = [one.partition for one in source.assignment()]
        source.close()

    def leave(self) -> None:
        self.done.set()
        self.join(PATIENCE_S)
        assert not self.is_alive()


class Stream(threading.Thread):
    """A producer that runs until it is stopped."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int) -> None:
        super().__init__(daemon=True)
        self.producer = Producer({"bootstrap.servers": bootstrap_servers})
        self.topic, self.partitions, self.sent = topic, partitions, 0
        self.stopped = threading.Event()

    def run(self) -> None:
        while not self.stopped.wait(0.005):
            self.producer.produce(
                self.topic, str(self.sent).encode(), partition=self.sent % self.partitions
            )
            self.producer.poll(0)
            self.sent += 1
        self.producer.flush()

    def stop(self) -> int:
        self.stopped.set()
        self.join(PATIENCE_S)
        return self.sent


@pytest.fixture
def topic(bootstrap_servers: str, topic_name: str) -> str:
    return create_topic(bootstrap_servers, topic_name, partitions=6)


@pytest.fixture
def group(bootstrap_servers: str, group_id: str, topic: str) -> Iterator[Group]:
    made = Group(bootstrap_servers, group_id, topic)
    yield made
    for member in made.members:
        member.done.set()
    for member in made.members:
        member.join(PATIENCE_S)


@pytest.fixture
def stream(bootstrap_servers: str, topic: str) -> Iterator[Stream]:
    made = Stream(bootstrap_servers, topic, 6)
    made.start()
    yield made
    made.stop()


def everything_was_read(group: Group, stream: Stream) -> None:
    """Records are read again only if their commit failed: classic members lose their generation
    with each rebalance.
    """
    sent = stream.stop()
    wait_until(lambda: len(group.seen) == sent, PATIENCE_S, f"all {sent} records")
    assert sent > 100
    assert group.seen.total() - sent <= len(group.failures)


@pytest.mark.slow
def test_members_come_and_go_while_records_flow(
    bootstrap_servers: str, group: Group, stream: Stream
) -> None:
    first = group.join(CONSUMER)
    group.share(6)
    group.join(CONSUMER)
    group.share(6)
    group.join(CONSUMER)
    group.share(6)
    first.leave()
    group.share(6)
    admin(bootstrap_servers).create_partitions([NewPartitions(group.topic, 8)])[group.topic].result(
        PATIENCE_S
    )
    group.share(8)
    everything_was_read(group, stream)
    assert group.failures == []


@pytest.mark.slow
def test_a_group_is_moved_to_the_new_protocol_and_back_while_records_flow(
    group: Group, stream: Stream
) -> None:
    before = [group.join(CLASSIC), group.join(CLASSIC)]
    group.share(6)
    after = [group.join(CONSUMER)]
    group.share(6)
    before[0].leave()
    group.share(6)
    after.append(group.join(CONSUMER))
    group.share(6)
    before[1].leave()
    group.share(6)
    back = group.join(CLASSIC)
    group.share(6)
    for member in after:
        member.leave()
        group.share(6)
    assert not back.done.is_set()
    everything_was_read(group, stream)
