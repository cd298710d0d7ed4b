"""Producers that have been idle for long: their transactional ids and their state in partitions."""

from __future__ import annotations

from uuid import UUID

from headrace.protocol import record_batch
from tests.conformance.producers import Transactional, describe_producers, fetch, list_transactions
from tests.conformance.world import OK, PATIENCE_S, Topic, World
from tests.support import unique, wait_until

TRANSACTION_STATE = "__transaction_state"  # of one partition, see conftest.SMALL_CONFIGS
NO_MAPPING = "INVALID_PRODUCER_ID_MAPPING"


def ended(world: World, topic: Topic, *, commit: bool) -> Transactional:
    """Return a transactional id whose transaction of one record has ended."""
    producer = Transactional(world)
    producer.init()
    assert (producer.add(topic), producer.write(topic), producer.end(commit=commit)) == (OK, OK, OK)
    return producer


def listed(world: World) -> set[str]:
    return {one.transactional_id for one in list_transactions(world).transaction_states}


def last_states(world: World) -> dict[str, bytes | None]:
    """Return the value of the last record of each transactional id in the internal topic; None for
    a tombstone.
    """
    state, found, offset = Topic(world, TRANSACTION_STATE, UUID(int=0)), {}, 0
    offset = state.list_offset(-2)
    while offset < state.end_offset():
        data = bytes(fetch(state, offset, committed=False).records)
        for position, header in record_batch.headers(data):
            if not header.is_control:
                for record in record_batch.records(memoryview(data)[position:]):
                    # after the version and the length, 2 bytes each
                    found[record.key[4:].decode()] = record.value
            offset = header.last_offset + 1
    return found


def test_transactional_ids_that_nobody_uses_are_forgotten(small_world: World) -> None:
    topic = small_world.topic()
    in_use = Transactional(small_world)
    in_use.init()
    assert in_use.add(topic) == OK
    empty = Transactional(small_world)
    empty.init()
    idle = [empty, ended(small_world, topic, commit=True), ended(small_world, topic, commit=False)]
    ids = {one.id for one in idle}
    assert {in_use.id, *ids} <= listed(small_world)
    assert all(last_states(small_world)[one] for one in ids)
    wait_until(
        lambda: not ids & listed(small_world), PATIENCE_S, "transactional ids to be forgotten"
    )
    assert [one.state for one in idle] == ["TRANSACTIONAL_ID_NOT_FOUND"] * 3
    assert {one: last_states(small_world)[one] for one in ids} == dict.fromkeys(ids)
    assert in_use.state == "Ongoing p0 e0"
    assert in_use.end(commit=True) == OK
    for one in idle:
        assert (one.add(topic), one.add_group(unique("group")), one.end(commit=True)) == (
            NO_MAPPING,
        ) * 3
        assert one.commit_offset(unique("group"), {(topic.name, 0): 1}) == NO_MAPPING
    back, anew = idle[0].init(idle[0].who), idle[1].init()
    # both with a producer id of their own, as if they had never been there
    assert (back, anew) == ("p1 e0", "p1 e0")
    assert idle[1].add(topic) == OK
    assert (idle[1].write(topic), idle[1].end(commit=True)) == (OK, OK)


def test_partitions_forget_producers_that_send_nothing(small_world: World) -> None:
    topic = small_world.topic()
    producer = Transactional(small_world)
    producer.init()
    in_use = Transactional(small_world)
    in_use.init()
    for one in (producer, in_use):
        assert (one.add(topic), one.write(topic, 3)) == (OK, OK)
    assert producer.end(commit=True) == OK

    def known() -> set[int]:
        return {one.producer_id for one in describe_producers(topic).active_producers}

    assert known() == {producer.who[0], in_use.who[0]}
    wait_until(lambda: known() == {in_use.who[0]}, PATIENCE_S, "the producer to be forgotten")
    (left,) = describe_producers(topic).active_producers
    assert (left.last_sequence, left.current_txn_start_offset) == (2, 3)
    assert in_use.end(commit=False) == OK


def test_a_forgotten_producer_begins_with_any_sequence(small_world: World) -> None:
    topic = small_world.topic()
    producer = Transactional(small_world, "")
    made = small_world.ask(22, 4, transactional_id=None, transaction_timeout=60_000)
    producer.who = made.producer_id, made.producer_epoch
    plain = {"transactional": False, "transactional_id": None}
    assert producer.write(topic, 3, **plain) == OK
    assert producer.write(topic, sequence=7, **plain) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    wait_until(
        lambda: not describe_producers(topic).active_producers,
        PATIENCE_S,
        "the producer to be forgotten",
    )
    assert producer.write(topic, sequence=7, **plain) == OK
    assert producer.write(topic, sequence=7, **plain) == OK  # again: the same batch
    assert topic.end_offset() == 4
