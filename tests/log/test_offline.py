"""A log whose disk has failed is offline until a restart has verified it.

The kernel reports an error of fsync once, and may drop data that it could not write.
"""

from __future__ import annotations

import errno
import os
import random
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace.log.cleaner import cleanable
from headrace.log.data_directory import DataDirectory
from headrace.log.log_directory import SYNC_ALL_ABOVE, LogDirectory
from headrace.log.partition_log import PartitionLog
from headrace.log.segment import Segment
from headrace.protocol.errors import ErrorCode, Refusal
from headrace.protocol.record_batch import Marker
from tests.log.disk import (
    NOW,
    TOPIC_ID,
    Disk,
    apply_retention,
    batch,
    clean,
    delete_records,
    put,
    values,
)
from tests.log_configs import log_config
from tests.simulation.disk import SYNC, Fault, Power
from tests.simulation.disk import Disk as SimulatedDisk

FIRST = "t-0/00000000000000000000.log"


class FailingDisk:
    """A replacement of ``os.fsync`` that fails ``failures`` times for paths with a suffix, then
    succeeds as the kernel does.

    :ivar forced: paths that were forced to disk
    """

    def __init__(self) -> None:
        self.failures = 0
        self.suffix = ".log"
        self.forced: list[str] = []
        self._fsync = os.fsync

    def __call__(self, fd: int) -> None:
        path = os.readlink(f"/proc/self/fd/{fd}")
        if self.failures and path.endswith(self.suffix):
            self.failures -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self.forced.append(path)
        self._fsync(fd)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> FailingDisk:
    disk = FailingDisk()
    monkeypatch.setattr(os, "fsync", disk)
    return disk


