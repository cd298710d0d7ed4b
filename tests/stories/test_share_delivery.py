"""Share groups through the handlers: sessions, delivery, acknowledgements, long polls, locks,
restart.
"""

from __future__ import annotations

import asyncio

import pytest

from headrace.net import call
from headrace.protocol.errors import ErrorCode, StorageError
from headrace.protocol.file_range import FileRange
from headrace.protocol.time_slices import run_now
from headrace.share.acknowledgement import ACCEPT, REJECT, RELEASE, RENEW
from headrace.share.records import SharePartitionKey
from headrace.share.share_partition import SharePartition
from headrace.share.share_session import ShareSessions
from tests.log.disk import delete_records
from tests.stories.share_stage import GROUP, begun, on_stage, only_partition

OK = (ErrorCode.NONE, None)
NOT_HOSTED = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    "This server does not host this topic-partition.",
)
HOUR_MS = 3_600_000


# --- members ---


@on_stage()
async def test_a_group_that_is_deleted_while_a_member_joins_gives_it_partitions_at_once(s):
    fields = {"group_id": "new", "member_id": "m", "member_epoch": 0}
    for _ in range(2):  # the group is new, then empty
        joining = s.ask(76, **fields, subscribed_topic_names=["t"])
        joined, _ = await asyncio.gather(joining, s.ask(42, groups_names=["new"]))
        (topic,) = joined.assignment.topic_partitions
        assert (joined.error_code, list(topic.partitions)) == (ErrorCode.NONE, [0])
        await s.ask(76, group_id="new", member_id="m", member_epoch=-1)


# --- sessions ---


@on_stage()
async def test_a_fetch_whose_session_is_closed_while_it_waits_acquires_nothing(s):
    m = s.member()
    await m.fetch()
    waiting = await begun(m.share_fetch(wait_ms=20_000))
    response = await m.share_acknowledge(epoch=-1, more={})
    assert response.error_code == ErrorCode.NONE
    s.produce(2)
    assert not (await waiting).responses
    assert await s.member("n").fetch() == [(0, 1, 1)]


@on_stage()
async def test_a_fetch_that_closes_fetches_nothing(s):
    m = await s.holder(5)
    s.produce(5)
    assert await m.fetch((0, 0, ACCEPT), epoch=-1) == []
    assert await s.member("n").fetch() == [(1, 4, 2), (5, 9, 1)]


@on_stage()
async def test_a_lost_connection_gives_back_at_once(s):
    s.produce(10)
    m, n = s.member("m"), s.member("n")
    await m.fetch()
    waiting = await begun(n.fetch(wait_ms=20_000))
    m.vanish()
    assert await waiting == [(0, 9, 2)]
    assert (await m.share_fetch()).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


# --- what cannot be fetched ---


@on_stage()
async def test_a_deleted_topic_ends_the_wait(s):
    m = s.member()
    await m.fetch()
    topic = s.broker.catalog.topics["t"]
    waiting = await begun(m.share_fetch(wait_ms=20_000))
    run_now(s.broker.topic_deletions.delete([topic]))
    partition = only_partition(await waiting)
    assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    response = await m.share_acknowledge((0, 0, ACCEPT), topic_id=topic.topic_id)
    assert only_partition(response).error_code == ErrorCode.UNKNOWN_TOPIC_ID


# --- where it begins ---


@on_stage(share_auto_offset_reset="latest")
async def test_latest_is_not_resolved_again_when_all_members_left_before_an_ack(s):
    m = s.member()
    await m.fetch()
    m.vanish()
    s.produce(2)
    assert await s.member("n").fetch() == [(0, 1, 1)]


@on_stage(share_auto_offset_reset="by_duration:PT1H")
async def test_by_duration_begins_at_the_end_when_all_records_are_too_old(s):
    s.produce(5, age_ms=2 * HOUR_MS)
    m = s.member()
    assert await m.fetch() == []
    s.produce(1)
    assert await m.fetch() == [(5, 5, 1)]


