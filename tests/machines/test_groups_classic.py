"""The classic group protocol: joining, syncing, staying, leaving, and what goes wrong with each."""

from __future__ import annotations

import pytest

from headrace.groups.classic.member import JoinedMember, JoinRequest, MemberIdentity
from headrace.groups.records import Generation
from headrace.protocol.errors import ErrorCode, StorageError
from tests.machines.group_desk import Desk, durable


@pytest.fixture
def desk():
    return Desk()


def state(desk, group="g"):
    return desk.coordinator.groups[group].state_name


def test_one_member_joins_leads_and_assigns(desk):
    required = desk.joined()
    assert (required.code, required.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "m1")
    joined = desk.joined("m1", protocols=("range", "roundrobin"))
    assert (joined.code, joined.generation_id, joined.protocol, joined.leader) == (
        0,
        1,
        "range",
        "m1",
    )
    assert joined.members == (JoinedMember("m1", None, b"as range"),)
    assert state(desk) == "CompletingRebalance"
    assert [len(value or b"") for _, value in desk.log] == [24]  # the empty generation
    synced = desk.synced("m1", 1, [("m1", b"all")])
    assert (synced.code, synced.assignment, synced.protocol_type, synced.protocol) == (
        0,
        b"all",
        "consumer",
        "range",
    )
    assert state(desk) == "Stable"
    assert len(desk.log) == 2
    assert desk.heartbeat("m1", 1) == ErrorCode.NONE


def test_before_version_4_a_member_needs_no_second_attempt(desk):
    assert desk.joined(version=3).generation_id == 1


def test_followers_wait_for_the_leaders_assignment(desk):
    first = desk.join(version=3)
    second = desk.join(version=3)
    assert desk.answer(second) is None
    assert desk.heartbeat("m1", 1) == ErrorCode.REBALANCE_IN_PROGRESS
    again = desk.join("m1", version=3)
    assert desk.answer(again).generation_id == desk.answer(second).generation_id == 2
    assert desk.answer(again).leader == "m1"
    assert [m.member_id for m in desk.answer(again).members] == ["m1", "m2"]
    assert desk.answer(second).members == ()
    follower = desk.sync("m2", 2)
    assert desk.answer(follower) is None
    leader = desk.sync("m1", 2, [("m1", b"x"), ("m2", b"y")])
    assert desk.answer(leader).assignment == b"x"
    assert desk.answer(follower).assignment == b"y"
    late = desk.sync("m2", 2)  # a client that lost its answer
    assert desk.answer(late).assignment == b"y"
    assert first in desk.answers


def test_a_member_that_the_leader_forgot_has_nothing(desk):
    leader, follower = desk.stable(2)
    desk.leave(follower)
    again = desk.joined(leader, version=3)
    desk.sync(leader, again.generation_id, [])
    assert desk.synced(leader, again.generation_id).assignment == b""


def test_the_first_rebalance_waits_for_more_members():
    desk = Desk(group_initial_rebalance_delay_ms=3_000)
    first = desk.join(version=3)
    desk.pass_ms(2_000)
    second = desk.join(version=3)
    desk.pass_ms(2_000)
    assert desk.answer(first) is None  # somebody came: another 3 s
    desk.pass_ms(2_000)
    assert desk.answer(first).generation_id == desk.answer(second).generation_id == 1


def test_the_first_rebalance_waits_no_longer_than_the_rebalance_timeout():
    desk = Desk(group_initial_rebalance_delay_ms=3_000)
    tickets = [desk.join(version=3, rebalance_timeout_ms=7_000)]
    for _ in range(3):
        desk.pass_ms(2_000)
        tickets.append(desk.join(version=3, rebalance_timeout_ms=7_000))
    assert all(desk.answer(t) is None for t in tickets)
    desk.pass_ms(1_000)
    assert all(desk.answer(t).generation_id == 1 for t in tickets)


