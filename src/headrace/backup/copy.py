"""Copies of files, with checksums."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable
from typing import NamedTuple

from crc32c import crc32c

from .directory import BackupError, Directory, naming
from .manifest import Entry

CHUNK_BYTES = 1 << 20
SYNC_BYTES = 64 << 20
"""A large file is forced to disk whenever this much of it was written, so that the page cache does
not fill up with data that the disk still has to take.
"""
Advance = Callable[[int], object]
"""Called with a number of bytes that were copied or read."""


class SourceFile(NamedTuple):
    """A file to copy.

    :ivar name: path below the directory
    :ivar size_bytes: the number of bytes to copy, from its start
    """

    name: str
    size_bytes: int


def copy_file(
    source: SourceFile | Entry, directory: Directory, into: Directory, advance: Advance
) -> Entry:
    """Copy a file with its modification time, which is the age of a segment without timestamps.
    Return its entry for the manifest.

    :param directory: the directory that has it
    :param into: the directory of the copy, without this file
    :raises BackupError: when the file is shorter than it should be, or not a regular one
    :raises OSError: when the disk fails
    """
    path, target = f"{directory.path}/{source.name}", f"{into.path}/{source.name}"
    crc = copied = 0
    with directory.open(source.name) as reading, into.create(source.name) as writing, naming(path):
        while copied < source.size_bytes:
            data = reading.read(min(CHUNK_BYTES, source.size_bytes - copied))
            if not data:
                raise BackupError(f"{path} has {copied} bytes instead of {source.size_bytes}")
            crc = crc32c(data, crc)
            _write(writing, data, target)
            copied += len(data)
            advance(len(data))
            if copied % SYNC_BYTES == 0:
                os.fdatasync(writing.fileno())
        modified_ns = os.fstat(reading.fileno()).st_mtime_ns
        os.utime(writing.fileno(), ns=(modified_ns, modified_ns))
    return Entry(source.name, copied, crc)


def _write(file: io.FileIO, data: bytes, path: str) -> None:
    view = memoryview(data)
    while view:
        with naming(path):
            written = file.write(view)
        if not written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        view = view[written:]


def check_file(entry: Entry, directory: Directory, advance: Advance) -> None:
    """Read a copy back, from the disk if it was forced there before, and compare it with its entry.

    :raises BackupError: when it is different
    :raises OSError: when it cannot be read
    """
    path = f"{directory.path}/{entry.name}"
    with directory.open(entry.name) as file, naming(path):
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        crc = size_bytes = 0
        while data := file.read(CHUNK_BYTES):
            crc = crc32c(data, crc)
            size_bytes += len(data)
            advance(len(data))
    if Entry(entry.name, size_bytes, crc) != entry:
        raise BackupError(f"{path} is not what was written to it: check the disk")
