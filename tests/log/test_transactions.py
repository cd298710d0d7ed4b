"""Transactions in a log: the last stable offset and the aborted transactions, over restarts and
crashes.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from pkgutil import resolve_name
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.log.aborted_transactions import AbortedTransaction
from headrace.log.partition_log import PartitionLog
from headrace.protocol.errors import ErrorCode, Refusal
from headrace.protocol.record_batch import TRANSACTIONAL_BIT, Marker, build, headers, marker_in
from tests.log.disk import NOW, Disk

COMMIT, ABORT = Marker(commit=True, coordinator_epoch=3), Marker(commit=False, coordinator_epoch=3)


def send(
    log: PartitionLog, producer: int, sequence: int, count: int = 1, *, transactional: bool = True
):
    data = build(
        [(None, b"%d" % n) for n in range(count)],
        timestamp_ms=NOW,
        attributes=TRANSACTIONAL_BIT if transactional else 0,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=sequence,
    )
    return log.append(data, NOW)


def end(log: PartitionLog, producer: int, marker: Marker, epoch: int = 0):
    return log.append_marker(producer, epoch, marker, NOW)


def test_stable_data_ends_where_the_oldest_open_transaction_begins(disk: Disk):
    log = disk.log()
    send(log, 1, 0, 3)
    assert log.last_stable_offset == 0
    send(log, 2, 0)
    end(log, 1, COMMIT)
    assert log.last_stable_offset == 3
    end(log, 2, COMMIT)
    assert log.last_stable_offset == log.end_offset == 6
    assert log.aborted.overlapping(0, 6) == []


def test_reads_return_the_aborted_transactions_of_their_range(disk: Disk):
    log = disk.log()
    send(log, 9, 0, 3, transactional=False)
    send(log, 1, 0, 2)
    end(log, 1, ABORT)
    aborted = AbortedTransaction(producer_id=1, first_offset=3, last_offset=5, last_stable_offset=6)
    assert log.aborted.overlapping(0, 6) == [aborted]
    assert log.aborted.overlapping(5, 6) == [aborted]
    assert log.aborted.overlapping(0, 3) == []
    assert log.aborted.overlapping(6, 7) == []


def test_a_recovery_does_not_empty_the_index_before_it_is_on_disk(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
):
    """Entries before the recovery point are nowhere else."""
    log = disk.log()
    send(log, 1, 0)
    end(log, 1, ABORT)
    disk.stop()
    disk.start()
    index = disk.path / "t-0" / f"{0:020d}.txnindex"
    before = index.read_bytes()
    log = disk.log()
    send(log, 1, 1)
    end(log, 1, ABORT)
    replace, replaced = os.replace, []

    def watched(old: str, new: str) -> None:
        if new.endswith(".txnindex"):
            assert Path(new).read_bytes() == before
            replaced.append(new)
        replace(old, new)

    monkeypatch.setattr(os, "replace", watched)
    disk.crash(lambda path: os.truncate(path / "t-0" / index.name, len(before)))
    assert len(disk.log().aborted) == 2
    assert replaced


INDEX = Path("t-0") / f"{0:020d}.txnindex"


def lose_the_second_entry(path: Path) -> None:
    os.truncate(path / INDEX, 34)


def flip_a_bit_of_the_first_entry(path: Path) -> None:
    data = bytearray((path / INDEX).read_bytes())
    data[33] ^= 0x10
    (path / INDEX).write_bytes(data)


def abort_twice_around_a_stop(disk: Disk) -> list[AbortedTransaction]:
    """Return two aborted transactions, of which only the first is before the recovery point."""
    log = disk.log()
    send(log, 1, 0)
    end(log, 1, ABORT)
    disk.stop()
    disk.start()
    log = disk.log()
    send(log, 1, 1)
    end(log, 1, ABORT)
    return log.aborted.overlapping(0, 4)


def test_a_flipped_bit_is_found_after_a_recovery_has_added_entries(disk: Disk):
    """Entries before the recovery point keep their checksum, although the file grew."""
    expected = abort_twice_around_a_stop(disk)
    disk.crash(lose_the_second_entry)
    assert disk.log().aborted.overlapping(0, 4) == expected
    disk.crash(flip_a_bit_of_the_first_entry)
    assert disk.log().aborted.overlapping(0, 4) == expected


def test_a_flipped_bit_is_found_after_a_power_cut_has_torn_the_checksums(disk: Disk):
    expected = abort_twice_around_a_stop(disk)
    disk.crash(lambda path: (path / INDEX).with_suffix(".checksums").write_bytes(b"txn"))
    assert disk.log().aborted.overlapping(0, 4) == expected
    disk.crash(flip_a_bit_of_the_first_entry)
    assert disk.log().aborted.overlapping(0, 4) == expected


def keep(path: Path) -> None:
    """Spoil nothing."""


def fail_to_write_checksums(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, act: Callable[[Disk], object]
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("headrace.log.segment.checksums.write", lambda *arguments: fail())
        act(disk)


def stop_and_start(disk: Disk) -> None:
    disk.stop()
    disk.start()
    disk.log().load()


@pytest.mark.parametrize("spoil", [keep, flip_a_bit_of_the_first_entry, lose_the_second_entry])
@pytest.mark.parametrize(
    "act",
    [
        lambda disk: disk.log().roll(NOW),
        lambda disk: disk.log().segments[-1].release(),
        stop_and_start,
    ],
    ids=["roll", "release", "stop"],
)
def test_a_snapshot_does_not_vouch_for_entries_without_checksums(
    disk: Disk,
    monkeypatch: pytest.MonkeyPatch,
    act: Callable[[Disk], object],
    spoil: Callable[[Path], None],
):
    """The disk was full when the checksums were to be written."""
    expected = abort_twice_around_a_stop(disk)
    fail_to_write_checksums(disk, monkeypatch, act)
    disk.log().roll(NOW)
    disk.crash(spoil)
    assert disk.log().aborted.overlapping(0, 4) == expected
    stop_and_start(disk)
    assert disk.log().aborted.overlapping(0, 4) == expected
    disk.crash(spoil)
    assert disk.log().aborted.overlapping(0, 4) == expected


@pytest.mark.parametrize("spoil", [keep, flip_a_bit_of_the_first_entry, lose_the_second_entry])
def test_a_snapshot_does_not_vouch_for_a_segment_released_without_checksums(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Path], None]
):
    expected = abort_twice_around_a_stop(disk)
    fail_to_write_checksums(disk, monkeypatch, lambda disk: disk.log().roll(NOW))
    fail_to_write_checksums(disk, monkeypatch, lambda disk: disk.log().segments[0].release())
    send(disk.log(), 1, 2)
    stop_and_start(disk)
    disk.crash(spoil)
    assert disk.log().aborted.overlapping(0, 4) == expected


def test_entries_that_a_recovery_adds_have_checksums_after_it_has_released_their_segment(
    tmp_path: Path,
):
    disk = Disk(tmp_path, file_limit=2)
    expected = abort_twice_around_a_stop(disk)
    for sequence in (2, 3, 4):
        disk.log().roll(NOW)
        send(disk.log(), 1, sequence)

    def spoil(path: Path) -> None:
        lose_the_second_entry(path)
        for snapshot in sorted((path / "t-0").glob("*.snapshot"))[-2:]:
            snapshot.write_bytes(b"torn")

    disk.crash(spoil)
    for _ in range(3):
        assert disk.log().aborted.overlapping(0, 4) == expected
        stop_and_start(disk)
    disk.stop()


def test_entries_after_one_that_could_not_be_written_are_there_after_a_crash(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
):
    log = disk.log()
    send(log, 1, 0)
    with monkeypatch.context() as patched:
        real = os.write
        patched.setattr(
            "headrace.log.aborted_transactions.os.write", lambda fd, data: real(fd, data[:10])
        )
        end(log, 1, ABORT)
    send(log, 1, 1)
    end(log, 1, ABORT)
    expected = log.aborted.overlapping(0, 4)
    log.roll(NOW)
    for _ in range(2):
        disk.crash()
        assert disk.log().aborted.overlapping(0, 4) == expected


def test_checksums_vouch_for_nothing_that_a_crash_has_cut(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
):
    """The checksums of a full segment were on disk, but its last batches were not."""
    log = disk.log()
    send(log, 1, 0)
    end(log, 1, ABORT)
    size = log.segments[-1].size_bytes
    send(log, 1, 1, 5)
    log.roll(NOW)

    def lose(path: Path) -> None:
        os.truncate((path / INDEX).with_suffix(".log"), size)
        for later in [*(path / "t-0").glob("*7.*"), *(path / "t-0").glob("*.snapshot")]:
            later.unlink(missing_ok=True)

    disk.crash(lose)
    log = disk.log()
    assert log.end_offset == 2
    send(log, 1, 1)
    end(log, 1, ABORT)
    expected = log.aborted.overlapping(0, 4)
    fail_to_write_checksums(disk, monkeypatch, lambda disk: disk.log().roll(NOW))
    disk.crash()
    assert disk.log().aborted.overlapping(0, 4) == expected


@pytest.mark.parametrize(
    ("marker", "flipped"), [(COMMIT, -1), (ABORT, -9)], ids=["unreadable", "another kind"]
)
@pytest.mark.parametrize("lost", [".snapshot", ".checksums"])
def test_a_damaged_marker_ends_its_transaction_as_aborted(
    disk: Disk, lost: str, marker: Marker, flipped: int, caplog: pytest.LogCaptureFixture
):
    log = disk.log()
    send(log, 1, 0)
    end(log, 1, marker)
    size = log.segments[-1].size_bytes
    send(log, 1, 1)
    disk.stop()
    for path in (disk.path / "t-0").glob(f"*{lost}"):
        path.unlink()
    file = (disk.path / INDEX).with_suffix(".log")
    data = bytearray(file.read_bytes())
    data[size + flipped] ^= 1
    file.write_bytes(data)
    disk.start()
    log = disk.log()
    assert [one[:3] for one in log.aborted.overlapping(0, 3)] == [(1, 0, 1)]
    assert log.last_stable_offset == 2
    assert "t-0: the transaction marker at offset 1 is damaged" in caplog.text


def test_entries_that_a_recovery_has_added_are_there_after_clean_stops(disk: Disk):
    expected = abort_twice_around_a_stop(disk)
    disk.crash(lose_the_second_entry)
    assert disk.log().aborted.overlapping(0, 4) == expected
    for _ in range(2):
        disk.stop()
        disk.start()
        assert disk.log().aborted.overlapping(0, 4) == expected


def test_a_torn_tail_is_no_error_when_the_index_is_found_again(
    disk: Disk, caplog: pytest.LogCaptureFixture
):
    abort_twice_around_a_stop(disk)

    def spoil(path: Path) -> None:
        stem = path / "t-0" / f"{0:020d}"
        stem.with_suffix(".txnindex").write_bytes(b"damaged")
        with open(stem.with_suffix(".log"), "ab") as file:
            file.write(bytes(10))

    disk.crash(spoil)
    assert len(disk.log().aborted) == 2
    assert "finding the aborted transactions again" in caplog.text
    assert not [one for one in caplog.records if one.levelname == "ERROR"]


def test_the_marker_is_a_control_batch_that_clients_can_read(disk: Disk):
    log = disk.log()
    send(log, 1, 0)
    assert end(log, 1, ABORT).base_offset == 1
    data = log.read(1, 1000)
    (_, header), *more = headers(data)
    assert (
        header.is_control,
        header.is_transactional,
        header.producer_id,
        header.producer_epoch,
    ) == (True, True, 1, 0)
    assert not more
    assert marker_in(data) == ABORT


def test_a_marker_with_a_new_epoch_begins_new_sequences(disk: Disk):
    """KIP-890: each transaction has an epoch of its own."""
    log = disk.log()
    send(log, 1, 0, 4)
    end(log, 1, COMMIT, epoch=1)
    refused = send(log, 1, 4)
    assert isinstance(refused, Refusal)
    assert refused.code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_plain_batch_inside_a_transaction_is_refused(disk: Disk):
    log = disk.log()
    send(log, 1, 0)
    refused = send(log, 1, 1, transactional=False)
    assert isinstance(refused, Refusal)
    assert refused.code == ErrorCode.INVALID_TXN_STATE


def test_a_producer_with_an_open_transaction_does_not_expire(disk: Disk):
    log = disk.log(retention_ms=-1)
    send(log, 1, 0)
    log.expire_producers(NOW + 10 * 86_400_000)
    assert log.last_stable_offset == 0
    end(log, 1, ABORT)
    log.expire_producers(NOW + 10 * 86_400_000)
    assert not list(log.producers)


@pytest.mark.parametrize("short", [False, True])
def test_the_next_start_writes_an_index_that_could_not_be_written(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, short: bool
):
    log = disk.log()
    send(log, 1, 0)
    with monkeypatch.context() as patched:
        real = os.write
        patched.setattr(
            "headrace.log.aborted_transactions.os.write",
            lambda fd, data: real(fd, data[:10]) if short else fail(),
        )
        end(log, 1, ABORT)
    assert len(log.aborted.overlapping(0, 9)) == 1
    disk.stop()
    disk.start()
    assert disk.log().aborted.overlapping(0, 9) == [AbortedTransaction(1, 0, 1, 2)]


def fail() -> None:
    raise OSError(28, "No space left on device")


class TransactionsAgainstList(RuleBasedStateMachine):
    """The transactions of a log against a list of what was done, over restarts and crashes, with
    small files that cannot be written, and flipped bits in them.
    """

    @initialize(segment_bytes=st.sampled_from([300, 800, 100_000]))
    def begin(self, segment_bytes: int) -> None:
        self.temporary = tempfile.TemporaryDirectory()
        self.segment_bytes = segment_bytes
        self.disk = Disk(Path(self.temporary.name), file_limit=3)
        self.end = 0
        self.sequences: dict[int, int] = {}
        self.open: dict[int, int] = {}
        self.aborted: list[tuple[int, int, int]] = []
        self.saved: dict[str, int] = {}
        self.failing: set[str] = set()
        self.patches = ExitStack()
        for what, name in (
            ("checksums", "headrace.log.segment.checksums.write"),
            ("entries", "headrace.log.aborted_transactions.os.write"),
        ):
            self.patches.enter_context(patch(name, self.unless_failing(what, name)))

    def unless_failing(self, what: str, name: str) -> Callable[..., Any]:
        real = resolve_name(name)

        def act(*arguments: Any) -> Any:
            return fail() if what in self.failing else real(*arguments)

        return act

    def teardown(self) -> None:
        if hasattr(self, "disk"):
            self.disk.stop()
            self.temporary.cleanup()
            self.patches.close()

    @rule(what=st.sampled_from(["checksums", "entries"]))
    def fall_ill(self, what: str) -> None:
        """Fail to write something until the next start."""
        self.failing.add(what)

    def start(self) -> None:
        self.failing.clear()
        self.disk.start()

    @property
    def log(self) -> PartitionLog:
        return self.disk.log(segment_bytes=self.segment_bytes, retention_ms=-1)

    @rule(producer=st.integers(1, 4), count=st.integers(1, 3))
    def write(self, producer: int, count: int) -> None:
        sequence = self.sequences.get(producer, 0)
        assert send(self.log, producer, sequence, count).base_offset == self.end
        self.sequences[producer] = sequence + count
        self.open.setdefault(producer, self.end)
        self.end += count

    @rule(count=st.integers(1, 3))
    def write_plainly(self, count: int) -> None:
        sequence = self.sequences.get(0, 0)
        assert send(self.log, 0, sequence, count, transactional=False).base_offset == self.end
        self.sequences[0] = sequence + count
        self.end += count

    @rule(producer=st.integers(1, 4), marker=st.sampled_from([COMMIT, ABORT]))
    def end_transaction(self, producer: int, marker: Marker) -> None:
        assert end(self.log, producer, marker).base_offset == self.end
        first = self.open.pop(producer, None)
        if first is not None and not marker.commit:
            self.aborted.append((producer, first, self.end))
        self.sequences.setdefault(producer, 0)
        self.end += 1

    @rule(flipped=st.none() | st.integers(0))
    def restart(self, flipped: int | None) -> None:
        self.disk.stop()
        self.flip(self.disk.path, flipped)
        self.saved = {
            path.name: path.stat().st_size for path in (self.disk.path / "t-0").glob("*.txnindex")
        }
        self.start()

    def flip(self, path: Path, flipped: int | None) -> None:
        """Flip a bit of a small file; None for none."""
        found = [*(path / "t-0").glob("*.txnindex"), *(path / "t-0").glob("*.checksums")]
        files = sorted(file for file in found if file.stat().st_size)
        if flipped is None or not files:
            return
        bit, number = divmod(flipped, len(files))
        data = bytearray(files[number].read_bytes())
        data[bit // 8 % len(data)] ^= 1 << bit % 8
        files[number].write_bytes(data)

    @rule(lost=st.booleans(), flipped=st.none() | st.integers(0))
    def crash(self, lost: bool, flipped: int | None) -> None:
        """Crash as after ``kill -9``; perhaps the entries added to the index since the last clean
        stop are lost.
        """

        def spoil(path: Path) -> None:
            indexes = sorted((path / "t-0").glob("*.txnindex"))
            logs = sorted((path / "t-0").glob("*.log"))
            if lost and indexes and indexes[-1].stem == logs[-1].stem:
                os.truncate(indexes[-1], self.saved.get(indexes[-1].name, 0))
            self.flip(path, flipped)

        self.failing.clear()
        self.disk.crash(spoil)

    @precondition(lambda self: self.end)
    @rule(data=st.data())
    def ask(self, data: st.DataObject) -> None:
        first = data.draw(st.integers(0, self.end - 1))
        last = data.draw(st.integers(first, self.end))
        told = {one[:3] for one in self.log.aborted.overlapping(first, last)}
        wanted = {one for one in self.aborted if one[2] >= first and one[1] < last}
        assert told >= wanted if last <= self.log.last_stable_offset else True
        assert all(one[1] < last and one[2] >= first for one in told)

    @invariant()
    def agree(self) -> None:
        if hasattr(self, "disk"):
            log = self.log
            assert log.end_offset == self.end
            assert log.last_stable_offset == min(self.open.values(), default=self.end)
            assert [one[:3] for one in log.aborted.overlapping(0, self.end + 1)] == self.aborted


TransactionsAgainstList.TestCase.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None
)
TestTransactionsAgainstList = TransactionsAgainstList.TestCase
