"""Restarts: after a clean stop, after a crash, and after damage to files."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from headrace.log import segment as segment_module
from headrace.log.data_directory import DataDirectory
from headrace.log.directory_lock import DirectoryInUse
from headrace.log.log_directory import LogDirectory
from headrace.log.partition_log import PartitionLog
from headrace.protocol.record_batch import build
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

FIRST = "t-0/00000000000000000000"


def shorten(name: str, by: int):
    def spoil(path: Path) -> None:
        os.truncate(path / name, os.path.getsize(path / name) - by)

    return spoil


def test_a_clean_start_reads_no_batches(disk: Disk, monkeypatch: pytest.MonkeyPatch):
    log = disk.log(segment_bytes=2000, index_interval_bytes=0)
    for n in range(100):
        put(log, batch(b"%d" % n, at=NOW + n))
    expected, found = values(log), first_at_or_after(log, NOW + 55)
    disk.stop()
    disk.start()
    walked = []
    scan = segment_module.scan

    def walk(*args, **how):
        steps = scan(*args, **how)
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                return end.value
            walked.append(step)
            yield step

    monkeypatch.setattr(segment_module, "scan", walk)
    log = disk.log(segment_bytes=2000)
    assert log.end_offset == 100
    assert len(walked) <= 3, "only the last indexed batch, and the latest one, are looked at"
    assert values(log) == expected and first_at_or_after(log, NOW + 55) == found
    assert put(log, batch(b"next")).base_offset == 100


def test_torn_at_every_byte(disk: Disk, caplog: pytest.LogCaptureFixture):
    log = disk.log()
    for n in range(3):
        put(log, batch(b"%d" % n))
    size, last = log.size_bytes(), len(batch(b"3"))
    put(log, batch(b"3"))
    whole = disk.path
    for cut in range(1, last + 1):
        disk.path = whole
        caplog.clear()
        disk.crash(shorten(f"{FIRST}.log", cut))
        log = disk.log()
        assert values(log) == {0: b"0", 1: b"1", 2: b"2"}
        assert log.size_bytes() == os.path.getsize(f"{log.path}/00000000000000000000.log") == size
        assert ("Cut " in caplog.text) == (cut < last)
        assert put(log, batch(b"new")).base_offset == 3
        assert values(log)[3] == b"new"


def test_a_flipped_byte_anywhere_in_the_last_batch(disk: Disk):
    log = disk.log()
    put(log, batch(b"a"))
    start = log.size_bytes()
    put(log, batch(b"b"))
    whole = disk.path
    for position in range(start + 8, log.size_bytes()):
        if start + 12 <= position < start + 16:
            continue  # the leader epoch, which the checksum leaves out

        def spoil(path: Path, position: int = position) -> None:
            with open(path / f"{FIRST}.log", "r+b") as file:
                file.seek(position)
                byte = file.read(1)[0]
                file.seek(position)
                file.write(bytes([byte ^ 0xFF]))

        disk.path = whole
        disk.crash(spoil)
        assert values(disk.log()) == {0: b"a"}, position


def test_zeros_at_the_end(disk: Disk):
    put(disk.log(), batch(b"a"))
    disk.crash(lambda path: os.truncate(path / f"{FIRST}.log", 5000))
    assert values(disk.log()) == {0: b"a"}


def test_a_crash_loses_nothing_and_the_next_clean_start_trusts_it(disk: Disk):
    log = disk.log(segment_bytes=1000)
    for n in range(50):
        put(log, batch(b"%d" % n, at=NOW + n))
    expected = values(log)
    disk.crash()
    log = disk.log(segment_bytes=1000)
    assert values(log) == expected
    assert first_at_or_after(log, NOW + 33) == (33, NOW + 33) and latest(log) == (
        49,
        NOW + 49,
    )
    disk.stop()
    disk.start()
    assert values(disk.log()) == expected


def test_a_log_not_opened_since_a_crash_is_verified_when_opened(disk: Disk):
    put(disk.log(), batch(b"a"))
    put(disk.log(), batch(b"b"))
    put(disk.log(partition=1), batch(b"c"))
    disk.crash(shorten(f"{FIRST}.log", 3))
    assert values(disk.log(partition=1)) == {0: b"c"}
    disk.stop()
    disk.start()
    disk.stop()
    disk.start()
    assert values(disk.log()) == {0: b"a"}


def test_a_torn_file_after_a_stop_that_looked_clean(disk: Disk):
    for value in (b"a", b"b"):
        put(disk.log(), batch(value))
    disk.stop()
    os.truncate(disk.path / f"{FIRST}.log", os.path.getsize(disk.path / f"{FIRST}.log") - 3)
    disk.start()
    log = disk.log()
    assert values(log) == {0: b"a"}
    assert put(log, batch(b"c")).base_offset == 1
    disk.crash()
    assert values(disk.log()) == {0: b"a", 1: b"c"}


def test_torn_in_an_older_segment_cuts_all_that_follows(
    disk: Disk, caplog: pytest.LogCaptureFixture
):
    """Only a power failure causes this, before a full segment was forced to disk."""
    log = disk.log(segment_bytes=200)
    for n in range(12):
        put(log, batch(b"%d" % n, bytes(50)))
    assert len(log._segments) > 4
    torn = "t-0/" + os.path.basename(log._segments[1].path(".log"))

    def spoil(path: Path) -> None:
        shorten(torn, 5)(path)
        for snapshot in path.glob("t-0/*.snapshot"):
            snapshot.unlink()

    disk.crash(spoil)
    log = disk.log()
    end = log.end_offset
    assert "Removed " in caplog.text
    assert 0 < end < 24 and list(values(log)) == list(range(end))
    assert put(log, batch(b"x")).base_offset == end


def test_flushed_segments_are_not_verified_again(tmp_path: Path):
    home = LogDirectory(DataDirectory(tmp_path / "d", 8))
    log = home.open("t", TOPIC_ID, 0, log_config(segment_bytes=300))
    for n in range(20):
        put(log, batch(b"%d" % n, bytes(50)))
    home.directory.finish_background_work()
    expected = values(log)
    shutil.copytree(tmp_path / "d", tmp_path / "e")
    home.close()
    older = tmp_path / "e" / "t-0" / "00000000000000000000.log"
    older.write_bytes(older.read_bytes()[:-1] + b"\0")
    home = LogDirectory(DataDirectory(tmp_path / "e", 8))
    log = home.open("t", TOPIC_ID, 0, log_config())
    assert log.end_offset == 40, "the spoilt byte is before the newest snapshot"
    assert len([name for name in os.listdir(log.path) if name.endswith(".snapshot")]) == 2
    assert {offset: value for offset, value in values(log).items() if offset > 10} == {
        offset: value for offset, value in expected.items() if offset > 10
    }
    home.close()


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
@pytest.mark.parametrize("how", ["missing", "empty", "odd", "rubbish", "of another log"])
def test_wrong_indexes_are_rebuilt(
    disk: Disk, suffix: str, how: str, caplog: pytest.LogCaptureFixture
):
    for topic, size, step in (("t", 30, 1), ("u", 70, 2)):
        log = disk.log(topic, segment_bytes=40_000)
        for n in range(400):
            put(log, batch(b"%d" % n, bytes(size), at=NOW + n * step))
    disk.stop()
    right = (disk.path / f"{FIRST}.{suffix}").read_bytes()
    assert len(right) > 50
    path = disk.path / f"{FIRST}.{suffix}"
    match how:
        case "missing":
            path.unlink()
        case "empty":
            path.write_bytes(b"")
        case "odd":
            path.write_bytes(right[:-1])
        case "rubbish":
            path.write_bytes(b"\x7f" * len(right))
        case _:
            shutil.copy(disk.path / f"u-0/00000000000000000000.{suffix}", path)
    disk.start()
    log = disk.log(segment_bytes=40_000)
    assert len(values(log)) == 800
    for n in range(0, 400, 13):
        assert first_at_or_after(log, NOW + n) == (2 * n, NOW + n)
    disk.stop()
    if how != "empty":
        assert path.read_bytes() == right
        assert "Rebuilding the indexes" in caplog.text
    disk.start()


def test_the_log_start_survives(disk: Disk):
    for n in range(10):
        put(disk.log(), batch(b"%d" % n))
    delete_records(disk.log(), 4)
    disk.crash()
    assert list(values(disk.log())) == list(range(4, 10))
    delete_records(disk.log(), -1)
    apply_retention(disk.log(), NOW)
    disk.crash()
    assert (disk.log().log_start_offset, disk.log().end_offset) == (10, 10)
    assert put(disk.log(), batch(b"x")).base_offset == 10


def test_a_log_start_beyond_the_end_starts_anew(disk: Disk):
    for n in range(3):
        put(disk.log(), batch(b"%d" % n))
    delete_records(disk.log(), 3)
    disk.crash(lambda path: os.truncate(path / f"{FIRST}.log", 0))
    assert (disk.log().log_start_offset, disk.log().end_offset) == (3, 3)
    assert put(disk.log(), batch(b"x")).base_offset == 3
    disk.crash()
    assert values(disk.log()) == {3: b"x"}


def test_a_topic_made_again_does_not_see_the_old_one(disk: Disk):
    put(disk.log(), batch(b"old"))
    disk.crash()
    log = disk.home.open("t", uuid.UUID(int=78), 0, log_config())
    assert log.end_offset == 0
    put(log, batch(b"new"))
    disk.crash()
    assert values(disk.home.open("t", uuid.UUID(int=78), 0, log_config())) == {0: b"new"}


def test_half_deleted_directories_go_at_the_start(disk: Disk):
    put(disk.log(), batch(b"a"))
    disk.crash(lambda path: os.rename(path / "t-0", path / "t-0.abc-delete"))
    disk.home.removals.remove_renamed()
    finish_removals(disk.home)
    assert not [name for name in os.listdir(disk.path) if name.startswith("t-")]


def test_the_error_of_a_second_broker_names_the_first(disk: Disk):
    disk.home.directory.announce("127.0.0.1:9092")
    with pytest.raises(DirectoryInUse, match=rf"process {os.getpid()} at 127.0.0.1:9092"):
        LogDirectory(DataDirectory(disk.path, 8))
    disk.stop()
    disk.start()


WRITER = """
import sys, uuid
from headrace.protocol.record_batch import build
from headrace.log.data_directory import DataDirectory
from headrace.log.log_directory import LogDirectory
from tests.log_configs import log_config

