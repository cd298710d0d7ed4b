"""The share coordinator asked directly, as the leader of a share partition asks it (83-87)."""

from __future__ import annotations

import pytest

from tests.conformance.world import OK, ShareState, Topic, World

READ_UNINITIALIZED = "INVALID_REQUEST: Read operation on uninitialized share partition not allowed."
WRITE_UNINITIALIZED = (
    "INVALID_REQUEST: Write operation on uninitialized share partition not allowed."
)
MISSING = "UNKNOWN_TOPIC_OR_PARTITION: This server does not host this topic-partition."
AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4


@pytest.fixture
def topic(world: World) -> Topic:
    return world.topic()


@pytest.fixture
def state(world: World, topic: Topic) -> ShareState:
    return world.group().state(topic)


def test_state_begins_with_initialize(state: ShareState) -> None:  # case 55
    assert state.read() == READ_UNINITIALIZED
    assert state.write(state_epoch=0, leader_epoch=0, start_offset=0) == WRITE_UNINITIALIZED
    assert state.initialize(state_epoch=3, start_offset=7) == OK
    assert state.read() == "se 3 start 7"


def test_state_epochs_only_go_up(state: ShareState) -> None:  # case 55
    assert state.initialize(state_epoch=3, start_offset=0) == OK
    assert state.initialize(state_epoch=2, start_offset=0).startswith("FENCED_STATE_EPOCH: ")
    assert state.initialize(state_epoch=3, start_offset=0) == OK
    assert state.write(state_epoch=2, leader_epoch=0, start_offset=0).startswith(
        "FENCED_STATE_EPOCH: "
    )
    assert state.write(state_epoch=8, leader_epoch=0, start_offset=0) == OK
    assert state.summary_fields.state_epoch == 3


def test_leader_epochs_only_go_up(state: ShareState) -> None:  # case 55
    assert state.initialize(state_epoch=1, start_offset=0) == OK
    assert state.read(leader_epoch=5) == "se 1 start 0"
    assert state.read(leader_epoch=4) == (
        "FENCED_LEADER_EPOCH: The leader epoch in the request is older than the epoch on "
        "the broker."
    )
    assert state.read(leader_epoch=-1) == "se 1 start 0"
    assert state.write(state_epoch=1, leader_epoch=4, start_offset=0).startswith(
        "FENCED_LEADER_EPOCH: "
    )
    assert state.write(state_epoch=1, leader_epoch=-1, start_offset=0) == OK
    assert state.summary_fields.leader_epoch == 5


def test_deleting_twice(state: ShareState) -> None:  # case 55
    assert state.initialize(state_epoch=1, start_offset=4) == OK
    assert [state.delete(), state.delete()] == [OK, OK]
    assert state.summary == "start -1 complete -1"
    assert state.read() == READ_UNINITIALIZED


def test_the_summary_of_what_is_not_there(state: ShareState) -> None:  # case 56
    nothing = state.summary_fields
    assert (nothing.state_epoch, nothing.leader_epoch) == (0, 0)
    assert state.summary == "start -1 complete -1"


def test_batches_are_merged(state: ShareState) -> None:
    assert state.initialize(state_epoch=1, start_offset=0) == OK
    assert (
        state.write(
            (5, 9, AVAILABLE, 1),
            (7, 7, ACKNOWLEDGED, 1),
            state_epoch=1,
            leader_epoch=0,
            start_offset=0,
            delivery_complete_count=1,
        )
        == OK
    )
    assert state.batches == "5-6 state 0 c1, 7-7 state 2 c1, 8-9 state 0 c1"
    assert state.summary == "start 0 complete 1"


def test_a_higher_delivery_count_wins_and_what_is_older_is_ignored(state: ShareState) -> None:
    assert state.initialize(state_epoch=1, start_offset=0) == OK
    epochs = {"state_epoch": 1, "leader_epoch": 0}
    assert state.write((0, 9, AVAILABLE, 2), start_offset=0, **epochs) == OK
    assert state.write((3, 4, ARCHIVED, 1), start_offset=0, **epochs) == OK
    assert state.batches == "0-9 state 0 c2"
    assert state.write((3, 4, AVAILABLE, 3), start_offset=2, **epochs) == OK
    assert state.batches == "2-2 state 0 c2, 3-4 state 0 c3, 5-9 state 0 c2"


def test_an_older_write_forgets_how_many_are_complete(state: ShareState) -> None:
    assert state.initialize(state_epoch=1, start_offset=0) == OK
    epochs = {"state_epoch": 1, "leader_epoch": 0}
    assert (
        state.write((0, 0, ACKNOWLEDGED, 1), start_offset=0, delivery_complete_count=1, **epochs)
        == OK
    )
    assert state.summary == "start 0 complete 1"
    assert state.write((1, 1, ACKNOWLEDGED, 1), start_offset=0, version=0, **epochs) == OK
    assert state.summary == "start 0 complete -1"


def test_topics_and_partitions_must_exist(world: World, topic: Topic) -> None:
    state = world.group().state(topic, partition=7)
    assert state.initialize(state_epoch=1, start_offset=0) == MISSING
    assert state.delete() == MISSING
    negative = world.group().state(topic, partition=-2)
    assert negative.initialize(state_epoch=1, start_offset=0) == (
        "INVALID_REQUEST: The partition id cannot be a negative number."
    )


def test_a_state_survives_its_snapshots(small_world: World) -> None:
    """The broker snapshots after three updates."""
    state = small_world.group().state(small_world.topic())
    assert state.initialize(state_epoch=1, start_offset=0) == OK
    for done in range(1, 9):
        assert (
            state.write(
                (done - 1, done - 1, ACKNOWLEDGED, 1),
                state_epoch=1,
                leader_epoch=0,
                start_offset=0,
                delivery_complete_count=done,
            )
            == OK
        )
    assert state.batches == "0-7 state 2 c1"
    assert state.summary == "start 0 complete 8"
