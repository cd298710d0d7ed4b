"""Groups of several types side by side, group configs, and FindCoordinator."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.classic import ClassicGroup
from tests.conformance.world import OK, Group, World, outcome
from tests.support import unique

GOOD_KEYS = (
    "g:{}:0",
    "a:b:{}:0",
    "::{}:0",
    ":a:{}:0",
    " a:{}:0",
    "g:{}:-3",
    "g:{}:+3",
    "g:{}==:0",
    "g:{}:0::",
)
BAD_KEYS = (
    "",
    "a",
    "a:b",
    "g:{}",
    "g:{}:",
    "g:{}:x",
    "g:{}: 0",
    "g: {}:0",
    ":{}:0",
    " :{}:0",
    "g:{}A:0",
    "g:{}=:0",
    "g:{}:99999999999",
    "g:{}:2147483648",
)
"""Keys of share-partitions, with a topic id in the place of {}."""


def test_describing_what_is_not_there(world: World) -> None:  # case 16
    described = {one.group_id: one for one in world.describe_groups("nope", "")}
    missing = described["nope"]
    assert (
        outcome(missing.error_code, missing.error_message)
        == "GROUP_ID_NOT_FOUND: Group nope not found."
    )
    assert outcome(described[""].error_code) == "INVALID_GROUP_ID"


def test_a_share_group_is_no_other_kind_of_group(world: World) -> None:  # case 16
    group = world.group()
    group.join(world.topic())
    (v6,) = world.ask(15, 6, groups=[group.id]).groups
    assert (v6.error_code, v6.group_state) == (69, "Dead")
    (v5,) = world.ask(15, 5, groups=[group.id]).groups
    assert (v5.error_code, v5.group_state) == (0, "Dead")


def test_a_share_group_is_no_consumer_group_to_describe(world: World) -> None:  # case 16
    group = world.group()
    group.join(world.topic())
    (described,) = world.ask(69, 1, group_ids=[group.id]).groups
    assert outcome(described.error_code, described.error_message) == (
        f"GROUP_ID_NOT_FOUND: Group {group.id} is not a consumer group."
    )


def test_a_classic_group_is_no_share_group(world: World) -> None:  # case 17
    topic = world.topic()
    group = world.group()
    group.id = world.classic_group(topic)
    assert group.member().heartbeat(topic, epoch=0).error == (
        f"GROUP_ID_NOT_FOUND: Group {group.id} is not a share group."
    )


def test_other_protocols_are_refused_by_a_share_group(world: World) -> None:  # case 17
    topic = world.topic()
    group = world.group()
    group.join(topic)
    join = world.ask(
        11,
        9,
        group_id=group.id,
        session_timeout=10_000,
        rebalance_timeout=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": b""}],
    )
    assert outcome(join.error_code) == "INCONSISTENT_GROUP_PROTOCOL"
    assert world.commit_offset(group.id, topic) == "GROUP_ID_NOT_FOUND"
    stranger = ClassicGroup(world, group.id).member(id="m", protocol_type=None)
    assert stranger.sync() == "INCONSISTENT_GROUP_PROTOCOL"
    stranger.protocol_type, stranger.answer = "consumer", join
    unknown = "UNKNOWN_MEMBER_ID"
    assert (stranger.heartbeat(), stranger.leave()) == (unknown, unknown)
    (described,) = world.ask(15, 6, groups=[group.id]).groups
    assert outcome(described.error_code, described.error_message) == (
        f"GROUP_ID_NOT_FOUND: Group {group.id} is not a classic group."
    )


def test_a_consumer_heartbeat_is_refused_by_a_share_group(world: World) -> None:  # case 17
    topic = world.topic()
    group = world.group()
    group.join(topic)
    beat = world.ask(
        68,
        1,
        group_id=group.id,
        member_id="m",
        member_epoch=0,
        rebalance_timeout=10_000,
        subscribed_topic_names=[topic.name],
    )
    assert outcome(beat.error_code, beat.error_message) == (
        f"GROUP_ID_NOT_FOUND: Group {group.id} is not a consumer group."
    )


@pytest.mark.parametrize("value", ["none", "EARLIEST", "by_duration", "by_duration:-PT1S"])
def test_where_a_group_cannot_begin(world: World, value: str) -> None:  # case 18
    assert world.group().configure("share.auto.offset.reset", value) == (
        f"INVALID_CONFIG: Invalid value {value} for configuration share.auto.offset.reset: "
        f"Invalid value `{value}` for "
        "configuration share.auto.offset.reset. The value must be either 'earliest', "
        "'latest' or of the format "
        "'by_duration:<PnDTnHnMn.nS>'."
    )


def test_group_configs_are_checked(world: World) -> None:  # case 18
    group = world.group()
    assert group.configure("share.auto.offset.reset", "by_duration:PT0.5S") == OK
    assert group.configure("share.isolation.level", "READ_COMMITTED") == (
        "INVALID_CONFIG: Invalid value READ_COMMITTED for configuration "
        "share.isolation.level: String must be one of: "
        "read_committed, read_uncommitted"
    )
    assert group.configure("bogus.x", "1") == "INVALID_CONFIG: Unknown group config name: bogus.x"


def test_groups_are_listed_by_state_and_type(world: World) -> None:
    group = world.group()
    group.join(world.topic())
    for found in (world.groups(states=["stable"]), world.groups(types=["Share"])):
        assert found[group.id] == ("Stable", "share", "share")
    for found in (
        world.groups(states=["Empty"]),
        world.groups(types=["classic"]),
        world.groups(types=["bogus"]),
    ):
        assert group.id not in found


def test_a_group_that_is_empty_can_be_deleted(world: World, differs: Callable[..., Any]) -> None:
    topic = world.topic(records=10)
    group = world.earliest_group()
    member = group.join(topic)
    assert member.fetch() == "0-9 c1"
    assert member.ack("0-4 accept", epoch=-1) == OK
    assert group.delete() == "NON_EMPTY_GROUP"
    member.leave()
    assert group.delete() == OK
    assert group.listed is None
    assert group.topics_with_offsets == {}
    assert group.state(topic).summary == "start -1 complete -1"
    assert group.delete() == "GROUP_ID_NOT_FOUND"
    assert group.join(topic).fetch() == differs(
        "a share-partition in the leader's memory whose state is initialised or deleted",
        kafka="5-9 c2",
        headrace="0-9 c1",
    )


def test_a_group_id_may_have_colons(world: World) -> None:
    group = Group(world, unique("a:b"))
    assert group.configure("share.auto.offset.reset", "earliest") == OK
    topic = world.topic(records=3)
    member = group.join(topic)
    assert member.fetch() == "0-2 c1"
    assert member.ack("0 accept") == OK
    assert group.lag(topic) == 2


def test_finding_the_share_coordinator(world: World) -> None:  # case 19
    topic_id = base64.urlsafe_b64encode(world.topic().id.bytes).decode().rstrip("=")
    for bad in BAD_KEYS:
        error, node = world.find_coordinator(bad.format(topic_id), 2)
        assert (error.split(":")[0], node) == ("INVALID_REQUEST", -1), bad
    for cut in ("short", topic_id[:-1], topic_id[:-1] + "/", topic_id[:-1] + "+"):
        error, node = world.find_coordinator(f"g:{cut}:0", 2)
        assert (error.split(":")[0], node) == ("INVALID_REQUEST", -1), cut
    for good in GOOD_KEYS:
        assert world.find_coordinator(good.format(topic_id), 2) == (OK, 1), good
    assert world.find_coordinator("g", 3)[0].split(":")[0] == "INVALID_REQUEST"


@pytest.mark.parametrize("version", range(7))
def test_finding_the_coordinator_of_a_group(world: World, version: int) -> None:
    host, port = world.bootstrap_servers.split(":")
    answer = world.ask(10, version, key="g", key_type=0, coordinator_keys=["g", ""])
    found = answer.coordinators if version >= 4 else [answer]
    assert [(one.error_code, one.node_id, one.host, one.port) for one in found] == [
        (0, 1, host, int(port)) for _ in found
    ]
