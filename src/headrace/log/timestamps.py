"""Search for records by timestamp: the time index gives a position, headers are read from there,
and one batch is opened.

A search is a generator, so that its caller decides where a batch is opened and when other work goes
on: see :data:`Search`.
"""

from __future__ import annotations

import uuid
from array import array
from bisect import bisect_left
from collections.abc import Generator
from itertools import islice
from typing import NamedTuple

from headrace.log.partition_log import PartitionLog
from headrace.log.segment import Segment
from headrace.log_lines import LimitedLog
from headrace.protocol.limits import OPENINGS_OF_ONE_SEARCH
from headrace.protocol.primitives import read_varint
from headrace.protocol.record_batch import (
    LOG_APPEND_TIME_BIT,
    OPEN_ANY,
    BatchHeader,
    CorruptBatch,
    Opening,
    record_spans,
)

limited = LimitedLog("headrace.log")

HEADERS_AT_A_TIME = 500
"""Headers that a search reads before it offers to pause."""

Found = tuple[int, int]
"""``(offset, timestamp)`` of a record; the timestamp is in milliseconds."""


class TimestampSteps:
    """The records of a batch whose timestamps are larger than all before them, by offset: enough to
    find the first record at or after any time.
    """

    __slots__ = ("_offsets", "_timestamps_ms")

    def __init__(self) -> None:
        self._offsets = array("q")
        self._timestamps_ms = array("q")

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, offset: int, timestamp_ms: int) -> None:
        """Add a record that is later than all before it."""
        self._offsets.append(offset)
        self._timestamps_ms.append(timestamp_ms)

    def first_at_or_after(self, timestamp_ms: int) -> Found | None:
        """Return the first record that has at least this timestamp; None if there is none."""
        number = bisect_left(self._timestamps_ms, timestamp_ms)
        if number == len(self._offsets):
            return None
        return self._offsets[number], self._timestamps_ms[number]


BatchKey = tuple[uuid.UUID | None, int, int, int, int, int]


class BatchAt(NamedTuple):
    """A batch that a search wants to have opened.

    :ivar first_offset: only records from this offset on count
    """

    segment: Segment
    position: int
    header: BatchHeader
    first_offset: int

    def key(self, topic_id: uuid.UUID, partition: int) -> BatchKey:
        """Return a key that no batch with other records has: compaction changes the checksum of a
        batch that it changes, and a topic that is created again has another id.
        """
        header = self.header
        return (
            topic_id,
            partition,
            header.base_offset,
            header.crc,
            header.batch_length,
            self.first_offset,
        )

    def read(self) -> bytes:
        """Return the batch.

        :raises OSError: when the disk fails
        """
        return self.segment.read(self.position, self.header.size_bytes)

    def opened(self, data: bytes, opening: Opening) -> TimestampSteps:
        """Return the steps of the batch. A batch that cannot be opened counts as if all its records
        had its largest timestamp.

        :param data: the batch
        """
        try:
            return timestamp_steps(data, self.header, self.first_offset, opening)
        except CorruptBatch as error:
            path = self.segment.path(".log")
            limited.warning(path, "%s: %s", path, error)
            return self.at_its_largest()

    def at_its_largest(self) -> TimestampSteps:
        """Return the steps as if all records had the largest timestamp, for a batch that is not
        opened: a search then finds the begin of the batch.
        """
        steps = TimestampSteps()
        steps.add(self.first_offset, self.header.max_timestamp)
        return steps


Search = Generator[BatchAt | Segment, TimestampSteps | None, Found | None]
"""A search yields batches, for which it wants to be sent their steps, and segments, for which it
wants nothing: there it may pause. After a pause, continue only if the segment is still in the log.

:raises OSError: when the disk fails
"""


def timestamp_steps(
    data: bytes, header: BatchHeader, first_offset: int, opening: Opening
) -> TimestampSteps:
    """Open a batch and return the steps of its records from ``first_offset`` on, up to the first
    with the largest timestamp that the header states: no search for a later one opens the batch.

    :raises CorruptBatch: when it cannot be opened
    """
    steps = TimestampSteps()
    base_ms, base_offset = header.base_timestamp, header.base_offset
    by_broker = header.attributes & LOG_APPEND_TIME_BIT
    largest_ms = -(2**63) - 1
    try:
        for span, start, _ in record_spans(data, header, opening):
            delta_ms, position = read_varint(span, start + 1)
            timestamp_ms = header.max_timestamp if by_broker else base_ms + delta_ms
            if timestamp_ms > largest_ms:
                offset = base_offset + read_varint(span, position)[0]
                if offset >= first_offset:
                    steps.add(offset, timestamp_ms)
                    largest_ms = timestamp_ms
                    if timestamp_ms >= header.max_timestamp:
                        break
    except CorruptBatch:
        raise
    except (IndexError, ValueError, OverflowError) as error:
        raise CorruptBatch(f"cannot read the batch at offset {base_offset}: {error}") from error
    return steps


def first_at_or_after(log: PartitionLog, timestamp_ms: int) -> Search:
    """Search the first record of a log, by offset, that has at least a timestamp."""
    log_start_offset = log.log_start_offset
    for segment in log.live_segments():
        is_candidate = segment.max_timestamp[0] >= timestamp_ms
        yield segment
        if not is_candidate:
            continue
        start = segment.offset_for_timestamp(timestamp_ms)
        position = segment.locate(max(start, log_start_offset))
        while position < segment.size_bytes:
            for place, header, _ in islice(segment.batches(position), HEADERS_AT_A_TIME):
                position = place + header.size_bytes
                if header.max_timestamp >= timestamp_ms:  # it may have a late enough record
                    break
            else:
                yield segment
                continue
            record = yield from _first_in_batch(
                segment, place, header, timestamp_ms, log_start_offset
            )
            if record is not None:
                return record
    return None


def latest(log: PartitionLog) -> Search:
    """Search the first record with the largest timestamp of all in a log."""
    log_start_offset = log.log_start_offset
    best: Segment | None = None
    for segment in log.live_segments():
        if best is None or segment.max_timestamp[0] > best.max_timestamp[0]:
            best = segment
        yield segment
    if best is None or best.max_timestamp[0] < 0:
        return None
    timestamp_ms, last_offset = best.max_timestamp
    for position, header, _ in best.batches(best.locate(last_offset)):
        return (yield from _first_in_batch(best, position, header, timestamp_ms, log_start_offset))
    return None


def _first_in_batch(
    segment: Segment, position: int, header: BatchHeader, timestamp_ms: int, log_start_offset: int
) -> Search:
    first_offset = max(header.base_offset, log_start_offset)
    if header.attributes & LOG_APPEND_TIME_BIT and header.record_count > header.last_offset_delta:
        return first_offset, header.max_timestamp  # no record was removed by compaction
    steps = yield BatchAt(segment, position, header, first_offset)
    assert steps is not None
    return steps.first_at_or_after(timestamp_ms)


def finish(search: Search, opening: Opening = OPEN_ANY) -> Found | None:
    """Finish a search at once, without pauses. A batch that exceeds the limits is not opened.

    :raises OSError: when the disk fails
    """
    steps = None
    openings = OPENINGS_OF_ONE_SEARCH
    while True:
        try:
            step = search.send(steps)
        except StopIteration as end:
            record: Found | None = end.value
            return record
        steps = None
        if isinstance(step, BatchAt):
            openings -= 1
            steps = step.opened(step.read(), opening) if openings >= 0 else step.at_its_largest()
