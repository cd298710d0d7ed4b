"""Committed offsets that go: deleted one by one (KIP-496), or because their time is over
(KIP-211)."""

from __future__ import annotations

import struct

import pytest

from headrace.coordinators.hashing import internal_partition
from headrace.deadlines import RETRY_MS
from headrace.groups.offsets.service import MAX_TOMBSTONES, NO_MEMBER, PORTION
from headrace.outcome import Position
from headrace.protocol.errors import ErrorCode
from tests import subscriptions
from tests.machines.group_desk import Desk, durable
from tests.offset_commits import commit_record

MINUTE_MS = 60_000
SUBSCRIBED = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


def subscription(*topics, version=0, rest=b""):
    """A consumer's metadata of any version, and whatever later versions add."""
    return subscriptions.subscription(version, topics) + rest


@pytest.fixture
def desk():
    """A look at offsets every three seconds; they are kept for one minute."""
    desk = Desk(offsets_retention_minutes=1, offsets_retention_check_interval_ms=3_000)
    desk.coordinator.loaded(desk.now_ms)
    return desk


def listed(desk):
    return sorted(group.group_id for group in desk.coordinator.list())


# --- deletion ---


def test_who_has_no_offsets_to_delete(desk):
    desk.beat("m", 0, ["t"], group="share")
    assert desk.delete_committed(("t", 0), group="nope") == ErrorCode.GROUP_ID_NOT_FOUND
    assert desk.delete_committed(("t", 0), group="share") == ErrorCode.GROUP_ID_NOT_FOUND
    desk.commit(group="")
    assert desk.delete_committed(("t", 0), group="") == ErrorCode.INVALID_GROUP_ID


def test_of_a_simple_group_everything_can_be_deleted(desk):
    desk.commit(0, 1)
    written = len(desk.log)
    assert desk.delete_committed(("t", 0), ("t", 5), ("u", 0), ("t", 0)) == (0, 0, 0, 0)
    assert desk.committed() == [("t", 1)]
    assert len(desk.log) == written + 1  # nothing is written of what is not there
    assert desk.delete_committed() == ()
    assert durable(desk.restarted()) == durable(desk.coordinator)


def test_a_subscribed_topic_keeps_its_offsets(desk):
    first, second = desk.stable(2, metadata=subscription("t", "v"))
    for topic in "tuv":
        desk.commit(member_id=first, generation_id=2, topic=topic)
    assert desk.delete_committed(("t", 0), ("u", 0), ("v", 7)) == (SUBSCRIBED, 0, SUBSCRIBED)
    assert desk.committed() == [("t", 0), ("v", 0)]
    desk.leave(first, second)
    assert desk.delete_committed(("t", 0), ("v", 0)) == (0, 0)


def test_subscriptions_are_known_after_a_restart_and_before_the_leader_has_assigned(desk):
    desk.stable(1, metadata=subscription("t"))
    desk.restart()
    assert desk.delete_committed(("t", 0), ("u", 0)) == (SUBSCRIBED, 0)
    again = desk.join("m1", version=3, metadata=subscription("u"))
    assert desk.answer(again).generation_id == 2
    assert desk.coordinator.groups["g"].state_name == "CompletingRebalance"
    assert desk.delete_committed(("t", 0), ("u", 0)) == (0, SUBSCRIBED)


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        b"\0",
        subscription("t")[:-6],
        subscription("t")[:-1],
        struct.pack(">hi", 0, -1) + bytes(4),
        struct.pack(">hi", 0, 2**31 - 1),
        struct.pack(">hih", 0, 1, -1) + bytes(4),
        struct.pack(">hih", 0, 1, 2) + b"\xff\xfe" + bytes(4),
        struct.pack(">hii", 0, 0, 5) + b"four",
    ],
)
def test_who_cannot_be_understood_may_need_everything(desk, metadata):
    desk.stable(1, metadata=metadata)
    assert desk.delete_committed(("t", 0), ("u", 0)) == (SUBSCRIBED, SUBSCRIBED)


@pytest.mark.parametrize(
    "metadata", [subscription("t", version=3, rest=b"any"), subscription("t", version=-7)]
)
def test_later_versions_begin_like_the_first(desk, metadata):
    desk.stable(1, metadata=metadata)
    assert desk.delete_committed(("t", 0), ("u", 0)) == (SUBSCRIBED, 0)


def test_of_other_kinds_of_members_nothing_can_be_deleted(desk):
    (worker,) = desk.stable(1, protocol_type="connect", metadata=subscription("t"))
    desk.commit(member_id=worker, generation_id=1)
    assert desk.delete_committed(("u", 0)) == ErrorCode.NON_EMPTY_GROUP
    desk.leave(worker)
    assert desk.delete_committed(("t", 0)) == (0,)


def pending(desk, partition, *, group="g"):
    """Commit offset 9 within the transaction of producer 7."""
    commits = [commit_record(group, "t", None, partition, 9, wall_ms=desk.now_ms)]
    outcome = desk.coordinator.offsets.commit(
        group, NO_MEMBER, -1, commits, desk.now_ms, transactional=True
    )
    for record in outcome.records:
        desk.coordinator.replay(record, Position(0, 0, 7))


