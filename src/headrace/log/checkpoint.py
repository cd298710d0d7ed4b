"""A file with one offset, and a checksum that tells a damaged file from a right one."""

from __future__ import annotations

import re
from zlib import crc32

from headrace.log.files import replace_file

_CHECKED = re.compile(rb"([0-9]{1,19}) ([0-9a-f]{8})\n")
_UNCHECKED = re.compile(rb"[0-9]{1,19}\n")
"""The form of earlier versions."""


class DamagedFile(ValueError):
    """A file that is not as it was written. The message names it."""


def write(path: str, offset: int, *, sync: bool) -> None:
    """Replace the file.

    :param sync: force it to disk
    :raises OSError: when the disk fails
    """
    text = b"%d" % offset
    replace_file(path, b"%s %08x\n" % (text, crc32(text)), sync=sync)


def read(path: str) -> int | None:
    """Return the offset; None if there is no file.

    :raises DamagedFile: when the file has anything but an offset with its checksum
    :raises OSError: when the disk fails
    """
    try:
        with open(path, "rb") as file:
            data = file.read(100)
    except FileNotFoundError:
        return None
    found = _CHECKED.fullmatch(data)
    if found is not None and int(found[2], 16) == crc32(found[1]):
        return int(found[1])
    if _UNCHECKED.fullmatch(data):
        return int(data)
    raise DamagedFile(f"{path} is damaged")
