"""Read a whole log, batch by batch, and refuse damage and gaps. Coordinators load their state with
it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from headrace.log.partition_log import PartitionLog
from headrace.log.recovery import CorruptLog
from headrace.log.segment import checked_scan
from headrace.protocol.record_batch import BatchHeader


class FoundBatch(NamedTuple):
    """A whole batch with the right checksum, and the file that has it."""

    path: str
    header: BatchHeader
    data: memoryview


def checked_batches(log: PartitionLog) -> Iterator[FoundBatch]:
    """Yield the batches of a log, beginning with the one that has the log start offset.

    :raises CorruptLog: where the next batch is damaged or missing. Damage that a crash has left at
        the end was cut off when the log was loaded
    """
    start = log.log_start_offset
    expected: int | None = None
    for segment in log.live_segments():
        path, fd = segment.path(".log"), segment.open()
        size_bytes = os.fstat(fd).st_size
        end = 0 if segment.base_offset >= start else segment.indexed_position(start)
        for position, header, data in checked_scan(fd, end, size_bytes):
            if (
                expected is not None
                and header.base_offset != expected
                and "compact" not in log.config.cleanup_policy
            ):
                raise CorruptLog.gap(path, expected, header.base_offset)
            expected = header.last_offset + 1
            end = position + header.size_bytes
            if header.last_offset >= start:
                yield FoundBatch(path, header, data)
        if end != size_bytes:
            raise CorruptLog.damage(
                path, end, expected or start, "this is not a whole batch with the right checksum"
            )
