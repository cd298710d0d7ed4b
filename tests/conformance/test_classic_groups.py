"""The classic group protocol: joining, leading, waiting, and members that do not come."""

from __future__ import annotations

import time

import pytest

from headrace.groups.records import GroupMetadata
from tests.conformance.classic import ClassicGroup, ClassicMember, subscription
from tests.conformance.consumers import ConsumerMember
from tests.conformance.group_records import group_records
from tests.conformance.world import OK, PATIENCE_S, Topic, World, outcome
from tests.support import unique, wait_until
from tests.wire_client import CLIENT_ID

NO_COMMON_PROTOCOL, REBALANCE, STRANGER = (
    "INCONSISTENT_GROUP_PROTOCOL",
    "REBALANCE_IN_PROGRESS",
    "UNKNOWN_MEMBER_ID",
)


def prepare(group: ClassicGroup) -> None:
    wait_until(lambda: group.state == "PreparingRebalance", PATIENCE_S, "the rebalance")


def pair(group: ClassicGroup, **fields: int) -> tuple[ClassicMember, ClassicMember]:
    """Two members that have joined generation 2 and not synced; the first leads."""
    first, second = group.member(**fields), group.member(**fields)
    assert first.join() == OK
    assert first.sync() == OK
    second.introduce()
    prepare(group)
    first.send_join()
    assert (first.joined(), second.joined()) == (OK, OK)
    assert (first.generation, second.generation) == (2, 2)
    assert first.leads and not second.leads
    return first, second


