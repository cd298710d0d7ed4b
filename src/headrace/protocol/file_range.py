"""Parts of a message that are in a file and are read when the socket takes them.

A response may have tens of megabytes of records, and its client may not read for hours. So a
response holds a :class:`FileRange` in the place of records, which costs the same for any size.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Any, Protocol

LEAST_RANGE_BYTES = 4096
"""Smaller parts are held as bytes: that costs little more than a range."""


class RangeSource(Protocol):
    """A file with ranges."""

    def hold(self) -> None:
        """Keep the content readable for one more range, whatever happens to the file."""

    def let_go(self) -> None:
        """End one :meth:`hold`."""

    def read_into(self, buffer: memoryview, position: int) -> int:
        """Read from ``position`` on and return the number of bytes read, 0 at the end.

        :raises OSError: when the file cannot be read
        """


class FileRange:
    """Bytes in a file, as a part of a message. They do not change.

    :ivar data: the same bytes if they were read already, else None
    :ivar end_offset: for record batches, the offset after the last one; -1 until it is set
    """

    __slots__ = ("_position", "_size_bytes", "_source", "data", "end_offset")

    def __init__(
        self,
        source: RangeSource,
        position: int,
        size_bytes: int,
        data: bytes | memoryview | None = None,
    ) -> None:
        source.hold()
        self._source = source
        self._position = position
        self._size_bytes = size_bytes
        self.data = data
        self.end_offset = -1

    def __del__(self) -> None:
        self._source.let_go()

    def __len__(self) -> int:
        return self._size_bytes

    def part(self, start: int, end: int) -> FileRange:
        """Return the range of the bytes from ``start`` to ``end``, exclusive."""
        data = None if self.data is None else memoryview(self.data)[start:end]
        return FileRange(self._source, self._position + start, end - start, data)

    def read_into(self, buffer: memoryview, start: int = 0) -> int:
        """Fill ``buffer`` with the bytes from ``start`` on, and return how many these are.

        :raises OSError: when the file cannot be read, or has become too short
        """
        size = min(len(buffer), self._size_bytes - start)
        if self.data is not None:
            buffer[:size] = self.data[start : start + size]
            return size
        done = 0
        while done < size:
            got = self._source.read_into(buffer[done:size], self._position + start + done)
            if not got:
                raise OSError(errno.EIO, "the file has become too short")
            done += got
        return done

    def __bytes__(self) -> bytes:
        """Return the bytes.

        :raises OSError: when the file cannot be read, or has become too short
        """
        if self.data is not None:
            return bytes(self.data)
        data = bytearray(self._size_bytes)
        self.read_into(memoryview(data))
        return bytes(data)


Piece = bytes | memoryview | FileRange
"""A part of a message, to send."""


def joined(parts: Sequence[Any]) -> bytes:
    """Return the bytes of all parts.

    :raises OSError: when a file cannot be read
    """
    try:
        return b"".join(parts)
    except TypeError:  # only a file range is no bytes
        return b"".join(map(bytes, parts))
