"""Partitions and groups of a transaction, and its end: AddPartitionsToTxn, AddOffsetsToTxn,
Produce, EndTxn.
"""

from __future__ import annotations

from uuid import UUID

import pytest

from tests.conformance.producers import Transactional
from tests.conformance.world import OK, Topic, World, outcome
from tests.support import unique
from tests.wire_client import batch, with_byte_changed

FENCED, MAPPING, BAD_EPOCH = (
    "PRODUCER_FENCED",
    "INVALID_PRODUCER_ID_MAPPING",
    "INVALID_PRODUCER_EPOCH",
)
BAD_STATE, ABORTABLE = "INVALID_TXN_STATE", "TRANSACTION_ABORTABLE"
STRANGER = (987_654_321, 0)


def fenced(version: int) -> str:
    """Return the error of a version for a producer with another epoch (KIP-588)."""
    return FENCED if version >= 2 else BAD_EPOCH


@pytest.fixture
def topic(world: World) -> Topic:
    return world.topic(partitions=2)


@pytest.fixture
def producer(world: World) -> Transactional:
    """A producer that was initialized twice, so that `other(0)` is fenced."""
    made = Transactional(world)
    assert (made.init(), made.init()) == ("p0 e0", "p0 e1")
    return made


# --- AddPartitionsToTxn ---


@pytest.mark.parametrize("version", range(6))
def test_who_may_add_partitions(
    world: World, topic: Topic, producer: Transactional, version: int
) -> None:
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
    internal = ("__consumer_offsets", [0]), ("__transaction_state", [0])
    assert producer.add(*internal) == "TOPIC_AUTHORIZATION_FAILED"
    assert producer.add(*internal, who=STRANGER) == "TOPIC_AUTHORIZATION_FAILED"
    # brokers may let them take part
    assert producer.add(*internal, who=STRANGER, version=4) == MAPPING


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
            "transactional_id": one.id,
            "producer_id": one.who[0],
            "producer_epoch": one.who[1] + fence,
            "verify_only": verify,
            "topics": [{"name": topic.name, "partitions": [0]}],
        }
        for one, verify, fence in zip(producers, (False, True, False), (0, 0, 5), strict=True)
    ]
    results = world.ask(24, version, transactions=asked).results_by_transaction
    codes = {one.transactional_id: one.topic_results[0].results_by_partition[0] for one in results}
    assert [int(codes[one.id].partition_error_code) for one in producers] == [0, 120, 90]


# --- AddOffsetsToTxn ---


@pytest.mark.parametrize("version", range(5))
def test_who_may_add_a_group(world: World, producer: Transactional, version: int) -> None:
    group_id = unique("group")
    assert Transactional(world).add_group(group_id, who=STRANGER, version=version) == MAPPING
    assert (
        Transactional(world, "").add_group(group_id, who=STRANGER, version=version)
        == "INVALID_REQUEST"
    )
    assert producer.add_group(group_id, who=STRANGER, version=version) == MAPPING
    assert producer.add_group(group_id, who=producer.other(0), version=version) == fenced(version)
    assert producer.add_group(group_id, version=version) == OK
    assert producer.state == "Ongoing p0 e1"
    assert list(producer.described().topics) == ["__consumer_offsets"]


# --- Produce ---


@pytest.mark.parametrize("version", [*range(3, 13)])
def test_writes_outside_of_a_transaction(
    topic: Topic, producer: Transactional, version: int
) -> None:
    """From version 12 on, a write adds the partition to the transaction."""
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
    assert (
        producer.write(topic, transactional_id=None, version=version)
        == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
    )
    producer.end(commit=False)


@pytest.mark.parametrize("version", [3, 11, 12])
def test_sequences_in_a_transaction(topic: Topic, producer: Transactional, version: int) -> None:
    producer.add(topic)
    assert producer.write(topic, version=version) == OK
    assert producer.write(topic, sequence=0, version=version) == OK  # sent again
    assert producer.write(topic, sequence=9, version=version) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert producer.write(topic, version=version) == OK
    assert topic.end_offset() == 2


def test_a_first_sequence_is_0_when_writing_lets_take_part(
    topic: Topic, producer: Transactional
) -> None:
    assert producer.write(topic, sequence=5, who=STRANGER, version=12) == MAPPING
    assert producer.write(topic, sequence=5, version=12) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert producer.described().topics == {topic.name: [0]}  # that was asked first


