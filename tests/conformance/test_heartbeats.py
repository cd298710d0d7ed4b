"""ShareGroupHeartbeat: refusals, epochs, and assignments."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests.conformance.world import OK, World
from tests.support import wait_until
from tests.wire_client import CLIENT_ID

NEW_PARTITIONS = "partitions that a share group has not read before"
GONE = "UNKNOWN_MEMBER_ID: Member {m.id} is not a member of group {m.group.id}."


def test_a_member_needs_an_id(world: World) -> None:  # case 1
    member = world.group().member()
    member.id = ""
    assert member.heartbeat(world.topic(), epoch=0).error == "INVALID_REQUEST"


def test_the_first_heartbeat_names_topics(world: World) -> None:  # case 2
    member = world.group().member()
    needed = "INVALID_REQUEST: SubscribedTopicNames must be set in first request."
    assert member.heartbeat(epoch=0).error == needed
    assert member.heartbeat(epoch=0, no_topics=True).error == needed


def test_epoch_group_and_rack_must_make_sense(world: World) -> None:  # case 3
    topic = world.topic()
    member = world.group().member()
    assert member.heartbeat(topic, epoch=-2).error == "INVALID_REQUEST: MemberEpoch is invalid."
    assert (
        member.heartbeat(topic, epoch=0, rack_id="").error
        == "INVALID_REQUEST: RackId can't be empty."
    )
    member.group.id = ""
    assert member.heartbeat(topic, epoch=0).error == "INVALID_REQUEST: GroupId can't be empty."


def test_a_group_that_nobody_joined_is_not_found(world: World) -> None:  # case 4
    member = world.group().member()
    assert (
        member.heartbeat(epoch=5).error
        == f"GROUP_ID_NOT_FOUND: Share group {member.group.id} not found."
    )
    assert (
        member.heartbeat(epoch=-1).error
        == f"GROUP_ID_NOT_FOUND: Group {member.group.id} not found."
    )


# case 5
def test_a_member_joins_and_gets_its_partitions(world: World, differs: Callable[..., Any]) -> None:
    topic = world.topic(partitions=3)
    member = world.group().member()
    first = member.heartbeat(topic, epoch=0)
    assert (first.error, first.interval_ms) == (OK, 1000)
    assert (first.epoch, first.assignment) == differs(
        NEW_PARTITIONS, kafka=(2, {}), headrace=(2, {topic.name: [0, 1, 2]})
    )
    member.beat_until(lambda: member.assignment == {topic.name: [0, 1, 2]}, "three partitions")
    described = member.group.described
    assert (described.group_state, described.assignor_name) == ("Stable", "simple")
    (one,) = described.members
    assert (one.member_id, one.client_id, one.client_host) == (member.id, CLIENT_ID, "/127.0.0.1")
    assert one.subscribed_topic_names == (topic.name,)
    (assigned,) = one.assignment.topic_partitions
    assert (assigned.topic_name, assigned.topic_id) == (topic.name, topic.id)
    assert sorted(assigned.partitions) == [0, 1, 2]
    settled = member.epoch
    # Kafka's goes up once more when a heartbeat comes while the partitions are being initialised.
    assert settled in differs(NEW_PARTITIONS, kafka=(3, 4), headrace=(2,))
    for _ in range(2):
        later = member.heartbeat()
        assert (later.error, later.epoch, later.assignment) == (OK, settled, None)


def test_a_group_may_wait_for_a_topic_that_does_not_exist(world: World) -> None:  # case 6
    topic = world.topic()
    member = world.group().member()
    assert member.heartbeat(topic, "nope", epoch=0).error == OK
    (described,) = member.group.described.members
    assert sorted(described.subscribed_topic_names) == sorted([topic.name, "nope"])


def test_strangers_are_told_that_they_are(world: World) -> None:  # case 7
    topic = world.topic()
    group = world.group()
    member = group.join(topic)
    stranger = group.member()
    assert stranger.heartbeat(epoch=1).error == GONE.format(m=stranger)
    assert member.leave().error == OK
    assert member.leave().error == GONE.format(m=member)


def test_the_last_member_leaves_an_empty_group(world: World) -> None:  # case 8
    group = world.group()
    member = group.join(world.topic())
    assert group.listed == ("Stable", "share", "share")
    left = member.leave()
    assert (left.error, left.epoch, left.interval_ms, left.assignment) == (OK, -1, 0, None)
    assert world.groups(types=["share"])[group.id] == ("Empty", "share", "share")
    group_epoch, assignment_epoch = group.epochs
    assert group_epoch == assignment_epoch > member.epoch


def test_only_the_current_and_the_previous_epoch_are_accepted(world: World) -> None:  # case 9
    topic = world.topic()
    member = world.group().join(topic)
    topic.grow(2)
    member.beat_until(lambda: member.assignment == {topic.name: [0, 1]}, "the second partition")
    epoch = member.epoch
    ahead = member.heartbeat(epoch=epoch + 1)
    assert ahead.error == (
        f"FENCED_MEMBER_EPOCH: The share group member has a greater member epoch "
        f"({epoch + 1}) than the one known by "
        f"the group coordinator ({epoch}). The member must abandon all its partitions and rejoin."
    )
    previous = member.heartbeat(epoch=epoch - 1)
    assert (previous.error, previous.epoch) == (OK, epoch)
    assert member.heartbeat(epoch=epoch - 2).error.startswith(
        f"FENCED_MEMBER_EPOCH: The share group member has a smaller member epoch "
        f"({epoch - 2}) than the one known by "
        f"the group coordinator ({epoch}), and it does not match the previous member epoch "
        f"({epoch - 1})."
    )


def test_a_member_that_joins_again_is_told_its_assignment(world: World) -> None:  # case 10
    topic = world.topic(partitions=2)
    member = world.group().join(topic)
    again = member.heartbeat(topic, epoch=0)
    assert (again.error, again.assignment) == (OK, {topic.name: [0, 1]})


def test_a_full_group_takes_nobody_else(small_world: World) -> None:  # case 11
    topic = small_world.topic()
    group = small_world.group()
    members = [group.join(topic), group.join(topic)]
    third = group.member().heartbeat(topic, epoch=0)
    assert (
        third.error
        == "GROUP_MAX_SIZE_REACHED: The share group has reached its maximum capacity of 2 members."
    )
    assert members[0].heartbeat(topic, epoch=0).error == OK
    for member in members:
        member.leave()


def test_a_member_that_falls_silent_is_removed(world: World) -> None:  # case 12
    group = world.group(share_session_timeout_ms="5000")
    member = group.join(world.topic())
    beginning = time.monotonic()
    assert member.heartbeat().error == OK
    wait_until(
        lambda: group.listed == ("Empty", "share", "share"),
        30,
        "the member to be removed",
        interval_s=0.2,
    )
    assert time.monotonic() - beginning > 5
    assert member.heartbeat().error == GONE.format(m=member)


def test_members_share_the_partitions_evenly(world: World) -> None:  # case 13
    topic = world.topic(partitions=4)
    group = world.group()
    first = group.join(topic)
    assert first.assignment == {topic.name: [0, 1, 2, 3]}
    second = group.join(topic)
    assert len(second.assignment[topic.name]) == 2
    told = first.heartbeat()
    assert told.assignment is not None
    assert sorted(first.assignment[topic.name] + second.assignment[topic.name]) == [0, 1, 2, 3]


def test_members_beyond_the_partitions_share_them(world: World) -> None:  # case 13
    topic = world.topic()
    group = world.group()
    first, second = group.join(topic), group.join(topic)
    assert first.heartbeat().error == OK
    assert first.assignment == second.assignment == {topic.name: [0]}


# case 14
def test_a_topic_grows_under_its_members(world: World, differs: Callable[..., Any]) -> None:
    topic = world.topic()
    member = world.group().join(topic)
    epoch = member.epoch
    topic.grow(3)
    member.beat_until(lambda: member.assignment == {topic.name: [0, 1, 2]}, "all three partitions")
    assert member.epoch == epoch + differs(NEW_PARTITIONS, kafka=2, headrace=1)


def test_a_topic_that_is_made_again_is_another(world: World) -> None:
    topic = world.topic(records=5)
    group = world.earliest_group()
    member = group.join(topic)
    assert member.fetch() == "0-4 c1"
    assert member.ack("0-4 accept") == OK
    topic.delete()
    member.beat_until(lambda: member.assignment == {}, "an empty assignment")
    again = world.topic(records=3, name=topic.name)
    assert again.id != topic.id
    wait_until(lambda: member.heartbeat().error == OK and member.assignment, 30, "the new topic")
    assert member.share_acknowledge(epoch=-1).error == OK
    assert group.offsets(again) == (-1, -1)
    assert member.fetch(topic=again) == "0-2 c1"


def test_a_deleted_topic_is_taken_from_its_members(world: World) -> None:  # case 15
    topic = world.topic()
    member = world.group().join(topic)
    epoch = member.epoch
    topic.delete()
    member.beat_until(lambda: member.assignment == {}, "an empty assignment")
    assert member.epoch == epoch + 1
    wait_until(lambda: member.group.topics_with_offsets == {}, 30, "the offsets to go")
