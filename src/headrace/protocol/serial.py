"""Kafka's primitive types in bytes, in both encodings: the old one and the flexible (compact) one
of KIP-482.

What coordinators need to write and read their records. Integers are big-endian.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from struct import Struct, pack
from typing import TypeVar
from uuid import UUID

from . import varint

T = TypeVar("T")

_I8, _I16, _I32, _I64 = Struct(">b"), Struct(">h"), Struct(">i"), Struct(">q")
i8, i16, i32, i64 = _I8.pack, _I16.pack, _I32.pack, _I64.pack

NO_TAGS = b"\0"
"""The end of a flexible structure that has no tagged fields."""


def string(text: str | None) -> bytes:
    """A nullable string of the old encoding.

    :raises ValueError: when its UTF-8 is longer than 32767 bytes
    """
    if text is None:
        return i16(-1)
    data = text.encode("utf-8", "surrogatepass")
    if len(data) > 0x7FFF:
        raise ValueError(f"a string of {len(data)} bytes does not fit into a coordinator record")
    return i16(len(data)) + data


def blob(data: bytes) -> bytes:
    """Bytes of the old encoding."""
    return i32(len(data)) + data


def array(items: Iterable[bytes]) -> bytes:
    """An array of the old encoding, of items already in bytes."""
    pieces = tuple(items)
    return i32(len(pieces)) + b"".join(pieces)


def compact_string(text: str | None) -> bytes:
    """A nullable string of the flexible encoding."""
    if text is None:
        return b"\0"
    data = text.encode("utf-8", "surrogatepass")
    return varint.encode(len(data) + 1) + data


def compact_array(items: Iterable[bytes]) -> bytes:
    """An array of the flexible encoding, of items already in bytes."""
    pieces = tuple(items)
    return varint.encode(len(pieces) + 1) + b"".join(pieces)


def compact_blob(data: bytes) -> bytes:
    """Bytes of the flexible encoding."""
    return varint.encode(len(data) + 1) + data


def compact_i32s(numbers: Collection[int]) -> bytes:
    """An array of 32-bit integers of the flexible encoding."""
    return varint.encode(len(numbers) + 1) + pack(f">{len(numbers)}i", *numbers)


def tagged(tag: int, data: bytes) -> bytes:
    """The tagged fields of a flexible structure that has exactly this one."""
    return b"\1" + varint.encode(tag) + varint.encode(len(data)) + data


class Reader:
    """Reads one coordinator record's key or value from its start.

    ``flexible`` selects the encoding of strings, bytes, arrays and structures.

    :raises IndexError, struct.error, ValueError: from its methods, when the bytes end too early or
        are no text
    """

    __slots__ = ("_data", "_position", "flexible")

    def __init__(self, data: bytes, *, flexible: bool = False) -> None:
        self._data = data
        self._position = 0
        self.flexible = flexible

    def version(self, highest: int) -> int:
        """The version that a value begins with.

        :raises ValueError: when it is not one of 0 to ``highest``
        """
        version = self.i16()
        if not 0 <= version <= highest:
            raise ValueError(
                f"group coordinator record of version {version}, known are 0 to {highest}"
            )
        return version

    def begin_flexible(self) -> Reader:
        """The reader, at the first field of a value that has only a flexible version 0."""
        self.version(0)
        self.flexible = True
        return self

    def _number(self, layout: Struct) -> int:
        (value,) = layout.unpack_from(self._data, self._position)
        self._position += layout.size
        return int(value)

    def i8(self) -> int:
        return self._number(_I8)

    def i16(self) -> int:
        return self._number(_I16)

    def i32(self) -> int:
        return self._number(_I32)

    def i64(self) -> int:
        return self._number(_I64)

    def varint(self) -> int:
        value, self._position = varint.decode(self._data, self._position)
        return value

    def _take(self, length: int) -> bytes:
        end = self._position + length
        if length < 0 or end > len(self._data):
            raise IndexError(f"{length} bytes wanted at {self._position} of {len(self._data)}")
        data = self._data[self._position : end]
        self._position = end
        return data

    def uuid(self) -> UUID:
        return UUID(bytes=self._take(16))

    def nullable_string(self) -> str | None:
        length = self.varint() - 1 if self.flexible else self.i16()
        return None if length < 0 else self._take(length).decode("utf-8", "surrogatepass")

    def string(self) -> str:
        return self.nullable_string() or ""

    def blob(self) -> bytes:
        return self._take(self.varint() - 1 if self.flexible else self.i32())

    def array(self, item: Callable[[Reader], T]) -> tuple[T, ...]:
        """An array, each item of which ``item`` reads; a null array reads as an empty one."""
        length = self.varint() - 1 if self.flexible else self.i32()
        return tuple(item(self) for _ in range(length))

    def tags(self) -> dict[int, bytes]:
        """The tagged fields at the end of a structure; none in the old encoding."""
        if not self.flexible:
            return {}
        return {self.varint(): self._take(self.varint()) for _ in range(self.varint())}