def produce(
    topic: Topic, *batches: bytes, transactional_id: str | None, acks: int = -1
) -> list[tuple[str, int]]:
    """Produce a batch to each partition; return errors and log start offsets."""
    partitions = [{"index": index, "records": records} for index, records in enumerate(batches)]
    (told,) = topic.world.ask(
        0,
        12,
        transactional_id=transactional_id,
        acks=acks,
        timeout=30_000,
        topic_data=[{"name": topic.name, "partition_data": partitions}],
    ).responses
    found = sorted(
        (one.index, outcome(one.error_code), one.log_start_offset)
        for one in told.partition_responses
    )
    return [(error, log_start_offset) for _, error, log_start_offset in found]


def test_one_producer_for_all_transactional_batches_of_a_request(
    world: World, topic: Topic, producer: Transactional
) -> None:
    other = Transactional(world)
    other.init()
    plain = batch([b"v"])
    first, second = (
        batch(
            [b"v"],
            producer_id=one.who[0],
            producer_epoch=one.who[1],
            base_sequence=0,
            transactional=True,
        )
        for one in (producer, other)
    )
    assert produce(topic, first, second, transactional_id=producer.id) == [(MAPPING, -1)] * 2
    refused = [("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", -1)] * 2
    assert produce(topic, plain, first, transactional_id=None) == refused
    assert produce(topic, plain, first, transactional_id=producer.id) == [(OK, 0)] * 2
    nobodys = batch([b"v"], transactional=True)
    assert produce(topic, nobodys, transactional_id="") == [(OK, 0)]
    assert producer.end(commit=True) == OK


def test_a_partition_takes_part_before_the_rest_is_looked_at(
    topic: Topic, producer: Transactional
) -> None:
    producer_id, epoch = producer.who
    records = batch(
        [b"v"], producer_id=producer_id, producer_epoch=epoch, base_sequence=0, transactional=True
    )
    assert produce(topic, records, transactional_id=producer.id, acks=2) == [
        ("INVALID_REQUIRED_ACKS", -1)
    ]
    assert producer.state == "Ongoing p0 e1"
    assert Transactional(topic.world).write(topic, who=STRANGER, version=12) == MAPPING


def test_who_has_an_open_transaction_in_a_partition_goes_on_with_it(
    world: World, topic: Topic, producer: Transactional
) -> None:
    other, group_id = Transactional(world), unique("group")
    producer.add(topic)
    assert producer.write(topic) == OK
    assert producer.write(topic, transactional_id=other.id) == OK
    assert producer.write(topic, transactional_id=other.id, version=12) == OK
    assert other.write(topic, who=producer.other(0)) == BAD_EPOCH  # the log knows a newer one
    assert other.write(topic, who=producer.other(2)) == MAPPING
    producer.add_group(group_id)
    assert producer.commit_offset(group_id, {(topic.name, 0): 1}) == OK
    assert other.commit_offset(group_id, {(topic.name, 0): 1}, who=producer.who) == OK
    assert other.commit_offset(group_id, {(topic.name, 0): 1}, who=producer.other(0)) == BAD_EPOCH
    assert other.state == "TRANSACTIONAL_ID_NOT_FOUND"
    assert producer.end(commit=True) == OK
    assert producer.state == "CompleteCommit p0 e1"
    assert topic.end_offset(committed=True) == 4


def test_refusals_by_the_log_tell_where_it_starts(topic: Topic) -> None:
    topic.produce(3)
    topic.delete_records_before(2)
    bare, sequenced = (
        batch([b"v"]),
        batch([b"v"], producer_id=7_000_000, producer_epoch=0, base_sequence=0),
    )
    assert produce(topic, sequenced, transactional_id=None) == [(OK, 2)]
    gap = batch([b"v"], producer_id=7_000_000, producer_epoch=0, base_sequence=9)
    assert produce(topic, gap, transactional_id=None) == [("OUT_OF_ORDER_SEQUENCE_NUMBER", 2)]
    assert produce(topic, batch([b"v"], control=True), transactional_id=None) == [
        ("INVALID_RECORD", 2)
    ]
    assert produce(topic, with_byte_changed(bare, 60), transactional_id=None) == [
        ("CORRUPT_MESSAGE", -1)
    ]
    negative = batch([b"v"], producer_id=7_000_001, producer_epoch=-2, base_sequence=0)
    assert produce(topic, negative, transactional_id=None) == [(BAD_EPOCH, 2)]
    none, first = (
        batch([b"v"], producer_id=7_000_002, producer_epoch=epoch, base_sequence=0)
        for epoch in (-1, 0)
    )
    later = batch([b"v"], producer_id=7_000_002, producer_epoch=0, base_sequence=5)
    assert [produce(topic, one, transactional_id=None)[0][0] for one in (none, later, first)] == [
        OK,
        OK,
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
    ]