def test_who_does_not_rejoin_in_time_is_out(desk):
    leader, follower = desk.stable(2, rebalance_timeout_ms=8_000, session_timeout_ms=30_000)
    again = desk.join(leader, version=3, rebalance_timeout_ms=8_000, session_timeout_ms=30_000)
    assert desk.answer(again) is None
    desk.pass_ms(8_000)
    assert [m.member_id for m in desk.answer(again).members] == [leader]
    assert desk.heartbeat(follower, 3) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_silent_member_expires_and_the_rest_rebalance(desk):
    leader, follower = desk.stable(2)
    desk.pass_ms(6_000)
    assert desk.heartbeat(follower, 2) == ErrorCode.NONE
    desk.pass_ms(6_000)
    assert desk.heartbeat(follower, 2) == ErrorCode.REBALANCE_IN_PROGRESS
    assert desk.heartbeat(leader, 2) == ErrorCode.UNKNOWN_MEMBER_ID
    joined = desk.joined(follower, version=3)
    assert (joined.leader, joined.generation_id) == (follower, 3)


def test_a_parked_member_does_not_expire(desk):
    leader, follower = desk.stable(2)
    desk.join(version=3)
    waiting = desk.join(leader, version=3)
    desk.pass_ms(9_000)
    desk.heartbeat(follower, 2)
    desk.pass_ms(9_000)
    assert leader in desk.coordinator.groups["g"].members.by_id
    desk.join(follower, version=3)
    assert desk.answer(waiting).code == ErrorCode.NONE


