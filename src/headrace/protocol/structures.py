"""Types of fields and structures in the flexible encoding (KIP-482). Each names its parts once, and
is written and read by them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

from .primitives import (
    NO_TAGS,
    Reader,
    compact_array,
    compact_blob,
    compact_i32s,
    compact_string,
    i8,
    i16,
    i32,
    i64,
    tagged_fields,
)

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Type(Generic[T]):
    """A type of fields: the functions that write and read a value."""

    write: Callable[[T], bytes]
    read: Callable[[Reader], T]


class Tagged(NamedTuple):
    """A tagged field of a structure.

    :param default: the value without the field
    :param always: whether the default is written, too
    """

    tag: int
    type: Type[Any]
    default: Any = None
    always: bool = False


I8, I16, I32, I64 = (
    Type(i8, Reader.i8),
    Type(i16, Reader.i16),
    Type(i32, Reader.i32),
    Type(i64, Reader.i64),
)
STRING = Type(compact_string, Reader.string)
NULLABLE_STRING = Type(compact_string, Reader.nullable_string)
BLOB = Type(compact_blob, Reader.blob)
ID = Type(attrgetter("bytes"), Reader.uuid)


def array(item: Type[T]) -> Type[Iterable[T]]:
    """Return the type of an array; it is read as a tuple."""
    return Type(
        lambda values: compact_array(map(item.write, values)),
        lambda reader: reader.array(item.read),
    )


I32S: Type[Any] = Type(compact_i32s, array(I32).read)
"""An array of int32. Faster to write than others: most arrays are partitions."""
STRINGS = array(STRING)


def fields(shape: type[T], *types: Type[Any], make: Callable[..., T] | None = None) -> Type[T]:
    """Return the type of a value whose fields stand in the structure around it.

    :param shape: a dataclass, a named tuple or ``tuple``
    :param types: the types of its fields, in order
    :param make: makes the value from what is read, instead of ``shape``
    """
    values_of = _values_of(shape)
    made = make or _maker(shape)
    return Type(
        lambda value: b"".join(
            one.write(part) for one, part in zip(types, values_of(value), strict=True)
        ),
        lambda reader: made(*[one.read(reader) for one in types]),
    )


def structure(
    shape: type[T], *types: Type[Any] | Tagged, make: Callable[..., T] | None = None
) -> Type[T]:
    """Return the type of a structure; see :func:`fields`. Its tagged fields come last."""
    values_of = _values_of(shape)
    made = make or _maker(shape)
    plain = [one for one in types if isinstance(one, Type)]
    tagged = [one for one in types if isinstance(one, Tagged)]

    def write(value: T) -> bytes:
        values = values_of(value)
        pieces = [one.write(part) for one, part in zip(plain, values, strict=False)]
        tags = [
            (one.tag, one.type.write(part))
            for one, part in zip(tagged, values[len(plain) :], strict=True)
            if one.always or part != one.default
        ]
        return b"".join((*pieces, tagged_fields(*tags) if tags else NO_TAGS))

    def read(reader: Reader) -> T:
        values = [one.read(reader) for one in plain]
        tags = reader.tagged_fields()
        values += [
            one.type.read(Reader(tags[one.tag], flexible=True)) if one.tag in tags else one.default
            for one in tagged
        ]
        return made(*values)

    return Type(write, read)


def _values_of(shape: type) -> Callable[[Any], tuple[Any, ...]]:
    if issubclass(shape, tuple):
        return tuple
    names = shape.__match_args__  # type: ignore[attr-defined]
    return attrgetter(*names)


def _maker(shape: type[T]) -> Callable[..., T]:
    return (lambda *values: values) if shape is tuple else shape  # type: ignore[return-value]


def mapping(key: Type[K], value: Type[V]) -> Type[Mapping[K, V]]:
    """Return the type of a mapping: an array of structures, each with a key and its value."""
    item = structure(tuple, key, value)
    items = array(item)
    return Type(lambda values: items.write(values.items()), lambda reader: dict(items.read(reader)))


def optional(present: Type[T], absent: int) -> Type[T | None]:
    """Return the type of a structure that may be missing.

    :param absent: the int8 in place of a missing one
    """
    return Type(
        lambda value: i8(absent) if value is None else i8(1) + present.write(value),
        lambda reader: present.read(reader) if reader.i8() == 1 else None,
    )


def record_value(value: Type[T]) -> Type[T]:
    """Return the type of a coordinator record's value that only has the version 0."""
    return Type(
        lambda one: i16(0) + value.write(one), lambda reader: value.read(reader.begin_flexible())
    )
