"""Streams groups (KIP-1071): topologies, epochs, tasks that move, statuses, and what a restart
keeps.
"""

from __future__ import annotations

import pytest

from headrace.groups.records import (
    ByRole,
    CopartitionGroup,
    InternalTopic,
    MemberState,
    StreamsAssignment,
    StreamsMember,
    Subtopology,
    Topology,
)
from headrace.groups.streams.member import StatusCode
from headrace.groups.streams.reconciliation import Goal, reconcile
from headrace.protocol.errors import ErrorCode, Refusal
from tests.machines.group_desk import Desk, durable


@pytest.fixture
def desk():
    desk = Desk()
    desk.add_topic("t", 4)
    return desk


TopicConfig = Topology.TopicConfig
COUNT = Topology(
    0,
    (
        Subtopology("0", ("t",), repartition_sink_topics=("words",)),
        Subtopology(
            "1",
            state_changelog_topics=(
                InternalTopic("counts", 0, 0, (TopicConfig("cleanup.policy", "compact"),)),
            ),
            repartition_source_topics=(InternalTopic("words", 0, 0),),
            copartition_groups=(CopartitionGroup((), (), (0,)),),
        ),
    ),
)
"""A word count: its second subtopology has a state store."""


def group_of(desk, group="a"):
    return desk.coordinator.groups[group]


def active(reply):
    assert not isinstance(reply, Refusal), reply
    if reply.assigned is None:
        return None
    return {id_: list(epochs) for id_, epochs in reply.assigned.active.items()}


def statuses(reply):
    return {status.code: status.detail for status in reply.statuses}


def refused(reply):
    assert isinstance(reply, Refusal), reply
    return ErrorCode(reply.code).name, reply.message


def owned_of(desk, member_id):
    held = group_of(desk).state.current[member_id].assigned
    return tuple(
        {id_: tuple(epochs) for id_, epochs in tasks.items()}
        for tasks in (held.active, held.standby)
    )


def settle(desk, *members, rounds=4):
    """Let all members report what they were told to run, until nothing changes."""
    for _ in range(rounds):
        for member_id in members:
            epoch = group_of(desk).state.current[member_id].member_epoch
            desk.run(member_id, epoch, owned=owned_of(desk, member_id))
    return {member_id: owned_of(desk, member_id) for member_id in members}


def assert_restart_keeps_all(desk):
    assert durable(desk.restarted()) == durable(desk.coordinator)


# --- members ---


def test_a_first_member_gets_all_tasks_at_once(desk):
    reply = desk.run("m", 0)
    assert (reply.member_epoch, active(reply), statuses(reply)) == (2, {"0": [0, 1, 2, 3]}, {})
    assert reply.heartbeat_interval_ms == 5_000
    again = desk.run("m", 2, owned=({"0": (0, 1, 2, 3)}, {}))
    assert (again.member_epoch, active(again)) == (2, None)
    assert group_of(desk).state_name == "Stable"
    assert_restart_keeps_all(desk)


def test_a_second_member_gets_tasks_when_the_first_has_closed_them(desk):
    desk.run("m", 0)
    joined = desk.run("n", 0)
    assert (joined.member_epoch, active(joined)) == (3, {})
    told = desk.run("m", 2, owned=({"0": (0, 1, 2, 3)}, {}))
    kept = active(told)["0"]
    assert (told.member_epoch, len(kept)) == (2, 2)
    assert active(desk.run("n", 3)) is None
    assert group_of(desk).state_name == "Reconciling"
    closed = desk.run("m", 2, owned=({"0": tuple(kept)}, {}))
    assert (closed.member_epoch, active(closed)) == (3, None)
    assert sorted(kept + active(desk.run("n", 3))["0"]) == [0, 1, 2, 3]
    assert group_of(desk).state_name == "Stable"
    assert_restart_keeps_all(desk)


