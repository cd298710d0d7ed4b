"""InitProducerId (KIP-98, KIP-360): new producers, fenced ones, and those that return."""

from __future__ import annotations

import pytest

from tests.conformance.producers import Transactional
from tests.conformance.world import OK, World, outcome

FENCED, MAPPING = "PRODUCER_FENCED", "INVALID_PRODUCER_ID_MAPPING"


@pytest.mark.parametrize("version", range(6))
def test_each_time_the_epoch_is_one_more(world: World, version: int) -> None:
    producer = Transactional(world)
    assert [producer.init(version=version) for _ in range(3)] == ["p0 e0", "p0 e1", "p0 e2"]
    assert producer.state == "Empty p0 e2"


@pytest.mark.parametrize("version", [0, 3, 4, 5])
def test_an_empty_transactional_id_is_refused(world: World, version: int) -> None:
    assert Transactional(world, "").init(version=version) == "INVALID_REQUEST"


@pytest.mark.parametrize("timeout_ms", [-1, 0, 900_001])
def test_a_timeout_has_limits(world: World, timeout_ms: int) -> None:
    producer = Transactional(world)
    assert producer.init(timeout_ms=timeout_ms) == "INVALID_TRANSACTION_TIMEOUT"
    assert producer.state == "TRANSACTIONAL_ID_NOT_FOUND"


def test_a_refused_timeout_leaves_the_open_transaction_alone(world: World) -> None:
    topic, producer = world.topic(), Transactional(world)
    producer.init()
    assert producer.add(topic) == OK
    assert producer.init(timeout_ms=0) == "INVALID_TRANSACTION_TIMEOUT"
    assert producer.state == "Ongoing p0 e0"


def test_the_timeout_is_what_was_said_last(world: World) -> None:
    producer = Transactional(world)
    producer.init(timeout_ms=70_000)
    producer.init(timeout_ms=80_000)
    assert producer.described().timeout_ms == 80_000


def test_a_producer_id_needs_an_epoch(world: World) -> None:
    producer = Transactional(world)
    assert (
        producer.init((5, -1))
        == producer.init((-1, 5))
        == producer.init((-1, -3))
        == "INVALID_REQUEST"
    )


def test_what_an_unknown_transactional_id_had_before_does_not_matter(world: World) -> None:
    assert Transactional(world).init((5, 3)) == "p0 e0"


def test_a_producer_comes_back_with_its_epoch(world: World) -> None:
    """KIP-360: it gets the next one, as often as it asks, until that one is used."""
    producer = Transactional(world)
    producer.init()
    assert [producer.init(producer.other(0)) for _ in range(3)] == ["p0 e1"] * 3
    assert producer.init(producer.other(1)) == "p0 e2"
    assert producer.init(producer.other(0)) == FENCED
    assert producer.init(producer.other(1)) == "p0 e2"
    assert producer.init(producer.other(9)) == FENCED
    assert producer.init((123_456_789, 2)) == FENCED


def test_a_producer_whose_successor_came_does_not_come_back(world: World) -> None:
    """A producer that does not name its previous id and epoch is a new one, and fences the previous
    one.
    """
    zombie = Transactional(world)
    zombie.init()
    new = Transactional(world, zombie.id)
    assert new.init().endswith("e1")
    assert zombie.init(zombie.other(0)) == FENCED
    assert zombie.state == "Empty p0 e1"


def test_two_producers_take_the_id_from_each_other(world: World) -> None:
    topic = world.topic()
    first = Transactional(world)
    first.init()
    first.add(topic)
    first.write(topic)
    second = Transactional(world, first.id)
    second.init()
    assert (second.add(topic), second.write(topic)) == (OK, OK)
    assert first.write(topic) == "INVALID_PRODUCER_EPOCH"
    assert first.end(commit=True) == FENCED
    assert second.end(commit=True) == OK
    assert second.state.startswith("CompleteCommit")


def test_an_open_transaction_is_aborted_for_a_new_producer(world: World) -> None:
    topic, producer = world.topic(), Transactional(world)
    producer.init()
    producer.add(topic)
    producer.write(topic, 2)
    old = producer.who
    assert producer.init() == "p0 e2"  # e1 is the coordinator's own
    assert producer.state == "Empty p0 e2"
    assert topic.end_offset(committed=True) == topic.end_offset() == 3
    assert producer.write(topic, who=old) == "INVALID_PRODUCER_EPOCH"
    assert producer.add(topic, who=old) == producer.end(commit=True, who=old) == FENCED


