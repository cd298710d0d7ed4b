"""Compaction of the files of a log: what would be cleaned, by Kafka's rules, and one round.

Segments that are no longer appended to do not change, so a thread reads them with handles of its
own while the log is used. New segments are put in place by the thread of the log, if the old ones
are still there: :meth:`Round.steps` alternates between the two.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from headrace.log.aborted_transactions import AbortedLookup, AbortedTransaction
from headrace.log.compaction import Compactor, LatestOffsets, last_of_producers
from headrace.log.files import DIRECTORY_MODE, fsync_path, opened
from headrace.log.index import TimeIndex
from headrace.log.log_config import LogConfig
from headrace.log.partition_log import PartitionLog
from headrace.log.segment import MAX_RELATIVE_OFFSET, OpenFiles, Segment, scan
from headrace.log_lines import get_logger
from headrace.protocol.record_batch import (
    HEADER_BYTES,
    BatchHeader,
    CorruptBatch,
    Opening,
    header_at,
)

from . import aborted_transactions, checked_file, swap

logger = get_logger("headrace.log")

WRITE_BYTES = 1 << 18
"""Size of a write."""
WORK_S, REST_S = 0.002, 0.001
"""A cleaner thread pauses for ``REST_S`` seconds after each ``WORK_S`` seconds of work, so that
other threads can run.
"""

CLEANER_OFFSET_FILE = "cleaner-offset"
LONGEST_WAIT_S = 60.0
"""The longest wait of a cleaner thread for its pace, however slow it is: the limit may change."""


class CleaningStopped(Exception):
    """The broker stops, or the log has changed since the round began."""


class Pace:
    """The limit on the speed of background threads together.

    :param max_bytes_per_second: returns the limit on bytes read and written
    :param least_wait_s: shorter waits are put off until they are as long together
    :ivar stopped: set it to make all threads stop soon, with :class:`CleaningStopped`
    """

    def __init__(
        self,
        max_bytes_per_second: Callable[[], float] = lambda: float("inf"),
        least_wait_s: float = REST_S,
    ) -> None:
        self._max_bytes_per_second = max_bytes_per_second
        self._least_wait_s = least_wait_s
        self._lock = threading.Lock()
        self._free_at = 0.0
        self.stopped = threading.Event()

    def spend(self, size_bytes: int) -> None:
        """Wait until ``size_bytes`` may be read or written.

        :raises CleaningStopped: when the threads are to stop
        """
        with self._lock:
            now, limit = time.monotonic(), self._max_bytes_per_second()
            spent_s = size_bytes / limit if limit > 0 else LONGEST_WAIT_S
            self._free_at = min(max(self._free_at, now) + spent_s, now + LONGEST_WAIT_S)
            wait_s = self._free_at - now
        if wait_s > self._least_wait_s:
            self.stopped.wait(wait_s)
        self._check()

    def rests(self) -> Callable[[], None]:
        """Return a function for one thread to call often: it pauses for ``REST_S`` when the thread
        has worked for ``WORK_S``.

        :raises CleaningStopped: from the function, when the threads are to stop
        """
        since = time.perf_counter()

        def rest() -> None:
            nonlocal since
            if time.perf_counter() - since >= WORK_S:
                time.sleep(REST_S)
                self._check()
                since = time.perf_counter()

        return rest

    def _check(self) -> None:
        if self.stopped.is_set():
            raise CleaningStopped


class Source(NamedTuple):
    """A segment as the cleaner thread reads it: with a handle of its own."""

    segment: Segment
    end_offset: int

    def batches(self, pace: Pace) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield all batches, each checked against its checksum.

        :raises CorruptBatch: where the next one is damaged
        """
        path, size_bytes = self.segment.path(".log"), self.segment.size_bytes
        end, spent, rest = 0, 0, pace.rests()
        with opened(path) as fd:
            for position, header, data in scan(fd, 0, size_bytes, checked=True):
                yield header, data
                end = position + header.size_bytes
                if end - spent >= WRITE_BYTES:
                    pace.spend(end - spent)
                    spent = end
                rest()
        pace.spend(end - spent)
        if end != size_bytes:
            raise CorruptBatch(f"{path} is damaged at position {end}")