@on_stage()
async def test_a_start_offset_past_the_end_waits_for_the_log(s):
    s.initialize(3, state_epoch=2)
    m = s.member()
    s.produce(2)
    assert await m.fetch() == []
    waiting = await begun(m.fetch(wait_ms=20_000))
    s.produce(1)
    await asyncio.sleep(0)
    s.produce(1)
    assert await waiting == [(3, 3, 1)]


# --- delivery ---


@on_stage()
async def test_a_fetch_reads_no_more_than_its_bytes_but_one_batch(s):
    s.produce(*[1] * 10, value=b"x" * 10_000)
    m = s.member()
    assert await m.fetch(max_bytes=35_000) == [(0, 2, 1)]
    assert await m.fetch(max_bytes=1) == [(3, 3, 1)]


@on_stage(partitions=3)
async def test_budgets_are_shared_among_partitions_that_take_turns(s):
    for partition in range(3):
        s.produce(*[1] * 10, partition=partition)
    m = s.member()
    first = []
    for _ in range(3):
        response = await m.share_fetch(partitions=(0, 1, 2), max_records=4)
        got = [
            (p.partition_index, len(p.acquired_records))
            for t in response.responses
            for p in t.partitions
            if p.records
        ]
        assert len(got) == 1, "four records, all of one partition"
        first.append(got[0][0])
    assert sorted(first) == [0, 1, 2]
    response = await m.share_fetch(max_records=10)
    got = {p.partition_index for t in response.responses for p in t.partitions}
    assert len(got) == 2, "six left of one, and four of the next"


@on_stage(partitions=2)
async def test_an_empty_partition_is_listed_in_the_first_response_only(s):
    s.produce(1, partition=1)
    m = s.member()
    response = await m.share_fetch(partitions=(0, 1))
    assert sorted(p.partition_index for t in response.responses for p in t.partitions) == [0, 1]
    assert not (await m.share_fetch()).responses


@on_stage()
async def test_what_is_not_acquired_is_not_sent(s):
    m = await s.holder(*[1] * 10, value=b"x" * 1000)
    await m.ack((3, 4, RELEASE))
    response = await m.share_fetch()
    assert len(only_partition(response).records) < 2500


# --- acknowledgements ---


@on_stage()
async def test_acknowledgements_alone_and_with_a_fetch(s):
    s.produce(5, 5)
    m = s.member()
    await m.fetch(max_records=5)
    assert await m.fetch((0, 3, [ACCEPT, RELEASE, REJECT, ACCEPT]), max_records=1) == [(1, 1, 2)]
    assert await m.ack((1, 1, ACCEPT), (4, 4, REJECT)) == OK
    assert s.lag() == 5
    response = await m.share_fetch((0, 9, ACCEPT), max_records=0)
    partition = only_partition(response)
    assert partition.acknowledge_error_code == ErrorCode.INVALID_RECORD_STATE
    assert partition.acknowledge_error_message is not None
    assert partition.records == b""


@on_stage(share_renew_acknowledge_enable="false")
async def test_renewing_may_be_switched_off(s):
    m = await s.holder(5)
    refused = (
        ErrorCode.INVALID_RECORD_STATE,
        "Renewing acquisition locks is not enabled for the group.",
    )
    assert await m.ack((0, 0, ACCEPT), (1, 2, RENEW), renew=True) == refused
    assert await m.ack((0, 0, ACCEPT), renew=True) == OK
    assert await m.ack((1, 2, RENEW)) == (ErrorCode.INVALID_REQUEST, None)
    s.configure_group(share_renew_acknowledge_enable="true")
    assert await m.ack((1, 2, RENEW), renew=True) == OK


# --- waiting ---


