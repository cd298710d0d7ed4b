"""TxnOffsetCommit, and OffsetFetch with `require_stable` while a transaction is open (KIP-447)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.classic import ClassicGroup
from tests.conformance.consumers import ConsumerMember
from tests.conformance.producers import Transactional
from tests.conformance.world import OK, Group, Topic, World, outcome
from tests.support import unique, wait_until

BAD_STATE, ABORTABLE = "INVALID_TXN_STATE", "TRANSACTION_ABORTABLE"
UNSTABLE = "UNSTABLE_OFFSET_COMMIT"
OFFSET_DELETE = 47


@pytest.fixture
def topic(world: World) -> Topic:
    return world.topic(partitions=3)


@pytest.fixture
def producer(world: World) -> Transactional:
    made = Transactional(world)
    assert (made.init(), made.init()) == ("p0 e0", "p0 e1")
    return made


@pytest.fixture
def group_id() -> str:
    return unique("group")


def fetched(
    topic: Topic, group_id: str, *partitions: int, stable: bool = True, version: int = 9
) -> list[Any]:
    """Send OffsetFetch; return the offset of each partition, or its error; all offsets of the group
    when no partition is named.
    """
    asked = [{"name": topic.name, "partition_indexes": partitions}] if partitions else None
    group = {"group_id": group_id, "topics": asked}
    who = {"member_id": None, "member_epoch": -1}
    answer = topic.world.ask(9, version, groups=[group | who], require_stable=stable, **group)
    if version >= 8:
        (answer,) = answer.groups
    assert answer.error_code == 0, answer
    found = [one for topic in answer.topics for one in topic.partitions]
    assert all(one.committed_offset == -1 for one in found if one.error_code)
    return [outcome(one.error_code) if one.error_code else one.committed_offset for one in found]


def settled(topic: Topic, group_id: str, *partitions: int) -> list[Any]:
    """Return :func:`fetched` once no transaction is open."""

    def stable() -> list[Any] | None:
        found = fetched(topic, group_id, *partitions)
        return None if UNSTABLE in found else found

    return wait_until(stable, 30, "stable offsets")


@pytest.mark.parametrize("version", range(7))
def test_who_may_commit(topic: Topic, producer: Transactional, group_id: str, version: int) -> None:
    offsets = {(topic.name, 0): 5}
    stranger = (987_654_321, 0)
    for one in (Transactional(topic.world), producer):
        assert (
            one.commit_offset(group_id, offsets, who=stranger, version=version)
            == "INVALID_PRODUCER_ID_MAPPING"
        )
    empty = Transactional(topic.world, "")
    assert (
        empty.commit_offset(group_id, offsets, who=stranger, version=version) == "INVALID_REQUEST"
    )
    told = producer.commit_offset(group_id, offsets, who=producer.other(0), version=version)
    assert told == "INVALID_PRODUCER_EPOCH"
    assert producer.commit_offset("", offsets, version=version) == "INVALID_GROUP_ID"


@pytest.mark.parametrize("version", range(7))
def test_a_group_must_take_part(
    topic: Topic, producer: Transactional, group_id: str, version: int
) -> None:
    """From version 5 on, a commit adds the group to the transaction."""
    expected = {4: ABORTABLE, 5: OK, 6: OK}.get(version, BAD_STATE)
    assert producer.commit_offset(group_id, {(topic.name, 0): 5}, version=version) == expected
    assert producer.state == ("Ongoing p0 e1" if version >= 5 else "Empty p0 e1")


@pytest.mark.parametrize("version", range(7))
def test_a_commit(topic: Topic, producer: Transactional, group_id: str, version: int) -> None:
    producer.add_group(group_id)
    assert (
        producer.commit_offset(group_id, {(topic.name, 0): 5, (topic.name, 1): -5}, version=version)
        == OK
    )
    assert (
        producer.commit_offset(group_id, {(topic.name, 2): 7}, metadata=None, version=version) == OK
    )
    assert producer.end(commit=True) == OK
    assert settled(topic, group_id, 0, 1, 2) == [5, -5, 7]


@pytest.mark.parametrize("version", range(7))
def test_each_partition_has_its_error(
    topic: Topic, producer: Transactional, group_id: str, version: int
) -> None:
    producer.add_group(group_id)
    offsets = {(topic.name, 0): 5, (topic.name, 7): 5, (unique("missing"), 0): 5}
    told = producer.commit_offset(group_id, offsets, version=version)
    unknown_topic = "UNKNOWN_TOPIC_ID" if version >= 6 else "UNKNOWN_TOPIC_OR_PARTITION"
    assert told == f"OK, UNKNOWN_TOPIC_OR_PARTITION, {unknown_topic}"
    told = producer.commit_offset(
        group_id, {(topic.name, 1): 1}, metadata="x" * 4097, version=version
    )
    assert told == "OFFSET_METADATA_TOO_LARGE"


@pytest.mark.parametrize("version", range(3, 7))
@pytest.mark.parametrize("exists", [True, False], ids=["group", "no group"])
def test_for_whom_is_committed(
    topic: Topic, producer: Transactional, group_id: str, version: int, exists: bool
) -> None:
    offsets = {(topic.name, 0): 5}
    producer.add_group(group_id)
    if exists:
        assert producer.commit_offset(group_id, offsets) == OK
        producer.end(commit=True)
        assert settled(topic, group_id, 0) == [5]
        producer.add_group(group_id)
    told = [
        producer.commit_offset(group_id, offsets, version=version, **who)
        for who in (
            {"generation_id": 3, "member_id": "m"},
            {"generation_id": 3},
            {"member_id": "m"},
            {"instance_id": "i"},
        )
    ]
    missing = "GROUP_ID_NOT_FOUND" if version >= 6 else "ILLEGAL_GENERATION"
    assert told == ["UNKNOWN_MEMBER_ID" if exists else missing] * 2 + [OK] * 2


def test_a_transaction_goes_on_in_the_midst_of_a_rebalance(
    world: World, topic: Topic, producer: Transactional, group_id: str
) -> None:
    member = ClassicGroup(world, group_id).member()
    assert member.join() == OK  # and nothing is assigned yet
    assert member.commit(topic, {0: 5}) == {0: "REBALANCE_IN_PROGRESS"}
    assert producer.add_group(group_id) == OK
    said = {"generation_id": member.generation, "member_id": member.id}
    assert producer.commit_offset(group_id, {(topic.name, 0): 5}, **said) == OK


@pytest.mark.parametrize("version", [7, 8, 9])
def test_pending_offsets_are_not_stable(
    topic: Topic, producer: Transactional, group_id: str, version: int
) -> None:
    """Named partitions are refused; partitions without a commit are not listed."""
    producer.add_group(group_id)
    producer.commit_offset(group_id, {(topic.name, 0): 10, (topic.name, 1): 11})
    assert fetched(topic, group_id, 0, 1, 2, version=version) == [UNSTABLE, UNSTABLE, -1]
    assert fetched(topic, group_id, 0, 1, 2, version=version, stable=False) == [-1, -1, -1]
    assert (
        fetched(topic, group_id, version=version)
        == fetched(topic, group_id, version=version, stable=False)
        == []
    )
    producer.end(commit=True)
    assert settled(topic, group_id, 0, 1, 2) == [10, 11, -1]
    producer.add_group(group_id)
    producer.commit_offset(group_id, {(topic.name, 0): 20, (topic.name, 2): 22})
    assert fetched(topic, group_id, version=version) == [UNSTABLE, 11]
    assert fetched(topic, group_id, version=version, stable=False) == [10, 11]
    producer.end(commit=False)
    assert settled(topic, group_id, 0, 1, 2) == [10, 11, -1]


def test_what_is_committed_in_between_stays(
    topic: Topic, producer: Transactional, group_id: str
) -> None:
    producer.add_group(group_id)
    producer.commit_offset(group_id, {(topic.name, 0): 20, (topic.name, 1): 20})
    assert topic.world.commit_offset(group_id, topic) == OK
    assert fetched(topic, group_id, 0, stable=False) == [1]
    assert fetched(topic, group_id, 0) == [UNSTABLE]
    producer.end(commit=True)
    assert settled(topic, group_id, 0, 1) == [1, 20]


def test_the_later_commit_of_two_transactions_wins(
    topic: Topic, producer: Transactional, group_id: str
) -> None:
    other = Transactional(topic.world)
    other.init()
    for one, offset in ((producer, 1), (other, 2)):
        one.add_group(group_id)
        one.commit_offset(group_id, {(topic.name, 0): offset})
    other.end(commit=True)
    wait_until(lambda: fetched(topic, group_id, 0, stable=False) == [2], 30, "the first commit")
    assert fetched(topic, group_id, 0) == [UNSTABLE]
    producer.end(commit=True)
    assert settled(topic, group_id, 0) == [2]


def test_a_group_is_there_with_what_is_committed(
    topic: Topic, producer: Transactional, group_id: str
) -> None:
    world = topic.world
    producer.add_group(group_id)
    producer.commit_offset(group_id, {(topic.name, 0): 30})
    assert world.groups().get(group_id) == ("Empty", "", "classic")
    producer.end(commit=False)
    assert settled(topic, group_id, 0) == [-1]
    assert world.groups().get(group_id) == ("Empty", "", "classic")


def test_a_deleted_group_has_nothing_pending(
    topic: Topic, producer: Transactional, group_id: str
) -> None:
    producer.add_group(group_id)
    producer.commit_offset(group_id, {(topic.name, 0): 30})
    assert Group(topic.world, group_id).delete() == OK
    assert fetched(topic, group_id, 0) == [-1]
    producer.end(commit=True)
    assert producer.state == "CompleteCommit p0 e1"
    assert settled(topic, group_id, 0) == [-1]


def test_a_deleted_offset_is_not_pending(
    topic: Topic, producer: Transactional, group_id: str
) -> None:
    if not topic.world.serves(OFFSET_DELETE):
        pytest.skip("headrace does not serve OffsetDelete yet")
    producer.add_group(group_id)
    producer.commit_offset(group_id, {(topic.name, 0): 30})
    topics = [{"name": topic.name, "partitions": [{"partition_index": 0}]}]
    answer = topic.world.ask(OFFSET_DELETE, 0, group_id=group_id, topics=topics)
    assert [one.error_code for topic in answer.topics for one in topic.partitions] == [0]
    assert fetched(topic, group_id, 0) == [-1]
    producer.end(commit=True)
    assert producer.state == "CompleteCommit p0 e1"
    assert settled(topic, group_id, 0) == [-1]


@pytest.mark.parametrize("version", range(3, 7))
def test_another_epoch_of_a_member_of_a_consumer_group(
    topic: Topic, producer: Transactional, group_id: str, version: int
) -> None:
    """Before version 6, clients of transactions know generations, not member epochs."""
    member = ConsumerMember(topic.world, group_id).join(topic)
    producer.add_group(group_id)
    offsets, epoch = {(topic.name, 0): 5}, member.epoch

    def commit(generation_id: int, member_id: str = member.id) -> str:
        return producer.commit_offset(
            group_id, offsets, generation_id=generation_id, member_id=member_id, version=version
        )

    stale = "STALE_MEMBER_EPOCH" if version >= 6 else "ILLEGAL_GENERATION"
    assert [commit(epoch + off) for off in (0, 1, 100)] == [OK, stale, stale]
    assert commit(epoch, "stranger") == "UNKNOWN_MEMBER_ID"