def test_a_member_that_closes_nothing_is_removed(desk):
    desk.run("m", 0, rebalance_timeout_ms=1_000)
    desk.run("n", 0)
    desk.run("m", 2, owned=({"0": (0, 1, 2, 3)}, {}))
    desk.pass_ms(1_000)
    assert [*group_of(desk).state.members] == ["n"]
    assert active(desk.run("n", 3)) == {"0": [0, 1, 2, 3]}


def test_a_session_ends(desk):
    desk.run("m", 0)
    desk.pass_ms(45_000)
    group = group_of(desk)
    assert (group.state_name, group.state.epoch) == ("Empty", 3)
    assert refused(desk.run("m", 2)) == (
        "UNKNOWN_MEMBER_ID",
        "Member m is not a member of group a.",
    )
    assert_restart_keeps_all(desk)


def test_sessions_begin_again_with_a_restart(desk):
    desk.run("m", 0)
    desk.restart()
    desk.pass_ms(44_999)
    assert not group_of(desk).is_empty
    desk.pass_ms(1)
    assert group_of(desk).is_empty


def test_leaving(desk):
    desk.run("m", 0)
    left = desk.run("m", -1)
    assert (left.member_epoch, left.heartbeat_interval_ms, left.statuses) == (-1, 0, ())
    assert group_of(desk).is_empty and not desk.awaits_someone
    assert refused(desk.run("m", -1)) == (
        "UNKNOWN_MEMBER_ID",
        "Member m is not a member of group a.",
    )
    assert refused(desk.run("m", -1, group="b")) == ("GROUP_ID_NOT_FOUND", "Group b not found.")


def test_fencing(desk):
    desk.run("m", 0)
    desk.run("m", 2, owned=({"0": (0, 1, 2, 3)}, {}))
    code, message = refused(desk.run("m", 3))
    assert code == "FENCED_MEMBER_EPOCH" and "a greater member epoch (3)" in message
    code, message = refused(desk.run("m", 1))
    assert code == "FENCED_MEMBER_EPOCH" and "a smaller member epoch (1)" in message
    # the answer to its last heartbeat was lost
    assert desk.run("m", 0).member_epoch == 2


def test_the_previous_epoch_is_accepted_with_tasks_that_the_member_has(desk):
    desk.run("m", 0)
    desk.run("n", 0)
    kept = active(desk.run("m", 2, owned=({"0": (0, 1, 2, 3)}, {})))["0"]
    desk.run("m", 2, owned=({"0": tuple(kept)}, {}))
    assert desk.run("m", 2, owned=({"0": tuple(kept)}, {})).member_epoch == 3
    assert refused(desk.run("m", 2, owned=({"0": (0, 1, 2, 3)}, {})))[0] == "FENCED_MEMBER_EPOCH"
    assert refused(desk.run("m", 2))[0] == "FENCED_MEMBER_EPOCH"


def test_a_changed_member_begins_an_epoch(desk):
    desk.run("m", 0)
    assert desk.run("m", 2, tags=(("zone", "a"),)).member_epoch == 3
    assert desk.run("m", 3).member_epoch == 3


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"instance": " "}, "InstanceId can't be empty."),
        ({"rack": " "}, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"owned": ({"0": (1,)}, {})}, "ActiveTasks must be empty when (re-)joining."),
        ({"owned": ({}, {"0": (1,)})}, "StandbyTasks must be empty when (re-)joining."),
    ],
)
def test_invalid_requests(desk, fields, message):
    assert refused(desk.run("m", 0, **fields)) == ("INVALID_REQUEST", message)
    assert desk.log == []


