"""The variable-length numbers and byte strings inside of record batches: zigzag varints, low seven
bits first.
"""

from __future__ import annotations

from functools import lru_cache

NULL = b"\1"
"""The length of what is null: the zigzag varint of -1."""


def varint(data: bytes, position: int) -> tuple[int, int]:
    """A zigzag varint and the position after it.

    :raises IndexError: when the data ends before it does
    """
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7


def byte_string(data: bytes, position: int) -> tuple[bytes | None, int]:
    """Bytes after their length, None for length -1; and the position after them.

    :raises IndexError: when the data ends before they do
    """
    length, position = varint(data, position)
    if length < 0:
        return None, position
    end = position + length
    if end > len(data):
        raise IndexError("a field runs past the end of its batch")
    return data[position:end], end


@lru_cache(1024)
def encoded(value: int) -> bytes:
    """A zigzag varint: mostly one of the few numbers that lengths and deltas are."""
    out = bytearray()
    put_varint(out, value)
    return bytes(out)


def put_varint(out: bytearray, value: int) -> None:
    """Add a zigzag varint."""
    value = (value << 1) ^ (value >> 63)
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def sized(value: bytes | None) -> tuple[bytes, bytes]:
    """Bytes and, before them, their length."""
    return (NULL, b"") if value is None else (encoded(len(value)), value)