def test_what_is_pending_can_be_deleted(desk):
    desk.commit(1)
    pending(desk, 0)
    assert desk.delete_committed(("t", 0)) == (0,)
    desk.coordinator.offsets.committed.end_transaction(7, 0, commit=True)
    assert desk.committed() == [("t", 1)]


# --- expiration ---


def test_an_offset_of_a_simple_group_expires_after_its_commit(desk):
    desk.commit(0, 1)
    desk.pass_ms(30_000)
    desk.commit(1)
    desk.pass_ms(29_999)
    assert desk.committed() == [("t", 0), ("t", 1)]
    desk.pass_ms(3_001)
    assert desk.committed() == [("t", 1)]
    desk.pass_ms(30_000)
    assert listed(desk) == []
    assert desk.coordinator.meters.offset_expirations == 2
    assert durable(desk.restarted()) == durable(desk.coordinator)


def test_an_empty_group_keeps_its_offsets_since_it_became_empty(desk):
    (member,) = desk.stable(1, metadata=subscription("t"))
    desk.commit(member_id=member, generation_id=1)
    desk.pass_ms(9_000)
    desk.heartbeat(member, 1)
    desk.pass_ms(9_000)
    desk.leave(member)
    desk.restart()
    desk.pass_ms(59_000)
    assert desk.committed() == [("t", 0)]
    desk.pass_ms(4_000)
    assert listed(desk) == []
    assert desk.coordinator.meters.offset_expirations == 1