def test_what_is_no_batch_is_refused_before_anything_takes_part(
    topic: Topic, producer: Transactional
) -> None:
    (producer_id, epoch), bare = producer.who, batch([b"v"])
    own = batch(
        [b"v"], producer_id=producer_id, producer_epoch=epoch, base_sequence=0, transactional=True
    )
    of_magic = [bare[:16] + bytes([magic]) + bare[17:] for magic in (1, 3)]
    for wrong in (own[:-3], own * 2, own[:30], of_magic[0], b""):
        assert produce(topic, wrong, transactional_id=producer.id) == [("INVALID_RECORD", -1)]
        assert produce(topic, bare, wrong, transactional_id=producer.id) == [
            (OK, 0),
            ("INVALID_RECORD", -1),
        ]
    assert producer.state == "Empty p0 e1"
    assert produce(topic, bare, of_magic[1], transactional_id=None) == [("CORRUPT_MESSAGE", -1)] * 2
    assert produce(topic, own[:16] + b"\1" + own[17:], transactional_id=None) == [
        ("INVALID_RECORD", -1)
    ]
    assert produce(topic, own, of_magic[1], transactional_id=producer.id) == [
        (OK, 0),
        ("CORRUPT_MESSAGE", -1),
    ]
    assert producer.end(commit=True) == OK


@pytest.mark.parametrize(
    "name", ["__consumer_offsets", "__transaction_state", "__share_group_state"]
)
def test_internal_topics_take_no_records_of_clients(world: World, name: str) -> None:
    records = batch([b"v"], key=b"k")
    internal = Topic(world, name, UUID(int=0))
    assert produce(internal, records, transactional_id=None) == [("INVALID_TOPIC_EXCEPTION", -1)]


@pytest.mark.parametrize("version", [3, 12])
def test_plain_batches_do_not_mix_with_a_transaction(
    topic: Topic, producer: Transactional, version: int
) -> None:
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
    assert (
        Transactional(world, "").end(commit=True, who=STRANGER, version=version)
        == "INVALID_REQUEST"
    )
    assert producer.end(commit=True, who=STRANGER, version=version) == MAPPING
    assert producer.end(commit=True, who=producer.other(2), version=version) == fenced(version)


@pytest.mark.parametrize("version", range(5))
def test_nothing_to_end(producer: Transactional, version: int) -> None:
    assert (
        producer.end(commit=True, version=version)
        == producer.end(commit=False, version=version)
        == BAD_STATE
    )
    assert producer.end(commit=True, who=producer.other(0), version=version) == fenced(version)
    assert producer.state == "Empty p0 e1"


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("version", range(5))
def test_an_end_that_is_asked_for_again(
    topic: Topic, producer: Transactional, version: int, commit: bool
) -> None:
    producer.add(topic)
    producer.write(topic)
    assert [producer.end(commit=commit, version=version) for _ in range(3)] == [OK] * 3
    assert producer.end(commit=not commit, version=version) == BAD_STATE
    assert producer.state == ("CompleteCommit p0 e1" if commit else "CompleteAbort p0 e1")


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_each_transaction_has_an_epoch_with_version_5(
    topic: Topic, producer: Transactional, commit: bool
) -> None:
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


def test_an_end_that_is_asked_for_again_after_coming_back(
    topic: Topic, producer: Transactional
) -> None:
    producer.write(topic, version=12)
    producer.end(commit=False, version=5)
    last = producer.who
    assert producer.init() == "p0 e3"
    assert producer.end(commit=False, version=5, who=last) == FENCED


def test_an_abort_of_nothing_has_a_beginning(producer: Transactional) -> None:
    assert producer.described().start_ms == -1
    assert producer.end(commit=False, version=5) == "p0 e2"
    assert producer.described().start_ms > 0


def test_a_lost_answer_to_version_5_is_made_up_for_by_coming_back(
    topic: Topic, producer: Transactional
) -> None:
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


def test_a_transaction_ends_without_a_topic_that_is_gone(
    world: World, topic: Topic, producer: Transactional
) -> None:
    gone = world.topic()
    for one in (topic, gone):
        producer.add(one)
        producer.write(one)
    gone.delete()
    assert producer.write(topic) == producer.end(commit=True) == OK
    assert producer.state == "CompleteCommit p0 e1"
    assert topic.end_offset(committed=True) == 3