@on_stage(share_partition_max_record_locks="100")
async def test_room_under_the_lock_limit_wakes_a_waiting_fetch(s):
    s.produce(100, 100)
    m = s.member("m")
    assert await m.fetch() == [(0, 99, 1)]
    waiting = await begun(s.member("n").fetch(wait_ms=20_000))
    s.produce(1)
    await asyncio.sleep(0)
    assert not waiting.done()
    await m.ack((0, 99, ACCEPT))
    assert await waiting == [(100, 199, 1)]


@on_stage()
async def test_a_wait_without_records_ends_in_time(s):
    m = s.member()
    await m.fetch()
    before = asyncio.get_running_loop().time() * 1000
    assert not (await m.share_fetch(wait_ms=50)).responses
    assert asyncio.get_running_loop().time() * 1000 - before >= 49
    assert len(s.broker.long_polls) == 0


@on_stage()
async def test_min_bytes_are_waited_for(s):
    m = s.member()
    s.produce(1, value=b"x" * 1000)
    waiting = await begun(m.fetch(wait_ms=20_000, min_bytes=1500))
    assert not waiting.done()
    s.produce(1, value=b"x" * 1000)
    assert await waiting == [(0, 1, 1)]
    s.produce(1)
    assert await m.fetch(wait_ms=20, min_bytes=1500) == [(2, 2, 1)], (
        "the wait is over: what there is"
    )


@on_stage()
async def test_a_client_that_goes_away_waits_no_longer(s):
    waiting = await begun(s.member().fetch(wait_ms=20_000))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.sleep(0)
    assert len(s.broker.long_polls) == 0
    s.produce(1)
    assert await s.member("n").fetch() == [(0, 0, 1)]


# --- locks and time ---


@on_stage(share_record_lock_duration_ms="1000")
async def test_locks_run_out_and_wake_who_waits(s):
    s.clock.stop()
    s.produce(10)
    m, n = s.member("m"), s.member("n")
    await m.fetch()
    s.pass_ms(500)
    await m.share_acknowledge((8, 9, RENEW), renew=True)
    waiting = await begun(n.fetch(wait_ms=20_000))
    s.pass_ms(499)
    await asyncio.sleep(0)
    assert not waiting.done()
    s.pass_ms(1)
    assert await waiting == [(0, 7, 2)]
    s.pass_ms(500)
    assert await n.fetch() == [(8, 9, 2)]
    s.pass_ms(1000)
    assert s.broker.coordinators.share.next_deadline_ms() is None


@on_stage(share_record_lock_duration_ms="1000")
async def test_an_early_acknowledgement_leaves_no_deadline_behind(s):
    s.clock.stop()
    m = await s.holder(10)
    await m.ack((0, 9, ACCEPT))
    s.pass_ms(1000)
    assert s.broker.coordinators.share.next_deadline_ms() is None


@on_stage(share_record_lock_duration_ms="30000")
async def test_a_shorter_lock_duration_holds_for_the_next_fetch(s):
    s.clock.stop()
    m = await s.holder(1)
    s.configure_group(share_record_lock_duration_ms="1000")
    s.produce(1)
    await m.fetch()
    s.pass_ms(1000)
    assert await m.fetch() == [(1, 1, 2)]
    s.pass_ms(29_000)
    assert await m.fetch() == [(0, 0, 2), (1, 1, 3)]


@on_stage(share_delivery_count_limit="3", share_partition_max_record_locks="100")
async def test_changed_configs_hold_for_a_fetch_that_is_waiting(s):
    s.produce(100, 100, 100)
    m, n = s.member("m"), s.member("n")
    await m.fetch()
    waiting = await begun(n.share_fetch(wait_ms=20_000))
    s.configure_group(share_partition_max_record_locks="300", share_record_lock_duration_ms="20000")
    await m.ack((0, 0, RELEASE))
    response = await waiting
    assert response.acquisition_lock_timeout_ms == 20_000
    partition = only_partition(response)
    runs = [
        (run.first_offset, run.last_offset, run.delivery_count)
        for run in partition.acquired_records
    ]
    assert runs == [(0, 0, 2), (100, 299, 1)]
    s.configure_group(share_delivery_count_limit="2")
    await n.ack((0, 0, RELEASE))
    assert s.lag() == 299, "given up after the second delivery"


