"""Large batches, which are written in pieces before they are added."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

from headrace.log import segment
from headrace.log.partition_log import PartitionLog
from headrace.protocol.checksum import crc32c_steps
from headrace.protocol.errors import ErrorCode, Refusal
from headrace.protocol.limits import PIECE_OF_BATCH_BYTES
from headrace.protocol.record_batch import CRC_START, Marker, header_at
from headrace.protocol.time_slices import run_now
from tests.log.disk import NOW, Disk, batch, put, values

VALUE = os.urandom(3 * PIECE_OF_BATCH_BYTES)
LARGE = memoryview(batch(VALUE))


def staging(log: PartitionLog) -> Generator[None, None, Refusal | None]:
    header = header_at(LARGE)
    return log.stage(LARGE, NOW, header, run_now(crc32c_steps(LARGE[CRC_START:])))


def file_bytes(log: PartitionLog) -> int:
    return os.path.getsize(log.segments[-1].path(".log"))


@pytest.fixture
def log(disk: Disk) -> PartitionLog:
    log = disk.log(max_message_bytes=2 * len(LARGE))
    put(log, batch(b"a"))
    return log


def test_a_large_batch_is_there_once_it_is_added(log: PartitionLog) -> None:
    before, pieces = log.size_bytes(), 0
    for _ in staging(log):
        pieces += 1
        assert log.is_staging
        assert (log.end_offset, log.size_bytes()) == (1, before)
    assert pieces == 4
    put(log, LARGE)
    log.unstage()
    assert not log.is_staging
    put(log, batch(b"b"))
    assert values(log) == {0: b"a", 1: VALUE, 2: b"b"}


def test_a_marker_goes_before_and_the_batch_is_written_again(log: PartitionLog) -> None:
    steps = staging(log)
    next(steps)
    log.append_marker(7, 0, Marker(True, 0), NOW)
    assert run_now(steps) is None
    put(log, LARGE)
    log.unstage()
    assert values(log)[2] == VALUE and log.end_offset == 3


def test_what_is_not_added_is_cut_off(log: PartitionLog) -> None:
    before = file_bytes(log)
    run_now(staging(log))
    assert file_bytes(log) > before
    log.unstage()
    assert file_bytes(log) == before
    put(log, batch(b"b"))
    assert values(log) == {0: b"a", 1: b"b"}


def test_a_log_that_is_closed_or_deleted_meanwhile(disk: Disk, log: PartitionLog) -> None:
    before = file_bytes(log)
    path = log.segments[-1].path(".log")
    steps = staging(log)
    next(steps)
    log.close()
    assert os.path.getsize(path) == before
    log.delete()
    run_now(steps)
    log.unstage()
    assert log.append(LARGE, NOW).code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_full_disk(log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    before, steps = file_bytes(log), staging(log)
    next(steps)
    with monkeypatch.context() as full:
        full.setattr(segment, "pwritev", lambda *_: 0)
        refusal = run_now(steps)
    assert isinstance(refusal, Refusal) and refusal.code == ErrorCode.KAFKA_STORAGE_ERROR
    log.unstage()
    assert file_bytes(log) == before
    put(log, batch(b"b"))
    assert values(log) == {0: b"a", 1: b"b"}


def test_a_batch_that_would_be_refused_is_not_written(log: PartitionLog) -> None:
    before = file_bytes(log)
    assert run_now(log.stage(LARGE, NOW, header_at(LARGE), 1)) is None
    assert file_bytes(log) == before
    assert log.append(LARGE, NOW).code == ErrorCode.CORRUPT_MESSAGE
    log.unstage()
