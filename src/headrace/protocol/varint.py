"""Kafka's unsigned varints: seven bits a byte, the lowest first, the top bit set on all but the
last.
"""

from __future__ import annotations

_MOST_BITS = 35  # five bytes


def encode(number: int) -> bytes:
    """The bytes of a number that is not negative."""
    if number < 0x80:
        return bytes((number,))
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def decode(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """The number at ``position``, and the position behind it.

    :raises IndexError: when the data ends within it
    :raises ValueError: when it is longer than five bytes
    """
    number = shift = 0
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
        if shift >= _MOST_BITS:
            raise ValueError("a varint is longer than five bytes")