def test_other_invalid_requests(desk):
    regex = Topology(0, (Subtopology("0", (), ("t.*",)),))
    changelog = Topology(0, (Subtopology("0", ("t",), (), (InternalTopic("c", 3, 0),)),))
    assert refused(desk.run("m", 0, regex))[0] == "INVALID_REQUEST"
    assert refused(desk.run("m", 0, changelog)) == (
        "STREAMS_INVALID_TOPOLOGY",
        "Changelog topic c must have an undefined partition count, but it is set to 3.",
    )
    assert refused(desk.run("m", -3))[1] == (
        "MemberEpoch is -3, but must be greater than or equal to -2."
    )
    assert refused(desk.run("m", 1)) == ("GROUP_ID_NOT_FOUND", "Streams group a not found.")
    desk.run("m", 0)
    assert refused(desk.run("m", 2, owned=({"9": (0,)}, {}))) == (
        "INVALID_REQUEST",
        "Subtopology 9 does not exist in the topology.",
    )
    assert refused(desk.run("m", 2, owned=({"0": (4,)}, {})))[1] == (
        "Task 4 for subtopology 0 is invalid. Number of tasks for this subtopology: 4"
    )


def test_a_full_group(desk):
    desk.config.values["group.streams.max.size"] = 1
    desk.run("m", 0)
    assert refused(desk.run("n", 0)) == (
        "GROUP_MAX_SIZE_REACHED",
        "The streams group has reached its maximum capacity of 1 members.",
    )


# --- topologies ---


def test_internal_topics_are_missing_until_they_exist(desk):
    reply = desk.run("m", 0, COUNT)
    assert statuses(reply) == {
        StatusCode.MISSING_INTERNAL_TOPICS: "Internal topics are missing: counts, words"
    }
    assert active(reply) == {}
    assert {topic.name: topic.partitions for topic in reply.missing_topics} == {
        "counts": 4,
        "words": 4,
    }
    assert group_of(desk).state_name == "NotReady"
    for topic in reply.missing_topics:
        desk.add_topic(topic.name, topic.partitions)
    ready = desk.run("m", 2, owned=({}, {}))
    assert (statuses(ready), ready.missing_topics) == ({}, ())
    assert active(ready) == {"0": [0, 1, 2, 3], "1": [0, 1, 2, 3]}
    assert_restart_keeps_all(desk)


def test_source_topics_are_missing(desk):
    desk.delete_topic("t")
    reply = desk.run("m", 0, COUNT)
    assert statuses(reply) == {StatusCode.MISSING_SOURCE_TOPICS: "Source topics t are missing."}
    desk.add_topic("t", 2, incarnation=1)
    found = desk.run("m", 2, owned=({}, {}))
    assert {topic.partitions for topic in found.missing_topics} == {2}


def test_a_deleted_source_topic_takes_the_tasks_away(desk):
    desk.run("m", 0)
    desk.delete_topic("t")
    reply = desk.run("m", 2, owned=({"0": (0, 1, 2, 3)}, {}))
    assert StatusCode.MISSING_SOURCE_TOPICS in statuses(reply)
    assert active(reply) == {}
    assert group_of(desk).state_name == "NotReady"


def test_more_partitions_are_more_tasks(desk):
    desk.run("m", 0)
    desk.add_topic("t", 6)
    reply = desk.run("m", 2, owned=({"0": (0, 1, 2, 3)}, {}))
    assert (reply.member_epoch, active(reply)) == (3, {"0": [0, 1, 2, 3, 4, 5]})


def test_an_internal_topic_with_other_partitions(desk):
    desk.add_topic("counts", 3)
    reply = desk.run("m", 0, COUNT)
    assert statuses(reply) == {
        StatusCode.INCORRECTLY_PARTITIONED_TOPICS: (
            "Existing topic counts has different number of partitions: expected 4, found 3"
        )
    }


def test_copartitioned_topics_with_other_partitions(desk):
    desk.add_topic("u", 3)
    joined = Topology(
        0, (Subtopology("0", ("t", "u"), copartition_groups=(CopartitionGroup((0, 1)),)),)
    )
    assert statuses(desk.run("m", 0, joined)) == {
        StatusCode.INCORRECTLY_PARTITIONED_TOPICS: (
            "Following topics do not have the same number of partitions: [{t=4, u=3}]"
        )
    }


