"""Snapshots: whatever the logs do after the cut, the copy has their state at the cut."""

from __future__ import annotations

import os
import random
import shutil
import threading
from pathlib import Path
from typing import NamedTuple

import pytest

from headrace.log import checked_file
from headrace.log.cleaner import cleanable
from headrace.log.data_directory import DataDirectory
from headrace.log.directory_format import FORMAT_FILE
from headrace.log.log_directory import LogDirectory
from headrace.log.partition_log import PartitionLog
from headrace.log.snapshot import SIZES_FILE, Snapshot, SnapshotStopped
from headrace.protocol.record_batch import TRANSACTIONAL_BIT, Marker, build
from tests.log.disk import (
    NOW,
    TOPIC_ID,
    Disk,
    apply_retention,
    batch,
    clean,
    delete_records,
    finish_removals,
    put,
    values,
)
from tests.log_configs import log_config

LATER = NOW + 10_000_000
COMPACTED = {"cleanup_policy": "compact,delete", "segment_bytes": 400, "retention_ms": 1_000_000}


class State(NamedTuple):
    """The content of a log, as its readers see it."""

    log_start_offset: int
    end_offset: int
    last_stable_offset: int
    values: dict[int, bytes | None]
    aborted: int


def state(log: PartitionLog) -> State:
    aborted = log.aborted.overlapping(log.log_start_offset, log.end_offset)
    found = log.log_start_offset, log.end_offset, log.last_stable_offset
    return State(*found, values(log), len(aborted))


def new_snapshot(disk: Disk) -> Snapshot:
    (disk.path / FORMAT_FILE).touch()
    return Snapshot(disk.home)


def copied(snapshot: Snapshot, target: Path) -> LogDirectory:
    """Open a copy of a snapshot, in which files end as noted."""
    sizes = checked_file.read(f"{snapshot.path}/{SIZES_FILE}")
    for source in Path(snapshot.path).rglob("*"):
        name = str(source.relative_to(snapshot.path))
        if source.is_file() and name != SIZES_FILE:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).write_bytes(source.read_bytes()[: sizes.get(name)])
    return LogDirectory(DataDirectory(target, 16, sync=False))


class Work:
    """Random work on the logs of a disk."""

    def __init__(self, disk: Disk, rng: random.Random) -> None:
        self.disk = disk
        self.rng = rng
        self.producers = 0
        self.now_ms = NOW
        self.may_restart = True

    def log(self) -> PartitionLog:
        return self.disk.log("t", self.rng.randrange(3), **COMPACTED)

    def step(self) -> None:
        kinds = (self.append,) * 12 + (self.roll, self.compact, self.retain, self.transaction)
        self.rng.choice((*kinds, self.delete_records, self.delete_topic, self.forget))()

    def append(self) -> None:
        self.now_ms += self.rng.randrange(100_000)
        value = f"{self.rng.randrange(100)}".encode() * self.rng.randrange(1, 20)
        put(self.log(), batch(value, at=self.now_ms), self.now_ms)

    def roll(self) -> None:
        log = self.log()
        if len(log.segments):
            log.roll(self.now_ms)

    def compact(self) -> None:
        log = self.log()
        plan = cleanable(log, self.now_ms)
        if plan is not None:
            clean(log, plan, self.now_ms)

    def retain(self) -> None:
        apply_retention(self.log(), self.now_ms)

    def transaction(self) -> None:
        log, rng = self.log(), self.rng
        self.producers += 1
        data = batch(b"x", at=self.now_ms, producer=self.producers, sequence=0)
        put(log, data, self.now_ms)
        if rng.random() < 0.8:
            log.append_marker(self.producers, 0, Marker(rng.random() < 0.5, 0), self.now_ms)

    def delete_records(self) -> None:
        log = self.log()
        delete_records(log, self.rng.randint(log.log_start_offset, log.end_offset))

    def delete_topic(self) -> None:
        if self.rng.random() < 0.2:
            self.disk.home.delete("t", TOPIC_ID)

    def forget(self) -> None:
        """Continue in a new life, in which no log is loaded; half of the time after a crash that
        has left torn tails.
        """
        if not self.may_restart:
            return
        self.disk.stop()
        if self.rng.random() < 0.5:
            (self.disk.path / "clean-shutdown").unlink()
            torn = batch(b"torn" * 100)
            for directory in self.disk.path.glob("t-*"):
                newest = max(directory.glob("*.log"))
                newest.write_bytes(newest.read_bytes() + torn[: self.rng.randrange(len(torn))])
        self.disk.start()


