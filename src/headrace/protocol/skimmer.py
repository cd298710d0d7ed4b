"""Check the lengths in a request before kio reads it (docs/decisions/0004).

kio's native reader allocates memory for the claimed number of array elements. A few bytes that
claim billions would end the process. The functions generated here walk over a request of one
version without creating objects. They refuse an array with more elements than bytes left or than a
million, more than 10,000 tagged fields, and a string longer than 32,767 bytes, as Kafka's readers
do. They also refuse a null array where the schema has none, which kio reads as None.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterable
from functools import cache
from struct import Struct
from typing import Any, NamedTuple, NoReturn

from .primitives import (
    INT32,
    MAX_STRING_BYTES,
    NullArray,
    check_items,
    read_compact_length,
    read_tag_count,
    read_unsigned_varint,
)
from .writer import FIXED_FORMATS, nested_type

Skim = Callable[[Any, int, int], int]
"""``skim(frame, offset, end)``: the offset after a message that starts at ``offset``.

Raises NullArray for a null that the schema does not allow; ValueError for another invalid array,
varint or string; IndexError or struct.error if the frame ends too early.
"""

_INT16, _INT32 = Struct(">h").unpack_from, INT32.unpack_from


@cache
def skimmer(message_type: Any, *, allow_nulls: bool = False) -> Skim:
    """Return the function that walks over messages of ``message_type``.

    :param allow_nulls: accept null for every array
    """
    return _function(message_type, dataclasses.fields(message_type), allow_nulls, is_last=True)


class Part(NamedTuple):
    """A part of a message: some fields, or an array of messages or strings.

    :ivar skim: walks over the fields, or over one item of the array
    :ivar array: the name of the array; None for fields
    :ivar item_type: the class of its messages; None for strings
    :ivar is_nullable: True if the array may be null
    """

    skim: Skim
    array: str | None = None
    item_type: Any = None
    is_nullable: bool = False


@cache
def parts(message_type: Any, *, allow_nulls: bool = False) -> tuple[Part, ...]:
    """Return the parts of ``message_type``, in order. The last one has the tagged fields."""
    hints = typing.get_type_hints(message_type)
    step = _compact_string if message_type.__flexible__ else _legacy_string
    found: list[Part] = []
    run: list[dataclasses.Field[Any]] = []
    for field in dataclasses.fields(message_type):
        nested, many = nested_type(hints[field.name])
        is_string = field.metadata.get("kafka_type") == "string"
        if "tag" in field.metadata or not many or (nested is None and not is_string):
            run.append(field)
            continue
        found.append(Part(_function(message_type, run, allow_nulls, is_last=False)))
        run = []
        skim = skimmer(nested, allow_nulls=allow_nulls) if nested is not None else _item(step)
        is_nullable = allow_nulls or type(None) in typing.get_args(hints[field.name])
        found.append(Part(skim, field.name, nested, is_nullable))
    found.append(Part(_function(message_type, run, allow_nulls, is_last=True)))
    return tuple(found)


def _item(step: Callable[[Any, int], int]) -> Skim:
    return lambda frame, offset, end: step(frame, offset)


def array_count(message_type: Any, frame: Any, offset: int, end: int) -> tuple[int, int]:
    """Return the number of items of an array, -1 for null, and the offset of the first.

    :raises ValueError: the array claims more items than there are bytes
    """
    count = _compact_count if message_type.__flexible__ else _legacy_count
    return count(frame, offset, end)


def _function(
    message_type: Any, fields: Iterable[dataclasses.Field[Any]], allow_nulls: bool, *, is_last: bool
) -> Skim:
    """Return the function that walks over some fields of ``message_type``.

    :param is_last: walk over the tagged fields, too
    """
    lines: list[str] = []
    names: dict[str, Any] = {
        "string": _compact_string if message_type.__flexible__ else _legacy_string,
        "data": _compact if message_type.__flexible__ else _legacy_data,
        "array": _compact_count if message_type.__flexible__ else _legacy_count,
        "null": null_array,
        "tags": _tags,
    }
    hints = typing.get_type_hints(message_type)
    fixed_bytes = 0
    tagged: dict[int, Skim] = {}
    for field in fields:
        nested, many = nested_type(hints[field.name])
        kind = field.metadata.get("kafka_type", "")
        if "tag" in field.metadata:
            if (walk := _of_tag(nested, many, allow_nulls)) is not None:
                tagged[field.metadata["tag"]] = walk
        elif not many and nested is None and kind in FIXED_FORMATS:
            fixed_bytes += _size(kind)
        else:
            lines += [f"offset += {fixed_bytes}"] if fixed_bytes else []
            fixed_bytes = 0
            nullable = type(None) in typing.get_args(hints[field.name])
            if many:
                lines += ["count, offset = array(frame, offset, end)"]
                if not nullable and not allow_nulls:
                    lines += ["if count < 0:", f"    null({field.name!r})"]
            walker = None if nested is None else skimmer(nested, allow_nulls=allow_nulls)
            lines += _walk(walker, many, kind, nullable, names)
    lines += [f"offset += {fixed_bytes}"] if fixed_bytes else []
    if message_type.__flexible__ and is_last:
        names["known"] = tagged
        lines += [
            "if frame[offset]:",
            "    return tags(frame, offset, end, known)",
            "return offset + 1",
        ]
    else:
        lines.append("return offset")
    source = "def skim(frame, offset, end):\n" + "\n".join(f"    {line}" for line in lines)
    exec(
        compile(
            source, f"<skimmer of {message_type.__name__} v{message_type.__version__}>", "exec"
        ),
        names,
    )
    return typing.cast(Skim, names["skim"])


def _size(kind: str) -> int:
    return Struct(">" + FIXED_FORMATS[kind]).size


def _walk(
    nested: Skim | None, many: bool, kind: str, nullable: bool, names: dict[str, Any]
) -> list[str]:
    """Return the source code that walks over a field that is not a number; of an array, over its
    elements.
    """
    if nested is not None:
        walker = f"_{len(names)}"
        names[walker] = nested
        if many:
            return [
                "for _ in range(count):",
                f"    offset = {walker}(frame, offset, end)",
            ]
        if nullable:
            return [
                "offset += 1",
                "if frame[offset - 1] != 255:",
                f"    offset = {walker}(frame, offset, end)",
            ]
        return [f"offset = {walker}(frame, offset, end)"]
    step = "string" if kind == "string" else "data"
    if not many:
        return [f"offset = {step}(frame, offset)"]
    if kind in FIXED_FORMATS:
        return [f"offset += max(count, 0) * {_size(kind)}"]
    return [
        "for _ in range(count):",
        f"    offset = {step}(frame, offset)",
    ]


def _of_tag(nested: Any, many: bool, allow_nulls: bool) -> Skim | None:
    """Return the function that walks over a tagged field with messages or an array; None for any
    other field, which is skipped by its size.
    """
    walk = None if nested is None else skimmer(nested, allow_nulls=allow_nulls)
    if not many:
        return walk

    def elements(frame: Any, offset: int, end: int) -> int:
        count, offset = _compact_count(frame, offset, end)
        for _ in range(count if walk is not None else 0):
            offset = walk(frame, offset, end)  # type: ignore[misc]
        return offset

    return elements


# Called by generated functions --------------------------------------------------------------------


def _compact(frame: Any, offset: int) -> int:
    length, offset = read_compact_length(frame, offset)
    return offset + length if length > 0 else offset


def _compact_string(frame: Any, offset: int) -> int:
    length, offset = read_compact_length(frame, offset)
    if length > MAX_STRING_BYTES:
        raise ValueError(f"a string of {length} bytes is longer than {MAX_STRING_BYTES}")
    return offset + length if length > 0 else offset


def _legacy_string(frame: Any, offset: int) -> int:
    return offset + 2 + max(int(_INT16(frame, offset)[0]), 0)


def _legacy_data(frame: Any, offset: int) -> int:
    return offset + 4 + max(int(_INT32(frame, offset)[0]), 0)


def _compact_count(frame: Any, offset: int, end: int) -> tuple[int, int]:
    count, offset = read_compact_length(frame, offset)
    return _possible(count, end - offset), offset


def _legacy_count(frame: Any, offset: int, end: int) -> tuple[int, int]:
    count: int = _INT32(frame, offset)[0]
    offset += 4
    return _possible(count, end - offset), offset


def null_array(name: str) -> NoReturn:
    """Refuse a null array that the schema does not allow.

    :raises NullArray: always
    """
    raise NullArray(f"{name} is null")


def _possible(count: int, left_bytes: int) -> int:
    if count > left_bytes:
        raise ValueError(f"an array claims {count} elements, {left_bytes} bytes are left")
    return check_items(count)


def _tags(frame: Any, offset: int, end: int, known: dict[int, Skim]) -> int:
    count, offset = read_tag_count(frame, offset)
    for _ in range(count):
        tag, offset = read_unsigned_varint(frame, offset)
        size, offset = read_unsigned_varint(frame, offset)
        walk = known.get(tag)
        # kio ignores the size of tagged fields that it knows.
        offset = walk(frame, offset, end) if walk is not None else offset + size
    return offset
