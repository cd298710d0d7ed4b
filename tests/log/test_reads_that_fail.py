"""A read that fails once, as when no file handle is left: later answers are right again."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from headrace.log import segment
from headrace.log.partition_log import PartitionLog
from tests.log.disk import NOW, Disk, batch, first_at_or_after, latest, put

COUNT = 30


@contextmanager
def failing(monkeypatch: pytest.MonkeyPatch, suffix: str, until: int = 1 << 62) -> Iterator[None]:
    """Make opening files with a suffix fail, and reading them before a position."""

    def fail() -> OSError:
        return OSError(errno.EIO, os.strerror(errno.EIO))

    def no_open(path: str, mode: str) -> Any:
        if path.endswith(suffix):
            raise fail()
        return open(path, mode)

    really_read = os.pread

    def no_read(fd: int, size: int, position: int) -> bytes:
        if position < until and os.readlink(f"/proc/self/fd/{fd}").endswith(suffix):
            raise fail()
        return really_read(fd, size, position)

    with monkeypatch.context() as patch:
        patch.setattr(segment, "open", no_open, raising=False)
        patch.setattr(os, "pread", no_read)
        yield


@pytest.fixture
def log(disk: Disk) -> PartitionLog:
    """A log of several segments, used for the first time since a start."""
    config = {"segment_bytes": 800, "index_interval_bytes": 0}
    log = disk.log(**config)
    for n in range(COUNT):
        put(log, batch(b"%d" % n, at=NOW + n))
    disk.stop()
    disk.start()
    log = disk.log(**config)
    assert log.end_offset == COUNT and len(log.segments) > 2
    return log


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".log"])
def test_a_segment_that_was_not_loaded(
    log: PartitionLog, monkeypatch: pytest.MonkeyPatch, suffix: str
):
    with failing(monkeypatch, suffix), pytest.raises(OSError, match="Input/output error"):
        first_at_or_after(log, NOW + 3)
    assert first_at_or_after(log, NOW + 3) == (3, NOW + 3)
    assert latest(log) == (COUNT - 1, NOW + COUNT - 1)


def test_indexes_that_were_being_rebuilt(log: PartitionLog, monkeypatch: pytest.MonkeyPatch):
    first = log.segments[0]
    with open(first.path(".index"), "r+b") as index:
        index.truncate(4)
    with failing(monkeypatch, ".log"), pytest.raises(OSError, match="Input/output error"):
        first_at_or_after(log, NOW + 3)
    assert first_at_or_after(log, NOW + 3) == (3, NOW + 3)


def test_indexes_that_were_being_rebuilt_in_use(log: PartitionLog, monkeypatch: pytest.MonkeyPatch):
    assert first_at_or_after(log, NOW + 7) == (7, NOW + 7)
    log.segments[0].times.data[-1] ^= 1
    with failing(monkeypatch, ".log", until=1), pytest.raises(OSError, match="Input/output error"):
        first_at_or_after(log, NOW + 10)
    assert first_at_or_after(log, NOW + 7) == (7, NOW + 7)
