"""DeleteRecords and retention in steps: what a thread does, and what a deletion or a crash between
two steps leaves.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from headrace.log import checked_file
from headrace.log.data_directory import DataDirectory
from headrace.log.log_directory import LogDirectory
from headrace.log.recovery import LOG_START_FILE
from headrace.protocol.errors import ErrorCode, Refusal
from tests.log.disk import NOW, Disk, batch, put, values

HOUR = 3_600_000


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


def full(disk: Disk, **config: Any) -> Any:
    """A log with five segments of one record each."""
    log = disk.log(segment_bytes=100, **config)
    for number in range(5):
        put(log, batch(b"%d" % number))
    assert len(log.segments) == 5
    return log


def test_a_smaller_log_start_is_not_written_over_a_larger_one(disk: Disk) -> None:
    log = full(disk)
    assert log.save_log_start(4) is None
    assert log.save_log_start(2) is None
    assert checked_file.read(f"{log.path}/{LOG_START_FILE}") == 4
    assert log.log_start_offset == 0, "not before it is told that the offset is durable"
    assert log.advance_log_start(2) == 2
    assert log.advance_log_start(4) == 4
    assert log.advance_log_start(2) == 4
    disk.crash()
    assert list(values(disk.log())) == [4]


def test_a_new_topic_does_not_get_the_log_start_of_a_deleted_one(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = full(disk)
    is_writing, may_write = threading.Event(), threading.Event()
    replace = os.replace

    def slow(*paths: Any) -> None:
        is_writing.set()
        assert may_write.wait(10)
        replace(*paths)

    results: list[Refusal | None] = []
    saving = threading.Thread(target=lambda: results.append(log.save_log_start(3)))
    deleting = threading.Thread(target=log.delete)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", slow)
        saving.start()
        assert is_writing.wait(10)
        deleting.start()
        deleting.join(0.2)
        assert deleting.is_alive(), "it waits for the thread that writes into the directory"
        may_write.set()
        saving.join()
        deleting.join()
    assert results == [None]
    refused = log.save_log_start(4)
    assert isinstance(refused, Refusal)
    assert refused.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert checked_file.read(f"{log.path}/{LOG_START_FILE}") == 3


def test_retention_saves_the_producers_before_it_deletes_their_batches(disk: Disk) -> None:
    log = disk.log(segment_bytes=100, retention_ms=HOUR)
    for sequence in range(3):
        put(log, batch(b"a", producer=7, sequence=sequence))
    steps = log.retention_steps(NOW + 2 * HOUR)
    save = next(steps)
    assert len(log.segments) == 4 and log.log_start_offset == 0
    for path in Path(log.path).glob("*.snapshot"):
        path.unlink()
    save()
    assert [path.name for path in Path(log.path).glob("*.snapshot")] == [f"{3:020d}.snapshot"]
    assert [work() for work in steps] == [None] * 3
    assert log.log_start_offset == 3 and len(log.segments) == 1
    disk.crash()
    appended = put(disk.log(), batch(b"a", producer=7, sequence=2))
    assert appended.duplicate, "the producer is known"


def test_a_crash_before_the_files_are_deleted(disk: Disk) -> None:
    log = full(disk, retention_ms=HOUR)
    put(log, batch(b"5", at=NOW + 2 * HOUR), now_ms=NOW + 2 * HOUR)
    steps = log.retention_steps(NOW + 2 * HOUR)
    next(steps)
    assert log.log_start_offset == 1
    assert list(Path(log.path).glob("*.log.deleted"))
    disk.crash()
    again = disk.log()
    assert again.log_start_offset == 1
    assert not list(Path(again.path).glob("*.deleted"))


@pytest.mark.parametrize("taken", range(6))
def test_a_topic_deleted_between_steps(disk: Disk, taken: int) -> None:
    log = full(disk, retention_ms=HOUR)
    steps = log.retention_steps(NOW + 2 * HOUR)
    works = [next(steps) for _ in range(taken)]
    log.delete()
    for work in (*works, *steps):
        work()
    assert log.log_start_offset == log.end_offset == 0


def test_appends_between_steps_stay(disk: Disk) -> None:
    log = full(disk, retention_ms=HOUR)
    later = NOW + 2 * HOUR
    for number, work in enumerate(log.retention_steps(later)):
        put(log, batch(b"new-%d" % number, at=later), now_ms=later)
        work()
    assert list(values(log, 10_000).values()) == [b"new-%d" % n for n in range(6)]
    disk.crash()
    assert list(values(disk.log(), 10_000).values()) == [b"new-%d" % n for n in range(6)]


def test_only_steps_wait_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Disk(tmp_path)
    home.stop()
    home.home = LogDirectory(DataDirectory(home.path, 16, sync=True))
    log = full(home, retention_ms=HOUR)
    here = threading.get_ident()
    forced: list[int] = []
    fsync = os.fsync

    def counted(fd: int) -> None:
        forced.append(threading.get_ident())
        fsync(fd)

    monkeypatch.setattr(os, "fsync", counted)
    works = list(log.retention_steps(NOW + 2 * HOUR))
    assert len(works) == 6 and here not in forced
    works[0]()
    home.stop()