def test_a_repartition_topic_gets_the_partitions_of_its_group(desk):
    desk.add_topic("u", 3)
    joined = Topology(
        0,
        (
            Subtopology("0", ("t",), repartition_sink_topics=("r",)),
            Subtopology(
                "1",
                ("u",),
                repartition_source_topics=(InternalTopic("r", 0, 0),),
                copartition_groups=(CopartitionGroup((0,), (), (0,)),),
            ),
        ),
    )
    (missing,) = desk.run("m", 0, joined).missing_topics
    assert (missing.name, missing.partitions) == ("r", 3)


@pytest.mark.parametrize(
    ("subtopologies", "code"),
    [
        (
            (Subtopology("0", ("t",), repartition_source_topics=(InternalTopic("r", 0, 0),)),),
            "STREAMS_INVALID_TOPOLOGY",
        ),
        (
            (
                Subtopology(
                    "0",
                    repartition_sink_topics=("r",),
                    repartition_source_topics=(InternalTopic("r", 0, 0),),
                ),
            ),
            "STREAMS_INVALID_TOPOLOGY",
        ),
        ((Subtopology("0"),), "STREAMS_INVALID_TOPOLOGY"),
        ((Subtopology("0", ("t",)), Subtopology("0", ("t",))), "UNKNOWN_SERVER_ERROR"),
        (
            (Subtopology("0", ("t",), copartition_groups=(CopartitionGroup((1,)),)),),
            "UNKNOWN_SERVER_ERROR",
        ),
    ],
)
def test_topologies_that_contradict_themselves(desk, subtopologies, code):
    assert refused(desk.run("m", 0, Topology(0, subtopologies)))[0] == code
    assert desk.log == []


def test_the_first_topology_stays(desk):
    desk.run("m", 0, Topology(3, (Subtopology("0", ("t",)),)))
    stale = desk.run("n", 0, Topology(2, (Subtopology("0", ("t",)),)))
    assert statuses(stale) == {
        StatusCode.STALE_TOPOLOGY: (
            "The member's topology epoch 2 is behind the group's topology epoch 3."
        )
    }
    for newer in (Topology(3, (Subtopology("1", ("t",)),)), Topology(4, COUNT.subtopologies)):
        assert refused(desk.run("o", 0, newer)) == (
            "INVALID_REQUEST",
            "Topology updates are not supported yet.",
        )


# --- assignments that wait ---


def test_the_initial_rebalance_delay(desk):
    desk.config.values["streams.initial.rebalance.delay.ms"] = 3_000
    first = desk.run("m", 0)
    delayed = {
        StatusCode.ASSIGNMENT_DELAYED: (
            "Assignment delayed due to the configured initial rebalance delay."
        )
    }
    assert (first.member_epoch, active(first), statuses(first)) == (1, {}, delayed)
    assert statuses(desk.run("n", 0)) == delayed
    desk.run("m", 1, owned=({}, {}))
    desk.pass_ms(3_000)
    tasks = [active(desk.run(member_id, 1, owned=({}, {})))["0"] for member_id in "mn"]
    assert sorted(tasks[0] + tasks[1]) == [0, 1, 2, 3]
    assert group_of(desk).state_name == "Stable"


def test_the_assignment_interval(desk):
    desk.run("m", 0)
    desk.config.values["streams.assignment.interval.ms"] = 1_000
    waits = desk.run("n", 0)
    assert statuses(waits) == {
        StatusCode.ASSIGNMENT_DELAYED: (
            "Assignment delayed due to the configured assignment interval."
        )
    }
    desk.pass_ms(1_000)
    assert desk.run("n", 2, owned=({}, {})).member_epoch == 3


# --- standby tasks ---


def test_standby_tasks_are_on_another_process(desk):
    desk.config.values["streams.num.standby.replicas"] = 1
    for name in ("words", "counts"):
        desk.add_topic(name, 4)
    for member_id in "mn":
        desk.run(member_id, 0, COUNT)
    held = settle(desk, *"mn")
    assert group_of(desk).state_name == "Stable"
    for some, other in ("mn", "nm"):
        runs, replicates = held[some][0]["1"], held[other][1]["1"]
        assert runs == replicates
    assert_restart_keeps_all(desk)


