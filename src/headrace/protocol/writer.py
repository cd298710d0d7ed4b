"""Write kio's messages with generated functions (docs/decisions/0003).

kio's writer writes field by field and checks each number, which takes a third of the CPU time of a
Produce request. Here one function is generated for each message class. Consecutive numbers become
one ``struct`` call, and record data is not copied.
"""

from __future__ import annotations

import dataclasses
import struct
import typing
from collections.abc import Callable, Generator
from datetime import timedelta
from functools import cache, partial
from operator import attrgetter, ne
from typing import Any

from . import primitives
from .primitives import compact_length, i32, tagged_fields

Write = Callable[[Callable[[Any], object], Any], None]
"""``write(put, message)``: passes the message's bytes to ``put``, piece by piece."""

SlicedWrite = Callable[[Callable[[Any], object], Any], Generator[None]]
"""Do the same as :data:`Write`, but yield after items of arrays of messages."""

ITEMS_PER_STEP = 64
"""The number of items after which a response that is written in slices can be interrupted, if they
have no arrays of messages; others after each.
"""

NO_TIME = timedelta(0)

FIXED_FORMATS = {
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float64": "d",
    "bool": "?",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
    "uuid": "16s",
}
_AS_NUMBER = {
    "timedelta_i32": "ms({})",
    "timedelta_i64": "ms({})",
    "datetime_i64": "epoch_ms({})",
    "uuid": "uuid_bytes({})",
}


def nested_type(hint: Any) -> tuple[Any, bool]:
    """Return the message class in a field's type hint (None for a plain value), and whether the
    field is an array.
    """
    many, queue = False, [hint]
    while queue:
        candidate = queue.pop()
        if isinstance(candidate, type) and dataclasses.is_dataclass(candidate):
            return candidate, many
        many = many or typing.get_origin(candidate) is tuple
        queue.extend(typing.get_args(candidate))
    return None, many


@cache
def writer(message_type: Any) -> Write:
    """Return the function that writes instances of ``message_type``, or objects with its fields."""
    return typing.cast(Write, _Generator(message_type).function())


@cache
def sliced_writer(message_type: Any) -> SlicedWrite:
    """Return the function that writes instances of ``message_type`` in slices.

    An array may be a :class:`~headrace.protocol.large_responses.LazyArray`.
    """
    return typing.cast(SlicedWrite, _Generator(message_type, sliced=True).function())


@cache
def _has_messages(message_type: Any) -> bool:
    """Return True if a message class has an array of messages."""
    hints = typing.get_type_hints(message_type)
    return any(
        nested is not None and many
        for nested, many in (
            nested_type(hints[one.name]) for one in dataclasses.fields(message_type)
        )
    )