@on_stage(partitions=2)
async def test_a_forgotten_partition_is_given_back_when_the_session_ends(s):
    s.produce(3, partition=0)
    m = s.member()
    await m.fetch(partitions=(0, 1))
    await m.fetch(forget=(0,))
    await m.share_acknowledge(epoch=-1)
    assert await s.member("n").fetch() == [(0, 2, 2)]


@on_stage()
async def test_records_of_a_session_that_was_opened_again_are_given_back_with_it(s):
    s.produce(3)
    m = s.member()
    assert await m.fetch() == [(0, 2, 1)]
    assert await m.fetch(epoch=0) == []
    m.vanish()
    assert await s.member("n").fetch() == [(0, 2, 2)]


@on_stage(partitions=50)
async def test_the_end_of_a_session_concerns_only_what_it_has_acquired_from(s, monkeypatch):
    everything = tuple(range(50))
    for partition in everything:
        s.produce(1, partition=partition)
    members = [s.member(f"m{number:02}") for number in range(20)]
    for member in members:  # each takes one record of another partition
        member.connection_id = members[0].connection_id
        await member.share_fetch(partitions=everything, max_records=1)
    released = []
    release = SharePartition.release

    def counted(partition, locks, *args):
        released.extend(lock.member_id for _, _, lock in locks)
        return release(partition, locks, *args)

    looked = []
    in_group = ShareSessions.in_group

    def counted_looks(sessions, group_id):
        looked.append(group_id)
        return in_group(sessions, group_id)

    monkeypatch.setattr(SharePartition, "release", counted)
    monkeypatch.setattr(ShareSessions, "in_group", counted_looks)
    members[0].vanish()
    assert released == [member.name for member in members]
    assert len(looked) <= 2 * (50 + 20)  # not the product of partitions and sessions
    response = await s.member("n").share_fetch(partitions=everything)
    partitions = response.responses[0].partitions
    counts = [one.acquired_records[0].delivery_count for one in partitions]
    assert sorted(counts) == [1] * 30 + [2] * 20


@on_stage(
    partitions=60,
    share_release_backoff_ms="1000",
    share_release_backoff_max_ms="1000",
)
async def test_backoffs_that_end_without_sessions_unload_one_partition_each(s, monkeypatch):
    s.clock.stop()
    for partition in range(60):
        s.produce(1, partition=partition)
    m = s.member()
    await m.share_fetch(partitions=tuple(range(60)))
    m.vanish()
    looked = []
    is_idle = SharePartition.idle.fget

    def counted(partition):
        looked.append(partition)
        return is_idle(partition)

    monkeypatch.setattr(SharePartition, "idle", property(counted))
    s.clock.stopped_ms += 1000
    while s.broker.coordinators.share.next_deadline_ms() is not None:
        s.broker.coordinators.share.expire(s.clock.stopped_ms)
    assert len(looked) == 60
    assert s.loaded(0) is None


@pytest.mark.parametrize("member_id", ["", "m" * 37])
@on_stage()
async def test_a_member_needs_an_id_that_the_group_accepts(s, member_id):
    m = s.member(member_id)
    for request in (m.share_fetch(), m.share_acknowledge((0, 0, ACCEPT), epoch=1)):
        assert (await request).error_code == ErrorCode.INVALID_REQUEST


@on_stage(partitions=120)
async def test_many_partitions_are_loaded_in_slices(s, monkeypatch):
    monkeypatch.setattr(call, "SLICE_S", 0.0)
    s.produce(3, partition=119)
    m = s.member()
    fetch = await begun(m.share_fetch(partitions=tuple(range(120)), wait_ms=1000))
    for _ in range(60):
        await asyncio.sleep(0)
    loaded = [s.loaded(partition) for partition in range(120)]
    assert loaded[0] is not None
    assert loaded[119] is None
    response = await fetch
    (taken,) = (one for one in response.responses[0].partitions if one.acquired_records)
    assert taken.partition_index == 119


