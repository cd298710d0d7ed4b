"""The checksums of the small files of a segment, in the file ``<base offset>.checksums``.

Kafka's index files have no checksum of their own. Indexes are derived data, so a file that does not
have its checksum is rebuilt from the batches. The file has one line for each of them, with its size
and checksum, and a last line with the checksum of the lines before it::

    index 96 5d0a3c11
    timeindex 36 90b1cc2e
    txnindex 34 7e00a1b2
    01c24f90
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from headrace.log.files import replace_file
from headrace.protocol.checksum import crc32c

SUFFIX = ".checksums"
INDEX_SUFFIXES = (".index", ".timeindex", ".txnindex")
_MAX_BYTES = 1000


class Checksum:
    """The size and checksum of a file.

    :ivar size_bytes: number of bytes from the beginning of the file that the checksum covers
    """

    __slots__ = ("crc", "size_bytes")

    def __init__(self, size_bytes: int, crc: int) -> None:
        self.size_bytes = size_bytes
        self.crc = crc

    def covers(self, data: bytes | bytearray) -> bool:
        """Return True if a file begins with what the checksum was made of."""
        size_bytes = self.size_bytes
        return len(data) >= size_bytes and crc32c(memoryview(data)[:size_bytes]) == self.crc

    def matches(self, data: bytes | bytearray) -> bool:
        """Return True if a file is as it was when the checksum was made."""
        return len(data) == self.size_bytes and self.covers(data)


NOTHING = Checksum(0, 0)
"""The checksum of a missing or empty file."""


def write(stem: str) -> None:
    """Write the checksums of the small files of a segment as they are now.

    :param stem: path of the segment's files without a suffix
    :raises OSError: when the disk fails
    """
    lines = []
    for suffix in INDEX_SUFFIXES:
        try:
            with open(stem + suffix, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            continue
        lines.append(b"%s %d %08x\n" % (suffix[1:].encode(), len(data), crc32c(data)))
    text = b"".join(lines)
    replace_file(stem + SUFFIX, b"%s%08x\n" % (text, crc32c(text)), sync=False)


def forget(stem: str) -> None:
    """Remove the checksums of a segment whose small files are about to change."""
    try:
        os.unlink(stem + SUFFIX)
    except FileNotFoundError:
        pass


def read(stem: str) -> Mapping[str, Checksum] | None:
    """Return the checksums of the small files of a segment, by suffix; None if they were never
    written.

    Of a damaged file all checksums are wrong, so that everything is rebuilt.

    :raises OSError: when the disk fails
    """
    try:
        with open(stem + SUFFIX, "rb") as file:
            data = file.read(_MAX_BYTES)
    except FileNotFoundError:
        return None
    text, last = data[:-9], data[-9:]
    if last != b"%08x\n" % crc32c(text):
        return dict.fromkeys(INDEX_SUFFIXES, Checksum(-1, -1))
    found = dict.fromkeys(INDEX_SUFFIXES, NOTHING)
    for line in text.decode().splitlines():
        name, size_bytes, crc = line.split()
        found[f".{name}"] = Checksum(int(size_bytes), int(crc, 16))
    return found
