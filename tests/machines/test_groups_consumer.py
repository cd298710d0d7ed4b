"""Consumer groups step by step: time, assignors, restarts, classic members, and what a large group
costs.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from headrace.groups.classic.member import JoinRequest, MemberIdentity, SyncRequest
from headrace.groups.consumer.group import preferred_assignor
from headrace.groups.consumer.state import ConsumerState
from headrace.groups.heartbeats.state import topics_hash
from headrace.groups.records import (
    CONSUMER_RECORDS,
    ConsumerAssignment,
    ConsumerGroupRegularExpression,
    MemberState,
    ResolvedRegex,
)
from headrace.protocol.consumer_protocol import (
    read_assignment,
    read_subscription,
    write_assignment,
)
from headrace.protocol.errors import ErrorCode, Refusal
from tests import subscriptions
from tests.machines.group_desk import Desk


@pytest.fixture
def desk():
    desk = Desk()
    desk.add_topic("t", 4)
    return desk


def state(desk, group="c"):
    return desk.coordinator.groups[group].state


def told(desk, reply):
    return None if reply.assigned is None else desk.by_name(reply.assigned)


def test_the_first_member_gets_everything_at_once(desk):
    reply = desk.consume("m", 0, ["t"])
    assert (reply.member_epoch, told(desk, reply)) == (2, {"t": [0, 1, 2, 3]})
    assert desk.consume("m", 2).assigned is None
    assert desk.coordinator.groups["c"].state_name == "Stable"


def test_targets_are_computed_once_in_an_interval(desk):
    desk.config.values["consumer.assignment.interval.ms"] = 1_000
    desk.consume("m", 0, ["t"])
    assert told(desk, desk.consume("n", 0, ["t"])) == {}
    assert desk.coordinator.groups["c"].state_name == "Assigning"
    assert desk.consume("m", 2).assigned is None
    desk.pass_ms(1_000)
    assert told(desk, desk.consume("m", 2)) == {"t": [0, 1]}


def test_a_wall_clock_that_is_set_back_holds_no_target_up(desk):
    desk.config.values["consumer.assignment.interval.ms"] = 1_000
    desk.consume("m", 0, ["t"])
    desk.wall_ahead_ms -= 3_600_000
    desk.consume("n", 0, ["t"])
    assert told(desk, desk.consume("m", 2)) == {"t": [0, 1]}


def test_who_does_not_give_up_in_time_is_removed(desk):
    desk.consume("m", 0, ["t"], rebalance_timeout_ms=5_000)
    desk.consume("n", 0, ["t"])
    assert told(desk, desk.consume("m", 2)) == {"t": [0, 1]}
    desk.pass_ms(4_000)
    assert desk.consume("m", 2).assigned is None  # it is alive, and still has all
    desk.pass_ms(1_000)
    assert desk.consume("m", 2).code == ErrorCode.UNKNOWN_MEMBER_ID
    assert told(desk, desk.consume("n", 3)) == {"t": [0, 1, 2, 3]}


def test_who_is_silent_is_removed(desk):
    desk.consume("m", 0, ["t"])
    desk.pass_ms(44_999)
    assert not isinstance(desk.consume("m", 2), Refusal)
    desk.pass_ms(44_999)
    assert "m" in state(desk).members
    desk.pass_ms(1)
    assert not state(desk).members
    assert state(desk).epoch == 3


def test_a_static_member_that_is_away_keeps_its_partitions_for_a_session(desk):
    desk.consume("m", 0, ["t"], instance="i")
    desk.consume("m", -2, instance="i")
    assert told(desk, desk.consume("n", 0, ["t"])) == {}
    desk.pass_ms(30_000)
    back = desk.consume("o", 0, ["t"], instance="i")
    assert told(desk, back) == {"t": [0, 1]}
    desk.consume("o", -2, instance="i")
    desk.consume("n", 3, owned={})
    desk.pass_ms(44_000)
    desk.consume("n", 3)
    desk.pass_ms(1_000)
    assert told(desk, desk.consume("n", 3)) == {"t": [0, 1, 2, 3]}


def test_the_assignor_that_most_ask_for(desk):
    desk.add_topic("u", 3)
    for member_id in ("m", "n", "o"):
        desk.consume(member_id, 0, ["t", "u"], assignor="uniform" if member_id == "m" else "range")
    target = {member_id: desk.by_name(own) for member_id, own in state(desk).target.items()}
    assert target == {
        "m": {"t": [0, 1], "u": [0]},
        "n": {"t": [2], "u": [1]},
        "o": {"t": [3], "u": [2]},
    }


@pytest.mark.parametrize("votes", [["range", "uniform"], ["uniform", "range"], [None]])
def test_the_first_of_the_assignors_that_as_many_ask_for(desk, votes):
    for number, assignor in enumerate(votes):
        desk.consume(f"m{number}", 0, ["t"], assignor=assignor)
    assert preferred_assignor(state(desk).members.values(), ("uniform", "range")) == "uniform"


def test_a_regular_expression_follows_the_topics(desk):
    reply = desk.consume("m", 0, regex="t.*")
    assert told(desk, reply) == {"t": [0, 1, 2, 3]}
    desk.add_topic("t2", 1)
    desk.add_topic("u", 1)
    assert told(desk, desk.consume("m", 2)) == {"t": [0, 1, 2, 3], "t2": [0]}
    desk.delete_topic("t")
    assert told(desk, desk.consume("m", 3)) == {"t2": [0]}
    desk.consume("m", 3, owned={"t2": [0]}, regex="")
    assert not state(desk).regexes
    assert desk.consume("m", 3, regex="(").code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_group_that_is_full(desk):
    desk.config.values["group.consumer.max.size"] = 1
    desk.consume("m", 0, ["t"])
    refused = desk.consume("n", 0, ["t"])
    assert refused.code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert refused.message == "The consumer group has reached its maximum capacity of 1 members."
    assert not isinstance(desk.consume("m", 0, ["t"]), Refusal)


def test_a_restart_in_the_midst_of_a_hand_over(desk):
    desk.consume("m", 0, ["t"])
    desk.consume("n", 0, ["t"])
    desk.consume("m", 2)
    desk.restart()
    assert state(desk).current["m"].state is MemberState.UNREVOKED
    assert desk.consume("n", 3).assigned is None
    desk.pass_ms(9_999)
    assert desk.consume("m", 2, owned={"t": [0, 1]}).member_epoch == 3
    assert told(desk, desk.consume("n", 3)) == {"t": [2, 3]}
    desk.pass_ms(30_000)
    assert set(state(desk).members) == {"m", "n"}


def test_the_epoch_grows_once_for_each_change(desk):
    """KIP-848: with a subscription, a subscribed topic, or a member that goes; not with heartbeats
    in between.
    """
    desk.add_topic("u", 1)

    def epoch():
        for member_id in sorted(state(desk).members):
            desk.consume(member_id, state(desk).current[member_id].member_epoch)
        return state(desk).epoch

    desk.consume("m", 0, ["t"])
    assert epoch() == 2
    desk.consume("n", 0, ["u"])
    assert [epoch(), epoch()] == [3, 3]
    desk.add_topic("u", 2)
    assert [epoch(), epoch()] == [4, 4]
    state(desk).topics_hash(
        desk, state(desk).subscribed_without(["n"])
    )  # as for a removal that could not be written
    assert epoch() == 4
    desk.consume("n", -1)
    assert [epoch(), epoch()] == [5, 5]
    desk.add_topic("u", 3)  # nobody's any more
    assert epoch() == 5


def test_a_member_has_the_topics_of_an_expression_when_they_are_matched(desk):
    desk.matches_regexes = False
    assert told(desk, desk.consume("m", 0, regex="t.*")) == {}
    assert desk.consume("m", 2).assigned is None
    desk.matches_regexes = True
    assert told(desk, desk.consume("m", 2)) == {"t": [0, 1, 2, 3]}
    desk.matches_regexes = False
    desk.add_topic("t2", 1)
    desk.consume("m", 3)
    assert desk.consume("m", 3).assigned is None  # the group keeps what it has
    desk.matches_regexes = True
    assert told(desk, desk.consume("m", 3)) == {"t": [0, 1, 2, 3], "t2": [0]}


def test_an_expression_is_matched_once_for_all_members_and_with_each_change_of_topics(desk):
    desk.consume("l", 0, ["t"])
    matched = []
    match, desk.match = desk.match, lambda regex: matched.append(regex) or match(regex)
    for member_id in ("m", "n", "o"):
        desk.consume(member_id, 0, regex="t.*")
    assert matched == ["t.*"]
    desk.add_topic("u", 1)
    for member_id in ("m", "n", "o"):
        desk.consume(member_id, 0, regex="t.*")
    assert matched == ["t.*"] * 2
    for member_id in ("m", "n", "o"):
        desk.consume(member_id, -1)
    desk.consume("m", 0, regex="t.*")
    assert matched == ["t.*"] * 3


def test_the_hash_of_subscribed_topics_follows_what_an_expression_matches(desk):
    desk.add_topic("u", 1)
    desk.consume("m", 0, regex="t")
    desk.consume("m", 2)
    group = state(desk)
    assert group.topics_hash(desk, group.subscribed) == topics_hash([desk.topics["t"]])
    group.replay(
        ConsumerGroupRegularExpression("c", "t", ResolvedRegex(("t", "u"), 0, desk.now_ms))
    )
    assert group.topics_hash(desk, group.subscribed) == topics_hash(
        [desk.topics["t"], desk.topics["u"]]
    )


def test_a_log_that_is_compacted_while_it_is_read_gives_no_partition_to_two(desk):
    """KAFKA-19862: that ``m`` gave up its partition was removed between reading its record and the
    next.
    """
    topic_id = desk.id_of("t")
    has, has_none = ConsumerAssignment(3, 2, assigned={topic_id: {0: 2}}), ConsumerAssignment(5, 4)
    group = ConsumerState("c")
    for member_id, current in (("m", has), ("n", has), ("m", has_none)):
        group.replay(CONSUMER_RECORDS.current("c", member_id, current))
    assert not group.is_free(topic_id, 0)
    group.replay(CONSUMER_RECORDS.current("c", "n", None))
    assert group.is_free(topic_id, 0)


# --- classic members ---


def subscription(*topics, owned=(), version=1):
    return subscriptions.subscription(version, topics, dict(owned))


def join(desk, member_id, metadata, *, group="c", instance=None, protocol="range"):
    request = JoinRequest(
        member_id,
        instance,
        "c",
        "/h",
        10_000,
        20_000,
        "consumer",
        ((protocol, metadata),),
        f"m{desk.tickets + 1}",
        False,
    )
    return desk.answer(desk.park(desk.coordinator.join, group, request))


def sync(desk, member_id, generation_id, given=(), *, group="c"):
    request = SyncRequest(member_id, None, generation_id, "consumer", "range", tuple(given))
    return desk.answer(desk.park(desk.coordinator.sync, group, request))


@pytest.fixture
def classic(desk):
    """A classic group with one member that has everything: its id."""
    joined = join(desk, "", subscription("t"))
    sync(desk, joined.member_id, 1, [(joined.member_id, write_assignment(1, {"t": range(4)}))])
    return joined.member_id


def test_a_classic_group_is_upgraded_and_downgraded(desk, classic):
    assert desk.consume("n", 0, ["t"]).member_epoch == 2
    desk.restart()
    assert state(desk).classic_members == {classic}
    assert desk.heartbeat(classic, 1, group="c") == ErrorCode.REBALANCE_IN_PROGRESS
    join(desk, classic, subscription("t", owned=[("t", range(4))]))
    assert read_assignment(sync(desk, classic, 1).assignment) == {"t": (0, 1)}
    assert join(desk, classic, subscription("t", owned=[("t", (0, 1))])).generation_id == 2
    assert told(desk, desk.consume("n", 2)) == {"t": [2, 3]}
    desk.consume("n", -1)
    desk.pass_ms(0)
    group = desk.coordinator.groups["c"]
    assert (group.type_name, group.state_name, group.members.generation_id) == (
        "classic",
        "PreparingRebalance",
        2,
    )
    assert desk.heartbeat(classic, 2, group="c") == ErrorCode.REBALANCE_IN_PROGRESS
    assert join(desk, classic, subscription("t")).generation_id == 3


def test_a_rebalance_that_is_on_is_broken_off_by_an_upgrade(desk, classic):
    protocols = (("range", subscription("t")),)
    request = JoinRequest("", None, "c", "/h", 10_000, 20_000, "consumer", protocols, "late", False)
    waiting = desk.park(desk.coordinator.join, "c", request)
    assert desk.answer(waiting) is None
    assert not isinstance(desk.consume("n", 0, ["t"]), Refusal)
    assert desk.answer(waiting).code == ErrorCode.REBALANCE_IN_PROGRESS
    assert set(state(desk).members) == {classic, "late", "n"}


def test_classic_members_that_do_not_come_back_are_removed(desk, classic):
    desk.consume("n", 0, ["t"])
    assert desk.heartbeat(classic, 1, group="c") == ErrorCode.REBALANCE_IN_PROGRESS
    for _ in range(4):
        desk.pass_ms(5_000)
        desk.heartbeat(classic, 1, group="c")
    assert classic not in state(desk).members
    assert told(desk, desk.consume("n", 2)) == {"t": [0, 1, 2, 3]}


def test_a_group_that_has_become_classic_rebalances_also_after_a_restart(desk, classic):
    """Otherwise nobody would read the partitions of the member that has left."""
    desk.consume("n", 0, ["t"])
    join(desk, classic, subscription("t", owned=[("t", range(4))]))
    sync(desk, classic, 1)
    join(desk, classic, subscription("t", owned=[("t", (0, 1))]))
    assert read_assignment(sync(desk, classic, 2).assignment) == {"t": (0, 1)}
    desk.consume("n", -1)
    desk.restart()
    assert desk.heartbeat(classic, 2, group="c") == ErrorCode.REBALANCE_IN_PROGRESS
    joined = join(desk, classic, subscription("t"))
    assert (joined.generation_id, joined.leader) == (3, classic)
    sync(desk, classic, 3, [(classic, write_assignment(1, {"t": range(4)}))])
    desk.restart()
    assert desk.heartbeat(classic, 3, group="c") == ErrorCode.NONE


def test_a_classic_member_has_its_whole_time_to_come_back_after_each_upgrade(desk, classic):
    desk.consume("n", 0, ["t"])
    assert desk.heartbeat(classic, 1, group="c") == ErrorCode.REBALANCE_IN_PROGRESS
    desk.consume("n", -1)
    joined = join(desk, classic, subscription("t"))
    generation_id = joined.generation_id
    sync(desk, classic, generation_id, [(classic, write_assignment(1, {"t": range(4)}))])
    for _ in range(2):
        desk.pass_ms(8_000)
        assert desk.heartbeat(classic, generation_id, group="c") == ErrorCode.NONE
    desk.consume("n", 0, ["t"])
    told_ms = desk.now_ms
    while desk.now_ms - told_ms < 19_000:
        code = desk.heartbeat(classic, generation_id, group="c")
        assert code == ErrorCode.REBALANCE_IN_PROGRESS
        desk.pass_ms(1_000)
    assert not join(desk, classic, subscription("t", owned=[("t", range(4))])).code


@pytest.mark.parametrize(
    ("policy", "upgrade", "downgrade"),
    [
        ("bidirectional", True, True),
        ("UPGRADE", True, False),
        ("downgrade", False, True),
        ("disabled", False, False),
    ],
)
def test_the_migration_policy(desk, classic, policy, upgrade, downgrade):
    desk.config.values["group.consumer.migration.policy"] = policy
    reply = desk.consume("n", 0, ["t"])
    assert isinstance(reply, Refusal) != upgrade
    if not upgrade:
        assert reply.message == (
            "Cannot upgrade classic group c to consumer group because online upgrade is disabled."
        )
        return
    desk.consume("n", -1)
    assert (desk.coordinator.groups["c"].type_name == "classic") == downgrade


def test_a_static_classic_member_takes_the_place_of_the_last_of_the_new_protocol(desk):
    desk.consume("m", 0, ["t"], instance="i")
    joined = join(desk, "", subscription("t"), instance="i")
    assert (joined.code, joined.generation_id) == (ErrorCode.NONE, 2)
    group = desk.coordinator.groups["c"]
    assert (group.type_name, group.state_name) == ("classic", "Stable")
    (member,) = group.recorded.members
    assert read_assignment(member.assignment) == {"t": (0, 1, 2, 3)}


def test_a_classic_group_whose_assignment_is_out_of_date_rebalances(desk):
    """The last member of the new protocol is replaced by a classic one that wants something
    else."""
    desk.add_topic("u", 1)
    desk.consume("m", 0, ["t"], instance="i")
    joined = join(desk, "", subscription("t", "u"), instance="i")
    assert (joined.code, joined.generation_id) == (ErrorCode.NONE, 0)
    group = desk.coordinator.groups["c"]
    (member,) = group.recorded.members
    assert (group.type_name, group.recorded.generation) == ("classic", 2)
    assert read_assignment(member.assignment) == {"t": (0, 1, 2, 3)}
    desk.pass_ms(0)
    assert group.state_name == "PreparingRebalance"


def test_a_classic_member_is_told_to_join_again_when_there_is_a_new_target(desk, classic):
    """Not as soon as the group epoch grows: until the target is computed there would be nothing
    new.
    """
    desk.consume("n", 0, ["t"])
    generation_id = join(desk, classic, subscription("t")).generation_id
    sync(desk, classic, generation_id)
    desk.consume("o", 0, ["t"])
    desk.consume("o", -1)
    assert state(desk).epoch > state(desk).target_epoch.epoch > generation_id
    generation_id = join(desk, classic, subscription("t")).generation_id
    desk.config.values["consumer.assignment.interval.ms"] = 1_000
    desk.consume("o", 0, ["t"])
    assert state(desk).epoch > state(desk).target_epoch.epoch == generation_id
    assert desk.heartbeat(classic, generation_id, group="c") == ErrorCode.NONE
    assert sync(desk, classic, generation_id).code == ErrorCode.NONE
    desk.pass_ms(1_000)
    desk.consume("n", state(desk).current["n"].member_epoch)
    assert desk.heartbeat(classic, generation_id, group="c") == ErrorCode.REBALANCE_IN_PROGRESS


def test_administrators_remove_members_of_either_protocol(desk, classic):
    desk.consume("n", 0, ["t"], instance="i")
    leavers = [MemberIdentity("", "i"), MemberIdentity("x"), MemberIdentity("y", "i")]
    codes = desk.submit(desk.coordinator.leave("c", leavers, *desk.times))
    assert codes == (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)
    assert desk.coordinator.groups["c"].type_name == "classic"


@pytest.mark.parametrize(
    "data", [b"", b"\0", b"\0\1\0\0\0\1\0\5t", b"\xff\xff\0\0\0\0\xff\xff\xff\xff"]
)
def test_metadata_that_is_none(desk, data):
    with pytest.raises(ValueError, match="not the subscription of a consumer"):
        read_subscription(data)
    desk.consume("m", 0, ["t"])
    assert join(desk, "", data).code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


# --- what it costs ---


class Counted(dict):
    """A dict that counts how often it is walked over."""

    walks = 0

    def __iter__(self):
        Counted.walks += 1
        return super().__iter__()

    def items(self):
        Counted.walks += 1
        return super().items()

    def values(self):
        Counted.walks += 1
        return super().values()


def test_the_heartbeat_of_a_settled_member_does_not_look_at_the_others(desk):
    for i in range(50):
        desk.consume(f"m{i}", 0, ["t"])
    for _ in range(3):
        for i in range(50):
            member_id = f"m{i}"
            own = desk.by_name(state(desk).current[member_id].assigned)
            desk.consume(member_id, state(desk).current[member_id].member_epoch, owned=own)
    group = state(desk)
    group.members, group.current, group.target = map(
        Counted, (group.members, group.current, group.target)
    )
    Counted.walks = 0
    desk.observes = False
    assert desk.consume("m7", group.epoch).assigned is None
    assert Counted.walks == 0


def test_sessions_that_end_together_end_in_several_turns(desk):
    desk.observes = False
    for i in range(200):
        desk.consume(f"m{i}", 0, ["t"])
    desk.now_ms += 45_000
    left = [200]
    while left[-1]:
        assert desk.coordinator.next_deadline_ms() <= desk.now_ms
        with desk.loop.turn():
            desk.coordinators.group_runtime.expire(desk.now_ms)
        left.append(len(state(desk).members))
    assert all(0 < before - after <= 50 for before, after in pairwise(left))


@pytest.fixture
def hashes(monkeypatch):
    """How many topics each hash of topics had."""
    counts = []

    def counted(topics):
        counts.append(len(topics))
        return topics_hash(topics)

    monkeypatch.setattr("headrace.groups.heartbeats.state.topics_hash", counted)
    return counts


@pytest.mark.parametrize("subscription", [{"names": ["t", "u"]}, {"regex": "[tu]"}])
def test_topics_are_hashed_again_only_if_there_are_others(desk, hashes, subscription):
    desk.add_topic("u", 1)
    for i in range(2):
        desk.consume(f"m{i}", 0, **subscription)
    hashes.clear()
    for i in range(2, 20):
        desk.consume(f"m{i}", 0, **subscription)
    desk.consume("n", 0, ["t"])
    for i in range(19):
        desk.consume(f"m{i}", -1)
    assert hashes == []
    desk.consume("m19", -1)
    assert hashes == [1]


def test_a_look_at_offsets_does_not_walk_the_topics_of_an_expression_for_each_topic(desk):
    class Topics(tuple):
        walks = 0

        def __iter__(self):
            Topics.walks += 1
            return super().__iter__()

        def __contains__(self, topic):
            Topics.walks += 1
            return super().__contains__(topic)

    for i in range(20):
        desk.add_topic(f"u{i}", 1)
    desk.consume("m", 0, regex="u.*")
    regexes = state(desk).regexes
    matching = Topics(regexes["u.*"].topics)
    state(desk).replay(ConsumerGroupRegularExpression("c", "u.*", ResolvedRegex(matching)))
    desk.commit_all([(topic, None, 0, 1) for topic in matching], MemberIdentity("m"), 2, group="c")
    Topics.walks = 0
    desk.config.values["offsets.retention.minutes"] = 0
    desk.now_ms += 10_000
    for _ in range(60):
        desk.consume("m", 2)
        desk.pass_ms(10_000)
    assert len(desk.committed("c")) == 20
    assert Topics.walks <= 1


def test_a_group_of_a_thousand_settles(desk):
    desk.observes = False
    desk.add_topic("wide", 1_000)
    desk.config.values["consumer.assignment.interval.ms"] = 1_000
    for i in range(1_000):
        desk.consume(f"m{i}", 0, ["wide"])
    for _ in range(3):
        desk.now_ms += 1_000
        for i in range(1_000):
            member_id = f"m{i}"
            epoch = state(desk).current[member_id].member_epoch
            reply = desk.consume(member_id, epoch)
            if reply.assigned is not None:
                desk.consume(member_id, reply.member_epoch, owned=desk.by_name(reply.assigned))
    assert desk.coordinator.groups["c"].state_name == "Stable"
    assert {sum(map(len, own.assigned.values())) for own in state(desk).current.values()} == {1}


# --- offsets ---


def commit_codes(desk, member_id, epoch):
    """Return the errors of a member that commits an offset with an epoch, for each partition of
    ``t`` by itself.
    """
    commits = [("t", desk.id_of("t"), number, 1) for number in range(desk.topics["t"].partitions)]
    identity = MemberIdentity(member_id)
    return tuple(
        code for one in commits for code in desk.commit_all([one], identity, epoch, group="c")
    )


def test_offsets_are_committed_all_or_none(desk):
    """One partition that an earlier epoch is not good for is enough."""
    good, stale = ErrorCode.NONE, ErrorCode.STALE_MEMBER_EPOCH
    desk.consume("m", 0, ["t"])
    desk.consume("n", 0, ["t"])
    desk.consume("m", 2)
    desk.consume("m", 2, owned={"t": [0, 1]})

    def codes(*numbers):
        commits = [("t", desk.id_of("t"), number, 1) for number in numbers]
        return desk.commit_all(commits, MemberIdentity("m"), 2, group="c")

    assert codes(0, 1) == (good, good)
    assert codes(0, 2) == (stale, stale)
    assert desk.offsets("c")["t"].keys() == {0, 1}


def test_an_earlier_epoch_is_good_for_what_a_member_has_had_since(desk):
    """KIP-1251: a partition may be committed with any epoch from the one at which it was given, as
    long as it is held.

    A commit under way is not lost because the member's epoch grows meanwhile.
    """
    good, stale = ErrorCode.NONE, ErrorCode.STALE_MEMBER_EPOCH
    desk.consume("m", 0, ["t"])
    desk.consume("n", 0, ["t"])
    desk.consume("m", 2)
    desk.consume("m", 2, owned={"t": [0, 1]})
    desk.consume("n", 3)
    assert commit_codes(desk, "m", 3) == (good,) * 4  # its own epoch is not looked at by partition
    assert commit_codes(desk, "m", 2) == (good, good, stale, stale)
    assert commit_codes(desk, "m", 1) == commit_codes(desk, "m", 4) == (stale,) * 4
    assert commit_codes(desk, "n", 2) == (stale,) * 4
    for joins in "op":
        desk.consume(joins, 0, ["t"])
    assert told(desk, desk.consume("m", 3)) == {"t": [0]}
    # 1 is to be given up, and still held
    assert commit_codes(desk, "m", 2) == (good, good, stale, stale)


def test_a_partition_that_was_just_given_is_not_good_for_an_earlier_epoch(desk):
    """KIP-1251: what an earlier epoch says of it was said for another member."""
    desk.consume("m", 0, ["t"])
    desk.consume("n", 0, ["t"])
    desk.consume("m", 2)
    desk.consume("m", -1)
    assert told(desk, desk.consume("n", 3)) == {"t": [0, 1, 2, 3]}
    desk.add_topic("t", 5)
    assert told(desk, desk.consume("n", 4)) == {"t": [0, 1, 2, 3, 4]}
    given_later = (ErrorCode.NONE,) * 4 + (ErrorCode.STALE_MEMBER_EPOCH,)
    assert [commit_codes(desk, "n", epoch) for epoch in (5, 4)] == [
        (ErrorCode.NONE,) * 5,
        given_later,
    ]


def test_offsets_of_subscribed_topics_stay_and_a_group_that_is_left_vanishes(desk):
    desk.add_topic("u", 1)
    desk.restart()  # which begins the rounds of expiration
    reply = desk.consume("m", 0, ["t"])
    for topic in "tu":
        desk.commit(group="c", member_id="m", generation_id=reply.member_epoch, topic=topic)
    retention_ms = desk.config.values["offsets.retention.minutes"] * 60_000
    desk.config.values["consumer.session.timeout.ms"] = 3 * retention_ms
    desk.consume("m", reply.member_epoch)
    desk.pass_ms(2 * retention_ms)
    assert desk.committed("c") == [("t", 0)]
    assert desk.delete_committed(("t", 0), group="c") == (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,)
    desk.consume("m", -1)
    desk.pass_ms(2 * retention_ms)
    assert desk.committed("c") == []
    assert "c" not in desk.coordinator.groups
    assert "c" not in desk.restarted().groups
