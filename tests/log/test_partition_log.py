"""One log in one life: appending, reading, rolling, searching by time, deleting."""

from __future__ import annotations

import os
import stat
from itertools import pairwise
from pathlib import Path

import pytest

from headrace.log.data_directory import DataDirectory
from headrace.log.index import OffsetIndex, TimeIndex
from headrace.log.log_directory import LogDirectory
from headrace.protocol.errors import ErrorCode, Refusal
from headrace.protocol.record_batch import build, header_at, headers, seal
from tests.log.disk import (
    NOW,
    TOPIC_ID,
    Disk,
    apply_retention,
    batch,
    delete_records,
    finish_removals,
    first_at_or_after,
    latest,
    put,
    values,
)
from tests.log_configs import log_config

HOUR = 3_600_000


def code(answer: object) -> ErrorCode:
    assert isinstance(answer, Refusal), answer
    return answer.code


def base_offsets(data: bytes | Refusal) -> list[int]:
    assert isinstance(data, bytes)
    return [header.base_offset for _, header in headers(data)]


def test_nothing_is_made_before_the_first_append(disk: Disk):
    log = disk.log()
    assert (log.log_start_offset, log.end_offset, log.size_bytes()) == (0, 0, 0)
    assert log.read(0, 1000) == b""
    assert first_at_or_after(log, 0) is None and latest(log) is None
    assert apply_retention(log, NOW) == 0
    log.append(b"rubbish", NOW)
    assert not os.path.exists(log.path)
    put(log, batch(b"a"))
    assert sorted(os.listdir(log.path)) == ["00000000000000000000.log", "partition.metadata"]


def test_offsets_are_given_in_order(disk: Disk):
    log = disk.log()
    first, second = put(log, batch(b"a", b"b")), put(log, batch(b"c"))
    assert (first.base_offset, first.last_offset, first.log_append_time_ms) == (0, 1, -1)
    assert (second.base_offset, second.last_offset) == (2, 2)
    assert values(log) == {0: b"a", 1: b"b", 2: b"c"}
    assert log.last_stable_offset == log.end_offset == 3


def test_reads_are_whole_batches_that_fit(disk: Disk):
    log = disk.log()
    size = len(batch(b"a", b"b"))
    for _ in range(10):
        put(log, batch(b"a", b"b"))
    assert base_offsets(log.read(0, 3 * size)) == [0, 2, 4]
    assert base_offsets(log.read(0, 4 * size - 1)) == [0, 2, 4]
    assert base_offsets(log.read(3, size)) == [2], "starts with the batch that holds the offset"
    assert base_offsets(log.read(0, 1)) == [0], "the first batch, even if larger"
    assert base_offsets(log.read(0, 0)) == [0]
    assert log.find(0, size - 1, minimum_one=False, held_bytes=None) == b""
    assert base_offsets(log.read(18, 10 * size)) == [18]
    assert log.read(20, 1000) == b""


def test_up_to_leaves_out_batches_that_end_later(disk: Disk):
    log = disk.log(segment_bytes=4 * len(batch(b"a", b"b")))
    for _ in range(10):
        put(log, batch(b"a", b"b"))
    assert base_offsets(log.find(0, 1000, up_to=4, held_bytes=None)) == [0, 2]
    assert base_offsets(log.find(0, 1000, up_to=5, held_bytes=None)) == [0, 2]
    assert base_offsets(log.find(4, 1000, up_to=5, held_bytes=None)) == []
    assert base_offsets(log.find(6, 1000, up_to=6, held_bytes=None)) == []
    assert base_offsets(log.find(0, 1000, up_to=99, held_bytes=None)) == [0, 2, 4, 6]
    assert base_offsets(log.find(0, 1000, up_to=12, held_bytes=None)) == [0, 2, 4, 6]


def test_out_of_range(disk: Disk):
    log = disk.log()
    put(log, batch(b"a"))
    for offset in (-1, 2):
        assert code(log.read(offset, 1000)) == ErrorCode.OFFSET_OUT_OF_RANGE