def test_the_number_of_replicas_begins_an_epoch(desk):
    for name in ("words", "counts"):
        desk.add_topic(name, 4)
    for member_id in "mn":
        desk.run(member_id, 0, COUNT)
    settle(desk, *"mn")
    epoch = group_of(desk).state.epoch
    desk.configure("streams.num.standby.replicas", 1)
    held = settle(desk, *"mn")
    assert group_of(desk).state.epoch == epoch + 1
    assert all(standby for _, standby in held.values())


def test_members_of_a_process_do_not_share_a_task(desk):
    desk.config.values["streams.num.standby.replicas"] = 1
    for name in ("words", "counts"):
        desk.add_topic(name, 4)
    for member_id in "mn":
        desk.run(member_id, 0, COUNT, process="p")
    held = settle(desk, *"mn")
    assert all(not standby for _, standby in held.values())


# --- what members tell each other ---


def test_a_shutdown_reaches_all_members(desk):
    desk.run("m", 0)
    desk.run("n", 0)
    desk.run("m", -1, shutdown_application=True)
    told = statuses(desk.run("n", 3))
    assert "m encountered a fatal error" in told[StatusCode.SHUTDOWN_APPLICATION]
    desk.run("n", -1)
    assert statuses(desk.run("o", 0)) == {}


def test_endpoints(desk):
    endpoint = ("host", 1)
    assert desk.run("m", 0, endpoint=endpoint).endpoint_epoch == 0  # the group is new
    reply = desk.run("m", 2, endpoint_epoch=-1)
    (read,) = reply.endpoints
    assert read.endpoint == StreamsMember.Endpoint(*endpoint)
    assert (list(read.active), list(read.standby)) == ([("t", (0, 1, 2, 3))], [])
    assert desk.run("m", 2, endpoint_epoch=0).endpoints is None
    moved = desk.run("m", 2, endpoint_epoch=0, endpoint=("host", 2))
    assert (moved.member_epoch, moved.endpoint_epoch) == (3, 1)
    gone = desk.run("m", 0, endpoint_epoch=1)  # joins again, without an endpoint
    assert (gone.endpoint_epoch, gone.endpoints) == (2, ())


# --- static members ---


def test_a_static_member_comes_back_to_its_tasks(desk):
    desk.run("m", 0, instance="i")
    desk.run("n", 0, process="other", tags=())
    desk.run("m", 2, owned=({"0": (0, 1, 2, 3)}, {}))
    kept = (
        desk.run("m", 2, owned=({"0": (0, 1)}, {})) and group_of(desk).state.current["m"].assigned
    )
    assert desk.run("m", -2, instance="i").member_epoch == -2
    epoch = group_of(desk).state.epoch
    reply = desk.run("again", 0, instance="i", process="process of m")
    assert reply.assigned.active.keys() == kept.active.keys()
    assert group_of(desk).state.epoch == epoch
    assert set(group_of(desk).state.members) == {"again", "n"}
    assert group_of(desk).state.static_members == {"i": "again"}


@pytest.mark.parametrize("member_id", ["m", "again"])
def test_a_static_member_that_comes_back_has_a_session(desk, member_id):
    desk.run("m", 0, instance="i")
    desk.run("m", -2, instance="i")
    desk.pass_ms(40_000)
    desk.run(member_id, 0, instance="i")
    desk.pass_ms(44_000)
    assert group_of(desk).state.members.keys() == {member_id}
    desk.pass_ms(1_000)
    assert group_of(desk).state.members == {}


def test_a_static_member_comes_back_from_another_host_in_the_same_epoch(desk):
    desk.run("m", 0, instance="i")
    moved = desk.run("m", 2, instance="i", endpoint=("host", 2))
    assert moved.member_epoch == 2
    assert desk.run("m", 2, instance="i", rack="r").member_epoch == 3


