"""Share group membership: heartbeats, epochs, assignments, and the state that partitions need to be
shared.
"""

from __future__ import annotations

import pytest

from headrace.groups.share.group import ShareHeartbeat
from headrace.protocol.errors import ErrorCode, Refusal
from tests.machines.group_desk import Desk, durable


@pytest.fixture
def desk():
    desk = Desk()
    desk.add_topic("t", 4)
    return desk


def given(desk, reply):
    """The reply's assignment with topic names for ids."""
    names = {topic.topic_id: name for name, topic in desk.topics.items()}
    return (
        None
        if reply.assigned is None
        else {names[id_]: partitions for id_, partitions in reply.assigned.items()}
    )


def settle(desk, *members):
    """Let all members heartbeat until they know their assignments; their epochs."""
    group = desk.coordinator.groups["s"]
    for _ in range(3):
        for member_id in members:
            desk.beat(member_id, group.state.current[member_id].member_epoch)
    return [group.state.current[member_id].member_epoch for member_id in members]


def refused(reply):
    assert isinstance(reply, Refusal), reply
    return int(reply.code), reply.message


def test_a_first_member_gets_its_partitions_at_once(desk):
    first = desk.beat("m", 0, ["t"])
    assert (first.member_epoch, given(desk, first), first.heartbeat_interval_ms) == (
        2,
        {"t": (0, 1, 2, 3)},
        5_000,
    )
    second = desk.beat("m", 2)
    assert (second.member_epoch, given(desk, second)) == (2, None)


def test_partitions_are_handed_out_when_their_state_is_there(desk):
    desk.state_works = False
    first = desk.beat("m", 0, ["t"])
    assert (first.member_epoch, given(desk, first)) == (2, {})
    assert given(desk, desk.beat("m", 2)) is None
    desk.state_works = True
    second = desk.beat("m", 2)
    assert (second.member_epoch, given(desk, second)) == (3, {"t": (0, 1, 2, 3)})


def test_the_records_of_a_first_join_come_in_kafkas_order(desk):
    desk.beat("m", 0, ["t"])
    assert [int.from_bytes(key[:2]) for key, _ in desk.log] == [15, 15, 10, 11, 13, 12, 14]


def test_a_heartbeat_that_changes_nothing_writes_nothing(desk):
    desk.beat("m", 0, ["t"])
    settle(desk, "m")
    written = len(desk.log)
    desk.beat("m", 2)
    desk.beat("m", 2, ["t"])
    assert len(desk.log) == written


def test_two_members_share_four_partitions(desk):
    desk.beat("m", 0, ["t"])
    settle(desk, "m")
    other = desk.beat("n", 0, ["t"])
    assert (other.member_epoch, given(desk, other)) == (3, {"t": (2, 3)})
    assert given(desk, desk.beat("m", 2)) == {"t": (0, 1)}
    assert given(desk, desk.beat("m", 3)) is None


def test_one_partition_is_given_to_both(desk):
    desk.add_topic("one", 1)
    desk.beat("m", 0, ["one"])
    desk.beat("n", 0, ["one"])
    settle(desk, "m", "n")
    assert (
        given(desk, desk.beat("m", 0, ["one"]))
        == given(desk, desk.beat("n", 0, ["one"]))
        == {"one": (0,)}
    )


@pytest.mark.parametrize(
    ("group", "member", "epoch", "names", "rack", "expected"),
    [
        ("s", "", 0, ["t"], None, (42, None)),
        ("s", "", -5, None, "", (42, None)),
        ("", "m", 0, ["t"], None, (42, "GroupId can't be empty.")),
        ("s", "m", 0, ["t"], "", (42, "RackId can't be empty.")),
        ("s", "m", 0, None, None, (42, "SubscribedTopicNames must be set in first request.")),
        ("s", "m", 0, [], None, (42, "SubscribedTopicNames must be set in first request.")),
        ("s", "m", -2, ["t"], None, (42, "MemberEpoch is invalid.")),
        ("s", "m", -1, None, None, (69, "Group s not found.")),
        ("s", "m", 5, None, None, (69, "Share group s not found.")),
    ],
)
def test_requests_that_are_wrong_by_themselves(desk, group, member, epoch, names, rack, expected):
    assert refused(desk.beat(member, epoch, names, group=group, rack=rack)) == expected
    assert desk.log == []
    assert desk.coordinator.groups == {}


