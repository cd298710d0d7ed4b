"""Search for records by timestamp: the time index gives a position, headers are read from there,
and one batch is opened.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.log.segment import Segment
from headrace.log_lines import LimitedLog, get_logger
from headrace.protocol.record_batch import LOG_APPEND_TIME_BIT, BatchHeader, CorruptBatch, records

limited = LimitedLog(get_logger("headrace.log"))

Found = tuple[int, int]
"""``(offset, timestamp)`` of a record; the timestamp is in milliseconds."""


def first_at_or_after(
    segments: Sequence[Segment], timestamp_ms: int, log_start_offset: int
) -> Found | None:
    """Return the first record, by offset, that has at least a timestamp; None if there is none.

    :raises OSError: when the disk fails
    """
    for segment in segments:
        if segment.max_timestamp[0] < timestamp_ms:
            continue
        start = segment.offset_for_timestamp(timestamp_ms)
        first = segment.locate(max(start, log_start_offset))
        for position, header, _ in segment.batches(first):
            if header.max_timestamp >= timestamp_ms:
                found = _first_in_batch(segment, position, header, timestamp_ms, log_start_offset)
                if found:
                    return found
    return None


def latest(segments: Sequence[Segment], log_start_offset: int) -> Found | None:
    """Return the first record with the largest timestamp of all; None if there is no record.

    :raises OSError: when the disk fails
    """
    best = max(segments, key=lambda segment: segment.max_timestamp[0], default=None)
    if best is None or best.max_timestamp[0] < 0:
        return None
    timestamp_ms, last_offset = best.max_timestamp
    position, header, _ = next(best.batches(best.locate(last_offset)))
    return _first_in_batch(best, position, header, timestamp_ms, log_start_offset)


def _first_in_batch(
    segment: Segment, position: int, header: BatchHeader, timestamp_ms: int, log_start_offset: int
) -> Found | None:
    first = max(header.base_offset, log_start_offset)
    if header.attributes & LOG_APPEND_TIME_BIT and header.record_count > header.last_offset_delta:
        return first, header.max_timestamp  # no record was removed by compaction
    try:
        for record in records(segment.read(position, header.size_bytes)):
            if record.timestamp_ms >= timestamp_ms and record.offset >= first:
                return record.offset, record.timestamp_ms
    except CorruptBatch as error:
        path = segment.path(".log")
        limited.warning(path, "Cannot look up a timestamp in %s: %s", path, error)
        return first, header.max_timestamp
    return None