def test_an_instance_has_one_member(desk):
    desk.run("m", 0, instance="i")
    assert refused(desk.run("n", 0, instance="i")) == (
        "UNRELEASED_INSTANCE_ID",
        "Static member n with instance id i cannot join the group because the instance id is owned "
        "by m member.",
    )
    desk.run("n", 0)
    for epoch in (2, -1, -2):
        assert refused(desk.run("n", epoch, instance="i"))[0] == "FENCED_INSTANCE_ID"
        assert refused(desk.run("n", epoch, instance="j")) == (
            "UNKNOWN_MEMBER_ID",
            "Instance id j is unknown.",
        )
    assert desk.run("m", -1, instance="i").member_epoch == -1
    assert desk.run("n", 0, instance="i").member_epoch > 0


def test_a_static_member_that_stays_away_is_removed(desk):
    desk.run("m", 0, instance="i")
    desk.run("m", -2, instance="i")
    desk.pass_ms(45_000)
    assert group_of(desk).state.members == {}
    assert group_of(desk).state.static_members == {}


def test_a_task_that_changes_its_role_stays_on_its_member():
    held = ByRole({"0": {0: 2, 1: 2}}, {"0": {2: 0}})
    was = StreamsAssignment(2, 2, MemberState.STABLE, held)
    owned = ByRole({"0": (0, 1)}, {"0": (2,)})
    target = ByRole({"0": (0, 2)}, {"0": (1,)})
    # The process has all of them, on this member. Task 2 is active on another member first.
    actives = {("0", 0), ("0", 1), ("0", 2)}
    goal = Goal(3, target, lambda *task: task not in actives, lambda *task: False)
    closes = reconcile(was, goal, owned)
    assert closes.state is MemberState.UNREVOKED
    assert closes.pending_revocation == ByRole({"0": {1: 2}})
    assert closes.assigned == ByRole({"0": {0: 2}}, {"0": {1: 0, 2: 0}})
    closed = ByRole({"0": (0,)}, {"0": (1, 2)})
    waits = reconcile(closes, goal, closed)
    assert waits.state is MemberState.UNRELEASED
    assert waits.assigned == ByRole({"0": {0: 2}}, {"0": {1: 0, 2: 0}})
    actives.remove(("0", 2))
    gets = reconcile(waits, goal, closed)
    assert gets.state is MemberState.STABLE
    assert gets.assigned == ByRole({"0": {0: 2, 2: 3}}, {"0": {1: 0}})


def test_the_assignment_of_an_empty_group_is_that_of_nobody(desk):
    desk.run("m", 0)
    desk.run("m", -1)
    state = group_of(desk).state
    assert state.target_epoch == (state.epoch, 0) == (3, 0)


# --- changelog offsets and tags ---


def test_offsets_of_tasks(desk):
    desk.run("m", 0)
    desk.run("m", 2, task_offsets=(("0", 1, 7), ("no such subtopology", 0, 1)))
    desk.run("m", 2, task_end_offsets=(("0", 1, 9),))
    assert group_of(desk).task_offsets == {"m": {("0", 1): 7}}
    assert group_of(desk).task_end_offsets == {"m": {("0", 1): 9}}
    assert refused(desk.run("m", 2, task_offsets=(("0", 1, 7), ("0", 1, 8)))) == (
        "INVALID_REQUEST",
        "Task offsets contain a duplicate entry for subtopology 0 and partition 1.",
    )
    desk.run("m", -1)
    assert group_of(desk).task_offsets == group_of(desk).task_end_offsets == {}


def test_many_offsets_have_a_limit(desk):
    desk.run("m", 0)
    desk.run("m", 2, task_offsets=tuple(("0", number, 1) for number in range(30_000)))
    assert len(group_of(desk).task_offsets["m"]) == 20_000


def test_missing_tags_are_told(desk):
    desk.config.values["streams.rack.aware.assignment.tags"] = ("zone", "row")
    (status,) = desk.run("m", 0, tags=(("row", "1"),)).statuses
    assert status == (
        6,
        "Missing required client tags for rack-aware standby assignment: [zone]. Configure them "
        "via 'client.tag.<tagKey>' in your Streams config.",
    )
    assert desk.run("m", 2, tags=(("row", "1"), ("zone", "2"))).statuses == ()