def test_members_that_are_not_known(desk):
    desk.beat("m", 0, ["t"])
    assert refused(desk.beat("x", 1)) == (25, "Member x is not a member of group s.")
    assert refused(desk.beat("x", -1)) == (25, "Member x is not a member of group s.")


def test_epochs_that_do_not_fit(desk):
    desk.beat("m", 0, ["t"])
    desk.beat("n", 0, ["t"])
    assert desk.beat("m", 2).member_epoch == 3
    desk.beat("o", 0, ["t"])
    assert desk.beat("m", 3).member_epoch == 4
    assert desk.beat("m", 3).member_epoch == 4  # the previous one: its answer was lost
    assert refused(desk.beat("m", 5)) == (
        110,
        "The share group member has a greater member epoch (5) than the one known by the "
        "group coordinator (4). "
        "The member must abandon all its partitions and rejoin.",
    )
    assert refused(desk.beat("m", 2)) == (
        110,
        "The share group member has a smaller member epoch (2) than the one known by the "
        "group coordinator (4), and it "
        "does not match the previous member epoch (3). The member must abandon all its "
        "partitions and rejoin.",
    )


def test_joining_again_tells_everything(desk):
    desk.beat("m", 0, ["t"])
    settle(desk, "m")
    again = desk.beat("m", 0, ["t"])
    assert (again.member_epoch, given(desk, again)) == (2, {"t": (0, 1, 2, 3)})


def test_a_full_group_takes_no_more():
    desk = Desk(group_share_max_size=2)
    desk.add_topic("t", 1)
    desk.beat("m", 0, ["t"])
    desk.beat("n", 0, ["t"])
    message = "The share group has reached its maximum capacity of 2 members."
    assert refused(desk.beat("o", 0, ["t"])) == refused(desk.beat("o", 5)) == (81, message)
    assert refused(desk.beat("o", -1)) == (25, "Member o is not a member of group s.")
    assert desk.beat("n", 0, ["t"]).member_id == "n"


def test_leaving(desk):
    desk.beat("m", 0, ["t"])
    desk.beat("n", 0, ["t"])
    settle(desk, "m", "n")
    group = desk.coordinator.groups["s"]
    epoch = group.state.epoch
    left = desk.beat("n", -1)
    assert (left.member_id, left.member_epoch, left.heartbeat_interval_ms, left.assigned) == (
        "n",
        -1,
        0,
        None,
    )
    assert (group.state.epoch, group.state.target_epoch.epoch, group.state_name) == (
        epoch + 1,
        epoch,
        "Stable",
    )
    assert given(desk, desk.beat("m", epoch)) == {"t": (0, 1, 2, 3)}
    desk.beat("m", -1)
    assert (group.state.epoch, group.state_name, group.state.group_epoch.metadata_hash) == (
        epoch + 2,
        "Empty",
        0,
    )
    assert [tuple(g) for g in desk.coordinator.list(types=["SHARE"])] == [
        ("s", "share", "Empty", "share")
    ]
    assert not desk.awaits_someone
    assert given(desk, desk.beat("m", 0, ["t"])) == {"t": (0, 1, 2, 3)}


def test_a_silent_member_is_removed(desk):
    desk.beat("m", 0, ["t"])
    desk.beat("n", 0, ["t"])
    epoch, _ = settle(desk, "m", "n")
    desk.pass_ms(40_000)
    desk.beat("m", epoch)
    desk.pass_ms(5_000)
    assert set(desk.coordinator.groups["s"].state.members) == {"m"}
    assert refused(desk.beat("n", epoch)) == (25, "Member n is not a member of group s.")
    desk.pass_ms(45_000)
    assert desk.coordinator.groups["s"].state_name == "Empty"