home = LogDirectory(DataDirectory(sys.argv[1], 8))
logs = [home.open("t", uuid.UUID(int=77), n, log_config(segment_bytes=100_000)) for n in range(3)]
while True:
    for log in logs:
        record = (b"k", b"%d" % log.end_offset * 50)
        data = build([record], timestamp_ms=1, producer_id=5, producer_epoch=0,
                     base_sequence=log.end_offset)
        appended = log.append(data, 1)
        print(log.partition, appended.base_offset, flush=True)
"""


@pytest.mark.parametrize("after_s", [0.3, 0.5, 0.8])
def test_kill_minus_9_loses_nothing_acknowledged(tmp_path: Path, after_s: float):
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path / "d")], stdout=subprocess.PIPE
    )
    assert writer.stdout is not None
    lines = [writer.stdout.readline()]
    time.sleep(after_s)
    writer.send_signal(signal.SIGKILL)
    lines += writer.stdout.read().splitlines(keepends=True)
    writer.wait()
    acknowledged = {0: -1, 1: -1, 2: -1}
    for line in lines:
        if line.endswith(b"\n"):
            partition, offset = map(int, line.split())
            acknowledged[partition] = offset
    home = LogDirectory(DataDirectory(tmp_path / "d", 8))
    for partition, last in acknowledged.items():
        log = home.open("t", TOPIC_ID, partition, log_config())
        assert log.end_offset - 1 in (last, last + 1)
        assert values(log, 100_000) == {n: b"%d" % n * 50 for n in range(log.end_offset)}
        end = log.end_offset
        assert put(log, idempotent(end - 1)).duplicate
        assert put(log, idempotent(end)).base_offset == end
    home.close()


def idempotent(sequence: int) -> bytes:
    return build(
        [(b"k", b"x")], timestamp_ms=1, producer_id=5, producer_epoch=0, base_sequence=sequence
    )


def test_the_active_segment_is_found_when_it_is_empty(disk: Disk):
    log: PartitionLog = disk.log(retention_ms=1)
    put(log, batch(b"a"))
    apply_retention(log, NOW + 10)
    disk.crash()
    assert (disk.log().log_start_offset, disk.log().end_offset) == (1, 1)


# What is behind a damaged batch is kept.


def flip_in(name: str, position: int):
    def spoil(path: Path) -> None:
        data = bytearray((path / name).read_bytes())
        data[position] ^= 1
        (path / name).write_bytes(data)

    return spoil


def kept(disk: Disk) -> dict[str, bytes]:
    """Return what recoveries have kept, by the names of the files."""
    return {path.name: path.read_bytes() for path in (disk.path / "t-0").glob("*.damaged*")}


def test_sound_batches_behind_a_damaged_one_are_kept(disk: Disk, caplog: pytest.LogCaptureFixture):
    size = len(batch(b"0"))
    for n in range(5):
        put(disk.log(), batch(b"%d" % n))
    spoil = flip_in(f"{FIRST}.log", 3 * size - 1)
    disk.crash(spoil)
    whole = (disk.path / f"{FIRST}.log").read_bytes()
    log = disk.log()
    assert values(log) == {0: b"0", 1: b"1"}
    name = "00000000000000000000.log.damaged"
    assert kept(disk) == {name: whole}
    (line,) = [one for one in caplog.records if one.getMessage().startswith("Set aside")]
    assert f"t-0/{name}" in line.getMessage() and "offset 2" in line.getMessage()

    for n in (2, 3, 4):  # a second time at the same place: the first file is not overwritten
        put(log, batch(b"%d" % (n + 5)))
    disk.crash(spoil)
    second = (disk.path / f"{FIRST}.log").read_bytes()
    assert second != whole
    assert values(disk.log()) == {0: b"0", 1: b"1"}
    assert kept(disk) == {name: whole, f"{name}-2": second}
    disk.crash()
    assert values(disk.log()) == {0: b"0", 1: b"1"} and len(kept(disk)) == 2


def test_batches_behind_one_whose_offset_has_become_too_high_are_kept(disk: Disk):
    """The checksum of a batch does not cover its base offset."""
    size = len(batch(b"0"))
    for n in range(5):
        put(disk.log(), batch(b"%d" % n))
    disk.crash(flip_in(f"{FIRST}.log", 2 * size + 5))
    whole = (disk.path / f"{FIRST}.log").read_bytes()
    assert disk.log().end_offset == 2 + (1 << 16) + 1
    assert kept(disk) == {"00000000000000000000.log.damaged": whole}


@pytest.mark.parametrize("crashed", [True, False])
def test_an_offset_that_its_segment_cannot_have_is_damage(disk: Disk, crashed: bool):
    """Nothing could be appended behind it: its index cannot state it."""
    size = len(batch(b"0"))
    for n in range(3):
        put(disk.log(), batch(b"%d" % n))
    spoil = flip_in(f"{FIRST}.log", 2 * size + 3)  # 2^32 too high
    if crashed:
        disk.crash(spoil)
    else:
        disk.stop()
        spoil(disk.path)
        disk.start()
    log = disk.log()
    assert list(values(log)) == [0, 1] and log.end_offset == 2
    assert [len(data) for data in kept(disk).values()] == [3 * size]
    assert put(log, batch(b"next")).base_offset == 2
    disk.stop()
    disk.start()
    assert list(values(disk.log())) == [0, 1, 2]


def test_segments_behind_a_damaged_one_are_kept(disk: Disk, caplog: pytest.LogCaptureFixture):
    log = disk.log(segment_bytes=200)
    for n in range(12):
        put(log, batch(b"%d" % n, bytes(50)))
    names = [os.path.basename(one.path(".log")) for one in log._segments]
    torn = f"t-0/{names[1]}"

    def spoil(path: Path) -> None:
        shorten(torn, 5)(path)
        for snapshot in path.glob("t-0/*.snapshot"):
            snapshot.unlink()

    disk.crash(spoil)
    before = {name: (disk.path / "t-0" / name).read_bytes() for name in names[1:]}
    end = disk.log().end_offset
    assert kept(disk) == {f"{name}.damaged": data for name, data in before.items()}
    assert f"and {len(before) - 1} later files" in caplog.text
    disk.crash()
    assert disk.log().end_offset == end and len(kept(disk)) == len(before)


def test_a_torn_tail_is_not_kept(disk: Disk):
    for n in range(3):
        put(disk.log(), batch(b"%d" % n))
    disk.crash(shorten(f"{FIRST}.log", 5))
    assert list(values(disk.log())) == [0, 1]
    assert not kept(disk)


def test_after_a_clean_stop_the_last_batch_is_kept_too(disk: Disk):
    """No crash can have torn it: it was acknowledged, and is damaged."""
    for n in range(3):
        put(disk.log(), batch(b"%d" % n))
    size = len(batch(b"0"))
    disk.stop()
    flip_in(f"{FIRST}.log", 2 * size + 11)(disk.path)  # its length
    disk.start()
    assert list(values(disk.log())) == [0, 1]
    assert [len(data) for data in kept(disk).values()] == [3 * size]


def test_an_interrupted_recovery_keeps_everything_once(disk: Disk, monkeypatch: pytest.MonkeyPatch):
    log = disk.log(segment_bytes=200)
    for n in range(12):
        put(log, batch(b"%d" % n, bytes(50)))
    count = len(log._segments)

    def spoil(path: Path) -> None:
        flip_in(f"{FIRST}.log", 100)(path)
        for snapshot in path.glob("t-0/*.snapshot"):
            snapshot.unlink()

    def fail(*_: object) -> None:
        raise OSError(5, "the disk is gone")

    disk.crash(spoil)
    whole = {path.name: path.read_bytes() for path in (disk.path / "t-0").glob("*.log")}
    for name in ("link", "unlink"):
        with monkeypatch.context() as patch:
            patch.setattr(f"headrace.log.recovery.os.{name}", fail)
            with pytest.raises(OSError, match="gone"):
                disk.log().load()
        disk.crash()
    with monkeypatch.context() as patch:
        patch.setattr("headrace.log.segment.Segment.truncate", fail)
        with pytest.raises(OSError, match="gone"):
            disk.log().load()
    disk.crash()
    disk.log().load()
    names = {name.partition(".damaged")[0] for name in kept(disk)}
    assert names == set(whole) and len(names) == count
    assert all(whole[name.partition(".damaged")[0]] == data for name, data in kept(disk).items())