@pytest.mark.parametrize("seed", range(40))
def test_the_copy_has_the_state_at_the_cut(disk: Disk, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    work = Work(disk, rng)
    for _ in range(rng.randrange(60)):
        work.step()
    if rng.random() < 0.3:
        work.forget()
    before = disk.path.with_name("before")
    work.may_restart = False
    snapshot = new_snapshot(disk)
    shutil.copytree(disk.path, before, ignore=shutil.ignore_patterns("*-delete"))
    for _ in range(rng.randrange(60)):
        if rng.random() < 0.1:
            snapshot.keep(work.log().path)
        work.step()
    snapshot.link_all()
    for _ in range(rng.randrange(40)):
        work.step()
    expected = LogDirectory(DataDirectory(before, 16, sync=False))
    found = copied(snapshot, tmp_path / "copy")
    names = sorted(found.directory.partition_names())
    assert names == sorted(expected.directory.partition_names())
    config = log_config(**COMPACTED)
    for partition in range(3):
        logs = [home.open("t", TOPIC_ID, partition, config) for home in (expected, found)]
        assert state(logs[1]) == state(logs[0]), partition
    found.close()
    expected.close()


def test_a_thread_links_while_the_logs_are_used(disk: Disk, tmp_path: Path) -> None:
    logs = [disk.log("t", partition, **COMPACTED) for partition in range(40)]
    for log in logs:
        for n in range(10):
            put(log, batch(b"%d" % n * 50, at=NOW))
    expected = [state(log) for log in logs]
    snapshot = new_snapshot(disk)
    linking = threading.Thread(target=snapshot.link_all)
    linking.start()
    for log in reversed(logs):
        put(log, batch(b"later", at=LATER), LATER)
        plan = cleanable(log, LATER)
        assert plan is not None
        clean(log, plan, LATER)
        apply_retention(log, LATER)
        assert log.log_start_offset > 0
    linking.join()
    found = copied(snapshot, tmp_path / "copy")
    config = log_config(**COMPACTED)
    assert expected == [state(found.open("t", TOPIC_ID, p, config)) for p in range(len(logs))]
    found.close()


def test_only_logs_in_use_are_verified_at_the_start(disk: Disk, tmp_path: Path) -> None:
    for partition in range(3):
        put(disk.log("t", partition), batch(b"a"))
    disk.stop()
    disk.start()
    put(disk.log("t", 1), batch(b"b"))
    snapshot = new_snapshot(disk)
    snapshot.link_all()
    found = copied(snapshot, tmp_path / "copy")
    verified = [f"t-{p}" in found.directory.unverified for p in range(3)]
    assert verified == [False, True, False]
    found.close()


def test_the_aborted_transactions_of_a_copy_are_not_in_doubt(
    disk: Disk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for sequence in range(2):
        log = disk.log()
        data = build(
            [(b"k", b"v")],
            timestamp_ms=NOW,
            attributes=TRANSACTIONAL_BIT,
            producer_id=1,
            producer_epoch=0,
            base_sequence=sequence,
        )
        put(log, data)
        log.append_marker(1, 0, Marker(commit=False, coordinator_epoch=0), NOW)
        disk.stop()
        disk.start()
    expected = state(disk.log())
    snapshot = new_snapshot(disk)
    disk.log().roll(NOW)
    snapshot.link_all()
    found = copied(snapshot, tmp_path / "copy")
    assert state(found.open("t", TOPIC_ID, 0, log_config())) == expected
    assert expected.aborted == 2 and "finding the aborted transactions again" not in caplog.text
    found.close()


def test_a_log_without_records_keeps_its_offsets(disk: Disk, tmp_path: Path) -> None:
    log = disk.log(retention_ms=1)
    put(log, batch(b"a"))
    apply_retention(log, LATER)
    assert (log.log_start_offset, log.end_offset) == (1, 1)
    snapshot = new_snapshot(disk)
    put(log, batch(b"b", at=LATER), LATER)
    snapshot.link_all()
    found = copied(snapshot, tmp_path / "copy")
    copy = found.open("t", TOPIC_ID, 0, log_config())
    assert (copy.log_start_offset, copy.end_offset) == (1, 1)
    found.close()


def test_partitions_of_later_are_left_out(disk: Disk) -> None:
    disk.log("unused").load()
    snapshot = new_snapshot(disk)
    put(disk.log("unused"), batch(b"a"))
    put(disk.log("later"), batch(b"a"))
    snapshot.link_all()
    assert not [name for name in os.listdir(snapshot.path) if name.startswith(("unused", "later"))]


def test_a_failure_is_raised_and_does_not_disturb_the_logs(disk: Disk) -> None:
    log = disk.log()
    put(log, batch(b"a"))
    snapshot = new_snapshot(disk)
    os.unlink(log.segments[0].path(".log"))
    disk.home.delete("t", TOPIC_ID)
    with pytest.raises(FileNotFoundError):
        snapshot.link_all()
    assert disk.home.directory.on_change is None


def test_a_stopped_snapshot_ends_soon_and_is_removed(disk: Disk) -> None:
    for partition in range(3):
        put(disk.log("t", partition), batch(b"a"))
    snapshot = new_snapshot(disk)
    snapshot.stop()
    with pytest.raises(SnapshotStopped):
        snapshot.link_all()
    snapshot.remove()
    assert not os.path.exists(snapshot.path)


def test_the_next_start_deletes_a_snapshot_that_was_left(disk: Disk) -> None:
    put(disk.log(), batch(b"a"))
    snapshot = new_snapshot(disk)
    snapshot.link_all()
    snapshot.abandon()
    snapshot.remove()
    assert os.path.exists(snapshot.path)
    disk.crash()
    disk.home.removals.remove_renamed()
    finish_removals(disk.home)
    assert not [name for name in os.listdir(disk.path) if name.startswith("snapshot")]
    assert values(disk.log()) == {0: b"a"}