def test_a_silent_member_takes_its_topics_along_as_one_that_leaves(desk):
    desk.add_topic("u", 1)
    desk.beat("m", 0, ["t"])
    desk.beat("n", 0, ["u"])
    settle(desk, "m", "n")
    state = desk.coordinator.groups["s"].state
    epoch = state.epoch
    desk.pass_ms(40_000)
    desk.beat("m", epoch)
    desk.pass_ms(5_000)
    assert state.members.keys() == {"m"}
    settle(desk, "m")
    assert state.epoch == epoch + 1


def test_a_removal_that_cannot_be_written_is_tried_again(desk):
    desk.beat("m", 0, ["t"])
    desk.now_ms += 45_000
    ((group_id, outcome),) = desk.coordinator.expire(*desk.times)  # and the disk is full
    assert group_id == "s"
    assert outcome.records
    desk.pass_ms(1_000)
    assert not desk.coordinator.groups["s"].state.members
    assert not desk.awaits_someone


def test_a_member_whose_joining_could_not_be_written_never_was(desk):
    desk.beat("m", 0, ["t"])
    request = ShareHeartbeat("n", 0, None, None, ["t"], "c", "/h")
    desk.coordinator.share.heartbeat("s", request, *desk.times)  # and the disk is full
    epoch = desk.coordinator.groups["s"].state.epoch
    for _ in range(9):
        desk.pass_ms(5_000)
        desk.beat("m", epoch)
    assert desk.coordinator.groups["s"].state.members.keys() == {"m"}
    assert refused(desk.beat("n", 2)) == (25, "Member n is not a member of group s.")


def test_topics_that_do_not_exist_give_nothing_until_they_do(desk):
    assert given(desk, desk.beat("m", 0, ["nope"])) == {}
    assert desk.beat("m", 2).member_epoch == 2
    desk.add_topic("nope", 1)
    made = desk.beat("m", 2)
    assert (made.member_epoch, given(desk, made)) == (3, {"nope": (0,)})


def test_a_topic_that_grows(desk):
    desk.beat("m", 0, ["t"])
    desk.add_topic("t", 6)
    grown = desk.beat("m", 2)
    assert (grown.member_epoch, given(desk, grown)) == (3, {"t": (0, 1, 2, 3, 4, 5)})


def test_a_topic_that_is_deleted_and_made_anew(desk):
    desk.beat("m", 0, ["t"])
    desk.delete_topic("t")
    assert not desk.coordinator.groups["s"].state.partitions.initialized
    gone = desk.beat("m", 2)
    assert (gone.member_epoch, gone.assigned) == (3, {})
    desk.add_topic("t", 2, incarnation=1)
    assert given(desk, desk.beat("m", 3)) == {"t": (0, 1)}


def test_a_subscription_that_changes(desk):
    desk.add_topic("u", 2)
    desk.beat("m", 0, ["t"])
    changed = desk.beat("m", 2, ["u", "u"])
    assert (changed.member_epoch, given(desk, changed)) == (3, {"u": (0, 1)})
    same = desk.beat("m", 3, ["u"])
    assert given(desk, same) == {"u": (0, 1)}  # a full request is always answered in full
    nothing = desk.beat("m", 3, [])
    assert (nothing.member_epoch, given(desk, nothing)) == (4, {})


def test_what_is_no_longer_subscribed_goes_before_a_new_assignment_is_due():
    desk = Desk(share_assignment_interval_ms=1_000)
    desk.add_topic("t", 2)
    desk.add_topic("u", 2)
    desk.beat("m", 0, ["t", "u"])
    less = desk.beat("m", 2, ["u"])
    assert (less.member_epoch, given(desk, less)) == (2, {"u": (0, 1)})
    desk.pass_ms(1_000)
    later = desk.beat("m", 2)
    assert (later.member_epoch, later.assigned) == (3, None)


def test_what_a_member_says_of_itself_is_kept(desk):
    desk.beat("m", 0, ["t"], rack="r")
    desk.beat("m", 2, client="other")
    member = desk.coordinator.groups["s"].state.members["m"]
    assert (member.rack_id, member.client_id, member.subscribed_topic_names) == (
        "r",
        "other",
        ("t",),
    )
    assert desk.coordinator.groups["s"].state.epoch == 2


