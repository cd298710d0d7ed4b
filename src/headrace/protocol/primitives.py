"""Kafka's primitive types as bytes, in the old encoding and in the flexible one (KIP-482).

Writers return bytes. Readers take bytes and a position, and return the value and the position after
it; :class:`Reader` keeps the position. Integers are big-endian. Strings, bytes and
arrays of the flexible encoding ("compact") begin with their length plus 1 as an unsigned varint, 0
for null. Those of the old encoding ("legacy") begin with a fixed integer, -1 for null: int16 for
strings, int32 for bytes and arrays. Inside record batches lengths are zigzag varints.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import lru_cache
from struct import Struct, pack
from typing import TypeVar
from uuid import UUID

T = TypeVar("T")

INT16, INT32 = Struct(">h"), Struct(">i")
_INT8, _INT64 = Struct(">b"), Struct(">q")
i8, i16, i32, i64 = _INT8.pack, INT16.pack, INT32.pack, _INT64.pack

UUID_BYTES = 16

MAX_STRING_BYTES = 0x7FFF
"""The longest string, even if its encoding allows more, as in Kafka."""

MAX_ARRAY_ITEMS = 1_000_000
"""The most elements of an array, as in Kafka."""

MAX_TAGGED_FIELDS = 10_000
"""The most tagged fields of a structure, as in Kafka."""

NO_TAGS = b"\0"
"""The tagged fields of a structure without any."""

NULL_RECORD_BYTES = b"\1"
"""The length of a null key, value or header value of a record: the zigzag varint of -1."""

MAX_VARINT_BYTES = 10
"""The longest varint of a 64-bit integer."""

_MAX_UNSIGNED_BITS = 35  # five bytes
_MAX_BITS = 7 * MAX_VARINT_BYTES
_TOPIC_IDS_CACHED = 1024


class NullArray(ValueError):
    """A null array where the schema has none."""


# Variable-length integers -------------------------------------------------------------------------


def unsigned_varint(number: int) -> bytes:
    """Return a non-negative integer as an unsigned varint: seven bits a byte, lowest first."""
    if number < 0x80:
        return bytes((number,))
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def read_unsigned_varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Read an unsigned varint of at most five bytes.

    :raises IndexError: the data ends inside it
    :raises ValueError: it is longer than five bytes
    """
    number = shift = 0
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
        if shift >= _MAX_UNSIGNED_BITS:
            raise ValueError("a varint is longer than five bytes")


@lru_cache(1024)
def varint(number: int) -> bytes:
    """Return a 64-bit integer as a zigzag varint. Cached: most are small lengths and deltas."""
    out = bytearray()
    append_varint(out, number)
    return bytes(out)


def append_varint(out: bytearray, number: int) -> None:
    """Append a 64-bit integer as a zigzag varint."""
    number = (number << 1) ^ (number >> 63)
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def read_varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Read a zigzag varint.

    :raises IndexError: the data ends inside it
    :raises ValueError: it is longer than :data:`MAX_VARINT_BYTES`
    """
    low = data[position]
    if low < 0x80:  # most have one or two bytes: 89 and 142 ns here, 115 and 180 ns in the loop
        return (low >> 1) ^ -(low & 1), position + 1
    high = data[position + 1]
    if high < 0x80:
        return ((low & 0x7F | high << 7) >> 1) ^ -(low & 1), position + 2
    number, shift, position = low & 0x7F | (high & 0x7F) << 7, 14, position + 2
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position
        shift += 7
        if shift >= _MAX_BITS:
            raise ValueError(f"a varint is longer than {MAX_VARINT_BYTES} bytes")


# Strings, bytes and arrays ------------------------------------------------------------------------


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def string(text: str | None) -> bytes:
    """Return a nullable legacy string.

    :raises ValueError: its UTF-8 is longer than 32767 bytes
    """
    if text is None:
        return i16(-1)
    data = _utf8(text)
    if len(data) > MAX_STRING_BYTES:
        raise ValueError(f"a string of {len(data)} bytes is longer than {MAX_STRING_BYTES}")
    return i16(len(data)) + data


def shortened(text: str | None) -> str | None:
    """Return a message for people, cut off where it would be longer than a string may be.

    Messages quote what a client has sent, which may be as long as a string.
    """
    if text is None or len(text) <= MAX_STRING_BYTES // 4:
        return text
    return _utf8(text)[:MAX_STRING_BYTES].decode("utf-8", "ignore")


def blob(data: bytes) -> bytes:
    """Return legacy bytes."""
    return i32(len(data)) + data


def array(items: Iterable[bytes]) -> bytes:
    """Return a legacy array of encoded items."""
    pieces = tuple(items)
    return i32(len(pieces)) + b"".join(pieces)


@lru_cache(256)
def compact_length(length: int) -> bytes:
    """Return the length before a compact string, bytes or array. Cached: most are small."""
    return unsigned_varint(length + 1)


def compact_string(text: str | None) -> bytes:
    """Return a nullable compact string."""
    if text is None:
        return b"\0"
    data = _utf8(text)
    return unsigned_varint(len(data) + 1) + data


def compact_blob(data: bytes) -> bytes:
    """Return compact bytes."""
    return unsigned_varint(len(data) + 1) + data


def compact_array(items: Iterable[bytes]) -> bytes:
    """Return a compact array of encoded items."""
    pieces = tuple(items)
    return unsigned_varint(len(pieces) + 1) + b"".join(pieces)


def compact_i32s(numbers: Collection[int]) -> bytes:
    """Return a compact array of int32."""
    return unsigned_varint(len(numbers) + 1) + pack(f">{len(numbers)}i", *numbers)


def read_compact_length(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Read the length of a compact string, bytes or array; -1 for null.

    :raises IndexError, ValueError: as :func:`read_unsigned_varint`
    """
    length = data[position]
    position += 1
    if length >= 0x80:
        length, position = read_unsigned_varint(data, position - 1)
    return length - 1, position


