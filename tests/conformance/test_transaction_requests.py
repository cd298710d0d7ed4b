"""What takes part in a transaction and how it ends: AddPartitionsToTxn, AddOffsetsToTxn, Produce, EndTxn."""

from __future__ import annotations

import pytest

from tests.conformance.producers import Transactional
from tests.conformance.world import OK, Topic, World
from tests.support import unique

FENCED, MAPPING, BAD_EPOCH = "PRODUCER_FENCED", "INVALID_PRODUCER_ID_MAPPING", "INVALID_PRODUCER_EPOCH"
BAD_STATE, ABORTABLE = "INVALID_TXN_STATE", "TRANSACTION_ABORTABLE"
STRANGER = (987_654_321, 0)


def fenced(version: int) -> str:
    """What a version says to a producer with another epoch (KIP-588)."""
    return FENCED if version >= 2 else BAD_EPOCH


@pytest.fixture
def topic(world: World) -> Topic:
    return world.topic(partitions=2)


@pytest.fixture
def producer(world: World) -> Transactional:
    """It has come twice, so that `other(0)` is fenced."""
    made = Transactional(world)
    assert (made.init(), made.init()) == ("p0 e0", "p0 e1")
    return made


# --- AddPartitionsToTxn ---


@pytest.mark.parametrize("version", range(6))
def test_who_may_add_partitions(world: World, topic: Topic, producer: Transactional, version: int) -> None:
    assert Transactional(world).add(topic, who=STRANGER, version=version) == MAPPING
    assert Transactional(world, "").add(topic, who=STRANGER, version=version) == "INVALID_REQUEST"
    assert producer.add(topic, who=STRANGER, version=version) == MAPPING
    for epoch in (-1, 0, 2):
        assert producer.add(topic, who=producer.other(epoch), version=version) == fenced(version)
    assert producer.add(topic, version=version) == producer.add(topic, version=version) == OK
    assert producer.add((topic.name, [0, 1]), version=version) == OK
    assert producer.state == "Ongoing p0 e1"
    assert producer.described().topics == {topic.name: [0, 1]}


@pytest.mark.parametrize("version", [3, 5])
def test_all_partitions_or_none(topic: Topic, producer: Transactional, version: int) -> None:
    told = producer.add((topic.name, [0, 7]), (unique("missing"), [0]), version=version)
    assert told == "OPERATION_NOT_ATTEMPTED, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_OR_PARTITION"
    assert producer.state == "Empty p0 e1"


def test_nobody_writes_to_internal_topics(producer: Transactional) -> None:
    assert producer.add(("__consumer_offsets", [0]), ("__transaction_state", [0])) == "TOPIC_AUTHORIZATION_FAILED"


@pytest.mark.parametrize("version", [4, 5])
def test_partitions_are_verified(topic: Topic, producer: Transactional, version: int) -> None:
    def verified(*partitions: int, who: tuple[int, int] | None = None) -> str:
        return producer.add((topic.name, partitions), who=who, version=version, verify=True)

    assert verified(0) == ABORTABLE
    assert (verified(0, who=STRANGER), verified(0, who=producer.other(2))) == (MAPPING, FENCED)
    producer.add(topic)
    assert verified(0, 1) == f"OK, {ABORTABLE}"
    assert verified(0, who=producer.other(0)) == FENCED
    assert verified(7) == "UNKNOWN_TOPIC_OR_PARTITION"
    producer.end(commit=True)
    assert producer.state == "CompleteCommit p0 e1"
    assert verified(0) == ABORTABLE