class Cleanable(NamedTuple):
    """The plan of a round of compaction.

    :ivar first_dirty_offset: end offset, exclusive, of what earlier rounds have cleaned
    :ivar end_offset: end offset of this round, exclusive
    :ivar sources: segments with offsets before ``end_offset``
    :ivar dirty_ratio: share of their bytes that no round has cleaned, 0 to 1
    :ivar is_overdue: True if a record has waited for longer than max.compaction.lag.ms
    """

    first_dirty_offset: int
    end_offset: int
    sources: Sequence[Source]
    dirty_ratio: float
    is_overdue: bool


def cleanable(log: PartitionLog, now_ms: int) -> Cleanable | None:
    """Return the plan for a round over a log; None if there is nothing to clean, or less than
    min.cleanable.dirty.ratio.

    Leave out the last segment, batches that may belong to an open transaction, and segments with
    records younger than min.compaction.lag.ms.
    """
    config = log.config
    sealed = [
        Source(segment, following.base_offset) for segment, following in pairwise(log.segments)
    ]
    if not sealed:
        return None
    first_dirty = _first_dirty_offset(log)
    end_offset = min(sealed[-1].end_offset, log.last_stable_offset)
    dirty = [source.segment for source in sealed if source.end_offset > first_dirty]
    if config.min_compaction_lag_ms > 0:
        youngest_ms = now_ms - config.min_compaction_lag_ms
        young = next((segment for segment in dirty if segment.max_timestamp[0] > youngest_ms), None)
        if young is not None:
            end_offset = min(end_offset, young.base_offset)
    dirty_bytes = sum(segment.size_bytes for segment in dirty if segment.base_offset < end_offset)
    if end_offset <= first_dirty or not dirty_bytes:
        return None
    sources = [source for source in sealed if source.segment.base_offset < end_offset]
    ratio = dirty_bytes / sum(source.segment.size_bytes for source in sources)
    is_overdue = _is_overdue(log, dirty, now_ms)
    if ratio <= config.min_cleanable_dirty_ratio and not is_overdue:
        return None
    return Cleanable(first_dirty, end_offset, sources, ratio, is_overdue)


def _is_overdue(log: PartitionLog, dirty: list[Segment], now_ms: int) -> bool:
    longest_ms = max(log.config.max_compaction_lag_ms, log.config.min_compaction_lag_ms)
    # Without a lag that is set, no file is read.
    return longest_ms < now_ms and any(
        0 < segment.first_timestamp < now_ms - longest_ms for segment in dirty
    )


def _first_dirty_offset(log: PartitionLog) -> int:
    """Return the first offset that no round has cleaned."""
    if log.first_dirty_offset is None:
        path = f"{log.path}/{CLEANER_OFFSET_FILE}"
        consequence = "the log is cleaned from its start on"
        log.first_dirty_offset = checked_file.read_or_warn(path, consequence) or 0
    if not log.log_start_offset <= log.first_dirty_offset <= log.segments[-1].base_offset:
        log.first_dirty_offset = log.log_start_offset  # records were deleted or lost in a crash
    return log.first_dirty_offset


def expect_gaps(log: PartitionLog) -> None:
    """Save that offsets may be missing from now on, unless that is saved already. Without it,
    verification would report missing offsets as damage after a crash in the first round. Any thread
    may call it; it has no effect if the topic was deleted.

    The name of the file is forced to disk with that of the first new segment.

    :raises OSError: when the disk fails
    """
    path = f"{log.path}/{CLEANER_OFFSET_FILE}"
    with log.saving:
        if not log.is_deleted and not os.path.exists(path):
            checked_file.replace(path, log.first_dirty_offset or 0, sync=log.syncs)


