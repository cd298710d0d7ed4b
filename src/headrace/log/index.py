"""The two sparse indexes of a segment, held in memory as the bytes of their files.

Offset index: entries of 8 bytes, the *last* offset of a batch relative to the segment's base
offset, and the batch's position in the file. Time index: entries of 12 bytes, the largest timestamp
so far, and the relative last offset of the first batch that has it. The formats are Apache Kafka's,
so its tools can check the files.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_right

from headrace.log.files import opened, remove_file

POSITION = 1
"""The number of the field of an entry of the offset index that has the position."""


class _Index:
    """Index entries in memory.

    :cvar layout: the fields of an entry; they ascend from entry to entry
    :ivar data: the entries
    :ivar saved_bytes: how many bytes of ``data`` are in the file
    """

    __slots__ = ("data", "saved_bytes")
    layout: struct.Struct

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.saved_bytes = len(data)

    def __len__(self) -> int:
        return len(self.data) // self.layout.size

    def entry(self, number: int) -> tuple[int, int]:
        """Return the fields of an entry; -1 stands for the last one."""
        first, second = self.layout.unpack_from(self.data, number * self.layout.size)
        return first, second

    def last(self, largest: int, field: int = 0) -> tuple[int, int] | None:
        """Return the last entry with at most a value in a field; None if there is none.

        In damaged entries the search may find an earlier one, but never a later one.
        """
        unpack_from, data, size = self.layout.unpack_from, self.data, self.layout.size
        number = bisect_right(
            range(len(self)), largest, key=lambda n: unpack_from(data, n * size)[field]
        )
        return self.entry(number - 1) if number else None

    def save(self, path: str) -> None:
        """Append the new entries to the file, which is created if missing. A file of other entries
        is replaced, and not overwritten, as a snapshot may have a link to it.

        :raises OSError: when the disk fails
        """
        if self.saved_bytes == len(self.data) and self.data:
            return
        if not self.saved_bytes:
            remove_file(path)
        with opened(path, os.O_WRONLY | os.O_CREAT) as fd:
            os.ftruncate(fd, self.saved_bytes)
            while self.saved_bytes < len(self.data):
                self.saved_bytes += os.pwrite(
                    fd, memoryview(self.data)[self.saved_bytes :], self.saved_bytes
                )


class OffsetIndex(_Index):
    """The index from offsets to positions: its entries are ``(relative offset, position)``."""

    __slots__ = ()
    layout = struct.Struct(">ii")

    def add(self, relative_offset: int, position: int) -> None:
        """Add an entry for the batch at ``position``, which ends with ``relative_offset``."""
        self.data += self.layout.pack(relative_offset, position)


class TimeIndex(_Index):
    """The index from timestamps to offsets: its entries are ``(timestamp, relative offset)``."""

    __slots__ = ()
    layout = struct.Struct(">qi")

    def add(self, timestamp: int, relative_offset: int) -> None:
        """Add an entry for the largest timestamp so far, unless the last entry has the same or a
        larger one.
        """
        if timestamp > (self.entry(-1)[0] if self.data else -1):
            self.data += self.layout.pack(timestamp, relative_offset)