def test_rolls_by_size(disk: Disk):
    size = len(batch(bytes(100)))
    log = disk.log(segment_bytes=3 * size)
    for _ in range(7):
        put(log, batch(bytes(100)))
    names = sorted(name for name in os.listdir(log.path) if name.endswith(".log"))
    assert names == [f"{base:020d}.log" for base in (0, 3, 6)]
    assert base_offsets(log.read(1, 10_000)) == [1, 2], "a read ends with its segment"
    assert len(values(log)) == 7


def test_rolls_by_the_age_of_its_records(disk: Disk):
    log = disk.log(segment_ms=HOUR)
    for minutes in (0, 60, 61, 62):
        put(log, batch(b"v", at=NOW - 10 * HOUR + minutes * 60_000))
    assert sorted(name for name in os.listdir(log.path) if name.endswith(".log"))[1:] == [
        "00000000000000000002.log"
    ]


def test_rolls_when_an_index_is_full(disk: Disk):
    log = disk.log(segment_index_bytes=40, index_interval_bytes=0)
    for n in range(30):
        put(log, batch(b"v", at=NOW + n))
    assert len(log._segments) > 5
    disk.stop()
    for name in os.listdir(log.path):
        if name.endswith("index"):
            assert os.path.getsize(f"{log.path}/{name}") <= 40
    disk.start()


def test_indexes_are_as_kafka_writes_them(disk: Disk):
    log = disk.log(index_interval_bytes=300)
    starts, position = {}, 0
    for n in range(50):
        data = batch(b"v", bytes(n), at=NOW + (n * 37) % 50)
        starts[put(log, data).last_offset] = (position, NOW + (n * 37) % 50)
        position += len(data)
    disk.stop()
    stem = f"{log.path}/00000000000000000000"
    offsets = OffsetIndex(Path(f"{stem}.index").read_bytes())
    entries = [offsets.entry(n) for n in range(len(offsets))]
    assert len(entries) > 5
    assert all(starts[last_offset][0] == position for last_offset, position in entries)
    gaps = [after[1] - before[1] for before, after in pairwise(entries)]
    assert all(301 <= gap <= 301 + 2 * 130 for gap in gaps)
    times = TimeIndex(Path(f"{stem}.timeindex").read_bytes())
    entries = [times.entry(n) for n in range(len(times))]
    assert entries == sorted(set(entries)) and entries[-1][0] == NOW + 49
    for timestamp, last_offset in entries:
        assert starts[last_offset][1] == timestamp
        assert all(time < timestamp for offset, (_, time) in starts.items() if offset < last_offset)
    disk.start()


@pytest.mark.parametrize("codec", range(5))
def test_look_up_by_time(disk: Disk, codec: int):
    log = disk.log(segment_bytes=500, index_interval_bytes=0)
    times = [10, 30, 20, 50, 40, 40, 60, 5, 60, 55]
    for n in range(0, 10, 2):
        pair = times[n : n + 2]
        put(log, build([(b"k", bytes(150))] * 2, timestamp_ms=0, timestamps_ms=pair, codec=codec))
    for wanted in range(62):
        expected = next(((n, time) for n, time in enumerate(times) if time >= wanted), None)
        assert first_at_or_after(log, wanted) == expected
    assert latest(log) == (6, 60)
    delete_records(log, 4)
    assert first_at_or_after(log, 0) == (4, 40)
    assert first_at_or_after(log, 45) == (6, 60)


def test_look_up_by_time_with_log_append_time(disk: Disk):
    log = disk.log(message_timestamp_type="LogAppendTime")
    for n in range(5):
        put(log, batch(b"a", b"b"), NOW + n)
    assert first_at_or_after(log, NOW + 2) == (4, NOW + 2)
    assert latest(log) == (8, NOW + 4)


