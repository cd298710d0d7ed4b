"""Random lives of a compacted log against a list: readers find what compaction promises, whenever
the broker dies.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.log import cleaner, files, segment, swap
from headrace.log.cleaner import cleanable
from headrace.log.partition_log import PartitionLog
from headrace.protocol.errors import Refusal
from headrace.protocol.record_batch import (
    TRANSACTIONAL_BIT,
    Marker,
    build,
    headers,
    marker_in,
    records,
)
from tests.log.disk import NOW, Disk, apply_retention, delete_records, first_at_or_after, put

KEYS = [None, *(b"key-%d" % n for n in range(6))]
DELETE_RETENTION_MS = 1000


class Killed(BaseException):
    """The process is gone."""


class MortalOs:
    """The module ``os``, in which calls that change files fail after ``calls_left`` of them."""

    def __init__(self, calls_left: int) -> None:
        self.calls_left = calls_left

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in (
            "rename",
            "replace",
            "unlink",
            "link",
            "mkdir",
            "utime",
            "pwritev",
            "fsync",
        ):
            return real

        def mortal(*arguments: Any, **options: Any) -> Any:
            if self.calls_left <= 0:
                raise Killed
            self.calls_left -= 1
            return real(*arguments, **options)

        return mortal


@contextmanager
def dying_after(calls: int) -> Iterator[MortalOs]:
    """Let only so many calls change files, then raise :class:`Killed`."""
    mortal = MortalOs(calls)
    with (
        mock.patch.object(swap, "os", mortal),
        mock.patch.object(cleaner, "os", mortal),
        mock.patch.object(files, "os", mortal),
        mock.patch.object(segment, "pwritev", mortal.pwritev),
    ):
        yield mortal


class Written(NamedTuple):
    """A record that was written.

    :ivar transaction: its producer id if it was in a transaction
    """

    key: bytes | None
    value: bytes | None
    timestamp: int
    transaction: int | None


def read_all(
    log: PartitionLog, up_to: int, *, committed: bool
) -> dict[int, tuple[bytes | None, bytes | None, int]]:
    """Return the records that a consumer gets up to an offset, without those of aborted
    transactions as the Java client skips them. The offset may be inside a batch.
    """
    found = {}
    offset = log.log_start_offset
    while offset < up_to:
        data = log.find(offset, 700, up_to=log.end_offset, held_bytes=None)
        assert isinstance(data, bytes), (offset, data)
        if not data:
            break
        end = [header.last_offset for _, header in headers(data)][-1] + 1
        coming = sorted(log.aborted.overlapping(offset, end), key=lambda one: one.first_offset)
        aborted: set[int] = set()
        for position, header in headers(data):
            here = memoryview(data)[position : position + header.size_bytes]
            while coming and coming[0].first_offset <= header.last_offset:
                aborted.add(coming.pop(0).producer_id)
            if header.is_control:
                marker = marker_in(here)
                if marker is not None and not marker.commit:
                    aborted.discard(header.producer_id)
            elif not (committed and header.is_transactional and header.producer_id in aborted):
                for one in records(here):
                    if offset <= one.offset < up_to:
                        found[one.offset] = (one.key, one.value, one.timestamp_ms)
            assert header.last_offset >= offset
        offset = end
    return found


class CompactedLog(RuleBasedStateMachine):
    @initialize(
        segment_bytes=st.sampled_from([500, 1200, 4000]),
        index_interval_bytes=st.sampled_from([0, 200, 4096]),
        segment_index_bytes=st.sampled_from([100, 10485760]),
        min_compaction_lag_ms=st.sampled_from([0, 0, 40]),
        message_timestamp_type=st.sampled_from(["CreateTime", "CreateTime", "LogAppendTime"]),
    )
    def begin(self, **config: Any) -> None:
        self.temporary = tempfile.TemporaryDirectory()
        self.config = {
            "cleanup_policy": "compact",
            "min_cleanable_dirty_ratio": 0.0,
            "delete_retention_ms": DELETE_RETENTION_MS,
            **config,
        }
        self.disk = Disk(Path(self.temporary.name), file_limit=2)
        self.now = NOW
        self.model: list[Written | None] = []  # None for a marker
        self.aborted: set[int] = set()  # offsets
        self.open: dict[int, list[int]] = {}
        self.sequences: dict[int, int] = {}
        self.last_sent: dict[int, tuple[bytes, int]] = {}
        self.start = 0
        self.cleaned_to = 0
        self.first_cleaned: dict[int, int] = {}  # when a tombstone was first cleaned
        self.serial = 0

    def teardown(self) -> None:
        if hasattr(self, "disk"):
            self.disk.stop()
            self.temporary.cleanup()

    @property
    def log(self) -> PartitionLog:
        return self.disk.log(**self.config)

    def _put(
        self,
        drawn: list[tuple[bytes | None, int | None]],
        codec: int,
        producer: int | None,
        transactional: bool,
    ):
        base = len(self.model)
        pairs = []
        for key, size in drawn:
            self.serial += 1
            pairs.append((key, None if size is None else b"%d" % self.serial + bytes(size)))
        times = [self.now - (7 * n) % 30 for n in range(len(pairs))]
        identity = {}
        if producer is not None:
            sequence = self.sequences.get(producer, 0)
            identity = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
            self.sequences[producer] = sequence + len(pairs)
        bits = TRANSACTIONAL_BIT if transactional else 0
        data = build(
            pairs, timestamp_ms=0, timestamps_ms=times, codec=codec, attributes=bits, **identity
        )
        log = self.log
        appended = log.append(data, self.now, from_client=all(key is not None for key, _ in pairs))
        assert not isinstance(appended, Refusal), appended
        assert appended.base_offset == base
        if self.config["message_timestamp_type"] == "LogAppendTime":
            times = [self.now] * len(times)
        for (key, value), time in zip(pairs, times, strict=True):
            if transactional:
                self.open.setdefault(producer, []).append(len(self.model))
            self.model.append(Written(key, value, time, producer if transactional else None))
        if producer is not None:
            self.last_sent[producer] = (data, base)
            if any(key is None for key, _ in pairs):  # the check of a client's batch refuses it
                del self.last_sent[producer]

    drawn = st.lists(
        st.tuples(st.sampled_from(KEYS), st.none() | st.integers(0, 90)), min_size=1, max_size=5
    )

    @rule(
        drawn=drawn,
        codec=st.sampled_from([0, 0, 1, 2, 3, 4]),
        producer=st.sampled_from([None, None, 7, 8]),
    )
    def append(self, drawn, codec, producer):
        self._put(drawn, codec, producer, False)

    @rule(drawn=drawn, codec=st.sampled_from([0, 0, 3]), producer=st.sampled_from([21, 22]))
    def append_in_transaction(self, drawn, codec, producer):
        self._put(drawn, codec, producer, True)

    @rule(producer=st.sampled_from([21, 22]), commit=st.booleans())
    def end(self, producer, commit):
        if producer not in self.open:
            return
        appended = self.log.append_marker(producer, 0, Marker(commit, 0), self.now)
        assert not isinstance(appended, Refusal) and appended.base_offset == len(self.model)
        offsets = self.open.pop(producer)
        if not commit:
            self.aborted.update(offsets)
        self.model.append(None)

    @precondition(lambda self: self.last_sent)
    @rule(data=st.data())
    def send_again(self, data):
        sent, base = self.last_sent[data.draw(st.sampled_from(sorted(self.last_sent)))]
        appended = put(self.log, sent, self.now)
        assert appended.duplicate and appended.base_offset == base

    @rule(ms=st.sampled_from([1, 50, DELETE_RETENTION_MS, 5 * DELETE_RETENTION_MS]))
    def wait(self, ms):
        self.now += ms

    def _plan(self, dedupe_bytes: int):
        plan = cleanable(self.log, self.now)
        if plan is None:
            return None
        assert plan.end_offset <= self.log.last_stable_offset
        return cleaner.Round(self.log, plan, self.now, dedupe_bytes, cleaner.Pace())

    @rule(dedupe_bytes=st.sampled_from([1, 500, 1 << 20]))
    def clean(self, dedupe_bytes):
        one = self._plan(dedupe_bytes)
        if one is not None:
            dirty = self.log.first_dirty_offset
            for step in one.steps():
                step()
            assert one.end_offset > dirty  # each round makes progress
            self._cleaned(one.end_offset)

    def _cleaned(self, end: int):
        self.cleaned_to = max(self.cleaned_to, end)
        left = read_all(self.log, end, committed=True)
        seen = set()
        for offset in sorted(left, reverse=True):
            key = left[offset][0]
            assert key is not None and key not in seen, (offset, key)
            seen.add(key)
        self._note_tombstones(end)
        # A killed round may have gone further, and may have removed replaced records there.
        latest = {self.model[o].key: o for o in range(len(self.model)) if self._counts(o)}
        for offset in latest.values():
            if self.model[offset].value is None and self.start <= offset < end:
                first = self.first_cleaned[offset]
                assert offset in left or self.now >= first + DELETE_RETENTION_MS, (
                    offset,
                    first,
                    self.now,
                )

    def _note_tombstones(self, end: int):
        """Start the delete.retention.ms of the tombstones before ``end``, unless it has started."""
        for offset in range(end):
            if self._counts(offset) and self.model[offset].value is None:
                self.first_cleaned.setdefault(offset, self.now)

    def _counts(self, offset: int) -> bool:
        one = self.model[offset]
        return one is not None and one.key is not None and offset not in self.aborted

    @rule(dedupe_bytes=st.sampled_from([500, 1 << 20]), calls=st.integers(0, 40))
    def die_cleaning(self, dedupe_bytes, calls):
        one = self._plan(dedupe_bytes)
        if one is None:
            return
        self._note_tombstones(one.end_offset)
        try:
            with dying_after(calls):
                for step in one.steps():
                    step()
        except Killed:
            pass
        self.disk.crash()

    @rule(calls=st.integers(0, 6))
    def die_recovering(self, calls):
        """Crash, and crash again while the next start finishes the replacement of segments."""
        one = self._plan(1 << 20)
        if one is None:
            return
        self._note_tombstones(one.end_offset)
        for allowed in (calls * 3 + 3, calls):
            try:
                with dying_after(allowed):
                    if one is None:
                        assert self.log.end_offset == len(self.model)
                    else:
                        for step in one.steps():
                            step()
            except Killed:
                pass
            one = None
            self.disk.crash()

    @rule(snapshots=st.booleans())
    def crash(self, snapshots):
        def spoil(path: Path) -> None:
            for snapshot in () if snapshots else (path / "t-0").glob("*.snapshot"):
                snapshot.unlink()

        self.disk.crash(spoil)
        if not snapshots:  # the state of producers is lost with deleted records
            self.last_sent = {
                p: sent
                for p, sent in self.last_sent.items()
                if sent[1] >= self.log.log_start_offset
            }

    @rule()
    def restart(self):
        self.disk.stop()
        self.disk.start()

    @rule(data=st.data())
    def delete_records(self, data):
        if self.open:
            return
        before = data.draw(st.integers(0, len(self.model)))
        self.start = max(self.start, before)
        assert delete_records(self.log, before) == self.start
        apply_retention(self.log, self.now)

    @invariant()
    def reads_right(self):
        if not hasattr(self, "disk"):
            return
        log = self.log
        assert (log.log_start_offset, log.end_offset) == (self.start, len(self.model))
        stable = min((offsets[0] for offsets in self.open.values()), default=len(self.model))
        assert log.last_stable_offset == max(stable, self.start)
        for up_to, committed in ((len(self.model), False), (max(stable, self.start), True)):
            found = read_all(log, up_to, committed=committed)
            for offset, (key, value, time) in found.items():
                was = self.model[offset]
                assert was is not None and (was.key, was.value, was.timestamp) == (
                    key,
                    value,
                    time,
                ), offset
                assert not committed or offset not in self.aborted
            wanted, last_found = {}, {}
            for offset in range(self.start, up_to):
                if self._counts(offset):
                    wanted[self.model[offset].key] = self.model[offset].value
                if offset in found and offset not in self.aborted:
                    last_found[found[offset][0]] = found[offset][1]
            for key, value in wanted.items():
                assert last_found.get(key) == value, (key, value)

    @precondition(lambda self: hasattr(self, "disk"))
    @rule(age=st.integers(-1, 60))
    def look_up_by_time(self, age):
        found = first_at_or_after(self.log, self.now - age)
        alive = read_all(self.log, len(self.model), committed=False)
        times = [
            (offset, time)
            for offset, (_, _, time) in sorted(alive.items())
            if time >= self.now - age
        ]
        control_or_empty = found is not None and self.model[found[0]] is None
        if not control_or_empty:
            expected = times[0] if times else None
            assert found == expected


CompactedLog.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestCompactedLog = CompactedLog.TestCase
