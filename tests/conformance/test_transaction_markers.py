"""WriteTxnMarkers: ending transactions in single partitions, past their coordinator (KIP-664)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.conformance.producers import Transactional
from tests.conformance.world import OK, Topic, World, outcome

STALE, FENCED = "INVALID_PRODUCER_EPOCH", "TRANSACTION_COORDINATOR_FENCED"
UNKNOWN = "UNKNOWN_TOPIC_OR_PARTITION"
Who = tuple[int, int]


def marker(
    who: Who,
    topics: dict[str, Sequence[int]],
    *,
    commit: bool = False,
    coordinator_epoch: int = 0,
    transaction_version: int = 0,
) -> dict[str, Any]:
    return {
        "producer_id": who[0],
        "producer_epoch": who[1],
        "transaction_result": commit,
        "coordinator_epoch": coordinator_epoch,
        "transaction_version": transaction_version,
        "topics": [{"name": name, "partition_indexes": some} for name, some in topics.items()],
    }


def mark(world: World, *markers: dict[str, Any], version: int = 2) -> dict[int, dict[str, str]]:
    """Send WriteTxnMarkers; return the errors by producer id, and by partition as `topic-0`."""
    return {
        one.producer_id: {
            f"{topic.name}-{part.partition_index}": outcome(part.error_code)
            for topic in one.topics
            for part in topic.partitions
        }
        for one in world.ask(27, version, markers=markers).markers
    }


def mark_one(world: World, topic: Topic, who: Who, *, version: int = 2, **more: Any) -> str:
    """Send a marker to partition 0 of a topic; return the error."""
    told = mark(world, marker(who, {topic.name: [0]}, **more), version=version)
    return told[who[0]][f"{topic.name}-0"]


@pytest.fixture
def topic(world: World) -> Topic:
    return world.topic()


@pytest.fixture
def who(world: World) -> Who:
    """A producer id that nobody else uses, with epoch 0."""
    made = world.ask(22, 4, transactional_id=None, transaction_timeout=0)
    assert made.error_code == 0
    return made.producer_id, 0


@pytest.mark.parametrize("version", [1, 2])
def test_a_hanging_transaction_is_aborted(world: World, topic: Topic, version: int) -> None:
    producer = Transactional(world)
    assert producer.init() == "p0 e0"
    assert producer.add(topic) == OK
    assert producer.write(topic, 3) == OK
    assert (topic.end_offset(), topic.end_offset(committed=True)) == (3, 0)
    assert mark_one(world, topic, producer.who, version=version) == OK
    assert (topic.end_offset(), topic.end_offset(committed=True)) == (4, 4)
    assert producer.state == "Ongoing p0 e0"
    assert producer.write(topic, 1) == OK
    assert (topic.end_offset(), topic.end_offset(committed=True)) == (5, 4)
    assert producer.end(commit=True) == OK
    producer.wait_for("CompleteCommit p0 e0")
    assert topic.end_offset(committed=True) == 6


def test_a_marker_without_a_transaction(world: World, topic: Topic, who: Who) -> None:
    for commit in (True, False):
        assert mark_one(world, topic, who, commit=commit) == OK
    assert topic.end_offset(committed=True) == 2


def test_partitions_that_do_not_exist(world: World, topic: Topic, who: Who) -> None:
    told = mark(world, marker(who, {topic.name: [0, 1, -1], "nope": [0]}))
    assert told == {
        who[0]: {
            f"{topic.name}-0": OK,
            f"{topic.name}-1": UNKNOWN,
            f"{topic.name}--1": UNKNOWN,
            "nope-0": UNKNOWN,
        }
    }
    assert mark(world) == mark(world, marker(who, {})) == mark(world, marker(who, {"t": []})) == {}


def test_markers_of_one_producer_are_answered_together(
    world: World, topic: Topic, who: Who
) -> None:
    other = world.topic()
    told = mark(world, marker(who, {topic.name: [0]}), marker(who, {other.name: [0]}))
    assert told == {who[0]: {f"{topic.name}-0": OK, f"{other.name}-0": OK}}


def test_an_older_epoch_is_refused(world: World, topic: Topic, who: Who) -> None:
    assert mark_one(world, topic, (who[0], 1)) == OK
    assert mark_one(world, topic, who) == STALE
    assert mark_one(world, topic, (who[0], 1)) == OK


def test_an_older_coordinator_is_refused(world: World, topic: Topic, who: Who) -> None:
    assert mark_one(world, topic, who, coordinator_epoch=5) == OK
    assert mark_one(world, topic, who, coordinator_epoch=4) == FENCED
    assert mark_one(world, topic, who, coordinator_epoch=5) == OK


def test_a_transaction_with_its_own_epoch_ends_with_a_later_one(world: World, topic: Topic) -> None:
    producer = Transactional(world)
    assert producer.init() == "p0 e0"
    assert producer.add(topic) == OK
    assert producer.write(topic) == OK
    who, later = producer.who, producer.other(1)
    assert mark_one(world, topic, who, transaction_version=2) == STALE
    assert mark_one(world, topic, later, transaction_version=2) == OK
    assert mark_one(world, topic, later, transaction_version=2) == OK
    assert mark_one(world, topic, who, transaction_version=2) == STALE
    assert topic.end_offset(committed=True) == 3


@pytest.mark.parametrize(
    ("producer_id", "epoch", "error"),
    [(-1, 0, "UNKNOWN_SERVER_ERROR"), (5, -1, "UNKNOWN_SERVER_ERROR"), (5, -5, STALE)],
)
def test_nobody_ends_no_transaction(
    world: World, topic: Topic, producer_id: int, epoch: int, error: str
) -> None:
    assert mark_one(world, topic, (producer_id, epoch)) == error
    assert topic.end_offset() == 0


def test_offsets_of_a_transaction_are_ended_with_its_marker(world: World, topic: Topic) -> None:
    producer = Transactional(world)
    assert producer.init() == "p0 e0"
    group_id = f"{producer.id}-group"
    assert producer.add_group(group_id) == OK
    assert producer.commit_offset(group_id, {(topic.name, 0): 7}) == OK
    ((name, partitions),) = producer.described().topics.items()
    assert name == "__consumer_offsets"
    assert mark(world, marker(producer.who, {name: partitions}, commit=True)) == {
        producer.who[0]: {f"{name}-{partitions[0]}": OK}
    }
    assert committed(world, group_id, topic) == 7


def committed(world: World, group_id: str, topic: Topic) -> int:
    """Return the committed offset of partition 0."""
    asked = {"group_id": group_id, "topics": [{"name": topic.name, "partition_indexes": [0]}]}
    (group,) = world.ask(9, 8, groups=[asked]).groups
    ((partition,),) = (one.partitions for one in group.topics)
    offset: int = partition.committed_offset
    return offset