class _Output:
    """A new segment that is being written."""

    def __init__(self, directory: str, base_offset: int, config: LogConfig, pace: Pace) -> None:
        self.segment = Segment(OpenFiles(2), directory, base_offset, 0, 0)
        self._interval = config.index_interval_bytes
        self._pace = pace
        self._pending = bytearray()
        self.segment.open()

    def add(self, data: bytes | memoryview) -> None:
        """Add a batch."""
        header = header_at(data[:HEADER_BYTES])
        position = self.segment.size_bytes + len(self._pending)
        self.segment.note(position, header, header.last_offset, self._interval)
        self._pending += data
        if len(self._pending) >= WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        data, self._pending = memoryview(self._pending), bytearray()
        if data:
            self.segment.append([data], len(data))
            self._pace.spend(len(data))

    def close(self, created_ms: int, aborted: Sequence[AbortedTransaction], *, sync: bool) -> None:
        """Finish the files and close them.

        :param created_ms: creation time of the segment
        :param aborted: the aborted transactions of the segment
        :param sync: force the files to disk
        """
        self._write()
        aborted_transactions.write(self.segment.path(aborted_transactions.SUFFIX), aborted)
        self.segment.release()  # with the checksums
        path = self.segment.path(".log")
        os.utime(path, ns=(created_ms * 1_000_000, created_ms * 1_000_000))
        if sync:
            self.segment.fsync((".log", aborted_transactions.SUFFIX))


def group_segments(sources: Iterable[Source], config: LogConfig) -> Iterator[list[Source]]:
    """Yield runs of one or more segments that fit into one segment."""
    group: list[Source] = []
    size = 0
    for source in sources:
        size += source.segment.size_bytes
        entries = size // max(config.index_interval_bytes, HEADER_BYTES) + 2
        if group and (
            size > config.segment_bytes
            or entries * TimeIndex.layout.size > config.segment_index_bytes
            or source.end_offset - group[0].segment.base_offset > MAX_RELATIVE_OFFSET
        ):
            yield group
            group, size = [], source.segment.size_bytes
        group.append(source)
    if group:
        yield group


