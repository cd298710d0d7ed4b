"""The checksums of the small files of a segment, in the file ``<base offset>.checksums``.

Kafka's index files have no checksum of their own. Indexes are derived data, so a file that does not
have its checksum is rebuilt from the batches. The file has one line for each of them, with its size
and checksum; a line with the size of the log and its end offset up to which ``.txnindex`` has all
aborted transactions; and a last line with the checksum of the lines before it::

    index 96 5d0a3c11
    timeindex 36 90b1cc2e
    txnindex 34 7e00a1b2
    log 16384 120
    01c24f90
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace.log.files import replace_file
from headrace.protocol.checksum import crc32c

SUFFIX = ".checksums"
INDEX_SUFFIXES = (".index", ".timeindex", ".txnindex")
_LOG = b"log"
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


class Checksums(NamedTuple):
    """The checksums of the small files of a segment.

    :ivar files: the checksums by suffix
    :ivar size_bytes: number of bytes from the beginning of the log whose aborted transactions were
        all in ``.txnindex``
    :ivar end_offset: ``.txnindex`` had all aborted transactions before this offset
    """

    files: Mapping[str, Checksum]
    size_bytes: int
    end_offset: int

    def are_of_all(self, size_bytes: int, offset: int) -> bool:
        """Return True if ``.txnindex`` had all aborted transactions of the segment that ended
        before ``offset``.

        :param size_bytes: size of the log
        """
        return size_bytes == self.size_bytes or offset <= self.end_offset


def write(
    stem: str, size_bytes: int, end_offset: int, suffixes: Iterable[str] = INDEX_SUFFIXES
) -> None:
    """Write the checksums of the small files of a segment as they are now.

    :param stem: path of the segment's files without a suffix
    :param size_bytes: see :class:`Checksums`
    :param end_offset: see :class:`Checksums`
    :param suffixes: the files to write a checksum of; a file without one has the checksum of an
        empty file
    :raises OSError: when the disk fails; the file is as it was
    """
    lines = []
    for suffix in suffixes:
        try:
            with open(stem + suffix, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            continue
        lines.append(b"%s %d %08x\n" % (suffix[1:].encode(), len(data), crc32c(data)))
    lines.append(b"%s %d %d\n" % (_LOG, size_bytes, end_offset))
    text = b"".join(lines)
    replace_file(stem + SUFFIX, b"%s%08x\n" % (text, crc32c(text)), sync=False)


def forget(stem: str) -> None:
    """Remove the checksums of a segment.

    :raises OSError: when the disk fails
    """
    try:
        os.unlink(stem + SUFFIX)
    except FileNotFoundError:
        pass


def read(stem: str) -> Checksums | None:
    """Return the checksums of the small files of a segment; None if they were never written.

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
        return Checksums(dict.fromkeys(INDEX_SUFFIXES, Checksum(-1, -1)), -1, -1)
    files = dict.fromkeys(INDEX_SUFFIXES, NOTHING)
    size_bytes = end_offset = -1
    for line in text.splitlines():
        name, first, second = line.split()
        if name == _LOG:
            size_bytes, end_offset = int(first), int(second)
        else:
            files[f".{name.decode()}"] = Checksum(int(first), int(second, 16))
    return Checksums(files, size_bytes, end_offset)