@pytest.mark.parametrize("version", [4, 5])
def test_several_transactions_at_once(world: World, topic: Topic, version: int) -> None:
    producers = [Transactional(world), Transactional(world), Transactional(world)]
    for one in producers:
        one.init()
    asked = [
        {
            "transactional_id": one.id, "producer_id": one.who[0], "producer_epoch": one.who[1] + fence,
            "verify_only": verify, "topics": [{"name": topic.name, "partitions": [0]}],
        }
        for one, verify, fence in zip(producers, (False, True, False), (0, 0, 5), strict=True)
    ]  # fmt: skip
    results = world.ask(24, version, transactions=asked).results_by_transaction
    codes = {one.transactional_id: one.topic_results[0].results_by_partition[0] for one in results}
    assert [int(codes[one.id].partition_error_code) for one in producers] == [0, 120, 90]


# --- AddOffsetsToTxn ---


@pytest.mark.parametrize("version", range(5))
def test_who_may_add_a_group(world: World, producer: Transactional, version: int) -> None:
    group_id = unique("group")
    assert Transactional(world).add_group(group_id, who=STRANGER, version=version) == MAPPING
    assert Transactional(world, "").add_group(group_id, who=STRANGER, version=version) == "INVALID_REQUEST"
    assert producer.add_group(group_id, who=STRANGER, version=version) == MAPPING
    assert producer.add_group(group_id, who=producer.other(0), version=version) == fenced(version)
    assert producer.add_group(group_id, version=version) == OK
    assert producer.state == "Ongoing p0 e1"
    assert list(producer.described().topics) == ["__consumer_offsets"]


# --- Produce ---


@pytest.mark.parametrize("version", [*range(3, 13)])
def test_writes_outside_of_a_transaction(topic: Topic, producer: Transactional, version: int) -> None:
    """From version 12 on a write is what lets a partition take part."""
    expected = {11: ABORTABLE, 12: OK}.get(version, BAD_STATE)
    assert producer.write(topic, version=version) == expected
    assert producer.state == ("Ongoing p0 e1" if version == 12 else "Empty p0 e1")


@pytest.mark.parametrize("version", [*range(3, 13)])
def test_who_may_write(world: World, topic: Topic, producer: Transactional, version: int) -> None:
    assert Transactional(world).write(topic, who=STRANGER, version=version) == MAPPING
    assert Transactional(world, "").write(topic, who=STRANGER, version=version) == "INVALID_REQUEST"
    producer.add(topic)
    assert producer.write(topic, who=producer.other(0), version=version) == BAD_EPOCH
    assert producer.write(topic, who=STRANGER, version=version) == MAPPING
    assert producer.write(topic, transactional_id=None, version=version) == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
    producer.end(commit=False)


@pytest.mark.parametrize("version", [3, 11, 12])
def test_sequences_in_a_transaction(topic: Topic, producer: Transactional, version: int) -> None:
    producer.add(topic)
    assert producer.write(topic, version=version) == OK
    assert producer.write(topic, sequence=0, version=version) == OK  # sent again
    assert producer.write(topic, sequence=9, version=version) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert producer.write(topic, version=version) == OK
    assert topic.end_offset() == 2


def test_a_first_sequence_is_0_when_writing_lets_take_part(topic: Topic, producer: Transactional) -> None:
    assert producer.write(topic, sequence=5, version=12) == "OUT_OF_ORDER_SEQUENCE_NUMBER"


@pytest.mark.parametrize("version", [3, 12])
def test_plain_batches_do_not_mix_with_a_transaction(topic: Topic, producer: Transactional, version: int) -> None:
    producer.add(topic)
    producer.write(topic, version=version)
    assert producer.write(topic, transactional=False, version=version) == BAD_STATE


@pytest.mark.parametrize("version", [10, 11])
def test_writes_after_the_end(topic: Topic, producer: Transactional, version: int) -> None:
    producer.add(topic)
    producer.write(topic, version=version)
    producer.end(commit=True)
    assert producer.state == "CompleteCommit p0 e1"
    assert producer.write(topic, version=version) == (ABORTABLE if version == 11 else BAD_STATE)


# --- EndTxn ---


