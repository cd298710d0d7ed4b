"""A full disk: appends are refused, nothing is half written, and appends succeed again when there
is room.
"""

from __future__ import annotations

import errno
import os

import pytest

from headrace.protocol.errors import ErrorCode, Refusal
from tests.log.disk import NOW, Disk, batch, delete_records, first_at_or_after, latest, put, values


class TightDisk:
    """A replacement of ``pwritev`` that writes ``room`` bytes in all, short at the end as a real
    disk.
    """

    def __init__(self, room: int) -> None:
        self.room = room

    def __call__(self, fd: int, buffers: list[bytes | memoryview], position: int) -> int:
        data = b"".join(buffers)[: self.room]
        if not data:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.room -= len(data)
        return os.pwrite(fd, data, position)


@pytest.mark.parametrize("room", [0, 1, 15, 16, 61, 80, 140])
def test_all_or_nothing(
    disk: Disk, room: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    log = disk.log()
    put(log, batch(b"a"))
    size = log.size_bytes()
    tight = TightDisk(room)
    monkeypatch.setattr("headrace.log.segment.pwritev", tight)
    for _ in range(3):
        answer = log.append(batch(b"b", bytes(100)), NOW)
        assert isinstance(answer, Refusal) and answer.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (log.end_offset, log.size_bytes()) == (1, size)
        assert os.path.getsize(f"{log.path}/00000000000000000000.log") == size
        assert values(log) == {0: b"a"}, "readers go on"
    assert caplog.text.count("Cannot write to") == 1
    tight.room = 10**6
    assert put(log, batch(b"c")).base_offset == 1
    assert "can be written again" in caplog.text
    disk.crash()
    assert values(disk.log()) == {0: b"a", 1: b"c"}


def test_a_segment_that_cannot_be_ended_is_told_once(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """Clients try again and again."""
    log = disk.log(segment_bytes=150)
    put(log, batch(b"a"))
    put(log, batch(b"b"))

    def full(*args: object, **how: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        patch.setattr(os, "replace", full)
        patch.setattr(disk.home.directory.files, "open", full)
        for _ in range(20):
            assert isinstance(log.append(batch(b"c"), NOW), Refusal)
    assert caplog.text.count("Could not save the indexes") <= 2
    assert put(log, batch(b"c")).base_offset == 2


def test_short_writes_are_carried_on(disk: Disk, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        "headrace.log.segment.pwritev",
        lambda fd, buffers, position: os.pwrite(fd, b"".join(buffers)[:7], position),
    )
    log = disk.log()
    put(log, batch(b"a", bytes(100)))
    assert values(log) == {0: b"a", 1: bytes(100)}


def test_no_room_for_a_directory_or_a_new_segment(disk: Disk, monkeypatch: pytest.MonkeyPatch):
    log = disk.log(segment_bytes=150)
    really_open = os.open

    def no_room(path: str, flags: int, *args: int, **how: int) -> int:
        if flags & os.O_CREAT and not os.path.exists(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return really_open(path, flags, *args, **how)

    def answers(data: bytes) -> bool:
        return not isinstance(log.append(data, NOW), Refusal)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", no_room)
        assert not answers(batch(b"a"))
    assert answers(batch(b"a")) and answers(batch(b"b"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", no_room)
        assert not answers(batch(b"c"))
        assert values(log) == {0: b"a", 1: b"b"}
    assert answers(batch(b"c"))
    disk.crash()
    assert values(disk.log()) == {0: b"a", 1: b"b", 2: b"c"}


def test_indexes_that_cannot_be_saved_are_rebuilt(disk: Disk, monkeypatch: pytest.MonkeyPatch):
    log = disk.log(index_interval_bytes=0)
    for n in range(50):
        put(log, batch(b"%d" % n, at=NOW + n))
    with monkeypatch.context() as patch:
        patch.setattr("headrace.log.index.os.pwrite", TightPwrite())
        disk.stop()
    disk.start()
    log = disk.log()
    assert len(values(log)) == 50
    assert first_at_or_after(log, NOW + 31) == (31, NOW + 31) and latest(log) == (
        49,
        NOW + 49,
    )


class TightPwrite:
    """A replacement of ``pwrite`` that writes eleven bytes, then raises ENOSPC."""

    def __init__(self) -> None:
        self.calls = 0
        self.pwrite = os.pwrite

    def __call__(self, fd: int, data: memoryview, position: int) -> int:
        self.calls += 1
        if self.calls > 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self.pwrite(fd, data[:11], position)


def test_delete_records_needs_room(disk: Disk, monkeypatch: pytest.MonkeyPatch):
    log = disk.log()
    put(log, batch(b"a"))

    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        answer = delete_records(log, 1)
        assert isinstance(answer, Refusal) and answer.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert log.log_start_offset == 0
    assert delete_records(log, 1) == 1


def test_a_file_that_lost_its_end_is_a_storage_error(disk: Disk):
    log = disk.log()
    put(log, batch(b"a"))
    put(log, batch(b"b"))
    os.truncate(f"{log.path}/00000000000000000000.log", 100)
    assert log.read(0, 1000) == batch(b"a")
    answer = log.read(1, 1000)
    assert isinstance(answer, Refusal) and answer.code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_stop_on_a_full_disk_lets_the_next_start_check(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
):
    put(disk.log(), batch(b"a"))

    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        disk.stop()
    disk.start()
    assert "t-0" in disk.home.directory.unverified
    assert values(disk.log()) == {0: b"a"}
    assert "t-0" not in disk.home.directory.unverified
