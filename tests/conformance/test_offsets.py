"""Offsets of share groups: describing, altering and deleting them, and the lag after each step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.members import BRIEFLY_MS, Member
from tests.conformance.world import NO_OFFSET, OK, Group, Topic, World, outcome
from tests.support import wait_until

UNKNOWN = (NO_OFFSET, NO_OFFSET)
MISSING = "UNKNOWN_TOPIC_OR_PARTITION: This server does not host this topic-partition."
NOT_EMPTY = "NON_EMPTY_GROUP: The group is not empty."
FENCED = (
    "NOT_LEADER_OR_FOLLOWER: Error in write state RPC. "
    "The coordinator rejected the request because the state epoch did not match."
)
Differs = Callable[..., Any]


@pytest.fixture
def topic(world: World) -> Topic:
    return world.topic(records=10)


@pytest.fixture
def group(world: World) -> Group:
    return world.earliest_group()


# case 48
def test_nothing_is_known_before_the_first_acknowledgement(topic: Topic, group: Group) -> None:
    member = group.join(topic)
    assert group.offsets(topic) == UNKNOWN
    assert member.fetch() == "0-9 c1"
    assert group.offsets(topic) == UNKNOWN
    assert group.topics_with_offsets == {topic.name: {0: UNKNOWN}}


def test_altering_offsets_makes_the_group(world: World) -> None:  # case 49
    topic = world.topic(partitions=2, records=10)
    group = world.earliest_group()
    assert group.alter(topic.name, {0: 3, 1: 0, 2: 0}) == {0: OK, 1: OK, 2: MISSING}
    assert group.alter("nope", {0: 0}) == {0: MISSING}
    assert group.listed == ("Empty", "share", "share")
    assert group.epochs == (1, 1)
    assert group.offsets(topic) == (3, 7)
    assert group.offsets(topic, 1) == (0, 0)


def test_altering_nothing_makes_no_group(world: World, topic: Topic, differs: Differs) -> None:
    group = world.group()
    assert world.ask(91, 0, group_id=group.id, topics=[]).responses == ()
    assert group.alter("nope", {0: 1}) == {0: MISSING}
    assert group.listed is None
    assert group.alter(topic.name, {9: 1}) == {9: MISSING}
    assert group.alter(topic.name, {}) == {}
    where = "setting share offsets of partitions that do not exist"
    assert group.listed == differs(where, kafka=("Empty", "share", "share"), headrace=None)
    negative = group.alter(topic.name, {-1: 1})
    error = "UNKNOWN_SERVER_ERROR: Initialize share group parameters has invalid partitionId"
    assert str(negative).startswith(differs(where, kafka=error, headrace=str({-1: MISSING})))


def test_a_topic_that_is_named_twice(world: World) -> None:
    topic, group = world.topic(partitions=2), world.group()
    twice = [
        {"topic_name": topic.name, "partitions": [{"partition_index": n, "start_offset": n + 1}]}
        for n in (0, 1)
    ]
    (answer,) = world.ask(91, 0, group_id=group.id, topics=twice).responses
    assert sorted((one.partition_index, one.error_code) for one in answer.partitions) == [
        (0, 0),
        (1, 0),
    ]
    assert group.topics_with_offsets == {topic.name: {0: (1, -1), 1: (2, -2)}}
    assert group.delete_offsets(topic.name, topic.name) == {topic.name: OK}


def test_offsets_may_lie_beyond_the_end_or_be_unset(topic: Topic, group: Group) -> None:
    assert group.alter(topic.name, {0: 1000}) == {0: OK}
    assert group.offsets(topic) == (1000, -990)
    assert group.alter(topic.name, {0: -5}) == {0: OK}
    assert group.offsets(topic) == (-5, 15)
    assert group.alter(topic.name, {0: -1}) == {0: OK}
    assert group.offsets(topic) == UNKNOWN
    assert group.join(topic).fetch() == "0-9 c1"


def test_an_active_group_is_left_alone(topic: Topic, group: Group) -> None:  # case 50
    group.join(topic)
    assert group.alter(topic.name, {0: 3}) == group.alter("nope", {0: 3}) == NOT_EMPTY
    for named in ([topic.name], ["nope"], []):
        assert group.delete_offsets(*named) == NOT_EMPTY
    assert group.delete() == "NON_EMPTY_GROUP"


# case 50
def test_only_share_groups_have_these_offsets(world: World, topic: Topic, group: Group) -> None:
    other = f"GROUP_ID_NOT_FOUND: Group {group.id} not found."
    assert group.delete_offsets(topic.name) == other
    group.id = world.classic_group(topic)
    classic = f"GROUP_ID_NOT_FOUND: Group {group.id} is not a share group."
    assert group.alter(topic.name, {0: 3}) == classic
    assert group.delete_offsets(topic.name) == classic
    group.id = ""
    for refused in (group.alter(topic.name, {0: 3}), group.delete_offsets(topic.name)):
        assert str(refused).split(":")[0] == "INVALID_GROUP_ID"


def test_deleting_offsets(topic: Topic, group: Group) -> None:  # case 51
    group.join(topic).leave()
    assert group.delete_offsets(topic.name, "nope") == {topic.name: OK, "nope": MISSING}
    assert group.delete_offsets(topic.name) == {
        topic.name: "UNKNOWN_TOPIC_OR_PARTITION: There is no offset information to delete."
    }
    assert group.delete_offsets() == {}
    assert group.topics_with_offsets == {}
    assert group.offsets(topic) == UNKNOWN


# case 52
def test_describing_offsets_of_what_is_not_there(world: World, topic: Topic, group: Group) -> None:
    assert group.topics_with_offsets == {}
    classic = world.describe_offsets(world.classic_group(topic), None)
    assert (outcome(classic.error_code), classic.topics) == (OK, ())
    group.join(topic)
    described = world.describe_offsets(group.id, {"nope": [0]})
    ((one,),) = (t.partitions for t in described.topics)
    assert (one.error_code, one.start_offset, one.lag) == (0, *UNKNOWN)


def test_describing_offsets_of_a_partition_that_is_not_there(
    world: World, topic: Topic, group: Group, differs: Differs
) -> None:  # case 52
    group.join(topic)
    asked = {"group_id": group.id, "topics": [{"topic_name": topic.name, "partitions": [7]}]}
    sent = world.connection.send_message(90, 1, groups=[asked])
    at_once = world.connection.has_response(within_s=10)
    assert at_once == differs("describing share offsets of a partition", kafka=False, headrace=True)
    ((one,),) = (t.partitions for t in world.connection.receive_message(sent).groups[0].topics)
    assert (one.error_code, one.start_offset, one.lag) == (0, *UNKNOWN)


# case 52
def test_an_older_description_has_no_lag(world: World, topic: Topic, group: Group) -> None:
    group.alter(topic.name, {0: 3})
    described = world.describe_offsets(group.id, {topic.name: [0]}, version=0)
    ((one,),) = (t.partitions for t in described.topics)
    assert one.start_offset == 3
    assert not hasattr(one, "lag")


def test_delivery_begins_at_the_altered_offset(
    topic: Topic, group: Group, differs: Differs
) -> None:  # case 53
    assert group.alter(topic.name, {0: 5}) == {0: OK}
    assert group.offsets(topic) == (5, 5)
    member = group.join(topic)
    assert member.fetch() == "5-9 c1"
    assert member.ack("5-6 accept") == OK
    assert group.offsets(topic) == (start(differs, kafka=5, headrace=7), 3)


def test_altering_under_an_open_session(topic: Topic, group: Group) -> None:
    member = group.join(topic)
    assert member.fetch() == "0-9 c1"
    assert member.ack("0 accept") == OK
    member.leave()
    assert group.alter(topic.name, {0: 5}) == {0: OK}
    assert member.ack("1 accept") == FENCED
    assert member.ack("1 accept") == MISSING
    assert member.fetch() == "5-9 c1"


# --- the lag, after each step: the start offset moves in headrace with the write that moves it, in
# Kafka with the next


def start(differs: Differs, *, kafka: Any, headrace: Any) -> Any:
    return differs("START-OFFSET of a share group", kafka=kafka, headrace=headrace)


@pytest.fixture
def member(topic: Topic, group: Group) -> Member:
    """A member that has acquired ten records."""
    joined = group.join(topic)
    assert joined.fetch() == "0-9 c1"
    return joined


def test_lag_when_everything_is_accepted(
    member: Member, topic: Topic, group: Group, differs: Differs
) -> None:
    # case 54
    assert member.ack("0-9 accept") == OK
    assert group.offsets(topic) == (start(differs, kafka=0, headrace=10), 0)
    assert group.state(topic).summary == start(
        differs, kafka="start 0 complete 10", headrace="start 10 complete 0"
    )
    topic.produce(1)
    assert group.lag(topic) == 1
    assert member.fetch() == "10-10 c1"
    assert member.ack("10 accept") == OK
    assert group.offsets(topic) == (start(differs, kafka=10, headrace=11), 0)


def test_lag_after_three_writes(
    member: Member, topic: Topic, group: Group, differs: Differs
) -> None:
    assert member.ack("0 accept") == OK
    assert group.offsets(topic) == (start(differs, kafka=0, headrace=1), 9)
    assert member.ack("1 accept") == OK
    assert group.offsets(topic) == (start(differs, kafka=1, headrace=2), 8)
    assert member.ack("2 release; 3 reject") == OK
    assert group.offsets(topic) == (2, 7)
    assert group.state(topic).summary == "start 2 complete 1"


def test_lag_of_acknowledgements_in_no_order(member: Member, topic: Topic, group: Group) -> None:
    topic.produce(1)
    steps = ["3 release", "", "5 accept", "6 reject", "0-1 reject", "7-9 release"]
    lags = []
    for step in steps:
        if not step:  # released once more
            assert member.fetch(record_limit=True, max_records=1) == "3-3 c2"
            step = "3 release"
        assert member.ack(step) == OK
        lags.append(group.lag(topic))
    assert lags == [11, 11, 10, 9, 7, 7]
    assert group.offsets(topic) == (2, 7)
    assert group.state(topic).summary == "start 2 complete 2"


def test_lag_after_the_last_delivery(topic: Topic, world: World, differs: Differs) -> None:
    group = world.earliest_group(share_delivery_count_limit="2")
    member = group.join(topic)
    assert member.fetch() == "0-9 c1"
    assert member.ack("0-8 accept") == OK
    assert member.ack("9 release") == OK
    assert member.fetch() == "9-9 c2"
    assert member.ack("9 release") == OK
    assert group.offsets(topic) == (start(differs, kafka=9, headrace=10), 0)


def test_lag_around_holes(world: World, differs: Differs) -> None:
    topic = world.topic(records=20)
    group = world.earliest_group()
    member = group.join(topic)
    assert member.fetch() == "0-19 c1"
    for step in ("3-5 accept", "7 reject", "12-14 release"):
        assert member.ack(step) == OK
    assert group.offsets(topic) == (0, 16)
    assert group.state(topic).summary == "start 0 complete 4"
    assert member.ack("0-2 accept") == OK
    assert group.offsets(topic) == (start(differs, kafka=0, headrace=6), 13)
    assert member.ack("6 accept") == OK
    assert group.offsets(topic) == (start(differs, kafka=6, headrace=8), 12)


def test_lag_when_the_log_begins_later(world: World) -> None:
    topic = world.topic()
    topic.produce(5, 5, 5, 5)
    group = world.earliest_group()
    member = group.join(topic)
    assert member.fetch(batch_size=5) == "0-4 c1, 5-9 c1, 10-14 c1, 15-19 c1"
    assert member.ack("0-9 accept") == OK
    topic.delete_records_before(15)
    assert member.ack("10-19 release") == OK
    assert group.lag(topic) == 10
    acquired = wait_until(lambda: member.fetch(wait_ms=BRIEFLY_MS), 30, "the records that are left")
    assert acquired == "15-19 c2"
    assert member.ack("15 accept") == OK
    assert group.lag(topic) == 4


def test_lag_after_a_lock_ran_out(world: World, topic: Topic) -> None:
    group = world.earliest_group(share_record_lock_duration_ms="1000")
    member = group.join(topic)
    assert member.fetch() == "0-9 c1"
    wait_until(
        lambda: group.state(topic).batches == "0-9 state 0 c1",
        30,
        "the write that follows a timeout",
    )
    assert group.offsets(topic) == (0, 10)
