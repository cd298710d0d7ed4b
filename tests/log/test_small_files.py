"""Each small file of a log, damaged in every way: the log is right after that. Nothing is lost in
silence.
"""

from __future__ import annotations

import logging
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headrace.log.data_directory import CLEAN_SHUTDOWN_FILE, DataDirectory
from headrace.log.log_directory import LogDirectory
from headrace.log.partition_log import PartitionLog
from headrace.protocol.record_batch import TRANSACTIONAL_BIT, Marker, build
from tests.log.disk import (
    NOW,
    TOPIC_ID,
    Disk,
    delete_records,
    first_at_or_after,
    latest,
    put,
    values,
)
from tests.log_configs import log_config
from tests.support import RUN_SEED

CONFIG = log_config(segment_bytes=4000, index_interval_bytes=100)
MOST_CASES = 12
"""Truncations, and flipped bits, of one file: all of them, or a choice."""


class State(NamedTuple):
    """All that clients can see of a log."""

    values: dict[int, bytes | None]
    start: int
    end: int
    stable: int
    aborted: list[Any]
    producers: list[tuple[int, int, int]]
    times: list[Any]
    latest: Any


def state(log: PartitionLog) -> State:
    return State(
        values(log),
        log.log_start_offset,
        log.end_offset,
        log.last_stable_offset,
        [entry[:3] for entry in log.aborted.overlapping(0, log.end_offset)],
        [
            (producer, entry.epoch, entry.batches[-1].last_sequence)
            for producer, entry in sorted(log.producers)
        ],
        [first_at_or_after(log, NOW + n) for n in range(0, 70, 3)],
        latest(log),
    )


def transactional(producer: int, sequence: int, value: bytes, at: int) -> bytes:
    return build(
        [(b"k", value)],
        timestamp_ms=at,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=sequence,
        attributes=TRANSACTIONAL_BIT,
    )


def written(path: Path) -> tuple[Path, State]:
    """Write a log that has every kind of small file, stop cleanly, and return its state."""
    disk = Disk(path)
    log = disk.home.open("t", TOPIC_ID, 0, CONFIG)
    sequences = {1: 0, 2: 0, 3: 0}
    for n in range(60):
        producer = 1 + n % 3
        put(log, transactional(producer, sequences[producer], b"%d" % n + bytes(90), NOW + n))
        sequences[producer] += 1
        if n % 7 == 0:
            log.append_marker(producer, 0, Marker(commit=n % 2 == 0, coordinator_epoch=0), NOW + n)
    delete_records(log, 5)
    expected = state(log)
    assert len(log.segments) > 2 and len(expected.aborted) > 2
    disk.stop()
    return disk.path, expected


def small_files(data_dir: Path) -> list[Path]:
    return [
        path
        for path in sorted(data_dir.rglob("*"))
        if path.is_file() and path.suffix != ".log" and path.name != "lock"
    ]


def damaged(data: bytes, chance: random.Random) -> Iterator[tuple[str, bytes | None]]:
    yield "missing", None
    yield "garbage", chance.randbytes(len(data) or 7)
    yield "longer", data + chance.randbytes(13)
    yield "zeros", bytes(len(data))
    yield "a list", b"[]"
    lengths = range(len(data))
    for length in chance.sample(lengths, min(MOST_CASES, len(lengths))):
        yield f"cut to {length}", data[:length]
    bits = range(8 * len(data))
    for bit in chance.sample(bits, min(MOST_CASES, len(bits))):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        yield f"bit {bit}", bytes(flipped)


def test_every_small_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    data_dir, expected = written(tmp_path)
    found = small_files(data_dir)
    assert {path.suffix or path.name for path in found} >= {
        ".index", ".timeindex", ".txnindex", ".snapshot", ".metadata", "log-start-offset",
        CLEAN_SHUTDOWN_FILE,
    }  # fmt: skip
    print(f"HEADRACE_TEST_SEED={RUN_SEED}")
    chance = random.Random(RUN_SEED)
    for file in found:
        for how, data in damaged(file.read_bytes(), chance):
            case = f"{file.name}: {how}"
            copy = tmp_path / "copy"
            shutil.copytree(data_dir, copy)
            spoilt = copy / file.relative_to(data_dir)
            spoilt.unlink() if data is None else spoilt.write_bytes(data)
            caplog.clear()
            check(copy, spoilt, expected, case, caplog)
            shutil.rmtree(copy)


def check(
    data_dir: Path, spoilt: Path, expected: State, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    home = LogDirectory(DataDirectory(data_dir, 16, sync=False))
    try:
        log = home.open("t", TOPIC_ID, 0, CONFIG)
        now = state(log)
        told = caplog.text
        if spoilt.name == "partition.metadata" and list(data_dir.glob("t-0.*-stray")):
            assert now.values == {} and str(spoilt) in told, case
            return
        if spoilt.name == "log-start-offset":
            # Deleted records may come back, and no others are lost.
            assert now.start in (0, expected.start), case
            assert now.start == expected.start or case.endswith("missing") or str(spoilt) in told
            now = now._replace(
                start=expected.start,
                values={at: value for at, value in now.values.items() if at >= expected.start},
                times=expected.times,
            )
        assert now == expected, case
        put(log, build([(b"k", b"next")], timestamp_ms=NOW))
    finally:
        home.close()
    # The mended files are right at the next start, too.
    home = LogDirectory(DataDirectory(data_dir, 16, sync=False))
    log = home.open("t", TOPIC_ID, 0, CONFIG)
    again = values(log)
    assert again.pop(expected.end) == b"next", case
    assert {at: value for at, value in again.items() if at >= expected.start} == expected.values
    home.close()
