"""The share coordinator asked directly, as the leader of a share partition asks it (83-87)."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tests.conformance.world import OK, ShareState, Topic, World, outcome
from tests.support import unique

NEGATIVE_PARTITION = "INVALID_REQUEST: The partition id cannot be a negative number."
READ_UNINITIALIZED = "INVALID_REQUEST: Read operation on uninitialized share partition not allowed."
WRITE_UNINITIALIZED = (
    "INVALID_REQUEST: Write operation on uninitialized share partition not allowed."
)
NEGATIVE_STATE_EPOCH = "INVALID_REQUEST: The state epoch cannot be a negative number."
NEGATIVE_LEADER_EPOCH = "INVALID_REQUEST: The leader epoch cannot be a negative number."
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
    assert state.initialize(state_epoch=2, start_offset=5).startswith("FENCED_STATE_EPOCH: ")
    assert state.summary == "start 0 complete 0"
    assert state.initialize(state_epoch=3, start_offset=11) == OK
    assert state.summary == "start 11 complete 0"
    assert state.write(state_epoch=2, leader_epoch=0, start_offset=0).startswith(
        "FENCED_STATE_EPOCH: "
    )
    assert state.write(state_epoch=8, leader_epoch=0, start_offset=0) == OK
    assert state.summary_fields.state_epoch == 3
    assert state.initialize(state_epoch=3, start_offset=-1) == OK
    assert state.summary == "start -1 complete -1"


def test_leader_epochs_only_go_up(state: ShareState) -> None:  # case 55
    assert state.initialize(state_epoch=1, start_offset=0) == OK
    assert state.read(leader_epoch=5) == "se 1 start 0"
    assert state.read(leader_epoch=4) == (
        "FENCED_LEADER_EPOCH: The leader epoch in the request is older than the epoch on "
        "the broker."
    )
    assert state.write(state_epoch=1, leader_epoch=4, start_offset=0).startswith(
        "FENCED_LEADER_EPOCH: "
    )
    newer = {"leader_epoch": 9, "start_offset": 0}
    assert state.write(state_epoch=1, delivery_complete_count=7, **newer) == OK
    assert (state.summary_fields.leader_epoch, state.summary) == (5, "start 0 complete 7")
    assert state.initialize(state_epoch=1, start_offset=0) == OK
    assert state.summary_fields.leader_epoch == 0


def test_epochs_are_not_negative(world: World, topic: Topic, state: ShareState) -> None:
    assert state.write(state_epoch=-1, leader_epoch=-1) == NEGATIVE_LEADER_EPOCH
    assert state.initialize(state_epoch=1, start_offset=0) == OK
    for negative in (-1, -2):
        assert state.initialize(state_epoch=negative, start_offset=5) == NEGATIVE_STATE_EPOCH
        assert state.read(leader_epoch=negative) == NEGATIVE_LEADER_EPOCH
        assert state.write(state_epoch=1, leader_epoch=negative) == NEGATIVE_LEADER_EPOCH
        assert state.write(state_epoch=negative, leader_epoch=0) == NEGATIVE_STATE_EPOCH
    unknown = ShareState(world, state.group_id, uuid4())
    assert unknown.initialize(state_epoch=-1) == NEGATIVE_STATE_EPOCH
    unknown.partition = -1
    assert unknown.write(state_epoch=-1, leader_epoch=-1) == NEGATIVE_PARTITION
    assert state.summary == "start 0 complete 0"


def test_deleting_twice(state: ShareState) -> None:  # case 55
    assert state.initialize(state_epoch=1, start_offset=4) == OK
    assert [state.delete(), state.delete()] == [OK, OK]
    assert state.summary == "start -1 complete -1"
    assert state.read() == READ_UNINITIALIZED
    assert state.initialize(state_epoch=0, start_offset=5) == OK
    assert state.read() == "se 0 start 5"


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


def test_at_one_start_offset_what_is_complete_only_goes_up(state: ShareState) -> None:
    assert state.initialize(start_offset=4) == OK
    for start_offset, complete, summary in (
        (4, 3, "start 4 complete 3"),
        (4, 2, "start 4 complete 3"),
        (-1, 9, "start 4 complete 3"),
        (3, 9, "start 4 complete 3"),
        (5, 1, "start 5 complete 1"),
        (6, -1, "start 6 complete -1"),
    ):
        assert state.write(start_offset=start_offset, delivery_complete_count=complete) == OK
        assert state.summary == summary


def test_a_write_without_a_count_leaves_it(state: ShareState) -> None:
    assert state.initialize(start_offset=0) == OK
    done = (0, 0, ACKNOWLEDGED, 1)
    assert state.write(done, start_offset=0, delivery_complete_count=1) == OK
    assert state.write((1, 1, ACKNOWLEDGED, 1), start_offset=0, version=0) == OK
    assert state.summary == "start 0 complete 1"
    assert state.write(start_offset=2, version=0) == OK
    assert state.summary == "start 2 complete -1"


def test_the_start_offset_only_goes_up(state: ShareState) -> None:
    assert state.initialize(start_offset=10) == OK
    assert state.write(start_offset=5) == OK
    assert state.write((60, 61, ACKNOWLEDGED, 1), (50, 51, ACKNOWLEDGED, 1), (5, 11, 0, 1)) == OK
    assert state.write(start_offset=8) == OK
    assert state.batches == "10-11 state 0 c1, 50-51 state 2 c1, 60-61 state 2 c1"


def test_batches_that_cannot_be_are_refused(world: World, state: ShareState) -> None:
    if world.target == "kafka":
        pytest.skip("Apache Kafka stores them: docs/differences.md")
    assert state.initialize() == OK
    for one in ((30, 20, 0, 1), (1, 2, 9, 1), (1, 2, 2, -1), (-3, 2, 2, 1)):
        assert state.write((40, 40, ACKNOWLEDGED, 1), one).startswith("INVALID_REQUEST")
    assert state.read() == "se 1 start 0"


@pytest.mark.parametrize("kind", ["unknown", None, "known"])
def test_topics_and_partitions_must_exist(world: World, topic: Topic, kind: str | None) -> None:
    topic_id = {"unknown": uuid4(), None: None, "known": topic.id}[kind]
    group_id = unique("group")
    state = ShareState(world, group_id, topic_id, 7 if kind == "known" else 0)
    assert (state.initialize(), state.delete(), state.summary) == (MISSING, MISSING, MISSING)
    assert (state.read(), state.write()) == (READ_UNINITIALIZED, WRITE_UNINITIALIZED)
    state = ShareState(world, group_id, topic_id, -2)
    for answer in (
        state.initialize(),
        state.read(),
        state.write(),
        state.delete(),
        state.summary,
    ):
        assert answer == NEGATIVE_PARTITION


def test_nothing_is_answered_to_nothing(state: ShareState) -> None:
    for api_key in (83, 84, 85, 86, 87):
        assert state.ask(api_key, 0) == state.ask(api_key, 0, (state.topic_id, [])) == []
    state.group_id = ""
    assert state.ask(87, 1, (state.topic_id, [{"partition": 0, "leader_epoch": 0}])) == []
    started = {"partition": 0, "state_epoch": 1, "start_offset": 0}
    assert state.ask(83, 0, (state.topic_id, [started])) == []


def test_many_share_partitions_in_one_request(world: World) -> None:
    topic, other, unknown = world.topic(partitions=2), world.topic(), uuid4()
    state = world.group().state(topic)
    started = [{"partition": n, "state_epoch": n, "start_offset": n} for n in (0, 1)]
    state.ask(83, 0, (topic.id, started), (other.id, [{**started[0], "start_offset": 40}]))
    asked = [{"partition": n, "leader_epoch": 0} for n in (1, 0, -4, 7)]
    results = state.ask(87, 1, (other.id, asked[1:2]), (unknown, asked[1:2]), (topic.id, asked))
    assert {
        (topic_id, one.partition): (outcome(one.error_code), one.start_offset)
        for topic_id, of in results
        for one in of
    } == {
        (other.id, 0): (OK, 40),
        (unknown, 0): ("UNKNOWN_TOPIC_OR_PARTITION", 0),
        (topic.id, 1): (OK, 1),
        (topic.id, 0): (OK, 0),
        (topic.id, -4): ("INVALID_REQUEST", 0),
        (topic.id, 7): ("UNKNOWN_TOPIC_OR_PARTITION", 0),
    }


def test_what_is_named_twice_is_answered_once(state: ShareState) -> None:
    twice = [{"partition": 0, "state_epoch": n, "start_offset": 10 * n} for n in (1, 2)]
    ((_, (result,)),) = state.ask(83, 0, (state.topic_id, twice))
    assert outcome(result.error_code) == OK
    assert state.read() == "se 2 start 20"
    asked = (state.topic_id, [{"partition": 0, "leader_epoch": 0}])
    ((_, results),) = state.ask(87, 1, asked, asked)
    assert len(results) == 1


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