class _Generator:
    """The generator of one message class's writer.

    :param sliced: the writer is a generator, see :func:`sliced_writer`
    """

    def __init__(self, message_type: Any, *, sliced: bool = False) -> None:
        self._type = message_type
        self._sliced = sliced
        self._flexible: bool = message_type.__flexible__
        self._lines: list[str] = []
        self._formats: list[str] = []
        self._numbers: list[str] = []
        self._names: dict[str, Any] = {
            "ms": _milliseconds,
            "epoch_ms": _epoch_milliseconds,
            "uuid_bytes": _uuid_bytes,
            "string": primitives.compact_string if self._flexible else primitives.string,
            "length": compact_length if self._flexible else i32,
            "put_data": _put_data,
            "shortened": primitives.shortened,
            "tagged": _tagged,
        }

    def function(self) -> Any:
        hints = typing.get_type_hints(self._type)
        fields = dataclasses.fields(self._type)
        tagged = []
        for field in fields:
            if "tag" in field.metadata:
                tagged.append(field)
            else:
                self._field(field, hints[field.name], f"message.{field.name}")
        if self._flexible and not tagged:
            self._no_tags()
        self._flush()
        if self._flexible and tagged:
            self._tags(sorted(tagged, key=lambda field: int(field.metadata["tag"])), hints)
        if not self._sliced and not tagged:
            self._shorten_without_text(fields, hints)
        if self._sliced:
            self._lines += ["if False:", "    yield"]
        source = "def write(put, message):\n" + "\n".join(
            f"    {line}" for line in self._lines or ["pass"]
        )
        exec(
            compile(source, f"<writer of {self._type.__name__} v{self._type.__version__}>", "exec"),
            self._names,
        )
        return self._names["write"]

    def _shorten_without_text(
        self, fields: tuple[dataclasses.Field[Any], ...], hints: dict[str, Any]
    ) -> None:
        """Write messages of numbers and one text with one ``struct`` call if the text is empty or
        null, as error messages and metadata of offsets usually are.
        """
        formats, numbers, texts = [], [], []
        for field in fields:
            nested, many = nested_type(hints[field.name])
            kind = field.metadata.get("kafka_type", "")
            if many or nested is not None or kind not in {"string", *FIXED_FORMATS}:
                return
            value = f"message.{field.name}"
            if kind == "string":
                texts.append(value)
                empty, null = (1, 0) if self._flexible else (0, -1)
                formats.append("B" if self._flexible else "h")
                numbers.append(f"{null} if text is None else {empty}")
            else:
                formats.append(FIXED_FORMATS[kind])
                numbers.append(_AS_NUMBER.get(kind, "{}").format(value))
        if len(texts) != 1:
            return
        end = "x" if self._flexible else ""
        pack = self._name(struct.Struct(">" + "".join(formats) + end).pack)
        self._lines = [
            f"text = {texts[0]}",
            "if not text:",
            f"    put({pack}({', '.join(numbers)}))",
            "else:",
            *(f"    {line}" for line in self._lines),
        ]

    def _name(self, value: Any) -> str:
        name = f"_{len(self._names)}"
        self._names[name] = value
        return name

    def _flush(self) -> None:
        """Write the collected numbers with one ``struct`` call."""
        if self._formats:
            pack = self._name(struct.Struct(">" + "".join(self._formats)).pack)
            self._lines.append(f"put({pack}({', '.join(self._numbers)}))")
            self._formats, self._numbers = [], []

    def _field(self, field: dataclasses.Field[Any], hint: Any, value: str) -> None:
        nested, many = nested_type(hint)
        kind = field.metadata.get("kafka_type", "")
        if not many and nested is None and kind in FIXED_FORMATS:
            self._formats.append(FIXED_FORMATS[kind])
            self._numbers.append(_AS_NUMBER.get(kind, "{}").format(value))
            return
        self._flush()
        if many:
            self._array(nested, kind, value)
        elif nested is not None:
            self._struct(nested, type(None) in typing.get_args(hint), value)
        elif field.name.endswith("error_message"):
            self._lines.append(_put_text_or_data(kind, f"shortened({value})"))
        else:
            self._lines.append(_put_text_or_data(kind, value))

    def _array(self, nested: Any, kind: str, value: str) -> None:
        self._lines += [
            f"items = {value}",
            "put(length(-1 if items is None else len(items)))",
        ]
        if nested is not None and self._sliced:
            self._sliced_array(nested)
            return
        self._lines.append("for item in items or ():")
        if nested is not None:
            self._lines.append(f"    {self._name(writer(nested))}(put, item)")
        elif kind in FIXED_FORMATS:
            pack = self._name(struct.Struct(">" + FIXED_FORMATS[kind]).pack)
            self._lines.append(f"    put({pack}({_AS_NUMBER.get(kind, '{}').format('item')}))")
        else:
            self._lines.append("    " + _put_text_or_data(kind, "item"))

    def _sliced_array(self, nested: Any) -> None:
        write = self._name(writer(nested))
        if _has_messages(nested):
            self._lines += [
                "for item in items or ():",
                f"    yield from {self._name(sliced_writer(nested))}(put, item)",
                "    yield",
            ]
        else:
            self._lines += [
                "for number, item in enumerate(items or ()):",
                f"    {write}(put, item)",
                f"    if not number % {ITEMS_PER_STEP}:",
                "        yield",
            ]

    def _struct(self, nested: Any, nullable: bool, value: str) -> None:
        write = f"{self._name(writer(nested))}(put, {value})"
        if nullable:  # KIP-893
            self._lines += [
                f"if {value} is None:",
                "    put(b'\\xff')",
                "else:",
                "    put(b'\\x01')",
                f"    {write}",
            ]
        else:
            self._lines.append(write)

    def _no_tags(self) -> None:
        if self._formats:
            self._formats.append("x")
        else:
            self._lines.append("put(b'\\x00')")

    def _tags(self, fields: list[dataclasses.Field[Any]], hints: dict[str, Any]) -> None:
        """Write the tagged fields that differ from their default; usually none."""
        self._lines.append("tags = []")
        for field in fields:
            default = field.default if field.default is not dataclasses.MISSING else ()
            value = f"message.{field.name}"
            inner = _Generator(self._type)
            inner._field(field, hints[field.name], value)
            inner._flush()
            source = "def write(put, message):\n" + "\n".join(
                f"    {line}" for line in inner._lines
            )
            exec(compile(source, f"<writer of tag {field.name}>", "exec"), inner._names)
            write = self._name(inner._names["write"])
            self._lines += [
                f"if {self._name(_differs_from(default))}({value}):",
                f"    tags.append(({field.metadata['tag']}, {write}))",
            ]
        self._lines.append("tagged(put, message, tags)")


def _put_text_or_data(kind: str, value: str) -> str:
    return f"put(string({value}))" if kind == "string" else f"put_data(put, length, {value})"


# Called by generated functions --------------------------------------------------------------------


def _milliseconds(value: timedelta) -> int:
    return 0 if value is NO_TIME else round(value.total_seconds() * 1000)


def _epoch_milliseconds(value: Any) -> int:
    return -1 if value is None else round(value.timestamp() * 1000)


def _uuid_bytes(value: Any) -> bytes:
    return bytes(16) if value is None else value.bytes


def _put_data(put: Callable[[Any], object], length: Callable[[int], bytes], value: Any) -> None:
    """Write bytes without copying them."""
    if value is None:
        put(length(-1))
    else:
        put(length(len(value)))
        put(value)


def _tagged(put: Callable[[Any], object], message: Any, tags: list[tuple[int, Write]]) -> None:
    fields = []
    for tag, write in tags:
        pieces: list[bytes] = []
        write(pieces.append, message)
        fields.append((tag, b"".join(pieces)))
    put(tagged_fields(*fields))


def _differs_from(default: Any) -> Callable[[Any], bool]:
    """Return a function that tests whether a value differs from the default.

    The value may have a later version's class.
    """
    if not dataclasses.is_dataclass(default):
        return partial(ne, default)
    fields = attrgetter(*(field.name for field in dataclasses.fields(default)))
    expected = fields(default)
    return lambda value: value is None or fields(value) != expected