def test_the_leader_assigns_and_the_others_wait(group: ClassicGroup) -> None:
    first, second = pair(group)
    assert {one.member_id for one in first.answer.members} == {first.id, second.id}
    assert second.answer.members == ()
    assert group.described().group_state == "CompletingRebalance"
    second.send_sync()
    assert second.waits()
    assert first.sync({first.id: b"one", second.id: b"two"}) == OK
    assert second.synced() == OK
    assert (first.assignment, second.assignment) == (b"one", b"two")
    assert second.sync() == OK  # an answer that was lost
    assert second.assignment == b"two"
    described = group.described()
    assert (described.group_state, described.protocol_type, described.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    assert {one.member_id: one.member_assignment for one in described.members} == {
        first.id: b"one",
        second.id: b"two",
    }
    assert (first.heartbeat(), second.heartbeat()) == (OK, OK)


@pytest.mark.parametrize("version", range(10))
def test_two_members_of_any_version(group: ClassicGroup, version: int) -> None:
    first, second = pair(group, version=version)
    assert {one.member_id: one.metadata for one in first.answer.members} == dict.fromkeys(
        (first.id, second.id), subscription()
    )
    second.send_sync()
    assert first.sync({first.id: b"one", second.id: b"two"}) == OK
    assert second.synced() == OK
    assert (first.assignment, second.assignment) == (b"one", b"two")
    members = group.described(min(version, 6)).members
    assert {one.member_id: (one.client_id, one.client_host) for one in members} == dict.fromkeys(
        (first.id, second.id), (CLIENT_ID, "/127.0.0.1")
    )
    assert group.delete() == "NON_EMPTY_GROUP"
    assert (first.heartbeat(), first.leave()) == (OK, OK)
    assert second.heartbeat() == REBALANCE
    assert (first.leave(), second.leave()) == (STRANGER, OK)
    assert group.listed == ("Empty", "consumer", "classic")


def test_a_client_that_vanishes_while_it_joins_holds_up_nobody(group: ClassicGroup) -> None:
    first, second = group.member(version=3), group.member(version=3)
    assert first.join() == OK
    second.introduce()
    prepare(group)
    second.connection.close()
    assert first.join() == OK
    assert first.generation == 2
    assert first.sync({first.id: b"all"}) == OK
    assert first.assignment == b"all"


def test_a_follower_that_asks_again_gets_the_same_generation(group: ClassicGroup) -> None:
    first, second = pair(group)
    second.send_sync()
    assert first.sync({second.id: b"two"}) == OK
    assert second.synced() == OK
    assert second.join() == OK  # with what it said before
    assert second.generation == 2
    first.send_join()  # the leader wants another assignment
    prepare(group)
    assert second.heartbeat() == REBALANCE
    assert second.join() == OK
    assert first.joined() == OK
    assert (first.generation, second.generation) == (3, 3)


def test_the_protocol_is_one_that_all_speak(group: ClassicGroup) -> None:
    first = group.member(("a", b""), ("b", b""), ("c", b""))
    assert first.join() == OK
    assert first.answer.protocol_name == "a"
    assert first.sync() == OK
    assert group.member(("d", b"")).join_at_once() == NO_COMMON_PROTOCOL
    assert group.member(("a", b""), protocol_type="connect").join_at_once() == NO_COMMON_PROTOCOL
    second = group.member(("c", b""), ("b", b""))
    second.introduce()
    prepare(group)
    first.send_join()
    assert (first.joined(), second.joined()) == (OK, OK)
    assert first.answer.protocol_name == second.answer.protocol_name
    assert first.answer.protocol_name in ("b", "c")


def test_who_is_not_let_in(world: World, group: ClassicGroup) -> None:
    assert group.member(session_timeout_ms=5_999).join_at_once() == "INVALID_SESSION_TIMEOUT"
    assert group.member(session_timeout_ms=1_800_001).join_at_once() == "INVALID_SESSION_TIMEOUT"
    assert group.member(id="who").join_at_once() == STRANGER
    assert ClassicGroup(world, "").member().join_at_once() == "INVALID_GROUP_ID"
    assert group.member(protocol_type="").join_at_once() == NO_COMMON_PROTOCOL
    none = group.member()
    none.protocols = ()
    assert none.join_at_once() == NO_COMMON_PROTOCOL
    assert group.listed == ("Empty", "", "classic")


def test_a_group_that_is_not_there(world: World, group: ClassicGroup) -> None:
    stranger = group.member(id="who", version=4)
    asked = (stranger.heartbeat(), stranger.sync(), stranger.leave())
    assert asked == (STRANGER, STRANGER, STRANGER)
    assert ClassicGroup(world, "").member(id="who").heartbeat() == "INVALID_GROUP_ID"
    missing = group.described()
    assert outcome(missing.error_code, missing.error_message) == (
        f"GROUP_ID_NOT_FOUND: Group {group.id} not found."
    )
    assert (missing.group_state, group.described(5).group_state) == ("Dead", "Dead")
    assert group.described(5).error_code == 0
    assert group.delete() == "GROUP_ID_NOT_FOUND"


def test_strangers_and_old_generations(group: ClassicGroup) -> None:
    member = group.join(subscription("t"))
    stranger = group.member(id="who")
    stranger.answer = member.answer
    assert (stranger.heartbeat(), stranger.sync(), stranger.leave()) == (
        STRANGER,
        STRANGER,
        STRANGER,
    )
    for generation in (0, 2):
        assert member.heartbeat(generation) == "ILLEGAL_GENERATION"
        assert member.sync(generation=generation) == "ILLEGAL_GENERATION"
    assert member.leave() == OK
    assert (member.heartbeat(), member.leave()) == (STRANGER, STRANGER)
    assert group.state == "Empty"


def test_who_leaves_hands_over_at_once(group: ClassicGroup) -> None:
    first, second = pair(group)
    second.send_sync()
    assert first.leave() == OK
    assert second.synced() == REBALANCE
    assert second.join() == OK
    assert second.leads
    assert second.generation == 3


def test_a_leader_that_never_syncs_is_out(group: ClassicGroup) -> None:
    first, second = pair(group, rebalance_timeout_ms=1_000, session_timeout_ms=30_000)
    second.send_sync()
    assert second.synced() == REBALANCE
    assert first.sync() == STRANGER
    assert first.heartbeat() == STRANGER
    assert second.join() == OK
    assert second.leads


def test_a_rebalance_timeout_below_zero_is_over_at_once(group: ClassicGroup) -> None:
    member = group.member(rebalance_timeout_ms=-1, session_timeout_ms=60_000)
    assert member.join() == OK
    wait_until(lambda: group.state == "Empty", PATIENCE_S, "the end of the time to sync")
    assert member.sync() == STRANGER


def test_a_member_that_never_syncs_is_out(group: ClassicGroup) -> None:
    first, second = pair(group, rebalance_timeout_ms=1_000, session_timeout_ms=30_000)
    assert first.sync({first.id: b"one", second.id: b"two"}) == OK
    wait_until(lambda: first.heartbeat() == REBALANCE, PATIENCE_S, "the rebalance")
    assert second.heartbeat() == STRANGER
    assert first.join() == OK
    assert [one.member_id for one in first.answer.members] == [first.id]


def test_a_member_that_does_not_join_again_is_out(group: ClassicGroup) -> None:
    first, second = pair(group, rebalance_timeout_ms=1_000, session_timeout_ms=30_000)
    second.send_sync()
    assert first.sync() == OK
    assert second.synced() == OK
    third = group.member(rebalance_timeout_ms=1_000)
    third.introduce()
    first.send_join()
    assert (first.joined(), third.joined()) == (OK, OK)
    assert second.heartbeat() == STRANGER
    assert second.sync() == STRANGER


def test_a_member_that_falls_silent_is_out(group: ClassicGroup) -> None:
    member = group.join(subscription("t"), session_timeout_ms=6_000)
    wait_until(lambda: group.state == "Empty", PATIENCE_S, "the end of its session")
    assert member.heartbeat() == STRANGER


def test_a_static_member_comes_back_without_a_rebalance(group: ClassicGroup) -> None:
    old = group.join(subscription("t"), instance_id="one")
    new = group.member(("protocol-0", subscription("t")), instance_id="one")
    assert new.join() == OK
    assert (new.generation, new.id == old.id) == (1, False)
    assert new.answer.skip_assignment
    assert new.sync() == OK
    assert new.assignment == b"everything"
    fenced = "FENCED_INSTANCE_ID"
    assert (old.heartbeat(), old.sync(), old.join(), old.leave()) == (
        fenced,
        fenced,
        fenced,
        fenced,
    )
    ((one,), state) = (group.described().members, group.state)
    assert (one.member_id, one.group_instance_id, state) == (new.id, "one", "Stable")
    new.id = ""
    assert new.leave() == OK  # by its instance id
    assert group.state == "Empty"


def test_groups_that_are_described(group: ClassicGroup) -> None:
    member = group.member(("range", subscription("t")), instance_id="one")
    assert member.join() == OK
    completing = group.described()
    assert (completing.group_state, completing.protocol_type) == ("CompletingRebalance", "consumer")
    assert completing.protocol_data == ""
    assert member.sync({member.id: b"all"}) == OK
    for version in range(7):
        stable = group.described(version)
        assert (stable.error_code, stable.group_state, stable.protocol_data) == (
            0,
            "Stable",
            "range",
        )
        (one,) = stable.members
        assert (one.member_id, one.member_metadata, one.member_assignment) == (
            member.id,
            subscription("t"),
            b"all",
        )
    assert member.leave() == OK
    empty = group.described()
    assert (empty.group_state, empty.protocol_type, empty.protocol_data, empty.members) == (
        "Empty",
        "consumer",
        "",
        (),
    )


def test_assignments_are_shown_until_there_are_others(group: ClassicGroup) -> None:
    def shown() -> tuple[str, list[tuple[bytes, bytes]]]:
        described = group.described()
        members = sorted((one.member_metadata, one.member_assignment) for one in described.members)
        return described.group_state, members

    first = group.join(subscription("t"))
    second = group.member(("protocol-0", subscription("u")))
    second.introduce()
    prepare(group)
    assert shown() == ("PreparingRebalance", [(b"", b""), (b"", b"everything")])
    first.send_join()
    assert (first.joined(), second.joined()) == (OK, OK)
    assert shown() == ("CompletingRebalance", [(b"", b""), (b"", b"everything")])
    second.protocols = (("protocol-0", subscription("v")),)
    second.send_join()  # before anybody was given anything
    prepare(group)
    assert shown() == ("PreparingRebalance", [(b"", b""), (b"", b"")])


def test_a_group_of_share_consumers_is_not_for_others(world: World) -> None:
    share = world.group()
    share.join(world.topic())
    member = ClassicGroup(world, share.id).member(id="who")
    assert member.join_at_once() == NO_COMMON_PROTOCOL
    assert member.answer.member_id == ""


def test_a_full_group(small_world: World) -> None:
    group = ClassicGroup(small_world)
    first, second = pair(group)
    third = group.member()
    assert third.join_at_once() == "GROUP_MAX_SIZE_REACHED"
    second.send_sync()
    assert first.sync() == OK
    assert second.synced() == OK
    assert third.join_at_once() == "GROUP_MAX_SIZE_REACHED"
    assert (first.heartbeat(), second.leave()) == (OK, OK)
    third.introduce()
    first.send_join()
    assert (first.joined(), third.joined()) == (OK, OK)


@pytest.mark.slow
def test_a_thousand_members(group: ClassicGroup) -> None:
    members = [
        group.member(session_timeout_ms=60_000, rebalance_timeout_ms=60_000) for _ in range(1_000)
    ]
    for member in members:
        assert member.join_at_once() == "MEMBER_ID_REQUIRED"
    first, *others = members
    assert first.join() == OK
    for member in others:
        member.send_join()
    first.send_join()
    assert [member.joined() for member in members] == [OK] * 1_000
    (generation,) = {member.generation for member in members}
    (leader,) = [member for member in members if member.leads]
    assert {one.member_id for one in leader.answer.members} == {member.id for member in members}
    for member in members:
        member.send_sync({one.id: one.id.encode() for one in members} if member is leader else None)
    assert [member.synced() for member in members] == [OK] * 1_000
    assert all(member.assignment == member.id.encode() for member in members)
    assert {member.heartbeat() for member in members} == {OK}
    assert len(group.described().members) == 1_000
    assert generation == 2


def generations(world: World, group: ClassicGroup) -> list[tuple[str, int, int] | None]:
    """Return protocol type, generation and number of members in each record of a group; None for a
    tombstone.
    """
    found: list[tuple[str, int, int] | None] = []
    for record in group_records(world, group.id):
        if isinstance(record, GroupMetadata) and record.value is not None:
            one = record.value
            assert abs(one.current_state_timestamp - time.time() * 1000) < 60_000
            found.append((one.protocol_type, one.generation, len(one.members)))
        elif isinstance(record, GroupMetadata):
            found.append(None)
    return found


def test_the_first_record_of_a_group_is_the_empty_one(world: World, group: ClassicGroup) -> None:
    member = group.member()
    assert member.join_at_once() == "MEMBER_ID_REQUIRED"
    assert generations(world, group) == [("", 0, 0)]
    assert (member.join(), member.sync({member.id: b"a"})) == (OK, OK)
    assert member.leave() == OK
    assert group.delete() == OK
    assert generations(world, group) == [
        ("", 0, 0),
        ("consumer", 1, 1),
        ("consumer", 2, 0),
        None,
    ]


def test_a_join_that_is_refused_leaves_an_empty_group(world: World, group: ClassicGroup) -> None:
    assert group.member(protocol_type="").join_at_once() == NO_COMMON_PROTOCOL
    assert generations(world, group) == [("", 0, 0)]
    other = ClassicGroup(world)
    assert other.member(id="who").join_at_once() == STRANGER
    assert group_records(world, other.id) == []


def test_an_empty_consumer_group_becomes_classic_with_the_empty_record(world: World) -> None:
    consumer = ConsumerMember(world, unique("consumers")).join(world.topic())
    consumer.leave()
    group = ClassicGroup(world, consumer.group_id)
    before = len(group_records(world, group.id))
    assert group.member().join_at_once() == "MEMBER_ID_REQUIRED"
    *tombstones, _ = group_records(world, group.id)[before:]
    assert all(one.value is None for one in tombstones)
    assert generations(world, group) == [("", 0, 0)]


def test_a_simple_group_is_deleted(world: World, topic: Topic) -> None:
    """A group of commits without members: it is listed without protocol type."""
    group = ClassicGroup(world)
    assert group.commit(topic, {0: 1, 2: 3}) == {0: OK, 2: OK}
    assert group.listed == ("Empty", "", "classic")
    assert (group.delete(), group.delete()) == (OK, "GROUP_ID_NOT_FOUND")
    assert (group.listed, group.committed) == (None, {})