def test_look_up_by_time_in_a_batch_that_cannot_be_opened(
    disk: Disk, caplog: pytest.LogCaptureFixture
):
    log = disk.log()
    put(log, batch(b"a"))
    spoilt = header_at(batch(b"b"))._replace(attributes=1)

    put(log, seal(spoilt, batch(b"b")[61:]) + batch(b"b")[61:])
    delete_records(log, 1)
    assert first_at_or_after(log, NOW) == (1, NOW)
    assert "cannot open the batch" in caplog.text


def test_records_without_timestamps(disk: Disk):
    log = disk.log()
    put(log, batch(b"a", at=-1))
    assert latest(log) is None
    assert first_at_or_after(log, 0) is None


def test_delete_records(disk: Disk):
    log = disk.log(segment_bytes=200)
    assert delete_records(log, -1) == 0
    for n in range(10):
        put(log, batch(b"%d" % n, bytes(50)))
    assert delete_records(log, 5) == 5
    assert delete_records(log, 3) == 5, "it never moves down"
    assert code(delete_records(log, 21)) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert code(delete_records(log, -2)) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert code(log.read(4, 1000)) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert min(values(log)) == 5
    before = log.size_bytes()
    assert apply_retention(log, NOW) > 0
    assert (log.log_start_offset, log.end_offset) == (5, 20) and log.size_bytes() < before
    assert delete_records(log, -1) == 20
    apply_retention(log, NOW)
    assert log.size_bytes() == 0
    assert put(log, batch(b"next")).base_offset == 20


def test_retention_by_size(disk: Disk):
    size = len(batch(bytes(100)))
    log = disk.log(segment_bytes=2 * size, retention_bytes=5 * size)
    for _ in range(11):
        put(log, batch(bytes(100)))
    assert apply_retention(log, NOW) == 3
    assert log.log_start_offset == 6 and log.size_bytes() == 5 * size
    assert apply_retention(log, NOW) == 0


def test_retention_by_time(disk: Disk):
    size = len(batch(b"v"))
    log = disk.log(segment_bytes=2 * size, retention_ms=HOUR)
    for n in range(6):
        put(log, batch(b"v", at=NOW + n))
    assert apply_retention(log, NOW + HOUR + 1) == 0
    assert apply_retention(log, NOW + HOUR + 2) == 1
    assert log.log_start_offset == 2
    assert apply_retention(log, NOW + 2 * HOUR) == 2, "the active segment too"
    assert (log.log_start_offset, log.end_offset, log.size_bytes()) == (6, 6, 0)
    assert apply_retention(log, NOW + 4 * HOUR) == 0
    assert put(log, batch(b"v")).base_offset == 6
    assert values(log) == {6: b"v"}


def test_compacted_topics_keep_old_segments(disk: Disk):
    log = disk.log(
        segment_bytes=100, retention_ms=HOUR, retention_bytes=0, cleanup_policy="compact"
    )
    for _ in range(4):
        put(log, batch(b"v"))
    assert apply_retention(log, NOW + 2 * HOUR) == 0


def test_end_offset_for_epoch(disk: Disk):
    log = disk.log()
    put(log, batch(b"a", b"b"))
    assert log.end_offset_for_epoch(0) == (0, 2)
    assert log.end_offset_for_epoch(1) == log.end_offset_for_epoch(-1) == (-1, -1)


def test_flush_forces_what_was_appended_since_the_last_one(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
):
    forced: list[str] = []

    def fsync(fd: int) -> None:
        forced.append(os.path.relpath(os.readlink(f"/proc/self/fd/{fd}"), log.path))

    monkeypatch.setattr(os, "fsync", fsync)
    log = disk.log(segment_bytes=200)
    put(log, batch(b"a", bytes(50)))
    log.flush()  # the topic id too
    for end, files in ((3, [2, 4]), (4, [6]), (6, [8, 10])):
        while log.end_offset < 2 * end:
            put(log, batch(b"a", bytes(50)))
        forced.clear()
        log.flush()
        assert forced == [*(f"{base:020d}.log" for base in files), "."]
        assert log.unflushed_records == 0
    log.flush()
    assert len(forced) == 3, "nothing was appended"