def test_members_with_different_subscriptions(desk):
    desk.add_topic("u", 2)
    desk.beat("m", 0, ["t", "u"])
    desk.beat("n", 0, ["u"])
    settle(desk, "m", "n")
    m, n = given(desk, desk.beat("m", 0, ["t", "u"])), given(desk, desk.beat("n", 0, ["u"]))
    assert m["t"] == (0, 1, 2, 3)
    assert "t" not in n
    assert sorted(m["u"] + n["u"]) == [0, 1]


def test_assignments_are_computed_no_more_often_than_the_interval():
    desk = Desk(share_assignment_interval_ms=1_000)
    desk.add_topic("t", 3)
    assert given(desk, desk.beat("m", 0, ["t"])) == {"t": (0, 1, 2)}
    joined = desk.beat("n", 0, ["t"])
    group = desk.coordinator.groups["s"]
    assert (
        joined.member_epoch,
        given(desk, joined),
        group.state.epoch,
        group.state.target_epoch.epoch,
    ) == (
        2,
        {},
        3,
        2,
    )
    desk.pass_ms(999)
    assert desk.beat("m", 2).assigned is None
    desk.pass_ms(1)
    n = desk.beat("n", 2)
    m = desk.beat("m", 2)
    assert (n.member_epoch, m.member_epoch) == (3, 3)
    assert sorted(given(desk, m)["t"] + given(desk, n)["t"]) == [0, 1, 2]


def test_a_wall_clock_that_is_set_back_holds_no_assignment_up():
    desk = Desk(share_assignment_interval_ms=1_000)
    desk.add_topic("t", 2)
    desk.beat("m", 0, ["t"])
    desk.wall_ahead_ms -= 3_600_000
    desk.beat("n", 0, ["t"])
    assert len(given(desk, desk.beat("m", 2))["t"]) == 1


def test_groups_of_another_type_are_refused(desk):
    desk.stable(1, group="classic")
    assert refused(desk.beat("m", 0, ["t"], group="classic")) == (
        69,
        "Group classic is not a share group.",
    )
    desk.beat("m", 0, ["t"])
    assert desk.joined(group="s").code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert desk.heartbeat("m", 2, group="s") == ErrorCode.UNKNOWN_MEMBER_ID
    assert desk.leave("m", group="s") == (ErrorCode.UNKNOWN_MEMBER_ID,)
    assert desk.commit(0, group="s") == (ErrorCode.GROUP_ID_NOT_FOUND,)
    assert desk.offsets("s") == {}
    assert desk.coordinator.classic.group("s") == Refusal(
        ErrorCode.GROUP_ID_NOT_FOUND, "Group s is not a classic group."
    )
    assert refused(desk.coordinator.share.group("classic")) == (
        69,
        "Group classic is not a share group.",
    )
    assert refused(desk.coordinator.share.group("nope")) == (69, "Group nope not found.")


def test_a_restart_forgets_nothing_but_the_time(desk):
    desk.beat("m", 0, ["t"])
    desk.beat("n", 0, ["t"])
    epoch, _ = settle(desk, "m", "n")
    before = durable(desk.coordinator)
    desk.pass_ms(40_000)
    desk.restart()
    assert durable(desk.coordinator) == before
    assert desk.beat("m", epoch).assigned is None
    desk.pass_ms(44_999)
    assert set(desk.coordinator.groups["s"].state.members) == {"m", "n"}
    desk.pass_ms(1)
    assert not desk.coordinator.groups["s"].state.members


def test_deleting_a_share_group(desk):
    desk.beat("m", 0, ["t"])
    assert desk.submit(desk.coordinator.delete("s")) == ErrorCode.NON_EMPTY_GROUP
    desk.beat("m", -1)
    assert desk.submit(desk.coordinator.delete("s")) == ErrorCode.NONE
    assert desk.coordinator.groups == desk.restarted().groups == {}
    desk.stable(1, group="s")  # the id is free for any type
    assert desk.coordinator.list()[0].type == "classic"