class Home:
    """A data directory whose files are forced to disk, over several lives of a broker."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.logs = LogDirectory(DataDirectory(path, 16))

    def log(self, partition: int = 0, **config: Any) -> PartitionLog:
        return self.logs.open("t", TOPIC_ID, partition, log_config(**config))

    def restart(self, *, cleanly: bool = True) -> None:
        self.logs.close()
        if not cleanly:
            (self.path / "clean-shutdown").unlink()
        self.logs = LogDirectory(DataDirectory(self.path, 16))


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path)
    yield home
    home.logs.close()


def code(answer: object) -> ErrorCode | None:
    return answer.code if isinstance(answer, Refusal) else None


def test_the_first_flush_forces_the_name_of_the_directory_to_disk(
    home: Home, failing: FailingDisk
) -> None:
    """A power cut could take the directory, with acknowledged records."""
    log = home.log()
    put(log, batch(b"a"))
    failing.forced.clear()
    log.flush()
    assert f"{home.path}/{FIRST}" in failing.forced and str(home.path) in failing.forced
    put(log, batch(b"b"))
    failing.forced.clear()
    log.flush()
    assert failing.forced == [f"{home.path}/{FIRST}", f"{home.path}/t-0"]


def fail_to_flush(log: PartitionLog, failing: FailingDisk) -> None:
    failing.failures = 1
    with pytest.raises(OSError, match="Input/output error"):
        log.flush()
    assert failing.failures == 0


def test_a_failed_fsync_takes_the_log_offline(
    home: Home, failing: FailingDisk, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[tuple[uuid.UUID, int]] = []
    home.logs.directory.on_offline = lambda *log: told.append(log)
    log = home.log()
    put(log, batch(b"a"))
    fail_to_flush(log, failing)
    assert log.is_offline
    assert told == [(TOPIC_ID, 0)]
    offline = ErrorCode.KAFKA_STORAGE_ERROR
    assert code(log.append(batch(b"again"), NOW)) == offline
    assert code(log.append(batch(b"own"), NOW, from_client=False)) == offline
    assert code(log.append_marker(7, 0, Marker(True, 0), NOW)) == offline
    assert code(log.read(0, 1000)) == offline
    assert code(delete_records(log, -1)) == offline
    assert apply_retention(log, NOW * 2) == 0
    assert log.is_uncleanable
    with pytest.raises(OSError):
        log.roll(NOW)
    with pytest.raises(OSError):
        log.flush()  # the kernel would report success
    assert f"{home.path}/{FIRST}" not in failing.forced
    (line,) = [record.getMessage() for record in caplog.records]
    assert f"{home.path}/{FIRST}" in line
    assert "[Errno 5]" in line and "restart the broker" in line


def test_other_logs_go_on(home: Home, failing: FailingDisk) -> None:
    log, other = home.log(0), home.log(1)
    put(log, batch(b"a"))
    put(other, batch(b"a"))
    fail_to_flush(log, failing)
    put(other, batch(b"b"))
    other.flush()
    assert values(other) == {0: b"a", 1: b"b"}


@pytest.mark.parametrize("cleanly", [True, False])
def test_a_restart_verifies_what_was_not_flushed(
    home: Home, failing: FailingDisk, caplog: pytest.LogCaptureFixture, cleanly: bool
) -> None:
    """Batches that the disk does not have are cut; the others are written once more and forced to
    disk. The stop is clean for the other logs only.
    """
    log, other = home.log(0), home.log(1)
    put(log, batch(b"a"))
    log.flush()
    put(other, batch(b"a"))
    put(log, batch(b"b"))
    good = log.size_bytes()
    put(log, batch(b"c"))
    fail_to_flush(log, failing)
    home.restart(cleanly=cleanly)
    with open(home.path / FIRST, "r+b") as file:  # what the kernel has dropped
        file.seek(good)
        file.write(bytes(50))
    assert "t-0" in home.logs.directory.unverified
    assert ("t-1" in home.logs.directory.unverified) == (not cleanly)
    failing.forced.clear()
    log = home.log()
    assert values(log) == {0: b"a", 1: b"b"}
    copies = [path for path in failing.forced if path.endswith(".tmp")]
    assert [path.rsplit(".", 2)[0] for path in copies] == [f"{home.path}/{FIRST}"]
    assert not log.is_offline
    assert log.unflushed_records == 0
    assert "its records up to offset 2 are verified and on disk" in caplog.text
    put(log, batch(b"c"))
    log.flush()
    home.restart()
    assert "t-0" not in home.logs.directory.unverified
    assert values(home.log()) == {0: b"a", 1: b"b", 2: b"c"}


@pytest.mark.parametrize("seed", range(8))
def test_what_a_restart_has_verified_survives_a_power_cut(tmp_path: Path, seed: int) -> None:
    """New blocks of a failed write stay unwritten on ext4, also when they are written again."""
    disk = SimulatedDisk(tmp_path, Power(), random.Random(seed))
    with disk.attached():
        home = Home(tmp_path / "data")
        put(home.log(), batch(b"a"))
        home.log().flush()
        put(home.log(), batch(b"b"))
        disk.fault = Fault(frozenset({SYNC}), errno.EIO, calls=1, within=".log")
        with pytest.raises(OSError):
            home.log().flush()
        home.restart()
        put(home.log(), batch(b"c"))
        home.log().flush()
        disk.kill(loses_power=True)
        home.logs = LogDirectory(DataDirectory(home.path, 16))
        assert values(home.log()) == {0: b"a", 1: b"b", 2: b"c"}
        home.logs.close()


def test_a_hole_that_a_failed_fsync_has_left_stops_no_start(
    home: Home, failing: FailingDisk, caplog: pytest.LogCaptureFixture
) -> None:
    """The kernel has dropped one page and written the next one. In the log of an internal topic
    that looked like damage of records that were on disk.
    """
    log = home.log(internal=True)
    put(log, batch(b"a"))
    log.flush()
    start = log.size_bytes()
    put(log, batch(b"b"))
    end = log.size_bytes()
    put(log, batch(b"c"))
    failing.forced.clear()
    fail_to_flush(log, failing)
    assert failing.forced == [f"{home.path}/t-0/offline", f"{home.path}/t-0"]
    home.restart(cleanly=False)
    with open(home.path / FIRST, "r+b") as file:
        file.seek(start)
        file.write(bytes(end - start))
    log = home.log(internal=True)
    assert values(log) == {0: b"a"}
    assert f"Set aside {home.path}/{FIRST}.damaged" in caplog.text
    put(log, batch(b"b"))
    log.flush()
    home.restart()
    assert values(home.log(internal=True)) == {0: b"a", 1: b"b"}


def test_a_disk_that_still_fails_keeps_the_log_offline(home: Home, failing: FailingDisk) -> None:
    put(home.log(), batch(b"a"))
    fail_to_flush(home.log(), failing)
    home.restart()
    failing.failures, failing.suffix = 1, ".tmp"
    log = home.log()
    assert code(log.append(batch(b"b"), NOW)) == ErrorCode.KAFKA_STORAGE_ERROR
    assert failing.failures == 0
    assert log.is_offline
    assert not list(home.path.rglob("*.tmp"))
    assert code(log.read(0, 1000)) == ErrorCode.KAFKA_STORAGE_ERROR
    home.restart()
    assert values(home.log()) == {0: b"a"}


def test_records_kept_after_a_crash_are_flushed_before_they_are_acknowledged(home: Home) -> None:
    """A batch sent again is a duplicate of one that the page cache has kept, and that the disk may
    not have.
    """
    log = home.log()
    first = batch(b"a", producer=7, sequence=0)
    put(log, first)
    home.logs.close()
    (home.path / "clean-shutdown").unlink()
    for snapshot in (home.path / "t-0").glob("*.snapshot"):
        snapshot.unlink()
    home.logs = LogDirectory(DataDirectory(home.path, 16))
    log = home.log()
    assert put(log, first).duplicate
    assert log.unflushed_records == 1


def test_a_failure_in_the_background_counts_too(home: Home, failing: FailingDisk) -> None:
    """A full segment is forced to disk after the next one has begun. If that fails, the snapshot is
    not written: with it, recovery would not verify the segment.
    """
    log = home.log(segment_bytes=200)
    failing.failures = 1
    for n in range(3):
        log.append(batch(b"%d" % n, bytes(100)), NOW)
    home.logs.close()
    assert failing.failures == 0
    assert log.is_offline
    assert not list((home.path / "t-0").glob("*.snapshot"))
    home.logs = LogDirectory(DataDirectory(home.path, 16))
    assert "t-0" in home.logs.directory.unverified


def test_a_flush_that_fails_at_the_stop(home: Home, failing: FailingDisk) -> None:
    put(home.log(0), batch(b"a"))
    put(home.log(1), batch(b"b"))
    failing.failures = 1
    home.restart()
    assert "t-0" in home.logs.directory.unverified
    assert "t-1" not in home.logs.directory.unverified


def test_a_stop_with_many_logs_notices_a_failing_disk(
    home: Home, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The next start verifies the logs that the disk may not have, also an internal one, in which
    the kernel has left a hole.
    """
    log = home.log(0, internal=True)
    put(log, batch(b"a"))
    log.flush()
    start = log.size_bytes()
    for partition in range(SYNC_ALL_ABOVE + 1):
        put(home.log(partition), batch(b"b"))
    end = log.size_bytes()
    put(log, batch(b"c"))
    put(home.log(100), batch(b"flushed"))
    home.log(100).flush()

    def fail(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr("headrace.log.data_directory.sync_filesystem", fail)
        home.restart()
    assert caplog.text.count("could not be closed cleanly") == 1 and "Took " not in caplog.text
    marked = {path.parent.name for path in home.path.glob("*/offline")}
    assert marked == {f"t-{partition}" for partition in range(SYNC_ALL_ABOVE + 1)}
    with open(home.path / FIRST, "r+b") as file:
        file.seek(start)
        file.write(bytes(end - start))
    assert values(home.log(0, internal=True)) == {0: b"a"}
    assert values(home.log(1)) == {0: b"b"}


def test_a_torn_tail_that_cannot_be_cut_takes_the_log_offline(
    home: Home, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = home.log()
    put(log, batch(b"a"))
    size = log.size_bytes()

    def tear(fd: int, buffers: list[bytes], position: int) -> int:
        os.pwrite(fd, b"".join(buffers)[:20], position)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def refuse(fd: int, size_bytes: int) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as patch:
        patch.setattr("headrace.log.segment.pwritev", tear)
        patch.setattr(os, "ftruncate", refuse)
        assert code(log.append(batch(b"b"), NOW)) == ErrorCode.KAFKA_STORAGE_ERROR
    assert log.is_offline
    assert os.path.getsize(home.path / FIRST) == size + 20
    assert code(log.append(batch(b"c"), NOW)) == ErrorCode.KAFKA_STORAGE_ERROR
    assert caplog.text.count("Took ") == 1 and "Cannot write to" not in caplog.text
    home.restart()
    assert values(home.log()) == {0: b"a"}
    assert os.path.getsize(home.path / FIRST) == size


def test_a_topic_can_be_deleted_while_a_log_of_it_is_offline(
    home: Home, failing: FailingDisk
) -> None:
    put(home.log(), batch(b"a"))
    fail_to_flush(home.log(), failing)
    home.logs.removals.add(home.logs.delete("t", TOPIC_ID))
    log = home.log()
    assert not (home.path / "t-0").exists()
    put(log, batch(b"new"))
    log.flush()
    assert values(log) == {0: b"new"}


def retain(log: PartitionLog) -> None:
    assert apply_retention(log, NOW + log.config.retention_ms + 1) == 1


def compact(log: PartitionLog) -> None:
    log.roll(NOW)
    plan = cleanable(log, NOW)
    assert plan is not None
    clean(log, plan, NOW)


@pytest.mark.parametrize("replace", [retain, compact])
def test_a_flush_that_meets_a_renamed_segment(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    replace: Callable[[PartitionLog], None],
) -> None:
    """A thread that flushes the active segment looks for its file when the log itself has just
    renamed it.
    """
    disk = Disk(tmp_path)
    log = disk.log(retention_ms=1000, cleanup_policy="compact", min_cleanable_dirty_ratio=0.0)
    if replace is retain:
        log.config = log_config(retention_ms=1000)
    put(log, batch(b"a"))
    put(log, batch(b"b"))
    path = log.segments[0].path(".log")
    flushing = threading.Thread(target=log.flush)
    is_forced, is_renamed = threading.Event(), threading.Event()
    force, rename = Segment.fsync, os.rename

    def force_and_wait(segment: Segment, suffixes: Sequence[str]) -> None:
        force(segment, suffixes)
        is_forced.set()
        assert is_renamed.wait(10)

    def rename_and_wait(old: str, new: str) -> None:
        rename(old, new)
        if old == path:
            is_renamed.set()
            flushing.join()

    monkeypatch.setattr(Segment, "fsync", force_and_wait)
    monkeypatch.setattr(os, "rename", rename_and_wait)
    flushing.start()
    assert is_forced.wait(10)
    replace(log)
    assert is_renamed.is_set() and not flushing.is_alive()
    assert not log.is_offline
    disk.stop()
