"""Verify the batches of a segment, and find where the next whole batch begins after damage."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

from headrace.log.segment import scan
from headrace.protocol.record_batch import (
    EPOCH_AND_MAGIC,
    EPOCH_START,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    BatchHeader,
    has_right_crc,
    header_at,
)

SEARCH_CHUNK_BYTES = 1 << 20
_TOO_LOW = "the offset of the batch is too low"
_TOO_HIGH = "the offset of the batch is too high: the next one has a lower offset"


class Damage(NamedTuple):
    """Batches of a segment that are damaged.

    :ivar path: the ``.log`` file
    :ivar position: position of the first damaged byte's batch in the file
    :ivar end_position: position of the next whole batch; the size of the file if there is none
    :ivar first_offset: first offset that may be damaged
    :ivar end_offset: offset after the last one that may be damaged
    """

    path: str
    position: int
    end_position: int
    first_offset: int
    end_offset: int
    problem: str

    def __str__(self) -> str:
        last = f" to {self.end_offset - 1}" if self.end_offset > self.first_offset + 1 else ""
        return (
            f"{self.path} is damaged at position {self.position}, offset {self.first_offset}"
            f"{last}: {self.problem}"
        )


class Unreadable(Damage):
    """What the disk cannot read of a segment: all from some position on.

    :ivar error: the error of the disk
    """

    error: OSError


def find(
    fd: int,
    path: str,
    base_offset: int,
    size_bytes: int,
    end_offset: int,
    *,
    gaps: bool,
    on_batch: Callable[[BatchHeader], None] | None = None,
) -> Iterator[Damage]:
    """Verify all batches of a segment, and yield the damaged ones; what cannot be read is the last.

    :param end_offset: the base offset of the next segment, or the end of the log
    :param gaps: offsets may be missing, as compaction removes them
    :param on_batch: called with the header of each whole batch
    """
    position, expected = 0, base_offset
    before = (0, base_offset)
    try:
        while position < size_bytes:
            problem = "this is not a whole batch"
            for start, header, data in scan(fd, position, size_bytes, whole=True):
                problem = _problem(header, data, expected, end_offset, gaps=gaps)
                if problem == _TOO_LOW and before[1] <= header.base_offset:
                    # The checksum does not cover the base offset: the batch before has a wrong one.
                    yield Damage(path, before[0], start, before[1], expected, _TOO_HIGH)
                elif problem:
                    break
                elif on_batch is not None:
                    on_batch(header)
                before = (start, expected)
                position, expected = start + header.size_bytes, header.last_offset + 1
                problem = "this is not a whole batch"
            if position >= size_bytes:
                return
            following = next_batch(fd, position + 1, size_bytes, expected)
            stop, end = following or (size_bytes, end_offset)
            yield Damage(path, position, stop, expected, max(end, expected + 1), problem)
            before = (stop, end)
            position, expected = stop, end
    except OSError as error:
        problem = f"it cannot be read: {error.strerror}"
        end = max(end_offset, expected + 1)
        unreadable = Unreadable(path, position, size_bytes, expected, end, problem)
        unreadable.error = error
        error.filename = path
        yield unreadable


def _problem(
    header: BatchHeader, data: memoryview, expected: int, end_offset: int, *, gaps: bool
) -> str:
    if header.magic != 2:
        return f"the batch has format {header.magic}"
    if not has_right_crc(data, header):
        return "the checksum of the batch is wrong"
    if header.base_offset < expected:
        return _TOO_LOW if gaps else f"offset {header.base_offset} comes again"
    if header.base_offset > expected and not gaps:
        return f"offset {header.base_offset} comes where {expected} should"
    if header.last_offset >= end_offset:
        return f"the batch ends at offset {header.last_offset}, after the next file begins"
    return ""


def next_batch(fd: int, position: int, end: int, min_offset: int) -> tuple[int, int] | None:
    """Return position and base offset of the next whole batch with a right checksum that begins at
    or after ``position``, with at least ``min_offset``; None if there is none.

    :raises OSError: when the disk fails
    """
    while position + HEADER_BYTES <= end:
        chunk = os.pread(fd, min(SEARCH_CHUNK_BYTES + HEADER_BYTES, end - position), position)
        start = chunk.find(EPOCH_AND_MAGIC, EPOCH_START) - EPOCH_START
        while start >= 0 and start + HEADER_BYTES <= len(chunk):
            header = header_at(chunk, start)
            stop = position + start + header.size_bytes
            if (
                header.batch_length >= HEADER_BYTES - LENGTH_OVERHEAD
                and header.base_offset >= min_offset
                and stop <= end
            ):
                data = os.pread(fd, header.size_bytes, position + start)
                if len(data) == header.size_bytes and has_right_crc(memoryview(data), header):
                    return position + start, header.base_offset
            start = chunk.find(EPOCH_AND_MAGIC, start + EPOCH_START + 1) - EPOCH_START
        if len(chunk) <= HEADER_BYTES:
            return None
        position += len(chunk) - HEADER_BYTES + 1
    return None