def test_the_first_flush_forces_the_topic_id_too(disk: Disk, monkeypatch: pytest.MonkeyPatch):
    """An empty ``partition.metadata`` after a power cut would leave a deleted topic's records to
    the next topic of its name.
    """
    forced: list[str] = []
    monkeypatch.setattr(
        os, "fsync", lambda fd: forced.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}")))
    )
    log = disk.log()
    for _ in range(2):
        put(log, batch(b"a"))
        log.flush()
    assert forced.count("partition.metadata") == 1


def test_many_partitions_hold_few_handles(disk: Disk):
    logs = [disk.log(partition=n, segment_bytes=300) for n in range(100)]
    for turn in range(8):
        for log in logs:
            put(log, batch(b"%d" % turn, bytes(40)))
        assert len(disk.home.directory.files) <= disk.file_limit
    for log in logs:
        assert [value for value in values(log).values() if value != bytes(40)] == [
            b"%d" % turn for turn in range(8)
        ]
    held = [link.resolve() for link in Path("/proc/self/fd").iterdir()]
    assert sum(path.is_relative_to(disk.path) for path in held) <= disk.file_limit + 1


def test_running_out_of_handles_lowers_the_limit(disk: Disk, monkeypatch: pytest.MonkeyPatch):
    disk.home.directory.files.limit = 1000
    really_open, opened = os.open, []

    def scarce(path: str, *args: int) -> int:
        if str(path).endswith(".log"):
            opened.append(path)
            if len(disk.home.directory.files) >= 5:
                raise OSError(24, "Too many open files")
        return really_open(path, *args)

    monkeypatch.setattr(os, "open", scarce)
    for n in range(20):
        put(disk.log(partition=n), batch(b"v"))
    assert disk.home.directory.files.limit <= 5
    assert all(values(disk.log(partition=n)) == {0: b"v"} for n in range(20))


def test_a_deleted_topic_is_gone(disk: Disk):
    log, other = disk.log(), disk.log("t-0")
    put(log, batch(b"a"))
    put(other, batch(b"b"))
    disk.home.removals.add(disk.home.delete("t", TOPIC_ID))
    assert code(log.append(batch(b"a"), NOW)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert log.read(0, 100) == b"" and code(log.read(1, 100)) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert disk.log().end_offset == 0
    assert values(other) == {0: b"b"}
    finish_removals(disk.home)
    assert sorted(name for name in os.listdir(disk.path) if name.startswith("t-")) == ["t-0-0"]


def test_up_to_in_a_segment_not_yet_opened(disk: Disk):
    for n in range(6):
        put(disk.log(segment_bytes=250), batch(b"%d" % n))
    disk.stop()
    disk.start()
    assert base_offsets(disk.log().find(0, 1000, up_to=2, held_bytes=None)) == [0, 1]


def test_an_empty_segment_is_not_rolled(disk: Disk) -> None:
    log = disk.log()
    put(log, batch(b"a"))
    log.roll(NOW)
    log.roll(NOW)  # a second one would have the same file
    put(log, batch(b"b"))
    delete_records(log, 1)
    apply_retention(log, NOW)
    assert len(log.segments) == 1
    disk.crash()
    assert values(disk.log()) == {1: b"b"}


def test_the_log_start_is_on_disk_when_records_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Its file, and after that the name of the file."""
    home = LogDirectory(DataDirectory(tmp_path, 8))
    log = home.open("t", TOPIC_ID, 0, log_config())
    put(log, batch(b"a", b"b"))
    log.flush()
    steps: list[str] = []
    fsync, replace = os.fsync, os.replace

    def noted_fsync(fd: int) -> None:
        steps.append("directory" if stat.S_ISDIR(os.fstat(fd).st_mode) else "file")
        fsync(fd)

    def noted_replace(old: str, new: str) -> None:
        steps.append("name")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    assert delete_records(log, 1) == 1
    assert steps == ["file", "name", "directory"]
    home.close()
