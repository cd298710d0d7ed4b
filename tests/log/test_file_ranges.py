"""Reads as file ranges: what is read later is what would have been read at once."""

from __future__ import annotations

import os
import random
import shutil

import pytest

from headrace.log.cleaner import cleanable
from headrace.log.partition_log import PartitionLog
from headrace.protocol.errors import Refusal
from headrace.protocol.file_range import LEAST_RANGE_BYTES, FileRange
from headrace.protocol.record_batch import headers
from tests.log.disk import NOW, Disk, apply_retention, batch, clean, put
from tests.log_configs import log_config


def found(log: PartitionLog, offset: int = 0, max_bytes: int = 1 << 20) -> FileRange:
    """Return the batches as a file range without data."""
    one = log.find(offset, max_bytes)
    assert isinstance(one, FileRange) and one.data is None
    return one


def filled(disk: Disk, batches: int = 20, partition: int = 0, **config: int) -> PartitionLog:
    log = disk.log(partition=partition, **config)
    for number in range(batches):
        put(log, batch(b"%d" % number + bytes(1000), bytes(1000)))
    return log


def open_logs(disk: Disk) -> int:
    """Return the number of open segment files of a directory."""
    links = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if alive(fd)]
    return sum(str(disk.path) in link and ".log" in link for link in links)


def alive(fd: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{fd}")


@pytest.mark.parametrize("seed", range(8))
def test_a_range_has_the_bytes_of_a_read(disk: Disk, seed: int) -> None:
    chance = random.Random(seed)
    log = disk.log(segment_bytes=200_000)
    for _ in range(100):
        put(log, batch(*[bytes(chance.randrange(3000))] * chance.randrange(1, 5)))
    for _ in range(300):
        offset = chance.randrange(log.end_offset + 1)
        max_bytes = chance.choice([0, 1, 5000, 20_000, 100_000, 1 << 20, chance.randrange(50_000)])
        minimum_one = chance.random() < 0.5
        up_to = chance.choice([None, chance.randrange(log.end_offset + 2)])
        held_bytes = chance.choice([0, 10_000, 64 * 1024])
        read = log.find(offset, max_bytes, minimum_one=minimum_one, up_to=up_to, held_bytes=None)
        one = log.find(
            offset, max_bytes, minimum_one=minimum_one, up_to=up_to, held_bytes=held_bytes
        )
        assert not isinstance(read, Refusal) and not isinstance(one, Refusal)
        assert bytes(one) == read
        if isinstance(one, FileRange):
            assert (one.data is None) == (len(one) > held_bytes)
            assert list(headers(one)) == list(headers(read))
            assert one.end_offset == list(headers(read))[-1][1].last_offset + 1
            start = chance.randrange(len(one))
            assert bytes(one.part(start, len(one))) == read[start:]
        else:
            assert len(one) < LEAST_RANGE_BYTES


def test_ranges_of_released_files_can_be_read(disk: Disk) -> None:
    """Many more ranges than files may be open; none has a file of its own."""
    logs = [filled(disk, partition=number) for number in range(40)]
    ranges = [found(log) for log in logs]
    expected = [log.read(0, 1 << 20) for log in logs]
    assert [bytes(one) for one in ranges] == expected
    assert open_logs(disk) <= disk.file_limit


@pytest.mark.parametrize("is_released", [False, True])
def test_a_deleted_log_can_be_read_to_the_end(disk: Disk, is_released: bool) -> None:
    log = filled(disk)
    one, part = found(log), found(log).part(100, 200)
    expected = bytes(one)
    if is_released:
        log.segments[0].release()
    log.delete()
    shutil.rmtree(log.path)
    assert bytes(one) == expected and bytes(part) == expected[100:200]
    del one
    assert open_logs(disk) == 1
    del part
    assert open_logs(disk) == 0


def test_retention_leaves_ranges_alone(disk: Disk) -> None:
    log = filled(disk, segment_bytes=20_000)
    one = found(log)
    expected = bytes(one)
    log.config = log_config(segment_bytes=20_000, retention_bytes=1)
    assert apply_retention(log, NOW) > 0
    assert log.log_start_offset > 0
    assert bytes(one) == expected


def test_ranges_of_deleted_logs_take_no_more_than_their_share_of_files(disk: Disk) -> None:
    logs = [filled(disk, partition=number) for number in range(disk.file_limit)]
    ranges = [found(log) for log in logs]
    for log in logs:
        log.delete()
        shutil.rmtree(log.path)
    assert open_logs(disk) == disk.file_limit // 2
    unreadable = 0
    for one in ranges:
        try:
            bytes(one)
        except OSError:
            unreadable += 1
    assert unreadable == disk.file_limit - disk.file_limit // 2
    ranges.clear()
    del one
    assert open_logs(disk) == 0
    assert filled(disk, partition=1000).read(0, 100)


def test_a_file_that_has_become_too_short_is_an_error(disk: Disk) -> None:
    log = filled(disk)
    one = found(log)
    os.truncate(log.segments[0].path(".log"), 5000)
    with pytest.raises(OSError, match="too short"):
        bytes(one)
    left = log.find(0, 1 << 20)
    assert isinstance(left, bytes) and 0 < len(left) <= 5000
    assert isinstance(log.find(log.end_offset - 1, 1 << 20), Refusal)


def test_compaction_leaves_ranges_alone(disk: Disk) -> None:
    log = disk.log(segment_bytes=20_000, cleanup_policy="compact", min_cleanable_dirty_ratio=0.0)
    for number in range(40):
        put(log, batch(b"%d" % number + bytes(1000)))
    one = found(log)
    expected = bytes(one)
    plan = cleanable(log, NOW)
    assert plan is not None
    clean(log, plan, NOW)
    assert log.read(0, 1 << 20) != expected
    assert bytes(one) == expected