class Round:
    """One round over one log. Create it, and advance :meth:`steps`, in the thread of the log.

    :param plan: the result of :func:`cleanable`
    :param dedupe_bytes: approximate memory for keys; when it is full, the round ends there
    :ivar end_offset: end of the round, exclusive
    :ivar read_bytes: bytes read in both passes
    :ivar written_bytes: size of the new segments
    :ivar keys: number of different keys in the part that was not cleaned before
    """

    def __init__(
        self, log: PartitionLog, plan: Cleanable, now_ms: int, dedupe_bytes: int, pace: Pace
    ) -> None:
        self.log = log
        self.end_offset = plan.end_offset
        self.read_bytes = self.written_bytes = self.keys = 0
        self._first_dirty_offset = plan.first_dirty_offset
        self._sources = plan.sources
        self._config = log.config
        opening = Opening(pause=pace.rests())
        self._latest = LatestOffsets(dedupe_bytes, opening)
        self._entries = log.aborted.overlapping(log.log_start_offset, log.end_offset)
        self._compactor = Compactor(
            self._latest,
            plan.end_offset,
            aborted=AbortedLookup(self._entries),
            producers=last_of_producers(log.producers),
            now_ms=now_ms,
            delete_retention_ms=log.config.delete_retention_ms,
            opening=opening,
        )
        self._pace = pace
        self._directory = f"{log.path}/{swap.CLEANING}"
        self._output: _Output | None = None

    def steps(self) -> Generator[Callable[[], None]]:
        """Yield functions to run one after the other in a cleaner thread. The code between them is
        quick and runs in the thread of the log.

        :raises CleaningStopped: from a step or the iterator, when the round is to end
        :raises CorruptBatch: for a damaged segment
        :raises OSError: when the disk fails
        """
        if self.log.syncs:  # a power cut must not take records for which earlier ones are removed
            yield self.log.flush
        yield self._note_keys
        self._compactor.end_offset = self.end_offset
        sources = [
            source for source in self._sources if source.segment.base_offset < self.end_offset
        ]
        try:
            for group in group_segments(sources, self._config):
                yield partial(self._clean, group)
                if self._output is not None:
                    yield from self._put_in_place(group, self._output.segment)
                    yield partial(swap.discard_old, self.log.path)
        finally:
            if self._output is not None:
                self._output.segment.abandon()
        yield self._clear
        self._check([])
        self.log.first_dirty_offset = self.end_offset
        # Not forced to disk: after a power cut some batches are cleaned once more.
        path = f"{self.log.path}/{CLEANER_OFFSET_FILE}"
        checked_file.replace(path, self.end_offset, sync=False)

    def _note_keys(self) -> None:
        """Collect the last offset of each key in the part that was not cleaned before, or in as
        much of it as fits.
        """
        first, end = self._first_dirty_offset, self.end_offset
        latest = self._latest
        dirty_batches = (
            (header, batch)
            for source in self._sources
            if source.end_offset > first
            for header, batch in source.batches(self._pace)
            if header.last_offset >= first and header.base_offset < end
        )
        for header, batch in dirty_batches:
            if latest.is_full:
                self.end_offset = header.base_offset
                break
            self.read_bytes += header.size_bytes
            if header.is_control or header in self._compactor.aborted:
                continue
            not_noted = latest.note(header, batch, first)
            if not_noted is not None:
                self.end_offset = not_noted
                break
        self.keys = len(latest)

    def _clean(self, group: Sequence[Source]) -> None:
        """Write the new segment of a group; if it would be the same there is no output."""
        self._clear()
        swap.discard_old(self.log.path)  # a start may restore those of this round
        os.mkdir(self._directory, DIRECTORY_MODE)  # its parent is missing only after a deletion
        try:
            self._write(group)
        except BaseException:
            if not self.log.is_deleted:  # else a new topic may have the same directory
                self._clear()  # the disk may be full
            raise

    def _write(self, group: Sequence[Source]) -> None:
        base_offset = group[0].segment.base_offset
        output = self._output = _Output(self._directory, base_offset, self._config, self._pace)
        changed = len(group) > 1
        for source in group:
            for header, batch in source.batches(self._pace):
                self.read_bytes += header.size_bytes
                cleaned = self._compactor.clean(header, batch)
                changed = changed or cleaned is not batch
                if cleaned is not None:
                    output.add(cleaned)
        if not changed:
            output.segment.abandon()
            self._output = None
            return
        aborted = [
            entry
            for entry in self._entries
            if max(base_offset, self.end_offset) <= entry.last_offset < group[-1].end_offset
        ]
        output.close(group[-1].segment.created_ms, aborted, sync=self.log.syncs)
        expect_gaps(self.log)
        self.written_bytes += output.segment.size_bytes

    def _clear(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)

    def _check(self, segments: list[Segment]) -> int:
        """Return the index of the first of some segments; raise if the log has changed."""
        number = None
        if not self.log.is_deleted and not self.log.is_offline:
            number = self.log.segments.find_run(segments)
        if number is None:
            raise CleaningStopped
        return number

    def _sync(self) -> None:
        if self.log.syncs:
            fsync_path(self.log.path)

    def _cancel(self, change: swap.Swap) -> None:
        """Undo the decision to replace segments. A start must not find it, because the log may have
        changed by then.
        """
        try:
            if not self.log.is_deleted:
                change.cancel()
        except OSError as error:
            self.log.is_uncleanable = True
            logger.error(
                "Cannot undo a compaction of %s that was begun; restart the broker soon: %s",
                self.log.path,
                error,
            )

    def _put_in_place(self, group: Sequence[Source], new: Segment) -> Generator[Callable[[], None]]:
        """Put the new segment in the place of the old ones; see :meth:`steps`."""
        old = [source.segment for source in group]
        self._check(old)
        change = swap.Swap(self.log.path, new.base_offset, group[-1].end_offset)
        try:
            change.begin()
            yield self._sync
            number = self._check(old)
        except BaseException:
            self._cancel(change)
            raise
        self.log.announce_change()
        for segment in old:
            segment.abandon()
        files, created_ms = old[0].files, old[-1].created_ms
        new = Segment(files, self.log.path, new.base_offset, new.size_bytes, created_ms)
        # Before the files are renamed: a thread that forces segments to disk takes the log offline
        # if a file of a listed segment is missing.
        self.log.segments.replace(number, len(old), [new])
        try:
            change.finish()
        except OSError as error:
            self.log.segments.replace(number, 1, old)
            self.log.is_uncleanable = True
            logger.error(
                "Compaction of %s stopped half-way; restart the broker to finish it: %s",
                self.log.path,
                error,
            )
            raise
        self.log.aborted.drop(change.base_offset, min(change.end_offset, self.end_offset))