@on_stage(partitions=120)
async def test_nothing_is_acquired_when_the_session_ends_while_partitions_are_loaded(
    s, monkeypatch
):
    monkeypatch.setattr(call, "SLICE_S", 0.0)
    s.produce(3)
    m = s.member()
    fetch = await begun(m.share_fetch(partitions=tuple(range(120)), wait_ms=1000))
    for _ in range(60):
        await asyncio.sleep(0)
    m.vanish()
    response = await fetch
    assert not any(one.acquired_records for one in response.responses[0].partitions)
    loaded = [s.loaded(partition) for partition in range(120)]
    assert sum(one is not None for one in loaded) < 120
    assert await s.member("n").fetch() == [(0, 2, 1)]


@on_stage(partitions=3)
async def test_the_bytes_are_divided_among_the_partitions_that_have_records(s):
    for partition in (0, 2):
        s.produce(*[1] * 10, partition=partition, value=b"x" * 1000)
    response = await s.member().share_fetch(partitions=(0, 1, 2), max_bytes=4400)
    sizes = {p.partition_index: len(p.records) for t in response.responses for p in t.partitions}
    assert 1000 < sizes[0] == sizes[2] <= 2200
    assert sizes[1] == 0


@on_stage(partitions=2)
async def test_a_state_that_can_not_be_written_is_the_error_of_its_partition(s):
    for partition in (0, 1):
        s.produce(5, partition=partition)
    m = s.member()
    await m.share_fetch(partitions=(0, 1))
    await m.ack((0, 4, RELEASE))
    for partition in (0, 1):
        s.produce(5, partition=partition)
    # the new start offset has to be written
    delete_records(s.log(), 5)
    runtime = s.broker.coordinators.share_state_runtime
    write_now, runtime.write_now = runtime.write_now, refuse
    response = await m.share_fetch()
    codes = {p.partition_index: p.error_code for t in response.responses for p in t.partitions}
    assert codes == {0: ErrorCode.COORDINATOR_NOT_AVAILABLE, 1: ErrorCode.NONE}
    runtime.write_now = write_now
    assert await m.fetch() == [(5, 9, 1)]


def refuse(*_):
    raise StorageError("the disk is full")


@on_stage(share_release_backoff_ms="1000", share_release_backoff_max_ms="3000")
async def test_a_released_record_waits_for_its_backoff(s):
    s.clock.stop()
    s.produce(1)
    m, n = s.member("m"), s.member("n")
    await m.fetch()
    for delivery, wait_ms in ((2, 1000), (3, 2000), (4, 3000), (5, 3000)):
        waiting = await begun(n.fetch(wait_ms=20_000))
        await m.ack((0, 0, RELEASE))
        s.pass_ms(wait_ms - 1)
        await asyncio.sleep(0)
        assert not waiting.done()
        assert s.lag() == 1
        s.pass_ms(1)
        assert await waiting == [(0, 0, delivery)]
        m, n = n, m
    await m.ack((0, 0, RELEASE))
    assert s.lag() == 0, "given up after the fifth delivery"


@on_stage(share_release_backoff_ms="1000", share_record_lock_duration_ms="1000")
async def test_new_records_do_not_wait_for_the_backoff_of_old_ones(s):
    s.clock.stop()
    m = await s.holder(4)
    await m.ack((1, 2, RELEASE))
    s.produce(1)
    assert await m.fetch() == [(4, 4, 1)]
    s.pass_ms(1000)
    assert await m.fetch() == [(1, 2, 2)], "0, 3 and 4 were locked until now"
    s.pass_ms(1000)
    assert await m.fetch() == [(0, 0, 2), (3, 3, 2), (4, 4, 2)]


