"""The one format of headrace's own small files: lines that tell a damaged file from a right one.

A line has the version of the data directory's format, the name of the file (without the base offset
of a segment), a CRC-32C of the rest of the line, and one JSON value::

    headrace 5 clean-shutdown 1f09a6d2 ["orders-0"]

A file has one line, and is replaced as a whole. Lines are only appended to the file of known
partitions. Files that Apache Kafka has too (indexes, snapshots of producers,
``partition.metadata``) have its formats.
"""

from __future__ import annotations

import errno
import json
import os
from typing import Any

from headrace.log.files import opened, replace_file
from headrace.log_lines import get_logger
from headrace.protocol.checksum import crc32c

logger = get_logger("headrace.log")

FORMAT_VERSION = 5
"""The version of all files of a data directory, the catalog included."""
MAX_FILE_BYTES = 256 << 20
"""A file is read whole."""
_PROGRAM = b"headrace"


class DamagedFile(ValueError):
    """A file that is not as it was written. The message names it."""


class OtherVersion(OSError):
    """A file in the format of another headrace. The message names it, on one line."""

    def __init__(self, path: str, version: int | str) -> None:
        text = (
            f"{path} was written by another headrace: its format is {version}, and this one has "
            f"{FORMAT_VERSION}"
        )
        super().__init__(errno.EPROTONOSUPPORT, text)

    def __str__(self) -> str:
        return str(self.strerror)


def encode(path: str, value: Any, version: int = FORMAT_VERSION) -> bytes:
    """Return a line of a file."""
    head = b"%s %d %s" % (_PROGRAM, version, _name(path))
    text = json.dumps(value, separators=(",", ":")).encode()
    return b"%s %08x %s\n" % (head, crc32c(text, crc32c(head)), text)


def parse(path: str, line: bytes) -> Any:
    """Return the value of a line of a file.

    :raises DamagedFile: when the line is not as it was written, or of another file
    :raises OtherVersion: when its version is not :data:`FORMAT_VERSION`
    """
    if len(line) > MAX_FILE_BYTES:
        raise DamagedFile(f"{path} is larger than {MAX_FILE_BYTES} bytes")
    fields = line.split(b" ", 4)
    if len(fields) == 5 and fields[0] == _PROGRAM and line.endswith(b"\n"):
        _, version, name, checksum, text = fields
        text = text[:-1]
        head = b" ".join(fields[:3])
        if name == _name(path) and checksum == b"%08x" % crc32c(text, crc32c(head)):
            # The checksum has its place in every version: what it vouches for is no flipped bit.
            if version != b"%d" % FORMAT_VERSION:
                raise OtherVersion(path, version.decode(errors="replace"))
            try:
                return json.loads(text)
            except (ValueError, RecursionError):  # in a file that others have made
                pass
    raise DamagedFile(f"{path} is damaged")


def read(path: str) -> Any:
    """Return the value of a file of one line; None if there is no file.

    :raises DamagedFile: as :func:`parse`
    :raises OtherVersion: as :func:`parse`
    :raises OSError: when the disk fails
    """
    try:
        with open(path, "rb") as file:
            line = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return None
    return parse(path, line)


def read_or_warn(path: str, consequence: str) -> Any:
    """Return the value of a file of one line; None if there is no file, or if it is damaged, which
    is logged.

    :raises OtherVersion: as :func:`parse`
    :raises OSError: when the disk fails
    """
    try:
        return read(path)
    except DamagedFile as error:
        logger.warning("%s: %s", error, consequence)
        return None


def read_lines(path: str) -> tuple[list[Any], int]:
    """Return the values of the lines of a file, and the number of torn or damaged ones, which are
    left out. A missing file has no lines.

    :raises OtherVersion: as :func:`parse`
    :raises OSError: when the disk fails
    """
    values: list[Any] = []
    damaged = 0
    try:
        with open(path, "rb") as file:
            for line in file:
                try:
                    if line != b"\n":
                        values.append(parse(path, line))
                except DamagedFile:
                    damaged += 1
    except FileNotFoundError:
        pass
    return values, damaged


def replace(path: str, value: Any, *, sync: bool) -> None:
    """Replace a file by one line.

    :param sync: force the file and its name to disk
    :raises OSError: when the disk fails; the file is as it was
    """
    replace_file(path, encode(path, value), sync=sync)


def append(path: str, value: Any, *, sync: bool) -> None:
    """Append a line to a file. A line that a crash may have torn before it is ended first.

    :param sync: force the file to disk
    :raises OSError: when the disk fails
    """
    with opened(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND) as fd:
        os.write(fd, b"\n" + encode(path, value))
        if sync:
            os.fsync(fd)


def _name(path: str) -> bytes:
    return os.path.basename(path).rpartition(".")[2].encode()
