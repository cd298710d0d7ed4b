"""The two sparse indexes of a segment, held in memory in the very bytes that stand in their files.

Offset index: 8 bytes an entry, the *last* offset of a batch relative to the segment's base offset,
and the position of that batch. Time index: 12 bytes, the largest timestamp up to here, and the last
offset (relative) of the first batch that has it. Both as in Apache Kafka, so its tools check them.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_right

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")


class _Index:
    """Entries in memory, and how many of their bytes are in the file already."""

    __slots__ = ("data", "saved_bytes")
    entry_bytes: int

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.saved_bytes = len(data)

    def __len__(self) -> int:
        return len(self.data) // self.entry_bytes

    def save(self, path: str) -> None:
        """Write what the file lacks. Entries are only ever added, so this is an append; the file is
        made if missing.
        """
        if self.saved_bytes == len(self.data) and self.data:
            return
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.ftruncate(fd, self.saved_bytes)
            while self.saved_bytes < len(self.data):
                self.saved_bytes += os.pwrite(
                    fd, memoryview(self.data)[self.saved_bytes :], self.saved_bytes
                )
        finally:
            os.close(fd)


class OffsetIndex(_Index):
    """From offset to a position at or before its batch."""

    __slots__ = ()
    entry_bytes = _OFFSET_ENTRY.size

    def add(self, relative_offset: int, position: int) -> None:
        """Note that the batch at ``position`` ends with ``relative_offset``."""
        self.data += _OFFSET_ENTRY.pack(relative_offset, position)

    def entry(self, number: int) -> tuple[int, int]:
        """``(relative offset, position)``."""
        relative_offset, position = _OFFSET_ENTRY.unpack_from(self.data, number * 8)
        return relative_offset, position

    def position_for(self, relative_offset: int) -> int:
        """Position of the last indexed batch that ends at or before the offset; 0 when there is
        none.
        """
        data = self.data
        number = bisect_right(
            range(len(self)), relative_offset, key=lambda n: _INT.unpack_from(data, n * 8)[0]
        )
        return self.entry(number - 1)[1] if number else 0

    def position_before(self, position: int) -> int:
        """The last indexed batch boundary at or before ``position``; 0 when there is none."""
        data = self.data
        number = bisect_right(
            range(len(self)), position, key=lambda n: _INT.unpack_from(data, n * 8 + 4)[0]
        )
        return self.entry(number - 1)[1] if number else 0


class TimeIndex(_Index):
    """From timestamp to an offset before which no record is as late."""

    __slots__ = ()
    entry_bytes = _TIME_ENTRY.size

    def add(self, timestamp: int, relative_offset: int) -> None:
        """Note the largest timestamp so far; one that is not larger than the last entry's adds
        nothing.
        """
        data = self.data
        if timestamp > (_LONG.unpack_from(data, len(data) - self.entry_bytes)[0] if data else -1):
            self.data += _TIME_ENTRY.pack(timestamp, relative_offset)

    def entry(self, number: int) -> tuple[int, int]:
        """``(timestamp, relative offset)``."""
        timestamp, relative_offset = _TIME_ENTRY.unpack_from(self.data, number * 12)
        return timestamp, relative_offset

    def relative_offset_for(self, timestamp: int) -> int:
        """Where to start looking for the first record of at least ``timestamp``."""
        data = self.data
        number = bisect_right(
            range(len(self)), timestamp, key=lambda n: _LONG.unpack_from(data, n * 12)[0]
        )
        return self.entry(number - 1)[1] if number else 0