@on_stage(share_release_backoff_ms="60000")
async def test_a_backoff_outlives_the_last_session_but_no_restart(s):
    s.clock.stop()
    m = await s.holder(3)
    m.vanish()
    assert await s.member("n").fetch() == []
    s.broker.coordinators.share.drop(SharePartitionKey(GROUP, s.topic_id, 0))  # as a restart does
    assert await s.member("o").fetch() == [(0, 2, 2)]
    s.pass_ms(60_000)  # the locks of o run out, and a backoff begins again
    p = s.member("p")
    assert await p.fetch() == []
    s.pass_ms(59_999)
    assert await p.fetch() == []
    s.pass_ms(1)
    assert await p.fetch() == [(0, 2, 3)]


# --- the log moves, the state is changed, the broker restarts ---


@on_stage()
async def test_the_log_start_takes_the_lag_along(s):
    s.produce(*[5] * 4)
    m = s.member()
    await m.fetch(max_records=10)
    delete_records(s.log(), 12)
    assert await m.fetch() == [(12, 19, 1)]
    assert (s.summary().start_offset, s.lag()) == (12, 8)
    assert await m.ack((0, 9, ACCEPT)) == OK


@on_stage()
async def test_an_altered_start_offset_fences_who_held_records(s):
    m = await s.holder(10)
    await m.ack((0, 0, ACCEPT))
    s.initialize(5, state_epoch=2)
    response = await m.share_acknowledge((1, 1, ACCEPT))
    partition = only_partition(response)
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.error_message == (
        "Error in write state RPC. "
        "The coordinator rejected the request because the state epoch "
        "did not match."
    )
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (1, 0)
    assert [(node.node_id, node.host, node.port) for node in response.node_endpoints] == [
        (1, "broker.test", 9092)
    ]
    assert await m.ack((2, 2, ACCEPT)) == NOT_HOSTED
    assert await m.fetch() == [(5, 9, 1)]


@on_stage()
async def test_offsets_that_an_administrator_sets_are_read_from_at_once(s):
    m = await s.holder(10)
    waiting = await begun(s.member("n").fetch(wait_ms=20_000))
    await s.alter({0: 7})
    assert await waiting == [(7, 9, 1)]
    await s.alter({0: 5})
    response = await m.share_acknowledge((7, 7, ACCEPT))
    partition = only_partition(response)
    assert (partition.error_code, partition.current_leader.leader_id) == (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        1,
    )
    assert await m.ack((7, 7, ACCEPT)) == NOT_HOSTED
    assert (s.summary().start_offset, s.lag()) == (5, 5)
    assert await m.fetch() == [(5, 9, 1)]
    await s.alter({0: 6})
    assert await m.fetch() == [(6, 9, 1)]
    assert await m.ack((6, 6, ACCEPT)) == OK
    await s.alter({0: 1000})
    m.vanish()  # what it held is not the share-partition's any more
    assert (s.summary().start_offset, s.summary().delivery_complete_count) == (1000, 0)
    await s.alter({0: -5})
    assert await s.member("o").fetch() == [(0, 9, 1)]


@on_stage()
async def test_a_record_concerns_only_the_groups_that_wait_for_it(s):
    for number in range(20):
        s.initialize(group_id=f"idle-{number}")
        await s.member(group_id=f"idle-{number}").fetch()
    assert len(s.broker.long_polls) == 0
    waiting = await begun(s.member().fetch(wait_ms=20_000))
    assert len(s.broker.long_polls) == 2  # for the log, and for what others give back
    s.produce(1)
    assert await waiting == [(0, 0, 1)]
    assert len(s.broker.long_polls) == 0


@on_stage()
async def test_groups_do_not_see_each_other(s):
    s.configure_group("h", share_auto_offset_reset="earliest")
    s.initialize(group_id="h")
    s.produce(3)
    assert await s.member(group_id=GROUP).fetch() == [(0, 2, 1)]
    assert await s.member(group_id="h").fetch() == [(0, 2, 1)]


