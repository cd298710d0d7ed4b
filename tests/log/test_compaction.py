"""Compaction: the records that stay, rule by rule and codec by codec, and the files around them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.log import cleaner, segment, swap
from headrace.log.aborted_transactions import AbortedLookup, AbortedTransaction
from headrace.log.cleaner import CleaningStopped, Pace, Round, cleanable
from headrace.log.compaction import Compactor, LastOfProducer, LatestOffsets
from headrace.log.data_directory import DataDirectory
from headrace.log.log_directory import LogDirectory
from headrace.log.partition_log import PartitionLog
from headrace.log.verify import Verified, log_files, verify_file
from headrace.protocol.record_batch import (
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    CorruptBatch,
    Marker,
    build,
    end_transaction_marker,
    has_right_crc,
    header_at,
    headers,
    marker_in,
    records,
)
from tests.log.disk import (
    NOW,
    TOPIC_ID,
    Disk,
    apply_retention,
    clean,
    delete_records,
    first_at_or_after,
    latest,
    put,
    values,
)

HOUR = 3_600_000
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def compactor(latest: dict[bytes, int], end: int = 1000, now: int = NOW, **how: Any) -> Compactor:
    return Compactor(
        latest,
        end,
        aborted=AbortedLookup(how.get("aborted", ())),
        producers=how.get("producers", {}),
        now_ms=now,
        delete_retention_ms=how.get("retention", HOUR),
    )


def cleaned(one: Compactor, data: bytes | memoryview) -> tuple[BatchHeader, bytes] | None:
    """Clean a batch, and check what must never change; None if nothing is left."""
    before = header_at(data)
    left = one.clean(before, memoryview(data))
    if left is None:
        return None
    header = header_at(left)
    assert has_right_crc(memoryview(left), header) and header.size_bytes == len(left)
    for name in (
        "base_offset",
        "last_offset",
        "producer_id",
        "producer_epoch",
        "base_sequence",
        "last_sequence",
    ):
        assert getattr(header, name) == getattr(before, name)
    assert (header.is_transactional, header.is_control) == (
        before.is_transactional,
        before.is_control,
    )
    return header, bytes(left)


def pairs(
    left: tuple[BatchHeader, bytes] | None,
) -> list[tuple[int, bytes | None, bytes | None]] | None:
    return None if left is None else [(one.offset, one.key, one.value) for one in records(left[1])]


# The records that stay


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_superseded_records_are_removed_and_others_unchanged(codec: int):
    times = [NOW - 5, NOW, NOW - 7, NOW - 1]
    data = build(
        [(b"a", b"1" * 50), (b"b", b"2" * 500), (b"c", b"3"), (b"d", None)],
        timestamp_ms=0,
        timestamps_ms=times,
        headers=[[("h", b"%d" % n), ("null", None)] for n in range(4)],
        codec=codec,
        base_offset=10,
    )
    left = cleaned(compactor({b"a": 10, b"b": 40, b"d": 13}), data)
    assert left is not None
    before = list(records(data))
    assert list(records(left[1])) == [before[0], before[2], before[3]]  # c has no later record
    assert left[0].codec == codec and left[0].record_count == 3 and left[0].max_timestamp == NOW - 1


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.binary(max_size=3), st.none() | st.binary(max_size=200)), min_size=1),
    st.data(),
)
def test_any_batch_and_any_choice(given_pairs, data):
    codec = data.draw(st.sampled_from(list(CODECS.values())))
    times = data.draw(
        st.lists(st.integers(0, 2**62), min_size=len(given_pairs), max_size=len(given_pairs))
    )
    batch = build(given_pairs, timestamp_ms=0, timestamps_ms=times, codec=codec, base_offset=5)
    latest = {
        key: data.draw(st.integers(0, 5 + len(given_pairs)))
        for key in sorted({key for key, _ in given_pairs})
    }
    left = cleaned(compactor(latest), batch)
    wanted = [
        one for one in records(batch) if one.key is not None and one.offset >= latest[one.key]
    ]
    assert ([] if left is None else list(records(left[1]))) == wanted


def test_a_batch_that_loses_nothing_is_the_same_bytes():
    data = memoryview(build([(b"a", b"1"), (b"b", b"2")], timestamp_ms=NOW, codec=4))
    assert compactor({b"a": 0, b"b": 1}).clean(header_at(data), data) is data


def test_keyless_records_are_removed():
    assert pairs(cleaned(compactor({}), build([(None, b"1"), (b"", b"2")], timestamp_ms=NOW))) == [
        (1, b"", b"2")
    ]


def test_batches_after_the_end_stay_as_they_are():
    data = memoryview(build([(None, b"1"), (b"a", None)], timestamp_ms=NOW, base_offset=7))
    assert compactor({b"a": 90}, end=7).clean(header_at(data), data) is data


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_a_tombstone_is_removed_after_its_delete_horizon(codec: int):
    data = build(
        [(b"a", None), (b"b", b"x" * 300)],
        timestamp_ms=0,
        timestamps_ms=[NOW - 9, NOW],
        codec=codec,
    )
    first = cleaned(compactor({b"a": 0, b"b": 1}), data)
    assert first is not None and list(records(first[1])) == list(records(data))
    assert first[0].attributes & DELETE_HORIZON_BIT and first[0].delete_horizon_ms == NOW + HOUR
    assert (first[0].codec, first[0].max_timestamp) == (codec, NOW)
    for later, stays in ((0, True), (HOUR - 1, True), (HOUR, False)):
        then = cleaned(compactor({b"b": 1}, now=NOW + later), first[1])
        assert then is not None and (then[1] == first[1]) == stays
        assert list(records(then[1])) == list(records(data))[0 if stays else 1 :]
        assert then[0].delete_horizon_ms == NOW + HOUR  # it never changes
    superseded = cleaned(compactor({b"a": 5, b"b": 1}), first[1])
    assert pairs(superseded) == [(1, b"b", b"x" * 300)]


def test_the_longest_retention_is_no_overflow():
    left = cleaned(compactor({}, retention=2**63 - 1), build([(b"a", None)], timestamp_ms=NOW))
    assert left is not None and left[0].delete_horizon_ms == 2**63 - 1
    assert [one.timestamp_ms for one in records(left[1])] == [NOW]


def test_log_append_time_stays():
    attributes = LOG_APPEND_TIME_BIT
    data = build([(b"a", None), (b"b", b"1")], timestamp_ms=NOW, attributes=attributes)
    left = cleaned(compactor({b"b": 9}), data)
    assert left is not None and [one.timestamp_ms for one in records(left[1])] == [NOW]
    assert left[0].timestamp_type == "LogAppendTime"


def test_the_last_sequence_of_a_live_producer_stays():
    producer = {"producer_id": 7, "producer_epoch": 1, "base_sequence": 4}
    data = build([(b"a", b"1"), (b"b", b"2")], timestamp_ms=NOW, codec=1, **producer)
    latest = {b"a": 50, b"b": 51}
    assert cleaned(compactor(latest), data) is None
    assert cleaned(compactor(latest, producers={7: LastOfProducer(9, 1)}), data) is None
    live = {7: LastOfProducer(1, 1)}
    left = cleaned(compactor(latest, producers=live), data)
    assert (
        left is not None
        and pairs(left) == []
        and left[0].last_sequence == 5
        and left[0].max_timestamp == NOW
    )
    assert cleaned(compactor({}, producers=live), left[1]) == left
    assert cleaned(compactor({}), left[1]) is None  # the producer was forgotten


def test_the_last_batch_of_the_part_stays_until_the_next_round():
    data = build([(b"a", b"1"), (b"b", b"2")], timestamp_ms=NOW)
    left = cleaned(compactor({b"a": 50, b"b": 51}, end=2), data)
    assert left is not None and pairs(left) == []
    assert cleaned(compactor({}, end=3), left[1]) is None


# Transactions


def data_of(producer: int, base: int, key: bytes = b"a") -> bytes:
    return build(
        [(key, b"v")],
        timestamp_ms=NOW,
        attributes=TRANSACTIONAL_BIT,
        base_offset=base,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
    )


def marker_of(producer: int, base: int, commit: bool) -> bytes:
    data = bytearray(end_transaction_marker(producer, 0, Marker(commit, 0), NOW))
    data[:8] = base.to_bytes(8, "big")
    return bytes(data)


def test_aborted_data_is_removed_before_its_marker():
    aborted = [AbortedTransaction(7, 0, 2, 3), AbortedTransaction(7, 5, 6, 7)]
    one = compactor({b"a": 0}, aborted=aborted)
    assert cleaned(one, data_of(7, 0)) is None
    assert pairs(cleaned(one, data_of(8, 1, b"other"))) == [(1, b"other", b"v")]
    marker = marker_of(7, 2, False)
    assert cleaned(one, marker) == (header_at(marker), marker)  # its data is in the log
    # the next transaction was committed
    assert pairs(cleaned(one, data_of(7, 3))) == [(3, b"a", b"v")]
    assert cleaned(one, data_of(7, 5)) is None

    first = cleaned(compactor({}), marker)
    assert (
        first is not None
        and first[0].delete_horizon_ms == NOW + HOUR
        and marker_in(first[1]) == Marker(False, 0)
    )
    assert cleaned(compactor({}, now=NOW + HOUR - 1), first[1]) == first
    assert cleaned(compactor({}, now=NOW + HOUR), first[1]) is None


def test_a_commit_marker_stays_as_long_as_there_is_data():
    marker = marker_of(7, 2, True)
    for _ in range(2):
        one = compactor({}, now=NOW + 9 * HOUR)
        assert pairs(cleaned(one, data_of(7, 0))) == [(0, b"a", b"v")]
        assert cleaned(one, marker) == (header_at(marker), marker)
    one = compactor({b"a": 90}, now=NOW + 9 * HOUR)
    assert cleaned(one, data_of(7, 0)) is None
    assert cleaned(one, marker) == (header_at(marker), marker)


def test_the_marker_that_alone_knows_the_epoch_stays():
    first = cleaned(compactor({}), marker_of(7, 2, True))
    assert first is not None
    later = NOW + 2 * HOUR
    for last, stays in (((None, 0), True), ((None, 1), False), ((1, 0), False)):
        assert (
            cleaned(compactor({}, now=later, producers={7: LastOfProducer(*last)}), first[1])
            == first
        ) == stays


def test_a_marker_at_the_end_of_the_part_leaves_an_empty_batch():
    first = cleaned(compactor({}), marker_of(7, 2, True))
    assert first is not None
    left = cleaned(compactor({}, end=3, now=NOW + HOUR), first[1])
    assert (
        left is not None and pairs(left) == [] and left[0].is_control and marker_in(left[1]) is None
    )
    assert cleaned(compactor({}), left[1]) is None


# Damage


def test_a_batch_that_cannot_be_read_is_an_error():
    data = bytearray(build([(b"a", b"1")], timestamp_ms=NOW))
    data[61] = 0x7E
    with pytest.raises(CorruptBatch):
        compactor({}).clean(header_at(data), memoryview(data))
    data = bytearray(build([(b"a", b"1")], timestamp_ms=NOW, codec=4))
    data[65:] = b"\0" * len(data[65:])
    with pytest.raises(CorruptBatch):
        LatestOffsets(1000).note(header_at(data), memoryview(data), 0)


# A log

COMPACT: dict[str, Any] = {
    "cleanup_policy": "compact",
    "segment_bytes": 400,
    "min_cleanable_dirty_ratio": 0.0,
}


def fill(log: PartitionLog, count: int, keys: int = 2, now: int = NOW, **producer: int) -> None:
    for n in range(count):
        if producer:
            producer = {**producer, "base_sequence": producer.get("base_sequence", -1) + 1}
        put(
            log,
            build([(b"%d" % (n % keys), b"%d" % n + bytes(40))], timestamp_ms=now + n, **producer),
            now + n,
        )


def plan_and_clean(log: PartitionLog, now: int = NOW, **how: Any) -> Round | None:
    plan = cleanable(log, now)
    return None if plan is None else clean(log, plan, now, **how)


def offsets(log: PartitionLog) -> list[int]:
    return sorted(values(log))


def test_small_segments_become_one(disk: Disk):
    log = disk.log(**COMPACT)
    fill(log, 30)
    before = [one.base_offset for one in log.segments]
    active = before[-1]
    assert len(before) > 6
    log.config = disk.log(partition=1, **{**COMPACT, "segment_bytes": 10_000}).config
    one = plan_and_clean(log)
    assert one is not None and one.end_offset == active and one.keys == 2
    assert [segment.base_offset for segment in log.segments] == [0, active]
    assert offsets(log) == list(range(active - 2, 30))
    assert plan_and_clean(log) is None  # nothing is dirty
    assert {path.suffix for path in (disk.path / "t-0").iterdir()} <= {
        ".log",
        ".index",
        ".timeindex",
        ".checksums",
        ".snapshot",
        ".metadata",
        "",
    }
    assert not (disk.path / "t-0" / swap.CLEANING).exists()
    for start in (disk.stop, disk.crash):
        start()
        if start == disk.stop:
            disk.start()
        log = disk.log(**COMPACT)
        assert offsets(log) == list(range(active - 2, 30)) and log.log_start_offset == 0
        assert cleanable(log, NOW) is None  # the end of the clean part is saved


def test_records_are_on_disk_before_those_that_they_replace_are_removed(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
):
    """A full segment is forced to disk in the background, which may take long."""
    disk.stop()
    monkeypatch.setattr(DataDirectory, "in_background", lambda *_: None)
    disk.home = LogDirectory(DataDirectory(disk.path, 16, sync=True))
    log = disk.log(cleanup_policy="compact", min_cleanable_dirty_ratio=0.0, segment_bytes=150)
    fill(log, 5, keys=1)
    forced: list[int] = []
    fsync, begin = segment.Segment.fsync, swap.Swap.begin

    def noted_fsync(self: segment.Segment, *args: Any) -> None:
        fsync(self, *args)
        if self.directory == log.path:
            forced.append(self.base_offset)

    def checked_begin(*args: Any) -> None:
        assert set(forced) >= {0, 1, 2, 3}
        begin(*args)

    monkeypatch.setattr(segment.Segment, "fsync", noted_fsync)
    monkeypatch.setattr(swap.Swap, "begin", checked_begin)
    assert plan_and_clean(log) is not None
    assert set(offsets(log)) < {0, 1, 2, 3, 4}


def test_a_reader_anywhere_gets_the_next_batch(disk: Disk):
    log = disk.log(**COMPACT)
    fill(log, 40, keys=1)
    active = log.segments[-1].base_offset
    assert plan_and_clean(log) is not None
    for offset in range(active - 1):
        data = log.read(offset, 10)
        assert isinstance(data, bytes) and header_at(data).base_offset == active - 1
    assert first_at_or_after(log, NOW) == (active - 1, NOW + active - 1)
    assert latest(log) == (39, NOW + 39)


def test_a_reader_gets_to_the_end_of_what_is_wholly_superseded(disk: Disk):
    log = disk.log(**COMPACT)
    fill(log, 10, keys=2)
    log.roll(NOW)
    put(log, build([(b"0", None), (b"1", None)], timestamp_ms=NOW), NOW)
    log.roll(NOW)
    assert plan_and_clean(log) is not None
    log.config = disk.log(partition=1, **COMPACT, delete_retention_ms=0).config
    fill(log, 1)
    log.roll(NOW)
    later = NOW + 90_000_000
    assert plan_and_clean(log, later) is not None
    assert offsets(log) == [12] and log.end_offset == 13
    put(log, build([(b"0", None)], timestamp_ms=NOW), NOW)
    log.roll(NOW)
    plan_and_clean(log, later)
    put(log, build([(b"9", b"")], timestamp_ms=NOW), NOW)
    log.roll(NOW)
    plan_and_clean(log, later + 1)
    assert offsets(log) == [14]
    data = log.read(0, 1000)
    assert isinstance(data, bytes) and data
    assert latest(log) == (14, NOW)


def test_the_largest_timestamp_is_of_a_record_that_is_there(disk: Disk):
    log = disk.log(**COMPACT)
    put(
        log,
        build(
            [(b"a", b"")], timestamp_ms=NOW + 500, producer_id=3, producer_epoch=0, base_sequence=0
        ),
        NOW,
    )
    put(log, build([(b"a", b"")], timestamp_ms=NOW), NOW)
    log.roll(NOW)
    assert plan_and_clean(log) is not None
    for _ in range(2):
        assert latest(log) == (1, NOW) and first_at_or_after(log, NOW + 1) is None
        disk.crash(lambda path: [file.unlink() for file in (path / "t-0").glob("*index")])
        log = disk.log(**COMPACT)


def test_min_cleanable_dirty_ratio(disk: Disk):
    log = disk.log(**{**COMPACT, "min_cleanable_dirty_ratio": 0.5})
    fill(log, 60, keys=30)
    plan = cleanable(log, NOW)
    assert plan is not None and plan.dirty_ratio == 1 and plan.first_dirty_offset == 0
    clean(log, plan, NOW)
    put(log, build([(b"new", bytes(300))], timestamp_ms=NOW), NOW)
    log.roll(NOW)
    assert cleanable(log, NOW) is None
    fill(log, 60, keys=30)
    plan = cleanable(log, NOW)
    assert plan is not None and 0.5 < plan.dirty_ratio < 1
    log.config = disk.log(partition=1, **{**COMPACT, "min_cleanable_dirty_ratio": 1.0}).config
    assert cleanable(log, NOW) is None
    config = {**COMPACT, "min_cleanable_dirty_ratio": 1.0, "max_compaction_lag_ms": 1000}
    log.config = disk.log(partition=2, **config).config
    assert cleanable(log, NOW) is None
    overdue = cleanable(log, NOW + 1060)
    assert overdue is not None and overdue.is_overdue


def test_young_records_and_open_transactions_are_not_compacted(disk: Disk):
    log = disk.log(**COMPACT, min_compaction_lag_ms=1000)
    fill(log, 30)
    assert cleanable(log, NOW + 1000) is None
    third = log.segments[3].base_offset
    plan = cleanable(log, NOW + 1000 + third)
    assert plan is not None and plan.end_offset == third
    log.config = disk.log(partition=1, **COMPACT).config
    put(
        log,
        build(
            [(b"t", b"")],
            timestamp_ms=NOW,
            attributes=TRANSACTIONAL_BIT,
            producer_id=5,
            producer_epoch=0,
            base_sequence=0,
        ),
        NOW,
    )
    fill(log, 20)
    plan = cleanable(log, NOW)
    assert plan is not None and plan.end_offset == 30
    clean(log, plan, NOW)
    assert cleanable(log, NOW) is None
    assert offsets(log)[-21:] == list(range(30, 51))


def test_a_segment_is_closed_for_the_sake_of_max_compaction_lag(disk: Disk):
    log = disk.log(**{**COMPACT, "segment_bytes": 10_000}, max_compaction_lag_ms=1000)
    put(log, build([(b"a", b"")], timestamp_ms=NOW), NOW)
    put(log, build([(b"a", b"")], timestamp_ms=NOW + 1001), NOW)
    assert len(log.segments) == 2


def test_a_full_table_of_keys_ends_the_round_early(disk: Disk):
    log = disk.log(**COMPACT)
    fill(log, 60, keys=20)
    ends, rounds = [], 0
    while (one := plan_and_clean(log, dedupe_bytes=800)) is not None:
        ends.append(one.end_offset)
        rounds += 1
    assert rounds > 3 and ends == sorted(set(ends))
    assert offsets(log) == list(range(log.segments[-1].base_offset - 20, 60))


def test_damage_ends_the_round_and_changes_nothing(disk: Disk):
    log = disk.log(**COMPACT)
    fill(log, 30)
    before = log.size_bytes()
    path = log.segments[3].path(".log")
    data = bytearray(Path(path).read_bytes())
    data[-1] ^= 1
    Path(path).write_bytes(data)
    with pytest.raises(CorruptBatch, match="00000000"):
        plan_and_clean(log)
    assert log.size_bytes() == before


def test_a_full_disk_ends_the_round(disk: Disk, monkeypatch: pytest.MonkeyPatch):
    log = disk.log(**COMPACT)
    fill(log, 30)

    written = segment.pwritev
    writes = 0

    def full(fd: int, buffers: segment.Buffers, position: int) -> int:
        nonlocal writes
        writes += 1
        if writes > 1:
            raise OSError(28, os.strerror(28))
        return written(fd, buffers, position)

    with monkeypatch.context() as patch:
        patch.setattr(cleaner, "WRITE_BYTES", 1)
        patch.setattr(segment, "pwritev", full)
        with pytest.raises(OSError, match="No space"):
            plan_and_clean(log)
    assert writes == 2 and not os.path.exists(f"{log.path}/cleaning"), "others need the room"
    assert offsets(log)[-6:] == list(range(24, 30))
    assert plan_and_clean(log) is not None and offsets(log) == [25, 26, 27, 28, 29]


@pytest.mark.parametrize("step", range(6))
def test_changes_of_the_log_between_two_steps(disk: Disk, step: int):
    """Records or the whole topic are deleted while a thread is cleaning: the round ends, and
    nothing comes back.
    """
    for what in ("records", "topic", "cancel"):
        log = disk.log(partition=["records", "topic", "cancel"].index(what), **COMPACT)
        fill(log, 30)
        plan = cleanable(log, NOW)
        assert plan is not None
        steps = Round(log, plan, NOW, 1 << 20, Pace()).steps()
        try:
            for number, work in enumerate(steps):
                if number == step:
                    if what == "records":
                        delete_records(log, 20)
                        apply_retention(log, NOW)
                    elif what == "topic":
                        log.delete()
                        os.rename(log.path, f"{log.path}.deleted")
                    else:
                        break
                work()
        except (CleaningStopped, FileNotFoundError):
            pass
        steps.close()
        if what == "topic":
            assert not os.path.exists(log.path)
            assert log.is_deleted
            continue
        kept = [offset for offset in offsets(log) if offset >= 20]
        assert not list(Path(log.path).glob("*.swap"))
        assert kept[-3:] == [27, 28, 29] and (what == "cancel" or log.log_start_offset == 20)
        plan_and_clean(log)
        assert offsets(log)[-3:] == [27, 28, 29]


def test_a_crash_in_the_first_round_leaves_no_gap_that_looks_like_damage(disk: Disk):
    log = disk.log(**COMPACT)
    for n in range(30):  # each segment keeps a record in its middle
        put(log, build([(b"%d" % (n if n % 3 == 1 else 0), bytes(40))], timestamp_ms=NOW))
    plan = cleanable(log, NOW)
    assert plan is not None
    begun = 0
    for work in Round(log, plan, NOW, 1 << 20, Pace()).steps():
        if values(log).keys() != set(range(30)):
            break  # a new segment is in place, and the round is not at its end
        work()
        begun += 1
    assert begun > 2
    disk.crash()
    assert len(offsets(disk.log(**COMPACT))) < 30
    found = [
        damage
        for file in log_files(str(disk.path), ["t-0"])
        for damage in verify_file(file, is_live=False, verified=Verified())
    ]
    assert not found


@pytest.mark.parametrize("renamed", [0, 1, 9], ids=["none", "the first", "all"])
def test_damage_in_a_new_segment_that_a_crash_has_left_keeps_the_old_ones(
    disk: Disk, caplog: pytest.LogCaptureFixture, renamed: int
):
    """The old segments were deleted, and the new one was found damaged afterwards."""
    log = disk.log(**COMPACT)
    for n in range(30):
        put(log, build([(b"%d" % (n if n % 3 == 1 else 0), bytes(40))], timestamp_ms=NOW))
    plan = cleanable(log, NOW)
    assert plan is not None
    steps = Round(log, plan, NOW, 1 << 20, Pace()).steps()
    while not list(Path(log.path).glob("*.swap")):
        next(steps)()

    def spoil(path: Path) -> None:
        (made,) = (path / "t-0").glob("*.log.swap")
        base, end = made.name.removesuffix(".log.swap").split("-")
        data = bytearray(made.read_bytes())
        data[-1] ^= 1
        made.write_bytes(data)
        for old in sorted((path / "t-0").glob("*.log"))[:renamed]:
            if base <= old.stem < end:
                for file in sorted((path / "t-0").glob(f"{old.stem}.*")):
                    file.rename(f"{file}.deleted")
        if renamed:  # its indexes come before it
            (path / "t-0" / f"{base}.index").write_bytes(b"x" * 8)

    disk.crash(spoil)
    log = disk.log(**COMPACT)
    assert offsets(log) == list(range(30))
    kept = disk.path / "t-0" / "00000000000000000000.log.damaged"
    assert f"Set aside {kept}" in caplog.text
    assert {path.suffix for path in Path(log.path).iterdir()}.isdisjoint({".swap", ".deleted"})
    assert kept.exists()
    plan_and_clean(log)
    left = offsets(log)
    assert left[:4] == [1, 4, 7, 10] and len(left) < 15
    disk.crash()
    assert offsets(disk.log(**COMPACT)) == left
    steps.close()


def test_a_stopped_pace_ends_the_round(disk: Disk):
    log = disk.log(**COMPACT)
    fill(log, 30)
    plan, pace = cleanable(log, NOW), Pace()
    assert plan is not None
    steps = Round(log, plan, NOW, 1 << 20, pace).steps()
    pace.stopped.set()
    with pytest.raises(CleaningStopped):
        next(steps)()
    assert offsets(log) == list(range(30))


def test_retention_of_compact_and_delete(disk: Disk):
    log = disk.log(**{**COMPACT, "cleanup_policy": "compact,delete"}, retention_ms=1000)
    fill(log, 30)
    assert plan_and_clean(log) is not None
    apply_retention(log, NOW + 1010)
    start = log.log_start_offset
    assert start == log.segments[0].base_offset > 0
    fill(log, 30, now=NOW + 2000)
    assert plan_and_clean(log) is not None
    apply_retention(log, NOW + 9000)
    assert log.log_start_offset == log.end_offset and offsets(log) == []


def test_a_producer_goes_on_over_a_crash_though_its_records_are_gone(disk: Disk):
    log = disk.log(**COMPACT)
    producer = {"producer_id": 9, "producer_epoch": 2}
    sent = build([(b"0", b"mine")], timestamp_ms=NOW, base_sequence=0, **producer)
    put(log, sent)
    fill(log, 30)
    assert plan_and_clean(log) is not None and offsets(log)[0] > 0
    disk.crash(lambda path: [file.unlink() for file in (path / "t-0").glob("*.snapshot")])
    log = disk.log(**COMPACT)
    again = put(log, sent)
    assert again.duplicate and again.base_offset == 0
    put(log, build([(b"0", b"mine")], timestamp_ms=NOW, base_sequence=1, **producer))


def test_all_batches_of_a_cleaned_log_are_whole(disk: Disk):
    log = disk.log(**{**COMPACT, "segment_bytes": 3000})
    for n in range(120):
        put(
            log,
            build(
                [(b"%d" % (n * m % 17), bytes(30)) for m in range(1, 4)],
                timestamp_ms=NOW,
                codec=n % 5,
            ),
        )
    assert plan_and_clean(log) is not None
    for number, one in enumerate(log.segments):
        data = one.read(0, one.size_bytes)
        found = list(headers(data))
        assert all(has_right_crc(memoryview(data)[position:], header) for position, header in found)
        ends = [header.last_offset for _, header in found]
        assert ends == sorted(set(ends)) and all(end >= one.base_offset for end in ends), number
    assert log.topic_id == TOPIC_ID


def test_an_aborted_record_supersedes_nothing(disk: Disk):
    log = disk.log(**COMPACT)
    put(log, build([(b"a", b"committed")], timestamp_ms=NOW))
    put(log, data_of(7, 0))
    log.append_marker(7, 0, Marker(False, 0), NOW)
    log.roll(NOW)
    assert plan_and_clean(log) is not None
    assert values(log)[0] == b"committed" and 1 not in values(log)
    assert not log.aborted.in_segment(0, log.end_offset)


def flip_a_bit_of_the_aborted_transactions(path: Path) -> None:
    index = path / "t-0" / f"{0:020d}.txnindex"
    index.write_bytes(index.read_bytes()[:-1] + b"\x42")


@pytest.mark.parametrize(
    "how", ["goes on", "restarts", "crashes", "crashes without snapshots", "crashes with a flip"]
)
def test_transactions_aborted_after_the_end_of_a_round_stay_aborted(
    disk: Disk, how: str, caplog: pytest.LogCaptureFixture
):
    """The segment is replaced as a whole, so the new one must keep the aborted transactions after
    the end of the round, with their checksum.
    """
    log = disk.log(**{**COMPACT, "segment_bytes": 10_000})
    fill(log, 10, keys=1)
    put(log, build([(b"another", b"")], timestamp_ms=NOW))
    put(log, data_of(7, 0))
    log.append_marker(7, 0, Marker(False, 0), NOW)
    fill(log, 5, keys=5)
    log.roll(NOW)
    fill(log, 1)
    one = plan_and_clean(log, dedupe_bytes=200)
    assert one is not None and one.end_offset == 11  # before the transaction
    assert offsets(log) == list(range(9, 19))
    aborted = [AbortedTransaction(7, 11, 12, 13)]
    if how == "restarts":
        disk.stop()
        disk.start()
    elif how == "crashes with a flip":
        disk.crash(flip_a_bit_of_the_aborted_transactions)
    elif how.startswith("crashes"):
        lost = "*.snapshot" if how.endswith("snapshots") else "nothing"
        disk.crash(lambda path: [file.unlink() for file in (path / "t-0").glob(lost)])
    log = disk.log(**COMPACT)
    assert log.aborted.overlapping(0, log.end_offset) == aborted
    assert ("finding the aborted transactions again" in caplog.text) == how.endswith("flip")
    while plan_and_clean(log) is not None:
        pass
    assert 11 not in offsets(log)


@pytest.mark.parametrize("crashes", [False, True])
def test_removed_aborted_transactions_are_not_returned(disk: Disk, crashes: bool):
    """A reader would wait for the end of the transaction, and skip its producer's later records."""
    config = {**COMPACT, "segment_bytes": 10_000, "delete_retention_ms": 0}
    log = disk.log(**config)
    put(log, data_of(7, 0))
    log.append_marker(7, 0, Marker(False, 0), NOW)
    for later in (1, 2):  # the marker goes with the second round
        fill(log, 5, keys=1, now=NOW + later)
        log.roll(NOW)
        fill(log, 1)
        assert plan_and_clean(log, NOW + later) is not None
        if crashes:
            disk.crash()
        else:
            disk.stop()
            disk.start()
        log = disk.log(**config)
    assert log.aborted.overlapping(0, log.end_offset) == []