@pytest.mark.parametrize("version", range(6))
def test_who_may_end(world: World, producer: Transactional, version: int) -> None:
    assert Transactional(world).end(commit=True, who=STRANGER, version=version) == MAPPING
    assert Transactional(world, "").end(commit=True, who=STRANGER, version=version) == "INVALID_REQUEST"
    assert producer.end(commit=True, who=STRANGER, version=version) == MAPPING
    assert producer.end(commit=True, who=producer.other(2), version=version) == fenced(version)


@pytest.mark.parametrize("version", range(5))
def test_nothing_to_end(producer: Transactional, version: int) -> None:
    assert producer.end(commit=True, version=version) == producer.end(commit=False, version=version) == BAD_STATE
    assert producer.end(commit=True, who=producer.other(0), version=version) == fenced(version)
    assert producer.state == "Empty p0 e1"


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("version", range(5))
def test_an_end_that_is_asked_for_again(topic: Topic, producer: Transactional, version: int, commit: bool) -> None:
    producer.add(topic)
    producer.write(topic)
    assert [producer.end(commit=commit, version=version) for _ in range(3)] == [OK] * 3
    assert producer.end(commit=not commit, version=version) == BAD_STATE
    assert producer.state == ("CompleteCommit p0 e1" if commit else "CompleteAbort p0 e1")


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_each_transaction_has_an_epoch_with_version_5(topic: Topic, producer: Transactional, commit: bool) -> None:
    first = producer.who
    assert producer.write(topic, 2, version=12) == OK
    assert producer.end(commit=commit, version=5) == "p0 e2"
    assert producer.end(commit=commit, who=first, version=5) == "p0 e2"
    assert producer.end(commit=not commit, who=first, version=5) == BAD_STATE
    assert producer.write(topic, who=first, version=12) == BAD_EPOCH
    producer.who = producer.other(2)
    assert producer.end(commit=True, version=5) == BAD_STATE
    assert producer.write(topic, version=12) == OK
    assert producer.end(commit=commit, who=first, version=5) == FENCED  # the next one is open
    assert producer.state == "Ongoing p0 e2"
    assert producer.end(commit=True, who=producer.other(2), version=5) == "p0 e3"
    assert producer.state == "CompleteCommit p0 e3"
    assert topic.end_offset(committed=True) == 5


def test_an_abort_of_nothing_with_version_5(topic: Topic, producer: Transactional) -> None:
    assert producer.end(commit=False, version=5) == "p0 e2"
    assert producer.state == "CompleteAbort p0 e2"
    assert producer.end(commit=False, who=producer.other(1), version=5) == "p0 e2"
    assert producer.end(commit=False, version=5) == "p0 e3"
    assert producer.end(commit=False, who=producer.other(1), version=5) == FENCED
    assert producer.end(commit=True, version=5) == BAD_STATE
    assert producer.write(topic, who=producer.other(3), version=12) == OK


def test_a_lost_answer_to_version_5_is_made_up_for_by_coming_back(topic: Topic, producer: Transactional) -> None:
    first = producer.who
    producer.write(topic, version=12)
    producer.end(commit=True, version=5)
    assert producer.init(first) == "p0 e2"
    assert producer.state == "Empty p0 e2"


def test_old_and_new_ways_mix(topic: Topic, producer: Transactional) -> None:
    producer.add(topic)
    producer.write(topic)
    assert producer.end(commit=True, version=5) == "p0 e2"
    assert producer.write(topic, version=12) == OK
    assert producer.end(commit=True, version=3) == OK
    assert producer.state == "CompleteCommit p0 e2"


# --- a topic that goes ---


def test_a_transaction_ends_without_a_topic_that_is_gone(world: World, topic: Topic, producer: Transactional) -> None:
    gone = world.topic()
    for one in (topic, gone):
        producer.add(one)
        producer.write(one)
    gone.delete()
    assert producer.write(topic) == producer.end(commit=True) == OK
    assert producer.state == "CompleteCommit p0 e1"
    assert topic.end_offset(committed=True) == 3
