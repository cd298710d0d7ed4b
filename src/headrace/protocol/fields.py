"""The fields of flexible messages, for the messages that are read by hand."""

from __future__ import annotations

import uuid
from functools import lru_cache

from . import varint
from .frames import BadFrame

ID_BYTES = 16

TOPIC_IDS_KEPT = 1024
"""Topic ids that need not be made anew from their bytes."""


@lru_cache(TOPIC_IDS_KEPT)
def topic_id_of(data: bytes) -> uuid.UUID:
    """The topic id with these bytes."""
    return uuid.UUID(bytes=data)


def array_length(frame: bytes | memoryview, offset: int) -> tuple[int, int]:
    """How many elements an array claims, and where they begin.

    Each is read before the next, so a false claim ends where the frame does.

    :raises BadFrame: for a null array
    """
    length = frame[offset]
    offset += 1
    if length >= 0x80:
        length, offset = varint.decode(frame, offset - 1)
    if not length:
        raise BadFrame("an array that must not be null is null")
    return length - 1, offset


def span(frame: bytes | memoryview, offset: int) -> tuple[int, int]:
    """Where the bytes of a string or of binary data begin and end; a null begins behind its end.

    :raises BadFrame: when they run over the end of the frame
    """
    size = frame[offset]
    offset += 1
    if size >= 0x80:
        size, offset = varint.decode(frame, offset - 1)
    end = offset + size - 1
    if end > len(frame):
        raise BadFrame(f"a field claims {size - 1} bytes, {len(frame) - offset} are left")
    return offset, end


def nullable_string(frame: bytes | memoryview, offset: int) -> tuple[str | None, int]:
    """A string, and the position behind it.

    :raises BadFrame: as :func:`span`
    :raises UnicodeDecodeError: when it is not UTF-8
    """
    start, end = span(frame, offset)
    return (None, start) if end < start else (str(frame[start:end], "utf-8"), end)


def string(frame: bytes | memoryview, offset: int) -> tuple[str, int]:
    """As :func:`nullable_string`, of one that must not be null."""
    text, offset = nullable_string(frame, offset)
    if text is None:
        raise BadFrame("a string that must not be null is null")
    return text, offset


def compact_string(text: str) -> bytes:
    """The inverse of :func:`string`."""
    data = text.encode()
    return varint.encode(len(data) + 1) + data
