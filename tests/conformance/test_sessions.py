"""Share sessions: their epochs, opening and closing them, and what remains after them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

from tests.conformance.members import BRIEFLY_MS
from tests.conformance.world import OK, World
from tests.support import wait_until

NOT_OWNER = "INVALID_RECORD_STATE: Member is not the owner of batch record"


def test_only_a_session_that_exists_goes_on(world: World) -> None:  # case 20
    member = world.group().join(world.topic())
    assert member.share_fetch(epoch=5).error == "SHARE_SESSION_NOT_FOUND"
    assert member.share_fetch(epoch=-1).error == "SHARE_SESSION_NOT_FOUND"
    assert member.share_acknowledge(epoch=1).error == "SHARE_SESSION_NOT_FOUND"
    assert member.share_acknowledge(epoch=0).error == "INVALID_SHARE_SESSION_EPOCH"


def test_a_session_opens_without_acknowledgements_and_for_somebody(world: World) -> None:  # case 21
    member = world.group().join(world.topic())
    refused = member.share_fetch("0 accept", epoch=0)
    assert (refused.error, refused.lock_ms) == ("INVALID_REQUEST", 0)
    member.id = ""
    assert member.share_fetch(epoch=0).error == "INVALID_REQUEST"


def test_each_request_takes_the_next_epoch(world: World) -> None:  # case 22
    member = world.group().join(world.topic())
    assert member.fetch_nothing(epoch=0)
    assert member.fetch_nothing(epoch=1)
    assert member.share_fetch(epoch=1).error == "INVALID_SHARE_SESSION_EPOCH"
    assert member.share_acknowledge(epoch=2).error == OK
    assert member.fetch_nothing(epoch=3)


def test_closing_applies_acknowledgements_and_gives_back_the_rest(world: World) -> None:  # case 23
    topic = world.topic(records=10)
    group = world.earliest_group()
    member = group.join(topic)
    assert member.fetch() == "0-9 c1"
    assert member.ack("0-4 accept", epoch=-1) == OK
    assert member.share_fetch(epoch=25).error == "SHARE_SESSION_NOT_FOUND"
    assert group.join(topic).fetch() == "5-9 c2"


def test_a_session_that_opens_again_keeps_what_is_held(world: World) -> None:  # case 24
    member = world.earliest_group().join(world.topic(records=10))
    assert member.fetch() == "0-9 c1"
    assert member.fetch_nothing(epoch=0)
    assert member.ack("0-9 accept", epoch=1) == OK


# case 25
def test_a_stranger_may_open_a_session_but_acknowledges_only_its_own(world: World) -> None:
    topic = world.topic(records=10)
    member = world.earliest_group().join(topic)
    assert member.fetch() == "0-9 c1"
    stranger = member.group.member()
    assert stranger.fetch_nothing(topic=topic)
    assert stranger.ack("0-9 accept", topic=topic) == NOT_OWNER


def test_fetching_a_partition_that_does_not_exist(world: World) -> None:  # case 26
    member = world.group().join(world.topic())
    assert member.share_fetch(epoch=0, partitions=[5])[5].error == "UNKNOWN_TOPIC_OR_PARTITION"


def test_fetching_for_a_group_that_never_joined(world: World) -> None:  # case 26
    topic = world.topic(records=1)
    member = world.earliest_group().member()
    fetched = member.share_fetch(epoch=0, topic=topic, wait_ms=BRIEFLY_MS)
    assert (fetched.error, fetched.lock_ms) == (OK, 30_000)
    assert fetched[0].error == "UNKNOWN_SERVER_ERROR"
    assert member.share_acknowledge().error == OK  # it has a session


def test_fetching_no_records_at_all(world: World) -> None:  # case 27
    member = world.earliest_group().join(world.topic(records=10))
    for none in ({"max_records": 0}, {"max_records": -1}, {"max_bytes": 0}):
        fetched = member.share_fetch(**none, wait_ms=BRIEFLY_MS)
        assert (fetched.error, fetched.partitions) == (OK, {}), none
    assert member.fetch() == "0-9 c1"


def test_a_forgotten_partition_is_still_acknowledged(world: World) -> None:  # case 28
    topic = world.topic(records=5)
    member = world.earliest_group().join(topic)
    assert member.fetch() == "0-4 c1"
    topic.produce(5)
    assert member.fetch_nothing(forget=[0])
    assert member.fetch_nothing()
    assert member.ack("0-4 accept") == OK
    assert member.fetch(partitions=[0]) == "5-9 c1"


def test_sessions_are_limited(small_world: World, differs: Callable[..., Any]) -> None:
    topic = small_world.topic(records=1)
    group = small_world.earliest_group()
    joined = group.join(topic)
    members = [group.member() for _ in range(4)]
    for member in members[:3]:
        assert member.share_fetch(topic=topic, wait_ms=0).error == OK
    where = "ShareFetch when `group.share.max.share.sessions`"
    wait_s = differs(where, kafka=2, headrace=20)
    late = members[3].start_fetch(topic=topic, wait_ms=wait_s * 1000)
    assert members[3].has_answer(within_s=wait_s * 0.7) == differs(
        where, kafka=False, headrace=True
    )
    assert members[3].finish_fetch(late).error == "SHARE_SESSION_LIMIT_REACHED"
    for member in members[:3]:
        member.close_session()
    assert members[3].share_fetch(topic=topic, wait_ms=0).error == OK
    members[3].close_session()
    joined.leave()


def test_a_lost_connection_gives_back_its_records_at_once(world: World) -> None:  # case 44
    topic = world.topic(records=10)
    group = world.earliest_group()
    member, other = group.join(topic), group.join(topic)
    assert member.fetch() == "0-9 c1"
    assert other.fetch_nothing()
    member.vanish()
    assert wait_until(lambda: other.fetch(wait_ms=BRIEFLY_MS), 10, "the records") == "0-9 c2"
    member.reconnect()
    wait_until(
        lambda: member.share_fetch(epoch=2).error == "SHARE_SESSION_NOT_FOUND",
        10,
        "the session to be gone",
    )


def test_leaving_the_group_leaves_the_session(world: World) -> None:
    topic = world.topic(records=10)
    member = world.earliest_group().join(topic)
    assert member.fetch() == "0-9 c1"
    member.leave()
    assert member.ack("0-9 accept") == OK
    topic.produce(1)
    assert member.fetch() == "10-10 c1"


def test_an_acquire_mode_that_does_not_exist(world: World) -> None:
    member = world.earliest_group().join(world.topic(records=10))
    assert member.fetch_nothing(max_records=0)
    assert member.share_fetch(epoch=1, mode=9, wait_ms=BRIEFLY_MS).error == "UNKNOWN_SERVER_ERROR"
    assert member.fetch(epoch=2) == "0-9 c1"  # the epoch has gone on


def test_sessions_of_the_first_version(world: World) -> None:
    member = world.earliest_group().join(world.topic(records=10))
    assert member.fetch(version=1, max_records=1) == "0-9 c1"
    assert member.ack("0-9 accept", version=1) == OK


def test_a_topic_id_that_nobody_knows(world: World) -> None:  # case 47
    member = world.earliest_group().join(world.topic(records=1))
    unknown = uuid4()
    fetched = member.share_fetch(epoch=0, topic=unknown)
    assert fetched.error == OK
    errors = {key: one.error for key, one in fetched.partitions.items()}
    assert errors == {(unknown, 0): "UNKNOWN_TOPIC_ID"}
    topic = world.topic(records=3)
    member = world.earliest_group().join(topic)
    assert member.share_fetch(epoch=0, topic=unknown, wait_ms=BRIEFLY_MS).error == OK
    fetched = member.share_fetch(topic=topic, wait_ms=BRIEFLY_MS)
    assert {key: one.error for key, one in fetched.partitions.items()} == {
        (unknown, 0): "UNKNOWN_TOPIC_ID",
        (topic.id, 0): OK,
    }
    assert fetched.partitions[topic.id, 0].acquired == "0-2 c1"


def test_a_topic_of_the_session_that_is_deleted(world: World, differs: Callable[..., Any]) -> None:
    topic = world.topic()
    member = world.earliest_group().join(topic)
    assert member.fetch_nothing()
    topic.delete()
    fetched = member.share_fetch(wait_ms=BRIEFLY_MS)
    assert fetched.error == OK
    assert fetched[0].error == differs(
        "a topic of a share session that is deleted",
        kafka="UNKNOWN_TOPIC_OR_PARTITION",
        headrace="UNKNOWN_TOPIC_ID",
    )