def test_a_deletion_that_failed_does_no_harm_to_state_that_began_since(desk):
    desk.alter({"t": {0: 7}})
    desk.delete_offsets(["t"], lines=1)
    assert desk.coordinator.groups["s"].stateful() == {}
    desk.beat("m", 0, ["t"])
    before = dict(desk.share_state)
    desk.restart()
    assert desk.share_state == before
    assert desk.beat("m", 2).assigned is None


def test_a_deletion_that_failed_can_be_asked_for_again(desk):
    topic = desk.topics["t"]
    desk.alter({"t": {0: 7}})
    desk.delete_offsets(["t"], lines=1)
    assert desk.share_state == {("s", topic.topic_id, 0): 7}
    group = desk.coordinator.groups["s"]
    assert group.state.partitions.deleting == {topic.topic_id: "t"}
    desk.delete_offsets(["t"])
    assert desk.share_state == {}
    assert not group.state.partitions.deleting


def test_altering_begins_a_group_at_epoch_one(desk):
    desk.alter({"t": {0: 7}})
    group = desk.coordinator.groups["s"]
    assert (group.state.epoch, group.state.target_epoch.epoch, group.state_name) == (1, 1, "Empty")
    assert desk.beat("m", 0, ["t"]).member_epoch == 2
    # what was set is kept, the rest begins
    assert desk.share_state["s", desk.topics["t"].topic_id, 0] == 7


@pytest.mark.parametrize("create", [True, False])
def test_groups_whose_offsets_may_not_be_changed(desk, create):
    def refusal(group_id):
        return refused(desk.coordinator.share.empty_group(group_id, create=create))

    desk.stable(1, group="classic")
    desk.beat("m", 0, ["t"])
    assert refusal("") == (24, "The group id is invalid.")
    assert refusal("classic") == (69, "Group classic is not a share group.")
    assert refusal("s") == (68, "The group is not empty.")
    if not create:
        assert refusal("nope") == (69, "Group nope not found.")
    assert desk.coordinator.groups.keys() == {"classic", "s"}


def test_the_first_thing_that_is_wrong_is_told(desk):
    desk.stable(1, group="classic")
    assert refused(desk.beat("", 0, None, group="", rack=""))[1] is None
    assert refused(desk.beat("m", -2, None, group="", rack=""))[1] == "GroupId can't be empty."
    assert (
        refused(desk.beat("m", -2, None, group="classic", rack=""))[1] == "RackId can't be empty."
    )
    assert (
        refused(desk.beat("m", 0, [], group="classic"))[1]
        == "SubscribedTopicNames must be set in first request."
    )
    assert refused(desk.beat("m", -2, None, group="classic"))[1] == "MemberEpoch is invalid."
    for epoch in (-1, 0, 7):
        assert refused(desk.beat("m", epoch, ["t"], group="classic")) == (
            69,
            "Group classic is not a share group.",
        )


def test_a_lowered_limit_keeps_who_is_there():
    desk = Desk(group_share_max_size=3)
    desk.add_topic("t", 1)
    for member_id in "mno":
        desk.beat(member_id, 0, ["t"])
    desk.config.values["group.share.max.size"] = 2
    assert desk.beat("m", 0, ["t"]).member_id == "m"  # joining again is not joining
    desk.beat("n", -1)
    assert refused(desk.beat("p", 0, ["t"])) == (
        81,
        "The share group has reached its maximum capacity of 2 members.",
    )
    desk.beat("o", -1)
    assert desk.beat("p", 0, ["t"]).member_id == "p"


def test_session_and_heartbeat_times_hold_from_the_next_heartbeat(desk):
    desk.beat("m", 0, ["t"])
    desk.config.values |= {"share.session.timeout.ms": 50_000, "share.heartbeat.interval.ms": 6_000}
    assert desk.beat("m", 2).heartbeat_interval_ms == 6_000
    desk.pass_ms(49_999)
    assert desk.coordinator.groups["s"].state.members
    desk.pass_ms(1)
    assert not desk.coordinator.groups["s"].state.members