def read_compact_count(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Read the length of a compact array that must not be null.

    The length may exceed the data. Read the items one by one; do not allocate by this number.

    :raises NullArray: the array is null
    :raises ValueError: it claims more than :data:`MAX_ARRAY_ITEMS`
    """
    count, position = read_compact_length(data, position)
    if count < 0:
        raise NullArray("an array is null")
    return check_items(count), position


def check_items(count: int) -> int:
    """Return the length of an array.

    :raises ValueError: it is larger than :data:`MAX_ARRAY_ITEMS`
    """
    if count > MAX_ARRAY_ITEMS:
        raise ValueError(f"an array claims {count} elements, more than {MAX_ARRAY_ITEMS}")
    return count


def read_tag_count(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Read the number of tagged fields of a structure.

    :raises ValueError: it is larger than :data:`MAX_TAGGED_FIELDS`
    """
    count, position = read_unsigned_varint(data, position)
    if count > MAX_TAGGED_FIELDS:
        raise ValueError(f"{count} tagged fields are more than {MAX_TAGGED_FIELDS}")
    return count, position


def read_compact_span(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return the start and end of the content of a compact string or bytes.

    For null the end is the start - 1.

    :raises ValueError: the content runs past the end of the data
    """
    length, start = read_compact_length(data, position)
    end = start + length
    if end > len(data):
        raise ValueError(f"a field claims {length} bytes, {len(data) - start} are left")
    return start, end


def read_nullable_compact_string(data: bytes | memoryview, position: int) -> tuple[str | None, int]:
    """Read a nullable compact string.

    :raises ValueError: it runs past the end of the data, is longer than :data:`MAX_STRING_BYTES`,
        or is not UTF-8
    """
    start, end = read_compact_span(data, position)
    if end - start > MAX_STRING_BYTES:
        raise ValueError(f"a string of {end - start} bytes is longer than {MAX_STRING_BYTES}")
    return (None, start) if end < start else (str(data[start:end], "utf-8"), end)


def read_compact_string(data: bytes | memoryview, position: int) -> tuple[str, int]:
    """Read a compact string that must not be null.

    :raises ValueError: it is null, runs past the end of the data, or is not UTF-8
    """
    text, position = read_nullable_compact_string(data, position)
    if text is None:
        raise ValueError("a string that must not be null is null")
    return text, position


@lru_cache(_TOPIC_IDS_CACHED)
def topic_id_from(data: bytes) -> UUID:
    """Return the topic id of these 16 bytes. Cached: creating a UUID takes 1 µs."""
    return UUID(bytes=data)


# Keys, values and headers of records --------------------------------------------------------------


def record_bytes(value: bytes | None) -> tuple[bytes, bytes]:
    """Return the length and the content of a nullable field of a record."""
    return (NULL_RECORD_BYTES, b"") if value is None else (varint(len(value)), value)


def read_record_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    """Read a nullable field of a record.

    :raises IndexError: the data ends inside it
    :raises ValueError: its length is no varint
    """
    length, position = read_varint(data, position)
    if length < 0:
        return None, position
    end = position + length
    if end > len(data):
        raise IndexError("a field runs past the end of its batch")
    return data[position:end], end


# Tagged fields ------------------------------------------------------------------------------------


def tagged_fields(*fields: tuple[int, bytes]) -> bytes:
    """Return the tagged fields of a structure.

    :param fields: (tag, content), by ascending tag
    """
    pieces = [unsigned_varint(len(fields))]
    for tag, content in fields:
        pieces += (unsigned_varint(tag), unsigned_varint(len(content)), content)
    return b"".join(pieces)


def read_tagged_fields(data: bytes, position: int) -> tuple[dict[int, bytes], int]:
    """Read the tagged fields of a structure: content by tag.

    :raises IndexError: the data ends inside them
    """
    count, position = read_tag_count(data, position)
    fields = {}
    for _ in range(count):
        tag, position = read_unsigned_varint(data, position)
        size, position = read_unsigned_varint(data, position)
        end = position + size
        if end > len(data):
            raise IndexError(f"a tagged field of {size} bytes, {len(data) - position} are left")
        fields[tag] = data[position:end]
        position = end
    return fields, position


def skip_tagged_fields(data: bytes | memoryview, position: int) -> int:
    """Return the position after the tagged fields of a structure.

    :raises IndexError, ValueError: the data ends inside them
    """
    if data[position] == 0:  # clients send none in practice
        return position + 1
    count, position = read_tag_count(data, position)
    for _ in range(count):
        _, position = read_unsigned_varint(data, position)
        size, position = read_unsigned_varint(data, position)
        position += size
    if position > len(data):
        raise ValueError("tagged fields run past the end of the data")
    return position


class Reader:
    """A position in encoded bytes, and their encoding.

    Each method reads one value, and raises IndexError, struct.error or ValueError if the data ends
    too early or is not UTF-8.

    :ivar flexible: strings, bytes, arrays and structures have the flexible encoding
    """

    __slots__ = ("_data", "_position", "flexible")

    def __init__(self, data: bytes, *, flexible: bool = False) -> None:
        self._data = data
        self._position = 0
        self.flexible = flexible

    def version(self, highest: int) -> int:
        """Read the version of a coordinator record's value.

        :raises ValueError: the version is not within 0 to ``highest``
        """
        version = self.i16()
        if not 0 <= version <= highest:
            raise ValueError(f"record of version {version}, known are 0 to {highest}")
        return version

    def begin_flexible(self) -> Reader:
        """Read version 0 of a value that has only flexible versions; return the reader."""
        self.version(0)
        self.flexible = True
        return self

    def _number(self, layout: Struct) -> int:
        (value,) = layout.unpack_from(self._data, self._position)
        self._position += layout.size
        return int(value)

    def i8(self) -> int:
        """Read an int8."""
        return self._number(_INT8)

    def i16(self) -> int:
        """Read an int16."""
        return self._number(INT16)

    def i32(self) -> int:
        """Read an int32."""
        return self._number(INT32)

    def i64(self) -> int:
        """Read an int64."""
        return self._number(_INT64)

    def unsigned_varint(self) -> int:
        """Read an unsigned varint."""
        value, self._position = read_unsigned_varint(self._data, self._position)
        return value

    def _take(self, length: int) -> bytes:
        end = self._position + length
        if length < 0 or end > len(self._data):
            raise IndexError(f"{length} bytes wanted at {self._position} of {len(self._data)}")
        data = self._data[self._position : end]
        self._position = end
        return data

    def uuid(self) -> UUID:
        """Read a UUID."""
        return UUID(bytes=self._take(UUID_BYTES))

    def nullable_string(self) -> str | None:
        """Read a nullable string."""
        length = self.unsigned_varint() - 1 if self.flexible else self.i16()
        return None if length < 0 else self._take(length).decode("utf-8", "surrogatepass")

    def string(self) -> str:
        """Read a string; null reads as empty."""
        return self.nullable_string() or ""

    def _long_length(self) -> int:
        return self.unsigned_varint() - 1 if self.flexible else self.i32()

    def blob(self) -> bytes:
        """Read bytes that are not null."""
        return self._take(self._long_length())

    def nullable_blob(self) -> bytes | None:
        """Read nullable bytes."""
        length = self._long_length()
        return None if length < 0 else self._take(length)

    def array(self, read_item: Callable[[Reader], T], *, nullable: bool = True) -> tuple[T, ...]:
        """Read an array. Null reads as empty.

        :raises ValueError: the array is null, and not ``nullable``
        """
        length = self._long_length()
        if length < 0 and not nullable:
            raise ValueError("an array that must not be null is null")
        return tuple(read_item(self) for _ in range(check_items(length)))

    def tagged_fields(self) -> dict[int, bytes]:
        """Read the tagged fields at the end of a structure; none in the old encoding."""
        if not self.flexible:
            return {}
        fields, self._position = read_tagged_fields(self._data, self._position)
        return fields