def test_a_new_member_that_never_gets_its_answer_goes_after_five_minutes():
    desk = Desk(group_initial_rebalance_delay_ms=1_000_000)
    ticket = desk.join(version=3, rebalance_timeout_ms=2_000_000)
    desk.pass_ms(299_999)
    assert desk.answer(ticket) is None
    desk.pass_ms(1)
    assert desk.answer(ticket).code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_new_members_own_session_begins_with_its_answer():
    desk = Desk(group_initial_rebalance_delay_ms=20_000)
    ticket = desk.join(version=3)
    desk.pass_ms(20_000)  # longer than its session: it cannot send heartbeats yet
    member_id = desk.answer(ticket).member_id
    desk.pass_ms(9_999)
    assert set(desk.coordinator.groups["g"].members.by_id) == {member_id}
    desk.pass_ms(1)
    assert desk.heartbeat(member_id, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_who_was_sent_away_to_come_back_with_its_id_is_waited_for(desk):
    """KIP-394: a rebalance does not end without the members whose ids have been handed out, for a
    session's time.
    """
    (leader,) = desk.stable(1)
    expected = desk.joined().member_id
    again = desk.join(leader, version=3)
    assert desk.answer(again) is None
    desk.join(expected)
    assert [m.member_id for m in desk.answer(again).members] == [leader, expected]
    for member_id in (expected, leader):
        desk.sync(member_id, 2)
    lost = desk.joined(session_timeout_ms=6_000).member_id
    again = desk.join(leader, version=3)
    desk.join(expected, version=3)
    desk.pass_ms(5_999)
    assert desk.answer(again) is None
    desk.pass_ms(1)
    assert [m.member_id for m in desk.answer(again).members] == [leader, expected]
    assert desk.joined(lost).code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_never_syncs_is_out_and_the_rest_rebalance(desk):
    leader, follower = desk.stable(2, rebalance_timeout_ms=8_000, session_timeout_ms=100_000)
    desk.join(leader, version=3, rebalance_timeout_ms=8_000, session_timeout_ms=100_000)
    desk.join(follower, version=3, rebalance_timeout_ms=8_000, session_timeout_ms=100_000)
    waiting = desk.sync(follower, 3)
    desk.pass_ms(8_000)
    assert desk.answer(waiting).code == ErrorCode.REBALANCE_IN_PROGRESS
    assert set(desk.coordinator.groups["g"].members.by_id) == {follower}


def test_leaving_hands_over_at_once(desk):
    leader, follower = desk.stable(2)
    assert desk.leave(leader, "nobody") == (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID)
    assert desk.heartbeat(follower, 2) == ErrorCode.REBALANCE_IN_PROGRESS
    assert desk.leave(follower) == (ErrorCode.NONE,)
    assert state(desk) == "Empty"
    assert desk.leave(follower) == (ErrorCode.UNKNOWN_MEMBER_ID,)
    assert desk.leave(follower, group="nope") == (ErrorCode.UNKNOWN_MEMBER_ID,)
    assert not desk.awaits_someone


def test_a_group_that_nobody_joined_in_the_end_is_deleted_with_the_next_check(desk):
    desk.join()
    desk.pass_ms(10_000)
    assert state(desk) == desk.restarted().groups["g"].state_name == "Empty"
    desk.join()
    desk.leave("m2")
    assert state(desk) == "Empty"
    desk.pass_ms(600_000)
    assert desk.coordinator.groups == desk.restarted().groups == {}


def test_the_first_record_of_a_group_is_the_empty_one(desk):
    desk.stable(1)
    first, second = (desk.coordinator.decode(key, value) for key, value in desk.log)
    assert first.value == Generation("", 0, None, None, desk.wall_ms)
    assert (second.value.generation, len(second.value.members)) == (1, 1)


def test_the_protocol_is_the_one_that_all_speak_and_most_like(desk):
    desk.join(version=3, protocols=("a", "b", "c"))
    desk.join(version=3, protocols=("b", "c"))
    desk.join(version=3, protocols=("c", "b"))
    again = desk.join("m1", version=3, protocols=("a", "b", "c"))
    assert desk.answer(again).protocol == "b"
    assert desk.joined(version=3, protocols=("a",)).code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (
        desk.joined(version=3, protocol_type="connect").code
        == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    )
    assert (
        desk.joined(version=3, group="h", protocols=()).code
        == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    )
    assert state(desk, "h") == "Empty"


def test_joins_that_are_refused(desk):
    assert desk.joined(group="").code == ErrorCode.INVALID_GROUP_ID
    assert desk.joined(session_timeout_ms=5_999).code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert desk.joined(session_timeout_ms=1_800_001).code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert desk.joined("who").code == ErrorCode.UNKNOWN_MEMBER_ID
    desk.stable(1)
    assert desk.joined("who").code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_group_takes_no_more():
    desk = Desk(group_max_size=2)
    leader, _ = desk.stable(2)
    refused = desk.joined(version=3)
    assert (refused.code, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    desk.join(leader, version=3)
    assert desk.joined(version=3) is None  # a place was free until the other is back


def test_who_finds_the_group_full_is_not_waited_for_any_longer():
    desk = Desk(group_max_size=2)
    leader, _ = desk.stable(2)
    desk.leave("m2")
    here, late = (desk.joined().member_id for _ in range(2))
    again = desk.join(leader, version=3)
    desk.join(here)
    assert desk.joined(late).code == ErrorCode.GROUP_MAX_SIZE_REACHED
    desk.leave(here)
    assert [m.member_id for m in desk.answer(again).members] == [leader]


def test_syncs_and_heartbeats_that_are_refused(desk):
    leader, follower = desk.stable(2)
    assert desk.synced("who", 2).code == ErrorCode.UNKNOWN_MEMBER_ID
    assert desk.synced(leader, 1).code == ErrorCode.ILLEGAL_GENERATION
    assert desk.synced(leader, 2, protocol="other").code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (
        desk.synced(leader, 2, protocol_type="other").code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    )
    assert desk.synced(leader, 2, protocol="").code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert desk.synced(leader, 2, group="").code == ErrorCode.INVALID_GROUP_ID
    assert desk.heartbeat(leader, 3) == ErrorCode.ILLEGAL_GENERATION
    assert desk.heartbeat("who", 2) == ErrorCode.UNKNOWN_MEMBER_ID
    assert desk.heartbeat(leader, 2, group="nope") == ErrorCode.UNKNOWN_MEMBER_ID
    desk.leave(leader)
    assert desk.synced(follower, 2).code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_follower_that_repeats_its_join_gets_the_same_generation(desk):
    leader, follower = desk.stable(2)
    repeated = desk.joined(follower, version=3)
    assert (repeated.code, repeated.generation_id) == (ErrorCode.NONE, 2)
    assert state(desk) == "Stable"
    # from the leader it means: something changed
    assert desk.joined(leader, version=3) is None
    assert state(desk) == "PreparingRebalance"


def test_a_follower_with_a_new_subscription_makes_them_rebalance(desk):
    _, follower = desk.stable(2)
    desk.join(follower, version=3, protocols=("range", "sticky"))
    assert state(desk) == "PreparingRebalance"


# --- static members ---


def static_pair(desk):
    desk.join(instance="one")
    desk.join(instance="two")
    desk.join("m1", instance="one")
    desk.sync("m2", 2, instance="two")
    desk.sync("m1", 2, [("m1", b"x"), ("m2", b"y")], instance="one")
    return "m1", "m2"


def test_a_static_member_is_replaced_without_a_rebalance(desk):
    leader, follower = static_pair(desk)
    written = len(desk.log)
    back = desk.joined(instance="two")
    assert (back.code, back.generation_id, back.leader, back.skip_assignment) == (
        ErrorCode.NONE,
        2,
        leader,
        False,
    )
    assert state(desk) == "Stable"
    assert len(desk.log) == written + 1
    assert desk.synced(back.member_id, 2, instance="two").assignment == b"y"
    assert desk.heartbeat(follower, 2, instance="two") == ErrorCode.FENCED_INSTANCE_ID
    assert desk.heartbeat(back.member_id, 2, instance="two") == ErrorCode.NONE
    assert desk.synced(follower, 2, instance="two").code == ErrorCode.FENCED_INSTANCE_ID
    assert desk.joined(follower, instance="two").code == ErrorCode.FENCED_INSTANCE_ID
    desk.leave(("", "one"), ("", "two"))
    assert not desk.awaits_someone


def test_a_static_leader_is_told_not_to_assign(desk):
    leader, _ = static_pair(desk)
    back = desk.joined(instance="one")
    assert back.leader == back.member_id
    assert back.skip_assignment
    assert len(back.members) == 2
    older = desk.joined(instance="one", version=8)
    assert (older.leader, older.skip_assignment) == (back.member_id, False)
    assert older.member_id != back.member_id
    assert leader != back.member_id


def test_a_static_member_that_is_away_keeps_its_place(desk):
    leader, follower = static_pair(desk)
    again = desk.join(leader, instance="one")
    desk.pass_ms(9_000)
    desk.heartbeat(follower, 2, instance="two")
    desk.pass_ms(9_000)
    assert desk.answer(again) is None
    desk.pass_ms(2_000)  # the session of the other is over
    assert desk.answer(again).generation_id == 3
    assert len(desk.answer(again).members) == 1


def test_a_static_member_that_does_not_rejoin_in_time_stays_with_what_it_said_before(desk):
    """KIP-345: only the end of its session, or its not asking for its assignment, takes a static
    member out.
    """
    times = {"rebalance_timeout_ms": 8_000, "session_timeout_ms": 30_000}
    leader, away = (f"m{desk.join(instance=one, **times)}" for one in ("one", "two"))
    desk.join(leader, instance="one", **times)
    desk.sync(away, 2, instance="two")
    desk.sync(leader, 2, [(leader, b"x"), (away, b"y")], instance="one")
    again = desk.join(leader, instance="one", **times)
    desk.pass_ms(8_000)
    assert [m.member_id for m in desk.answer(again).members] == [leader, away]
    desk.sync(leader, 3, [(leader, b"x"), (away, b"z")], instance="one")
    assert desk.heartbeat(away, 2, instance="two") == ErrorCode.ILLEGAL_GENERATION
    assert desk.joined(instance="two", **times).generation_id == 3


def test_a_static_member_that_is_back_has_a_session_of_its_own(desk):
    leader, _ = static_pair(desk)
    desk.pass_ms(5_000)
    back = desk.joined(instance="two").member_id
    desk.pass_ms(4_000)
    desk.heartbeat(leader, 2, instance="one")
    desk.pass_ms(5_999)
    assert set(desk.coordinator.groups["g"].members.by_id) == {leader, back}
    desk.pass_ms(1)
    assert set(desk.coordinator.groups["g"].members.by_id) == {leader}


def test_a_parked_static_member_is_fenced_by_its_successor(desk):
    leader, _ = static_pair(desk)
    waiting = desk.join(leader, instance="one")
    successor = desk.join(instance="one")
    assert desk.answer(waiting).code == ErrorCode.FENCED_INSTANCE_ID
    assert desk.answer(successor) is None


def test_a_static_member_leaves_by_its_instance_id(desk):
    leader, follower = static_pair(desk)
    assert desk.leave(("", "two"), ("", "three"), (follower, "two")) == (
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    )
    assert desk.leave(("wrong", "one")) == (ErrorCode.FENCED_INSTANCE_ID,)
    assert set(desk.coordinator.groups["g"].members.by_id) == {leader}


def test_a_static_replacement_that_changes_the_protocol_rebalances(desk):
    static_pair(desk)
    desk.join(instance="two", protocols=("range",))
    assert state(desk) == "Stable"
    desk.join(version=3, group="h", instance="a", protocols=("x", "y"))
    desk.join(version=3, group="h", instance="b", protocols=("x", "y"))
    a = desk.coordinator.groups["h"].members.static_member_id("a")
    desk.join(a, group="h", instance="a", protocols=("x", "y"))
    for member_id in (desk.coordinator.groups["h"].members.static_member_id("b"), a):
        desk.sync(member_id, 2, group="h", instance="b" if member_id != a else "a")
    assert state(desk, "h") == "Stable"
    desk.join(group="h", instance="b", protocols=("y",))
    assert state(desk, "h") == "PreparingRebalance"


# --- restart ---


def test_members_go_on_after_a_restart(desk):
    leader, follower = desk.stable(2)
    desk.restart()
    assert state(desk) == "Stable"
    assert desk.heartbeat(follower, 2) == ErrorCode.NONE
    assert desk.synced(follower, 2).assignment == f"a {follower}".encode()
    desk.pass_ms(9_999)
    assert desk.heartbeat(follower, 2) == ErrorCode.NONE
    desk.pass_ms(1)
    assert desk.heartbeat(leader, 2) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_that_a_restart_interrupts_begins_again(desk):
    leader, follower = desk.stable(2)
    desk.join(leader, version=3)
    desk.restart()
    assert durable(desk.coordinator) == durable(desk.restarted())
    assert desk.heartbeat(leader, 2) == ErrorCode.NONE
    again = desk.join(leader, version=3)
    desk.join(follower, version=3)
    assert desk.answer(again).generation_id == 3


# --- a full disk ---


def refused_by_the_disk(desk, command, *arguments, **options):
    desk.is_full = True
    try:
        assert isinstance(desk.answer(command(*arguments, **options)), StorageError)
    except StorageError:
        pass
    desk.is_full = False


def test_a_leave_that_cannot_be_written_changes_nothing(desk):
    leader, follower = desk.stable(2)
    refused_by_the_disk(desk, desk.leave, leader, follower)
    assert state(desk) == "Stable"
    assert desk.heartbeat(follower, 2) == ErrorCode.NONE
    assert durable(desk.restarted()) == durable(desk.coordinator)
    assert desk.leave(leader, follower) == (ErrorCode.NONE, ErrorCode.NONE)
    assert state(desk) == "Empty"


def test_a_request_that_waits_is_told_of_a_leave_that_cannot_be_written(desk):
    times = {"rebalance_timeout_ms": 8_000, "session_timeout_ms": 30_000}
    leader, follower = desk.stable(2, **times)
    waiting = desk.join(leader, version=3, **times)
    refused_by_the_disk(desk, desk.leave, leader, follower)
    assert isinstance(desk.answer(waiting), StorageError)
    again = desk.join(leader, version=3, **times)
    desk.pass_ms(8_000)
    assert desk.answer(again).generation_id == 3


def test_a_static_member_whose_return_cannot_be_written_is_not_fenced(desk):
    _, follower = static_pair(desk)
    refused_by_the_disk(desk, desk.join, instance="two")
    assert desk.heartbeat(follower, 2, instance="two") == ErrorCode.NONE
    back = desk.joined(instance="two")
    assert back.generation_id == 2
    assert desk.heartbeat(follower, 2, instance="two") == ErrorCode.FENCED_INSTANCE_ID


def test_an_assignment_that_cannot_be_written_is_asked_for_again(desk):
    member_id = desk.joined(version=3).member_id
    refused_by_the_disk(desk, desk.sync, member_id, 1, [(member_id, b"x")])
    assert state(desk) == "CompletingRebalance"
    assert desk.synced(member_id, 1, [(member_id, b"y")]).assignment == b"y"


def test_a_session_that_ends_on_a_full_disk_ends_once_there_is_room(desk):
    desk.stable(1)
    desk.is_full = True
    desk.pass_ms(60_000)
    assert state(desk) == "Stable"
    desk.is_full = False
    desk.pass_ms(1_000)
    assert state(desk) == "Empty"


def test_a_join_that_is_decided_and_dropped_leaves_no_group(desk):
    protocols = (("range", b""),)
    request = JoinRequest("", None, "c", "/h", 10_000, 20_000, "consumer", protocols, "m", False)
    outcome = desk.coordinator.join("g", request, 1, *desk.times)
    assert outcome.apply is not None
    assert desk.coordinator.groups == {}
    assert not desk.awaits_someone


# --- the wall clock ---


@pytest.mark.parametrize("hours", [1, -1])
def test_sessions_do_not_follow_the_wall_clock(desk, hours):
    leader, follower = desk.stable(2)
    desk.pass_ms(5_000)
    desk.wall_ahead_ms = hours * 3_600_000
    assert desk.heartbeat(leader, 2) == ErrorCode.NONE
    desk.pass_ms(5_000)
    assert set(desk.coordinator.groups["g"].members.by_id) == {leader}
    assert desk.heartbeat(follower, 2) == ErrorCode.UNKNOWN_MEMBER_ID


def test_records_have_the_wall_clocks_time(desk):
    desk.wall_ahead_ms = 3_600_000
    desk.stable(1)
    assert desk.coordinator.groups["g"].recorded.current_state_timestamp == desk.wall_ms


# --- commits ---


def commit(
    desk, member_id="", generation_id=-1, *, group="g", instance=None, commits=None, **fields
):
    commits = [("t", None, 0, 5)] if commits is None else commits
    return desk.commit_all(
        commits, MemberIdentity(member_id, instance), generation_id, group=group, **fields
    )


def test_commits_without_a_group_make_a_simple_one(desk):
    assert commit(desk) == (ErrorCode.NONE,)
    assert [tuple(g) for g in desk.coordinator.list()] == [("g", "", "Empty", "classic")]
    assert desk.offsets("g")["t"][0].offset == 5
    desk.restart()
    assert desk.offsets("g")["t"][0].offset == 5
    assert [tuple(g) for g in desk.coordinator.list()] == [("g", "", "Empty", "classic")]


def test_commits_of_a_generation_that_never_was(desk):
    assert commit(desk, "m", 3) == (ErrorCode.GROUP_ID_NOT_FOUND,)
    assert commit(desk, "m", 3, knows_group_id_not_found=False) == (ErrorCode.ILLEGAL_GENERATION,)
    assert desk.coordinator.groups == {}


def test_who_may_commit(desk):
    leader, follower = desk.stable(2)
    assert commit(desk) == (ErrorCode.UNKNOWN_MEMBER_ID,)
    assert commit(desk, leader, 1) == (ErrorCode.ILLEGAL_GENERATION,)
    assert commit(desk, "who", 2) == (ErrorCode.UNKNOWN_MEMBER_ID,)
    assert commit(desk, leader, 2, commits=[("t", None, 0, 1), ("t", None, 1, -5)]) == (0, 0)
    desk.join(leader, version=3)
    assert commit(desk, follower, 2) == (
        ErrorCode.NONE,
    )  # while others join, what was read can still be committed
    desk.join(follower, version=3)
    assert commit(desk, follower, 3) == (ErrorCode.REBALANCE_IN_PROGRESS,)
    desk.leave(leader, follower)
    assert commit(desk, "anybody") == (ErrorCode.NONE,)
    assert commit(desk, leader, 3) == (ErrorCode.UNKNOWN_MEMBER_ID,)


def test_a_commit_keeps_its_member_alive(desk):
    (leader,) = desk.stable(1)
    for _ in range(3):
        desk.pass_ms(9_000)
        assert commit(desk, leader, 1) == (ErrorCode.NONE,)


def test_offsets_go_with_their_topic(desk):
    desk.add_topic("t", 2)
    desk.add_topic("u", 2)
    commit(desk, commits=[("t", None, 0, 1), ("t", None, 1, 1), ("u", None, 0, 1)])
    commit(desk, group="h", commits=[("t", None, 0, 1)])
    desk.delete_topic("t")
    assert {topic: list(partitions) for topic, partitions in desk.offsets("g").items()} == {
        "u": [0]
    }
    assert desk.offsets("h") == {}
    assert durable(desk.restarted()) == durable(desk.coordinator)


def test_deleting_groups(desk):
    leader = desk.stable(1)[0]
    commit(desk, leader, 1)
    commit(desk, group="")
    assert desk.submit(desk.coordinator.delete("g")) == ErrorCode.NON_EMPTY_GROUP
    assert desk.submit(desk.coordinator.delete("nope")) == ErrorCode.GROUP_ID_NOT_FOUND
    assert desk.submit(desk.coordinator.delete("")) == ErrorCode.NONE
    desk.leave(leader)
    assert desk.submit(desk.coordinator.delete("g")) == ErrorCode.NONE
    assert desk.coordinator.groups == desk.restarted().groups == {}
    assert desk.offsets("g") == {}
    assert not desk.awaits_someone


def test_lists_are_filtered_without_regard_to_case(desk):
    desk.stable(1, group="a")
    commit(desk, group="b")
    ids = lambda **f: [g.group_id for g in desk.coordinator.list(**f)]  # noqa: E731
    assert ids() == ["a", "b"]
    assert ids(states=["empty "]) == ["b"]
    assert ids(states=["STABLE", "Dead"]) == ["a"]
    assert ids(types=["Classic"]) == ["a", "b"]
    assert ids(types=["bogus"]) == ids(states=["bogus"]) == []


def test_ten_thousand_idle_groups_have_no_deadline(desk):
    desk.observes = False
    for i in range(10_000):
        commit(desk, group=f"g{i}")
    assert not desk.awaits_someone
    assert list(desk.coordinator.expire(*desk.times)) == []


def test_commits_of_a_transaction_are_no_heartbeats():
    desk = Desk()
    (member,) = desk.stable(1, session_timeout_ms=10_000)
    desk.pass_ms(6_000)
    assert desk.commit(member_id=member, generation_id=1, transactional=True) == (ErrorCode.NONE,)
    desk.pass_ms(6_000)
    assert state(desk) == "Empty"


def test_another_session_timeout_of_a_static_member_counts_from_its_first_heartbeat():
    desk = Desk()
    desk.stable(1, instance="one", session_timeout_ms=30_000)
    back = desk.joined(instance="one", session_timeout_ms=6_000).member_id
    desk.pass_ms(29_999)
    assert state(desk) == "Stable"
    assert desk.heartbeat(back, 1, instance="one") == ErrorCode.NONE
    desk.pass_ms(6_000)
    assert state(desk) == "Empty"
