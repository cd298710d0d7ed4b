"""The meters of the group coordinator (KIP-496) after each thing that may move them, as Apache
Kafka 4.3.1 counts.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator

import pytest

from headrace import Broker
from tests.conformance.classic import ClassicGroup, subscription
from tests.conformance.consumers import ConsumerMember
from tests.conformance.producers import Transactional
from tests.conformance.world import OK, PATIENCE_S, World
from tests.support import COMMON_CONFIGS, unique, wait_until

PREFIX = "kafka_server_group_coordinator_metrics_"
METERS = (
    "offset_commit",
    "offset_expiration",
    "offset_deletion",
    "group_completed_rebalance",
    "consumer_group_rebalance",
)
CONFIGS = {
    **COMMON_CONFIGS,
    "offsets.retention.check.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "5000",
    "group.consumer.session.timeout.ms": "5000",
}


class Meters:
    """The counts since the last call."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.last = self.now()

    def now(self) -> dict[str, int]:
        with urllib.request.urlopen(self.broker.metrics_url, timeout=10) as page:
            lines = page.read().decode().splitlines()
        samples = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {name: int(float(samples[f"{PREFIX}{name}_total"])) for name in METERS}

    def moved(self) -> dict[str, int]:
        before, self.last = self.last, self.now()
        return {
            name: count - before[name] for name, count in self.last.items() if count != before[name]
        }


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(metrics_port=0, config=CONFIGS) as running:
        yield running


@pytest.fixture
def world(broker: Broker) -> Iterator[World]:
    opened = World(broker.bootstrap_servers, "headrace")
    yield opened
    opened.close()


def test_offsets(broker: Broker, world: World) -> None:
    topic, group, meters = world.topic(partitions=3), ClassicGroup(world), Meters(broker)
    for _ in range(2):  # the same offsets again are commits too
        assert group.commit(topic, {0: 1, 1: 2}) == {0: OK, 1: OK}
        assert meters.moved() == {"offset_commit": 2}
    assert group.commit(topic, {0: 1, 9: 1}, metadata="x" * 5000)[0] != OK
    assert meters.moved() == {}
    group.delete_offsets({topic.name: [0]})
    assert meters.moved() == {"offset_deletion": 1}
    group.delete_offsets({topic.name: [0]})
    assert meters.moved() == {}
    group.delete_offsets({topic.name: [0, 1], "nope": [0]})
    assert meters.moved() == {"offset_deletion": 1}
    assert group.commit(topic, {0: 1}) == {0: OK}
    world.ask(42, 2, groups_names=[group.id])
    # what goes with its group does not count as deleted
    assert meters.moved() == {"offset_commit": 1}


def test_offsets_that_expire_or_go_with_their_topic(broker: Broker, world: World) -> None:
    topic, other, group, meters = (
        world.topic(partitions=2),
        world.topic(),
        ClassicGroup(world),
        Meters(broker),
    )
    assert group.commit(topic, {0: 1, 1: 1}, 2, retention_ms=0) == {0: OK, 1: OK}
    wait_until(lambda: group.listed is None, PATIENCE_S, "the offsets to expire")
    assert meters.moved() == {"offset_commit": 2, "offset_expiration": 2}
    assert group.commit(other, {0: 1}) == {0: OK}
    other.delete()
    assert meters.moved() == {"offset_commit": 1}


@pytest.mark.parametrize("commit", [True, False])
def test_offsets_of_a_transaction(broker: Broker, world: World, commit: bool) -> None:
    topic, group_id, producer, meters = (
        world.topic(),
        unique("group"),
        Transactional(world),
        Meters(broker),
    )
    producer.init()
    assert producer.add_group(group_id) == OK
    assert producer.commit_offset(group_id, {(topic.name, 0): 1}) == OK
    assert producer.end(commit=commit) == OK
    # counted when it is asked for, whatever becomes of it
    assert meters.moved() == {"offset_commit": 1}


def test_classic_rebalances(broker: Broker, world: World) -> None:
    topic, group, meters = world.topic(), ClassicGroup(world), Meters(broker)
    member = group.join(subscription(topic.name))
    assert meters.moved() == {"group_completed_rebalance": 1}
    assert member.join() == OK
    assert meters.moved() == {}  # it has not assigned yet
    assert member.sync({member.id: b""}) == OK
    assert meters.moved() == {"group_completed_rebalance": 1}
    assert member.leave() == OK
    assert meters.moved() == {}


def test_rebalances_of_consumer_groups(broker: Broker, world: World) -> None:
    topic, other, meters = world.topic(partitions=3), world.topic(), Meters(broker)
    first = ConsumerMember(world, unique("group")).join(topic)
    second = ConsumerMember(world, first.group_id)
    one = {"consumer_group_rebalance": 1}
    assert meters.moved() == one
    second.heartbeat(topic, epoch=0)
    assert meters.moved() == one
    for _ in range(3):
        first.follow(), second.follow()
    assert meters.moved() == {}
    first.heartbeat(topic, other)
    assert meters.moved() == one
    topic.grow(5)
    for _ in range(3):
        first.follow(), second.follow()
    assert meters.moved() == one
    second.leave()
    assert meters.moved() == {}
    wait_until(
        lambda: not world.groups(["Assigning", "Stable", "Reconciling"]),
        PATIENCE_S,
        "the session's end",
    )
    assert meters.moved() == {}