@on_stage()
async def test_an_idle_group_is_forgotten_and_loaded_again(s):
    m = await s.holder(5)
    await m.ack((0, 1, ACCEPT), (3, 3, REJECT))
    m.vanish()
    assert s.broker.coordinators.share._groups == {}
    assert await s.member("n").fetch() == [(2, 2, 2), (4, 4, 2)]


@on_stage()
async def test_nothing_is_kept_of_groups_without_sessions(s):
    """The last session ends with a ShareFetch, also of a group that never joined."""
    s.produce(1)
    for group_id in (GROUP, "never-joined"):
        m = s.member(group_id=group_id)
        await m.share_fetch()
        await m.share_fetch(epoch=-1)
    assert (
        s.broker.coordinators.share._settings.keys() <= s.broker.coordinators.share._groups.keys()
    )
    await s.ask(20, topics=[{"name": "t"}])
    assert (s.broker.coordinators.share._groups, s.broker.coordinators.share._settings) == ({}, {})


def test_a_restart_keeps_what_was_acknowledged(tmp_path):
    @on_stage(data_dir=tmp_path)
    async def before(s):
        m = await s.holder(*[5] * 4)
        await m.ack((0, 1, ACCEPT), (4, 5, REJECT), (7, 7, RELEASE))

    @on_stage(data_dir=tmp_path)
    async def after(s):
        assert s.lag() == 16
        assert await s.member().fetch() == [(2, 3, 2), (6, 19, 2)]

    before()
    after()


@on_stage()
async def test_large_records_are_read_from_the_log_when_they_are_sent(s):
    """More than a megabyte: only the headers of batches are read to acquire."""
    s.produce(*[3] * 12, value=b"x" * 60_000)
    m = s.member()
    end = 0
    while end < 36:
        ((_, last, _),) = await m.fetch(max_records=500)
        end = last + 1
    await m.ack((0, 35, RELEASE))
    response = await m.share_fetch(max_records=500)
    one = only_partition(response)
    assert isinstance(one.records, FileRange) and one.records.data is None
    log = s.log()
    assert log is not None and bytes(one.records) == log.read(0, 1 << 30)
    assert one.acquired_records[0].first_offset == 0
    assert one.acquired_records[-1].last_offset == 35


@on_stage(partitions=120, share_record_lock_duration_ms="1000")
async def test_locks_that_time_out_together_do_so_in_several_turns(s):
    s.clock.stop()
    for partition in range(120):
        s.produce(1, partition=partition)
    await s.member().share_fetch(partitions=tuple(range(120)))
    s.clock.stopped_ms += 1000
    share, turns = s.broker.coordinators.share, 0
    while share.next_deadline_ms() is not None:
        assert share.next_deadline_ms() <= s.clock.stopped_ms
        share.expire(s.clock.stopped_ms)
        turns += 1
    assert turns == 3
    response = await s.member("n").share_fetch(partitions=tuple(range(120)))
    partitions = response.responses[0].partitions
    assert [one.acquired_records[0].delivery_count for one in partitions] == [2] * 120


@on_stage(partitions=2, share_record_lock_duration_ms="1000")
async def test_an_unexpected_error_keeps_no_other_locks_from_timing_out(s, monkeypatch):
    s.clock.stop()
    for partition in range(2):
        s.produce(1, partition=partition)
    await s.member().fetch(partitions=(0, 1))
    release = SharePartition.release
    bad = s.loaded(0).partition

    def fail_once(partition, *args):
        if partition is bad:
            raise ValueError("unexpected")
        return release(partition, *args)

    monkeypatch.setattr(SharePartition, "release", fail_once)
    s.pass_ms(1000)
    assert await s.member("n").fetch(partitions=(0, 1)) == [(0, 0, 2)]
    monkeypatch.undo()
    s.pass_ms(1000)
    assert await s.member("o").fetch(partitions=(0,)) == [(0, 0, 2)]
