"""Kafka's types as bytes, written by hand: for what is wrong, and as a second opinion."""

from __future__ import annotations

import struct
from collections.abc import Sequence

NO_TAGS = b"\0"
"""The tagged fields of a structure without any."""


def i16(number: int) -> bytes:
    """Return an int16."""
    return struct.pack(">h", number)


def i32(number: int) -> bytes:
    """Return an int32."""
    return struct.pack(">i", number)


def i64(number: int) -> bytes:
    """Return an int64."""
    return struct.pack(">q", number)


def string(text: str | None) -> bytes:
    """Return a nullable string of the old encoding."""
    if text is None:
        return i16(-1)
    data = text.encode("utf-8", "surrogatepass")
    return i16(len(data)) + data


def compact_string(text: str) -> bytes:
    """Return a string of the flexible encoding, of at most 126 bytes."""
    data = text.encode()
    return bytes((len(data) + 1,)) + data


def array(items: Sequence[bytes]) -> bytes:
    """Return an array of the old encoding."""
    return i32(len(items)) + b"".join(items)
