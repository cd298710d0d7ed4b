"""The share coordinator: records byte for byte, commands, merging, fencing, snapshots, replay."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.deadlines import RETRY_MS
from headrace.outcome import Position
from headrace.protocol.errors import ErrorCode, Refusal
from headrace.share import share_state
from headrace.share.records import (
    SharePartitionKey,
    ShareSnapshot,
    ShareTombstone,
    ShareUpdate,
    StateBatch,
    decode,
    encode,
)
from headrace.share.share_state import (
    COLD_SNAPSHOTS_AT_ONCE,
    ShareCoordinator,
    ShareState,
    Snapshots,
    combined,
)

TOPIC = UUID("35938f86-9cc1-4259-be1c-26326786962d")
KEY = SharePartitionKey("snap1", TOPIC, 0)
NOW = 1_000
CATALOG = SimpleNamespace(topics_by_id={TOPIC: SimpleNamespace(partitions=1)})


def submit(coordinator, outcome):
    """Do as the broker does: write records as bytes and replay them."""
    for record in outcome.records:
        decoded = coordinator.decode(*coordinator.encode(record))
        assert decoded == record
        coordinator.replay(decoded)
    return outcome.reply


def initialized(start_offset=0, state_epoch=1, **kwargs):
    coordinator = ShareCoordinator(CATALOG, **kwargs)
    assert submit(coordinator, coordinator.initialize(KEY, state_epoch, start_offset, NOW)) is None
    return coordinator


def write(coordinator, *batches, start=-1, complete=0, state_epoch=1, leader_epoch=0):
    outcome = coordinator.write(
        KEY,
        state_epoch,
        leader_epoch,
        start,
        complete,
        tuple(StateBatch(*batch) for batch in batches),
        NOW,
    )
    return submit(coordinator, outcome)


def read(coordinator, leader_epoch=0):
    return submit(coordinator, coordinator.read(KEY, leader_epoch, NOW))


def summary(coordinator):
    state = coordinator.summary(KEY)
    return (
        state.state_epoch,
        state.leader_epoch,
        state.start_offset,
        state.delivery_complete_count,
    )


# --- records ---


def test_a_snapshot_is_the_bytes_that_kafka_writes():
    created_ms = 0x1A1FA9C59C5
    record = ShareSnapshot(KEY, 0, 1, 0, 0, created_ms, created_ms)
    key, value = encode(record)
    assert key.hex() == "00000005736e61703135938f869cc14259be1c26326786962d00000000"
    assert (
        value.hex() == "0000000000000000000100000000" + "00" * 8 + "000001a1fa9c59c5" * 2 + "0100"
    )
    assert decode(key, value) == record


def test_an_update_is_the_bytes_that_kafka_writes():
    record = ShareUpdate(KEY, 0, 0, 0, (StateBatch(0, 0, 2, 1),), 0)
    key, value = encode(record)
    assert key.hex() == "00010005736e61703135938f869cc14259be1c26326786962d00000000"
    assert (
        value.hex()
        == "00000000000000000000" + "00" * 8 + "02" + "00" * 16 + "0200010001000400000000"
    )
    assert decode(key, value) == record


def test_a_tombstone_is_a_snapshot_key_without_a_value():
    key, value = encode(ShareTombstone(KEY))
    assert key == encode(ShareSnapshot(KEY, 0, 1, 0, 0, 1, 1))[0]
    assert value is None
    assert decode(key, None) == ShareTombstone(KEY)


def test_records_of_other_types_are_passed_over_and_broken_ones_are_named():
    assert decode(b"\0\x09\0\0", b"") is None
    with pytest.raises(ValueError, match="not a share state record"):
        decode(encode(ShareTombstone(KEY))[0], b"\0\0\0")
    with pytest.raises(ValueError, match="version 7"):
        decode(encode(ShareTombstone(KEY))[0], b"\0\7" + bytes(60))
    with pytest.raises(ValueError, match="a batch from 7 to 6"):
        decode(*encode(ShareUpdate(KEY, 0, 0, 0, (StateBatch(7, 6, 2, 1),))))
    with pytest.raises(ValueError, match="group_id"):
        decode(b"\0\0\xff\xff" + bytes(20), b"")


def test_the_coordinator_key_holds_the_topic_id_in_kafkas_base64():
    assert str(KEY) == "snap1:NZOPhpzBQlm-HCYyZ4aWLQ:0"


@given(
    st.lists(
        st.builds(
            lambda ends, *rest: StateBatch(min(ends), max(ends), *rest),
            st.tuples(*[st.integers(0, 2**63 - 1)] * 2),
            st.integers(0, 4),
            st.integers(0, 2**15 - 1),
        ),
        max_size=300,
    ),
    st.integers(-1, 2**31 - 1),
    st.text(max_size=20),
)
def test_records_survive_their_bytes(batches, complete, group_id):
    key = SharePartitionKey(group_id, TOPIC, 7)
    update = ShareUpdate(key, 3, 2, 12, tuple(batches), complete)
    snapshot = ShareSnapshot(key, 3, 2, 1, 12, 5, 6, tuple(batches), complete)
    assert decode(*encode(update)) == update
    assert decode(*encode(snapshot)) == snapshot


# --- commands ---


def test_commands_refuse_what_is_not_hosted():
    coordinator = ShareCoordinator(CATALOG)
    commands = [
        lambda key: coordinator.initialize(key, 1, 0, NOW).reply,
        lambda key: coordinator.delete(key).reply,
        lambda key: coordinator.summary(key),
    ]
    for command in commands:
        for key in (KEY._replace(topic_id=UUID(int=1)), KEY._replace(partition=1)):
            refusal = command(key)
            assert refusal.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert refusal.message == "This server does not host this topic-partition."
        refusal = command(KEY._replace(partition=-1))
        assert refusal == Refusal(
            ErrorCode.INVALID_REQUEST, "The partition id cannot be a negative number."
        )


def test_nothing_is_read_or_written_before_initialize():
    coordinator = ShareCoordinator(CATALOG)
    assert read(coordinator) == Refusal(
        ErrorCode.INVALID_REQUEST, "Read operation on uninitialized share partition not allowed."
    )
    assert write(coordinator) == Refusal(
        ErrorCode.INVALID_REQUEST, "Write operation on uninitialized share partition not allowed."
    )
    assert summary(coordinator) == (0, 0, -1, -1)
    no_topic = KEY._replace(topic_id=UUID(int=1))
    unknown_topic = (
        coordinator.read(no_topic, 0, NOW),
        coordinator.write(no_topic, 1, 0, 0, 0, (), NOW),
    )
    assert [outcome.reply.code for outcome in unknown_topic] == [ErrorCode.INVALID_REQUEST] * 2
    negative = KEY._replace(partition=-1)
    for outcome in (
        coordinator.read(negative, 0, NOW),
        coordinator.write(negative, 1, 0, 0, 0, (), NOW),
    ):
        assert outcome.reply.message == "The partition id cannot be a negative number."


def test_the_state_epoch_fences_older_ones_and_only_initialize_moves_it():
    coordinator = initialized(state_epoch=3)
    assert coordinator.initialize(KEY, 2, 0, NOW).reply.code == ErrorCode.FENCED_STATE_EPOCH
    assert submit(coordinator, coordinator.initialize(KEY, 3, 0, NOW)) is None
    assert write(coordinator, state_epoch=2).code == ErrorCode.FENCED_STATE_EPOCH
    assert write(coordinator, state_epoch=8) is None
    assert coordinator.summary(KEY).state_epoch == 3


def test_the_leader_epoch_fences_older_ones_and_only_read_moves_it():
    coordinator = initialized(10)
    write(coordinator, (12, 13, 2, 1), start=10, complete=2)
    assert read(coordinator, 5).start_offset == 10
    assert summary(coordinator) == (1, 5, 10, 2)
    assert read(coordinator, 4).code == ErrorCode.FENCED_LEADER_EPOCH
    assert coordinator.read(KEY, 5, NOW).records == ()
    assert read(coordinator, 5).state_batches == (StateBatch(12, 13, 2, 1),)
    assert write(coordinator, leader_epoch=4).code == ErrorCode.FENCED_LEADER_EPOCH
    assert write(coordinator, leader_epoch=9) is None
    assert coordinator.summary(KEY).leader_epoch == 5


def test_initialize_clears_what_was_there():
    coordinator = initialized()
    write(coordinator, (3, 5, 2, 1), complete=3)
    outcome = coordinator.initialize(KEY, 2, 8, NOW)
    assert outcome.records[0].snapshot_epoch == 1
    submit(coordinator, outcome)
    assert read(coordinator).state_batches == ()
    assert summary(coordinator) == (2, 0, 8, 0)
    submit(coordinator, coordinator.initialize(KEY, 2, -1, NOW))
    assert summary(coordinator) == (2, 0, -1, -1)


def test_delete_leaves_a_tombstone_once():
    coordinator = initialized()
    outcome = coordinator.delete(KEY)
    assert outcome.records == (ShareTombstone(KEY),)
    submit(coordinator, outcome)
    assert coordinator.delete(KEY).records == ()
    assert read(coordinator).code == ErrorCode.INVALID_REQUEST


def test_a_deleted_topic_takes_all_its_state_along():
    topics = {topic_id: SimpleNamespace(partitions=4) for topic_id in (TOPIC, UUID(int=1))}
    coordinator = ShareCoordinator(SimpleNamespace(topics_by_id=topics))
    submit(coordinator, coordinator.initialize(KEY, 1, 0, NOW))
    other = SharePartitionKey("snap1", UUID(int=1), 0)
    second = SharePartitionKey("g2", TOPIC, 3)
    for key in (other, second):
        submit(coordinator, coordinator.initialize(key, 1, 0, NOW))
    tombstones = dict(coordinator.topic_deleted(TOPIC))
    assert tombstones.keys() == {str(KEY), str(second)}
    for outcome in tombstones.values():
        submit(coordinator, outcome)
    assert dict(coordinator.topic_deleted(TOPIC)) == {}
    assert coordinator.summary(other).start_offset == 0


# --- merging ---


def test_what_lies_below_the_start_offset_is_forgotten():
    coordinator = initialized()
    write(coordinator, (0, 9, 0, 1))
    write(coordinator, (3, 4, 2, 1), start=4)
    assert read(coordinator).state_batches == (StateBatch(4, 4, 2, 1), StateBatch(5, 9, 0, 1))
    write(coordinator, (3, 10, 0, 1), start=-1, complete=1)
    assert read(coordinator).state_batches == (StateBatch(4, 4, 2, 1), StateBatch(5, 10, 0, 1))
    assert summary(coordinator) == (1, 0, 4, 0)


def test_a_snapshot_follows_after_five_hundred_updates():
    coordinator = initialized()
    kinds = []
    for offset in range(1002):
        outcome = coordinator.write(
            KEY, 1, 0, offset, 0, (StateBatch(offset + 2, offset + 2, 2, 1),), NOW + offset
        )
        submit(coordinator, outcome)
        kinds.append(type(outcome.records[0]))
        if kinds[-1] is ShareSnapshot:
            snapshot = outcome.records[0]
            assert snapshot.state_batches == (StateBatch(max(offset, 2), offset + 2, 2, 1),)
            assert snapshot.create_timestamp == snapshot.write_timestamp == NOW + offset
    assert [i for i, kind in enumerate(kinds) if kind is ShareSnapshot] == [500, 1001]
    assert read(coordinator).state_batches == (StateBatch(1001, 1003, 2, 1),)


def test_unsound_batches_of_a_write_are_refused():
    for unsound in (
        StateBatch(5, 4, 0, 1),
        StateBatch(-1, 4, 0, 1),
        StateBatch(4, 4, 1, 1),
        StateBatch(4, 4, 2, -1),
    ):
        assert combined([StateBatch(3, 3, 2, 1), unsound], -1).code == ErrorCode.INVALID_REQUEST


# --- time ---


class Topic:
    """The internal topic of a coordinator with one partition, and what the broker does with it."""

    def __init__(self, coordinator, start_offset=0, log=()):
        self.coordinator, self.start_offset, self.log = coordinator, start_offset, list(log)

    def submit(self, outcome):
        for record in outcome.records:
            self.log.append(self.coordinator.encode(record))
            self.coordinator.replay(record, Position(0, len(self.log) - 1))
        for partition, offset, _ in outcome.deletable:
            assert partition == 0
            assert self.start_offset <= offset <= len(self.log)
            self.start_offset = offset
        if outcome.apply is not None:
            outcome.apply()
        return outcome.reply

    def expire(self, now_ms, wall_ms=None):
        for _, outcome in self.coordinator.expire(now_ms, now_ms if wall_ms is None else wall_ms):
            self.submit(outcome)

    def replayed(self):
        """Another coordinator, loaded from what is left of the topic."""
        loaded = ShareCoordinator(CATALOG, self.coordinator.snapshot_update_records)
        for offset in range(self.start_offset, len(self.log)):
            loaded.replay(loaded.decode(*self.log[offset]), Position(0, offset))
        return loaded


def key_of(number):
    return SharePartitionKey(f"g{number}", TOPIC, 0)


def snapshot_of(number, now_ms=NOW):
    return ShareSnapshot(key_of(number), 0, 0, 0, 0, now_ms, now_ms)


def begin(topic, number, now_ms=NOW):
    topic.submit(topic.coordinator.initialize(key_of(number), 1, 0, now_ms))


def update(topic, number, start_offset, now_ms=NOW):
    topic.submit(topic.coordinator.write(key_of(number), 1, 0, start_offset, 0, (), now_ms))


def test_nothing_waits_for_time_while_there_is_no_state():
    topic = Topic(ShareCoordinator(CATALOG, cold_interval_ms=50, prune_interval_ms=70))
    assert topic.coordinator.next_deadline_ms() is None
    begin(topic, 0)
    topic.expire(NOW)
    assert topic.coordinator.next_deadline_ms() == NOW + 50
    topic.submit(topic.coordinator.delete(key_of(0)))
    topic.expire(NOW + 70)
    assert topic.start_offset == len(topic.log) == 2
    assert topic.coordinator.next_deadline_ms() is None


def test_what_stands_before_every_latest_snapshot_is_deleted():
    topic = Topic(ShareCoordinator(CATALOG, 3, cold_interval_ms=10**9, prune_interval_ms=100))
    begin(topic, 0)
    topic.expire(NOW)
    begin(topic, 1)
    for n in range(4):
        update(topic, 0, n)
    topic.expire(NOW + 99)
    assert topic.start_offset == 0
    topic.expire(NOW + 100)
    assert topic.start_offset == 1  # the snapshot of g1
    for n in range(4):
        update(topic, 1, n)
    topic.expire(NOW + 199)
    assert topic.start_offset == 1
    topic.expire(NOW + 200)
    assert topic.start_offset == 5  # the snapshot of g0 after three updates
    assert state_of(topic.replayed()) == state_of(topic.coordinator)


@pytest.mark.parametrize("ahead_ms", [-(10**9), 10**9])
def test_intervals_begin_at_the_start_however_the_wall_clock_was_set(ahead_ms):
    written_ms = NOW + ahead_ms
    topic = Topic(ShareCoordinator(CATALOG, 3, cold_interval_ms=100, prune_interval_ms=70))
    begin(topic, 0, written_ms)
    for n in range(4):
        update(topic, 0, n, written_ms)
    assert topic.coordinator.next_deadline_ms() <= NOW
    topic.expire(NOW, written_ms)
    assert topic.coordinator.next_deadline_ms() == NOW + 70
    assert topic.start_offset == 0
    topic.expire(NOW + 70, written_ms)
    assert topic.coordinator.next_deadline_ms() == NOW + 100
    assert topic.start_offset == 4


def test_a_cold_share_partition_is_snapshotted_so_that_the_log_before_it_can_go():
    topic = Topic(ShareCoordinator(CATALOG, 3, cold_interval_ms=100, prune_interval_ms=10**9))
    begin(topic, 0)
    topic.expire(NOW)
    update(topic, 0, 7)
    begin(topic, 1, NOW + 60)
    topic.expire(NOW + 100)
    key, value = topic.log[-1]
    assert decode(key, value) == ShareSnapshot(key_of(0), 1, 1, 0, 7, NOW, NOW + 100, (), 0)
    assert topic.coordinator.next_deadline_ms() == NOW + 200
    written = len(topic.log)
    topic.expire(NOW + 200)  # g1 is cold too, but with nothing to let go
    assert len(topic.log) == written
    assert topic.replayed().summary(key_of(0)).start_offset == 7


def test_a_snapshot_that_cannot_be_written_is_tried_again_after_a_pause():
    topic = Topic(ShareCoordinator(CATALOG, cold_interval_ms=100, prune_interval_ms=10**9))
    begin(topic, 0)
    topic.expire(NOW)
    update(topic, 0, 7)
    assert len(list(topic.coordinator.expire(NOW + 100, NOW + 100))) == 1  # but not applied
    assert topic.coordinator.next_deadline_ms() == NOW + 100 + RETRY_MS
    topic.expire(NOW + 100 + RETRY_MS)
    assert isinstance(decode(*topic.log[-1]), ShareSnapshot)
    assert topic.coordinator.next_deadline_ms() == NOW + 200 + RETRY_MS


def test_many_cold_share_partitions_are_snapshotted_in_several_steps():
    topic = Topic(ShareCoordinator(CATALOG, cold_interval_ms=100, prune_interval_ms=100))
    many = 2 * COLD_SNAPSHOTS_AT_ONCE + 1
    for number in range(many):
        begin(topic, number)
        update(topic, number, number)
    topic.expire(NOW)
    steps = 0
    while topic.coordinator.next_deadline_ms() <= NOW + 100:
        before = len(topic.log)
        topic.expire(NOW + 100)
        assert len(topic.log) - before <= COLD_SNAPSHOTS_AT_ONCE
        steps += 1
    assert (steps, len(topic.log)) == (3, 3 * many)
    topic.expire(NOW + 200)
    assert topic.start_offset == 2 * many
    assert len(topic.log) == 3 * many
    assert state_of(topic.replayed()) == state_of(topic.coordinator)


def test_the_limit_of_a_step_holds_for_all_partitions_of_the_internal_topic_together():
    snapshots = Snapshots()
    for partition in range(3):
        for number in range(4):
            snapshots.replay(snapshot_of(10 * partition + number), Position(partition, number))
        snapshots.replay(ShareUpdate(key_of(10 * partition), 0, 0, 0), Position(partition, 99))
    snapshots.begin_sweep(NOW)
    assert [[key.group_id for key in keys] for keys in snapshots.sweep(6)] == [
        ["g0", "g1", "g2", "g3"],
        ["g10", "g11"],
    ]
    for partition in range(3):
        for number in range(3):
            snapshot = snapshot_of(10 * partition + number, NOW + 1)
            snapshots.replay(snapshot, Position(partition, 100 + number))
    assert [[key.group_id for key in keys] for keys in snapshots.sweep(6)] == [
        ["g3"],
        ["g13"],
        ["g23"],
    ]


def test_a_long_log_is_shortened_without_waiting_for_time(monkeypatch):
    monkeypatch.setattr(share_state, "SWEEP_AFTER_RECORDS", 30)
    monkeypatch.setattr(share_state, "SWEEP_AFTER_RECORDS_EACH", 2)
    topic = Topic(ShareCoordinator(CATALOG))
    for number in range(5):
        begin(topic, number)
    for n in range(1000):
        update(topic, n % 4, n, NOW + n)
        if topic.coordinator.next_deadline_ms() <= NOW + n:
            topic.expire(NOW + n)
        assert len(topic.log) - topic.start_offset <= 30 + 5 * 2 + 5
    assert topic.coordinator.next_deadline_ms() > NOW + 1000
    assert state_of(topic.replayed()) == state_of(topic.coordinator)


# --- replay ---

KEYS = st.integers(0, 2).map(key_of)
BATCHES = st.lists(
    st.tuples(
        st.integers(0, 20), st.integers(0, 6), st.sampled_from([0, 2, 4]), st.integers(1, 5)
    ).map(lambda t: StateBatch(t[0], t[0] + t[1], t[2], t[3])),
    max_size=4,
)
INITIALIZE = st.tuples(st.just("initialize"), KEYS, st.integers(0, 3), st.integers(-1, 20))
WRITE = st.tuples(
    st.just("write"),
    KEYS,
    st.integers(-1, 3),
    st.integers(-1, 3),
    st.integers(-1, 20),
    st.integers(-1, 9),
    BATCHES,
)
COMMANDS = st.lists(
    st.one_of(
        INITIALIZE,
        WRITE,
        st.tuples(st.just("read"), KEYS, st.integers(-1, 3)),
        st.tuples(st.just("delete"), KEYS),
        st.tuples(st.just("topic_deleted")),
        st.tuples(st.just("expire"), st.integers(1, 300)),
    ),
    max_size=40,
)


def state_of(coordinator):
    return coordinator._states, coordinator._by_topic


def run(topic, name, args, now_ms):
    coordinator = topic.coordinator
    if name == "topic_deleted":
        for _, outcome in coordinator.topic_deleted(TOPIC):
            topic.submit(outcome)
        return
    before = repr(state_of(coordinator))
    outcome = (
        coordinator.delete(*args) if name == "delete" else getattr(coordinator, name)(*args, now_ms)
    )
    assert repr(state_of(coordinator)) == before, "deciding changes nothing"
    topic.submit(outcome)


@given(COMMANDS, st.integers(0, 4), st.integers(1, 200), st.integers(1, 200))
def test_replaying_what_is_left_of_the_log_gives_the_live_state(
    commands, updates, cold_ms, prune_ms
):
    topic = Topic(ShareCoordinator(CATALOG, updates, cold_ms, prune_ms))
    now_ms = NOW
    for name, *args in commands:
        if name == "expire":
            now_ms += args[0]
            while (
                deadline_ms := topic.coordinator.next_deadline_ms()
            ) is not None and deadline_ms <= now_ms:
                topic.expire(now_ms)
        else:
            run(topic, name, args, now_ms)
        replayed = topic.replayed()
        assert state_of(replayed) == state_of(topic.coordinator)
        if topic.log[topic.start_offset :]:
            assert replayed._snapshots == topic.coordinator._snapshots


@given(st.lists(st.one_of(INITIALIZE, WRITE)))
def test_snapshots_do_not_change_what_is_read(commands):
    often, never = Topic(ShareCoordinator(CATALOG, 1)), Topic(ShareCoordinator(CATALOG, 10_000))
    for name, key, *args in commands:
        run(often, name, (key, *args), NOW)
        run(never, name, (key, *args), NOW)
        read_often, read_never = (
            replace(reply, snapshot_epoch=0, create_timestamp_ms=0, updates=0)
            if isinstance(reply := topic.coordinator.read(key, 99, NOW).reply, ShareState)
            else reply
            for topic in (often, never)
        )
        assert read_often == read_never


@given(st.lists(st.tuples(st.integers(-1, 20), BATCHES)), st.integers(0, 3))
def test_what_is_read_is_what_a_model_of_single_offsets_has(writes, updates):
    """The highest delivery count of an offset counts, and at that the greatest state; below the
    start nothing does.
    """
    topic = Topic(ShareCoordinator(CATALOG, updates))
    begin(topic, 0)
    offsets, start = {}, 0
    for start_offset, batches in writes:
        stored = combined(batches, start_offset)
        topic.submit(topic.coordinator.write(key_of(0), 1, 0, start_offset, 0, stored, NOW))
        start = max(start, start_offset)
        for batch in batches:
            for offset in range(batch.first_offset, batch.last_offset + 1):
                offsets[offset] = max(
                    offsets.get(offset, (0, 0)), (batch.delivery_count, batch.delivery_state)
                )
        offsets = {offset: value for offset, value in offsets.items() if offset >= start}
        found = topic.coordinator.read(key_of(0), 0, NOW).reply
        assert found.start_offset == start
        assert {
            offset: (count, state)
            for first, last, state, count in found.state_batches
            for offset in range(first, last + 1)
        } == offsets
        ends = [(first, last) for first, last, _, _ in found.state_batches]
        assert ends == sorted(ends)
        assert all(
            one[1] + 1 < other[0] or (one[1] < other[0] and one[2:] != other[2:])
            for one, other in pairwise(found.state_batches)
        ), "neighbours that are alike are one batch"