def stays(desk, member, duration_ms):
    """A member that sends heartbeats all the time."""
    for _ in range(duration_ms // 5_000):
        desk.pass_ms(5_000)
        assert desk.heartbeat(member, 1) == 0


def test_members_keep_the_offsets_of_the_topics_that_they_are_subscribed_to(desk):
    (member,) = desk.stable(1, metadata=subscription("t"))
    desk.commit(member_id=member, generation_id=1)
    desk.commit(member_id=member, generation_id=1, topic="u")
    stays(desk, member, 65_000)
    assert desk.committed() == [("t", 0)]


@pytest.mark.parametrize("fields", [{"metadata": b"what?"}, {"protocol_type": "connect"}])
def test_members_that_nobody_understands_keep_everything(desk, fields):
    (member,) = desk.stable(1, **fields)
    desk.commit(member_id=member, generation_id=1, retention_ms=0)
    stays(desk, member, 65_000)
    assert desk.committed() == [("t", 0)]
    desk.leave(member)
    desk.pass_ms(3_000)  # what it asked for itself is over
    assert listed(desk) == []


def test_nothing_expires_during_a_rebalance(desk):
    (member,) = desk.stable(
        1, metadata=subscription("t"), rebalance_timeout_ms=300_000, session_timeout_ms=300_000
    )
    desk.commit(member_id=member, generation_id=1, topic="u")
    desk.join(version=3, metadata=subscription("t"), session_timeout_ms=300_000)
    desk.pass_ms(65_000)
    assert desk.committed() == [("u", 0)]


def test_a_commit_may_say_how_long_it_is_kept(desk):
    desk.commit(0, retention_ms=4_000)
    desk.commit(1, retention_ms=90_000)
    desk.commit(2, retention_ms=0)
    desk.commit(3)
    desk.pass_ms(3_000)
    assert desk.committed() == [("t", 0), ("t", 1), ("t", 3)]
    desk.pass_ms(3_000)
    assert desk.committed() == [("t", 1), ("t", 3)]
    desk.restart()
    desk.pass_ms(60_000)
    assert desk.committed() == [("t", 1)]
    desk.pass_ms(30_000)
    assert listed(desk) == []


def test_an_empty_group_without_offsets_vanishes(desk):
    desk.commit()
    desk.delete_committed(("t", 0))
    leaver = desk.stable(1, group="h")[0]
    desk.leave(leaver, group="h")
    assert listed(desk) == ["g", "h"]
    desk.pass_ms(3_000)
    assert listed(desk) == []
    assert durable(desk.restarted()) == durable(desk.coordinator)


def test_an_open_transaction_holds_off_the_expiration(desk):
    desk.commit(0, 1)
    pending(desk, 1)
    pending(desk, 0, group="h")
    desk.pass_ms(70_000)
    assert listed(desk) == ["g", "h"]
    assert desk.committed() == [("t", 1)]
    desk.coordinator.offsets.committed.end_transaction(7, 0, commit=False)
    desk.pass_ms(3_000)
    assert listed(desk) == []


def test_what_a_transaction_commits_counts_from_the_commit_within_it(desk):
    desk.commit(0)
    pending(desk, 0)
    desk.pass_ms(70_000)
    assert desk.committed() == [("t", 0)]
    desk.coordinator.offsets.committed.end_transaction(7, 0, commit=True)
    assert desk.offsets("g")["t"][0].offset == 9
    desk.pass_ms(3_000)
    assert desk.committed() == []


def test_share_groups_stay(desk):
    desk.beat("m", 0, ["t"])
    desk.beat("m", -1)
    desk.pass_ms(10 * MINUTE_MS)
    assert listed(desk) == ["s"]


def test_a_clock_that_goes_back_expires_nothing(desk):
    desk.commit()
    desk.now_ms -= 24 * 60 * MINUTE_MS
    desk.pass_ms(24 * 60 * MINUTE_MS)
    assert desk.committed() == [("t", 0)]


def test_many_groups_expire_in_portions(desk):
    for number in range(10_000):
        desk.commit(group=f"g{number}", retention_ms=0)
    desk.now_ms += 3_000
    portions = 0
    while listed(desk):
        looks_and_writes = [
            desk.submit(outcome) for _, outcome in desk.coordinator.expire(*desk.times)
        ]
        assert 0 < len(looks_and_writes) <= PORTION
        portions += 1
        assert desk.coordinator.next_deadline_ms() > desk.now_ms  # others are served first
        desk.now_ms = desk.coordinator.next_deadline_ms()
    assert portions > 10
    assert desk.coordinator.meters.offset_expirations == 10_000


def test_a_group_with_many_offsets_expires_in_several_writes(desk):
    desk.commit(*range(3 * MAX_TOMBSTONES), retention_ms=0)
    desk.now_ms += 3_000
    writes = []
    while listed(desk):
        for _, outcome in desk.coordinator.expire(*desk.times):
            writes.append(len(outcome.records))
            desk.submit(outcome)
        desk.now_ms = desk.coordinator.next_deadline_ms()
    assert writes == [MAX_TOMBSTONES, MAX_TOMBSTONES, MAX_TOMBSTONES + 1]


def test_a_group_with_many_topics_is_checked_in_portions(desk):
    desk.observes = False
    for retention_ms, topic in ((90_000, "kept"), (0, "gone")):
        commits = [(f"{topic}{number}", None, 0, 1) for number in range(2 * PORTION)]
        desk.commit_all(commits, NO_MEMBER, retention_ms=retention_ms)
    desk.now_ms += 3_000
    portions, expired = 0, 0
    while desk.coordinator.next_deadline_ms() <= desk.now_ms:
        for _, outcome in desk.coordinator.expire(*desk.times):
            expired += len(outcome.records)
            desk.submit(outcome)
        portions += 1
        desk.now_ms += 1
    assert portions >= 4
    assert expired == 2 * PORTION
    assert {topic[:4] for topic, _ in desk.committed()} == {"kept"}
    desk.pass_ms(90_000)
    assert listed(desk) == []


def test_what_could_not_be_written_expires_with_the_next_attempt(desk):
    desk.commit(retention_ms=0)
    desk.now_ms += 3_000
    refused = iter(desk.coordinator.expire(*desk.times))
    next(refused)  # and is not applied, for the disk is full
    refused.close()
    assert desk.committed() == [("t", 0)]
    assert desk.coordinator.meters.offset_expirations == 0
    desk.pass_ms(1)
    assert listed(desk) == []
    assert desk.coordinator.meters.offset_expirations == 1


def offline(desk, group):
    """Have all writes of a group fail from now on; those of groups in other partitions do not."""
    lost = internal_partition(group, desk.disk.partitions)
    desk.disk.refuses = lambda topic, partition, data: partition == lost


def test_a_group_whose_log_is_offline_keeps_no_others_from_expiring(desk):
    desk.disk.partitions = 50
    for group in ("a", "b", "c", "d", "e"):
        desk.commit(group=group, retention_ms=0)
    offline(desk, "c")
    desk.pass_ms(3_100)
    assert listed(desk) == ["c"]
    desk.disk.refuses = lambda topic, partition, data: False
    desk.pass_ms(3_000)
    assert listed(desk) == []


def test_sessions_in_a_log_that_is_offline_keep_no_others_from_ending(desk):
    desk.disk.partitions = 50
    desk.observes = False
    desk.add_topic("t", 1)
    for group in ["c"] * 2 + ["a"] * 200:
        desk.consume(f"m{len(desk.coordinator._timers)}", 0, ["t"], group=group)
    offline(desk, "c")
    ended_ms = desk.now_ms + 45_000
    desk.pass_ms(45_000)
    members = {name: len(group.state.members) for name, group in desk.coordinator.groups.items()}
    assert members == {"c": 2}  # group a is empty and deleted
    assert desk.coordinator.next_deadline_ms() == ended_ms + RETRY_MS


# --- what is counted ---


def test_completed_rebalances_are_counted(desk):
    leader, follower = desk.stable(2)
    before = desk.coordinator.meters.completed_rebalances
    desk.leave(follower)
    again = desk.joined(leader, version=3)
    assert desk.coordinator.meters.completed_rebalances == before
    desk.sync(leader, again.generation_id, [(leader, b"all")])
    assert desk.coordinator.meters.completed_rebalances == before + 1
    desk.leave(leader)  # nobody is left to assign
    assert desk.coordinator.meters.completed_rebalances == before + 1
    desk.restart()
    assert desk.coordinator.meters.completed_rebalances == 0