def test_an_open_transaction_is_aborted_for_a_producer_that_comes_back(world: World) -> None:
    topic, producer = world.topic(), Transactional(world)
    producer.init()
    producer.add(topic)
    producer.write(topic)
    assert producer.init(producer.who) == "p0 e1"
    assert topic.end_offset(committed=True) == 2


def test_a_fenced_producer_aborts_what_is_open_when_it_comes_back_in_vain(world: World) -> None:
    topic, producer = world.topic(), Transactional(world)
    producer.init()
    producer.init()
    producer.add(topic)
    assert producer.init(producer.other(0)) == FENCED
    assert producer.state == "CompleteAbort p0 e2"


def test_a_transaction_that_takes_too_long_is_aborted(world: World) -> None:
    topic, producer = world.topic(), Transactional(world)
    producer.init(timeout_ms=1000)
    producer.add(topic)
    producer.write(topic, 2)
    late = producer.who
    producer.wait_for("CompleteAbort p0 e1")
    assert topic.end_offset(committed=True) == 3
    assert producer.write(topic, who=late) == "INVALID_PRODUCER_EPOCH"
    for told in (
        producer.add(topic),
        producer.add_group("g"),
        producer.end(commit=True),
        producer.end(commit=False),
    ):
        assert told == FENCED
    assert producer.commit_offset("g", {(topic.name, 0): 1}) == "INVALID_PRODUCER_EPOCH"
    # it may go on, with the epoch that fenced it
    assert producer.init(late) == producer.init(late) == "p0 e1"
    assert producer.init(producer.other(1)) == "p0 e2"


def test_with_an_epoch_for_each_transaction_a_late_abort_is_as_good_as_done(world: World) -> None:
    topic, producer = world.topic(), Transactional(world)
    producer.init(timeout_ms=1000)
    assert producer.write(topic, 2, version=12) == OK
    late = producer.who
    producer.wait_for("CompleteAbort p0 e1")
    assert producer.end(commit=True, who=late, version=5) == "INVALID_TXN_STATE"
    assert producer.end(commit=False, who=late, version=5) == "p0 e1"


@pytest.mark.slow
def test_a_new_producer_id_when_no_epoch_is_left(world: World) -> None:
    topic, producer = world.topic(), Transactional(world)
    producer.init()
    producer.use_up_epochs(32_765)
    assert producer.init(producer.who) == "p0 e32766"
    last = producer.who
    assert producer.init(last) == "p1 e0"
    assert producer.state == "Empty p1 e0"
    assert producer.init(last) in ("p1 e0", FENCED)  # Kafka knows one retry, headrace any
    assert producer.init(producer.other(0, 1)) == "p1 e1"
    assert producer.init(last) == FENCED
    assert producer.write(topic, version=12) == OK


@pytest.mark.slow
def test_the_last_epoch_of_a_producer_id_ends_a_transaction(world: World) -> None:
    """KIP-890: the next transaction has another producer id."""
    topic, producer = world.topic(), Transactional(world)
    producer.init()
    producer.use_up_epochs(32_765)
    assert producer.end(commit=False, version=5) == "p0 e32766"
    last = producer.who
    assert producer.write(topic, version=12) == OK
    assert producer.end(commit=True, version=5) == "p1 e0"
    assert producer.end(commit=True, version=5, who=last) == "p1 e0"
    assert producer.end(commit=False, version=5, who=last) == "INVALID_TXN_STATE"
    assert producer.end(commit=True, version=5, who=producer.other(5)) == MAPPING
    producer.who = producer.other(0, 1)
    assert producer.write(topic, version=12) == OK
    assert producer.end(commit=True, version=5) == "p1 e1"
    assert producer.end(commit=True, version=5, who=last) == MAPPING
    assert topic.end_offset(committed=True) == 4


def test_version_6_is_served_with_unstable_api_versions(small_world: World) -> None:
    """Two-phase commit (KIP-939), which it is there for, is off."""
    assert small_world.connection.api_versions()[22] == (0, 6)
    assert Transactional(small_world).init(version=6) == "p0 e0"
    for field, refusal in (
        ("enable2_pc", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
        ("keep_prepared_txn", "UNSUPPORTED_VERSION"),
    ):
        assert Transactional(small_world).init(version=6, **{field: True}) == refusal
    made = small_world.ask(22, 6, transactional_id=None, transaction_timeout=0, enable2_pc=True)
    assert outcome(made.error_code) == OK
    assert (made.ongoing_txn_producer_id, made.ongoing_txn_producer_epoch) == (-1, -1)