def test_a_full_group_lets_its_members_join_again(desk):
    desk.config.values["group.streams.max.size"] = 1
    desk.run("m", 0)
    assert refused(desk.run("n", 0))[0] == "GROUP_MAX_SIZE_REACHED"
    assert desk.run("m", 0).member_epoch == 2


# --- offsets and other kinds of groups ---


def test_commits_of_members(desk):
    topic = desk.topics["t"]
    desk.run("m", 0)
    commit = {"group": "a", "member_id": "m"}
    assert desk.commit(0, generation_id=2, **commit) == (0,)
    assert desk.commit(0, generation_id=3, **commit) == (ErrorCode.STALE_MEMBER_EPOCH,)
    assert desk.commit(0, generation_id=1, **commit) == (ErrorCode.STALE_MEMBER_EPOCH,)
    for knows, code in (
        (False, ErrorCode.ILLEGAL_GENERATION),
        (True, ErrorCode.STALE_MEMBER_EPOCH),
    ):
        in_transaction = desk.commit(
            0, generation_id=1, transactional=True, knows_group_id_not_found=knows, **commit
        )
        assert in_transaction == (code,)
    assert desk.commit(0, group="a", member_id="x", generation_id=2) == (
        ErrorCode.UNKNOWN_MEMBER_ID,
    )
    assert desk.commit(0, group="a") == (ErrorCode.UNKNOWN_MEMBER_ID,)
    assert desk.run("m", 2, tags=(("k", "v"),)).member_epoch == 3
    assert desk.commit(0, generation_id=2, **commit) == (0,)  # it has run the task since then
    check_fetch = desk.coordinator.offsets.check_fetch
    assert check_fetch("a", "m", 3) is ErrorCode.NONE
    assert check_fetch("a", "m", 2) is ErrorCode.STALE_MEMBER_EPOCH
    assert check_fetch("a", "x", 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert check_fetch("a", None, -1) is ErrorCode.NONE
    assert desk.delete_committed((topic.name, 0), group="a") == (
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    )


def test_deleting(desk):
    desk.run("m", 0)
    delete = desk.coordinator.delete
    assert delete("a").reply is ErrorCode.NON_EMPTY_GROUP
    desk.run("m", -1)
    desk.submit(delete("a"))
    assert "a" not in desk.coordinator.groups
    assert desk.restarted().groups == {}
    assert all(not one.groups for one in desk.restarted_from_compacted())


def test_groups_of_other_kinds(desk):
    desk.consume("m", 0, ["t"])
    desk.beat("m", 0, ["t"])
    desk.stable(1)
    for group in "csg":
        assert refused(desk.run("m", 0, group=group)) == (
            "GROUP_ID_NOT_FOUND",
            f"Group {group} is not a streams group.",
        )
    desk.run("m", 0)
    assert refused(desk.consume("n", 0, ["t"], group="a"))[0] == "GROUP_ID_NOT_FOUND"
    assert refused(desk.beat("n", 0, ["t"], group="a"))[0] == "GROUP_ID_NOT_FOUND"
    answer = desk.joined(group="a")
    assert answer.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    (listed,) = desk.coordinator.list(types=["Streams"])
    assert listed == ("a", "streams", "Stable", "streams")


def test_an_empty_group_changes_its_kind(desk):
    desk.run("m", 0)
    desk.run("m", -1)
    desk.stable(1, group="a")
    assert desk.coordinator.groups["a"].type_name == "classic"
    (member_id,) = desk.coordinator.groups["a"].members.by_id
    desk.leave(member_id, group="a")
    assert desk.run("m", 0).member_epoch == 2
    assert desk.coordinator.groups["a"].type_name == "streams"
    assert_restart_keeps_all(desk)


def test_a_full_disk_changes_nothing(desk):
    desk.run("m", 0)
    with desk.full_disk():
        desk.run("n", 0)
    assert desk.run("m", 2).member_epoch == 2
