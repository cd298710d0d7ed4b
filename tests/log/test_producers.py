"""Idempotent producers: duplicates are written once, gaps and old epochs are refused."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headrace.log.data_directory import DataDirectory
from headrace.log.files import replace_file
from headrace.log.log_directory import LogDirectory
from headrace.log.producer_state import ProducerState
from headrace.log.recovery import snapshot_path
from headrace.protocol.errors import ErrorCode, Refusal
from tests.log.disk import NOW, TOPIC_ID, Disk, apply_retention, batch, delete_records, put, values
from tests.log_configs import log_config


def send(log, sequence: int, *, epoch: int = 0, producer: int = 1, count: int = 1, at: int = NOW):
    contents = [b"%d" % (sequence + n) for n in range(count)]
    data = batch(*contents, at=at, producer=producer, epoch=epoch, sequence=sequence)
    return log.append(data, NOW)


def refused(answer: object) -> ErrorCode:
    assert isinstance(answer, Refusal), answer
    return answer.code


def test_the_last_five_batches_are_known_again(disk: Disk):
    log = disk.log()
    first = [send(log, 2 * n, count=2) for n in range(7)]
    for n in range(2, 7):
        again = send(log, 2 * n, count=2)
        assert again.duplicate and again.last_offset == first[n].last_offset == 2 * n + 1
        assert again.log_append_time_ms == NOW
    assert refused(send(log, 2, count=2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(send(log, 12, count=1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, (
        "part of a batch is no duplicate"
    )
    assert log.end_offset == 14


def test_a_gap_is_refused_until_it_is_filled(disk: Disk):
    log = disk.log()
    send(log, 0)
    assert refused(send(log, 2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 1).base_offset == 1
    assert send(log, 2).base_offset == 2


def test_epochs(disk: Disk):
    log = disk.log()
    send(log, 7)
    assert refused(send(log, 5, epoch=1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 0, epoch=1).base_offset == 1
    assert refused(send(log, 8, epoch=0)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert send(log, 0, epoch=1).duplicate
    assert send(log, 1, epoch=1).base_offset == 2


def test_sequences_wrap(disk: Disk):
    log = disk.log()
    send(log, 2**31 - 2, count=2)
    assert send(log, 0).base_offset == 2
    assert send(log, 2**31 - 2, count=2).duplicate


def test_producers_do_not_disturb_each_other_or_plain_batches(disk: Disk):
    log = disk.log()
    send(log, 0, producer=1)
    send(log, 0, producer=2)
    put(log, batch(b"plain"))
    assert send(log, 1, producer=1).base_offset == 3
    assert send(log, 0, producer=2).base_offset == 1


def test_a_refused_batch_leaves_no_trace(disk: Disk, monkeypatch: pytest.MonkeyPatch):
    log = disk.log()
    send(log, 0)

    def full(*args: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("headrace.log.segment.pwritev", full)
        assert refused(send(log, 1)) == ErrorCode.KAFKA_STORAGE_ERROR
    again = send(log, 1)
    assert not again.duplicate and again.base_offset == 1


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("segment_bytes", [250, 10**6])
def test_known_again_after_a_restart(disk: Disk, crash: bool, segment_bytes: int):
    log = disk.log(segment_bytes=segment_bytes)
    first = [send(log, n) for n in range(20)]
    send(log, 3, producer=2, epoch=4)
    for _ in range(2):
        if crash:
            disk.crash()
        else:
            disk.stop()
            disk.start()
        log = disk.log(segment_bytes=segment_bytes)
        for n in range(15, 20):
            again = send(log, n)
            assert again.duplicate and again.base_offset == first[n].base_offset
        assert refused(send(log, 14)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert refused(send(log, 0, producer=2, epoch=3)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert send(log, 20).base_offset == 21
    assert send(log, 4, producer=2, epoch=4).base_offset == 22


def test_a_damaged_snapshot_is_skipped(disk: Disk):
    log = disk.log()
    send(log, 0)
    disk.stop()
    disk.start()
    send(disk.log(), 1)
    disk.stop()
    snapshots = sorted(Path(log.path).glob("*.snapshot"))
    assert [path.name for path in snapshots] == [f"{n:020d}.snapshot" for n in (1, 2)]
    snapshots[-1].write_bytes(snapshots[-1].read_bytes()[:-1] + b"x")
    disk.start()
    assert send(disk.log(), 1).duplicate and send(disk.log(), 0).duplicate
    assert send(disk.log(), 2).base_offset == 2


def test_a_snapshot_of_before_deleted_batches_is_not_used(disk: Disk):
    """It refused the next batch of a producer that it knew with an earlier one."""
    send(disk.log(retention_ms=1000), 0)
    disk.stop()
    disk.start()
    log = disk.log(retention_ms=1000)
    send(log, 1)
    assert apply_retention(log, NOW + 2000) == 1

    def spoil(path: Path) -> None:
        first, second = sorted(path.glob("t-0/*.snapshot"))
        assert [first.stem, second.stem] == [f"{n:020d}" for n in (1, 2)]
        second.write_bytes(b"")

    disk.crash(spoil)
    assert send(disk.log(), 2).base_offset == 2


def test_producers_survive_without_any_snapshot(disk: Disk):
    for n in range(8):
        send(disk.log(segment_bytes=250), n)
    disk.stop()
    for path in disk.path.glob("t-0/*.snapshot"):
        os.unlink(path)
    disk.start()
    assert send(disk.log(), 7).duplicate
    assert send(disk.log(), 8).base_offset == 8


def test_producers_expire(disk: Disk):
    log = disk.log(producer_id_expiration_ms=1000)
    send(log, 0, producer=1, at=NOW)
    send(log, 0, producer=2, at=NOW + 500)
    log.expire_producers(NOW + 999)
    assert refused(send(log, 5, producer=1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    log.expire_producers(NOW + 1000)
    assert send(log, 5, producer=1).base_offset == 2, (
        "an unknown producer may start with any sequence"
    )
    assert refused(send(log, 5, producer=2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_deleted_records_keep_their_producers(disk: Disk):
    log = disk.log()
    send(log, 0)
    delete_records(log, -1)
    apply_retention(log, NOW)
    disk.crash()
    assert send(disk.log(), 0).duplicate
    assert values(disk.log()) == {}


@pytest.mark.parametrize("data", [b"", b"x" * 9, b"x" * 60, ProducerState().snapshot() + b"x"])
def test_invalid_bytes_are_no_snapshot(data: bytes):
    assert ProducerState.from_snapshot(data) is None


@pytest.mark.parametrize("stopped", [False, True], ids=["", "after a clean stop"])
def test_producers_are_on_disk_before_retention_deletes_all_their_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped: bool
):
    """A power cut must not leave an older snapshot, which would refuse the next batch."""
    on_disk: set[int] = set()
    deleted: list[str] = []
    fsync, rename = os.fsync, os.rename

    def noted_fsync(fd: int) -> None:
        on_disk.add(os.fstat(fd).st_ino)
        fsync(fd)

    def checked_rename(path: str, new_path: str) -> None:
        if path.endswith(".log"):
            assert os.stat(snapshot_path(log.path, log.end_offset)).st_ino in on_disk
            deleted.append(path)
        rename(path, new_path)

    def start() -> LogDirectory:
        directory = DataDirectory(tmp_path, 8)
        monkeypatch.setattr(directory, "in_background", lambda work: None)
        return LogDirectory(directory)

    home = start()
    send(home.open("t", TOPIC_ID, 0, log_config(retention_ms=1000)), 0)
    if stopped:
        home.close()
        home = start()
    log = home.open("t", TOPIC_ID, 0, log_config(retention_ms=1000))
    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "rename", checked_rename)
    assert apply_retention(log, NOW + 2000) == 1
    assert deleted
    home.close()


def test_two_threads_write_a_file_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """They had one temporary file: the second found none to rename."""
    replace, both_are_written = os.replace, threading.Barrier(2, timeout=10)

    def replace_together(source: str, target: str) -> None:
        both_are_written.wait()
        replace(source, target)

    monkeypatch.setattr(os, "replace", replace_together)
    path = tmp_path / "file"
    with ThreadPoolExecutor(2) as threads:
        done = [threads.submit(replace_file, str(path), data) for data in (b"a", b"bb")]
        for one in done:
            one.result()
    assert path.read_bytes() in (b"a", b"bb")
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_temporary_files_of_a_crash_are_deleted(disk: Disk):
    send(disk.log(), 0)

    def spoil(path: Path) -> None:
        for name in ("clean-shutdown.7.tmp", "t-0/partition.metadata.3.tmp"):
            (path / name).touch()

        (path / "notes.1.tmp").touch()  # somebody else's
        (path / "partitions.1.tmp").mkdir()

    disk.crash(spoil)
    assert disk.log().end_offset == 1
    left = sorted(one.name for one in disk.path.rglob("*.tmp"))
    assert left == ["notes.1.tmp", "partitions.1.tmp"]
