"""The checksums of the small files of a segment, in the file ``<base offset>.checksums``.

Kafka's index files have no checksum of their own. Indexes are derived data, so a file that does not
have its checksum is rebuilt from the batches. The file has the size and checksum of each of them,
and the size of the log and its end offset up to which ``.txnindex`` has all aborted transactions::

    {".index": [96, 1560951825], ".txnindex": [34, 2113970610], ".log": [16384, 120]}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace.log import checked_file
from headrace.protocol.checksum import crc32c

SUFFIX = ".checksums"
INDEX_SUFFIXES = (".index", ".timeindex", ".txnindex")
_LOG = ".log"


class Checksum(NamedTuple):
    """The size and checksum of a file, or of its first bytes."""

    size_bytes: int
    crc: int


_OF_NOTHING = Checksum(0, 0)
"""Size and checksum of a missing or empty file."""


def checksum_of(data: bytes | bytearray) -> Checksum:
    """Return the size and checksum of the content of a file."""
    return Checksum(len(data), crc32c(data))


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
    sums: dict[str, tuple[int, int]] = {_LOG: (size_bytes, end_offset)}
    for suffix in suffixes:
        try:
            with open(stem + suffix, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            continue
        sums[suffix] = checksum_of(data)
    checked_file.replace(stem + SUFFIX, sums, sync=False)


def read(stem: str) -> Checksums | None:
    """Return the checksums of the small files of a segment; None if they were never written.

    Of a file that is damaged, or of another version, all checksums are wrong, so that everything is
    rebuilt.

    :raises OSError: when the disk fails
    """
    try:
        sums = checked_file.read(stem + SUFFIX)
    except (checked_file.DamagedFile, checked_file.OtherVersion):
        return Checksums(dict.fromkeys(INDEX_SUFFIXES, Checksum(-1, -1)), -1, -1)
    if sums is None:
        return None
    size_bytes, end_offset = sums[_LOG]
    files = {suffix: Checksum(*sums.get(suffix, _OF_NOTHING)) for suffix in INDEX_SUFFIXES}
    return Checksums(files, size_bytes, end_offset)
