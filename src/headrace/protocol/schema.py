"""Messages of Kafka's protocol, compiled from a table of facts.

``schemas.txt`` states the fields of every message and coordinator record with their versions, as
Apache Kafka's own definitions do (``scripts/schemas.py`` reads them out of its jars), and
``own_fields.txt`` the tagged fields that headrace adds to some. A message is
one slotted class for all its versions, with defaults. Its classes are made when they are first
named, and the functions that read or write a version when it is first used: consecutive numbers are
one ``struct`` call, record data is neither read nor copied.

Readers take what a peer has sent. They refuse an array with more items than bytes left or than a
million, more than 10,000 tagged fields, strings of more than 32,767 bytes, and null where the
schema has none, before they allocate anything for it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Collection, Generator, Iterable, Sequence, Sized
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn, Self
from uuid import UUID

from .primitives import (
    INT16,
    INT32,
    MAX_ARRAY_ITEMS,
    MAX_STRING_BYTES,
    NullArray,
    compact_length,
    i16,
    i32,
    read_compact_length,
    read_tag_count,
    read_unsigned_varint,
    shortened,
    skip_tagged_fields,
    topic_id_from,
    unsigned_varint,
)

if TYPE_CHECKING:
    from .errors import Refusal

Put = Callable[[Any], object]
Read = Callable[[Any, int, int], tuple[Any, int]]
"""``read(data, offset, end)``: returns a message and the offset after it. Raises NullArray for a
null that the schema does not allow; ValueError, IndexError or struct.error for other bytes that are
no message.
"""
Write = Callable[[Put, Any], None]
"""``write(put, message)``: passes the bytes of a message to ``put``, piece by piece."""

ITEMS_PER_STEP = 64
"""The items of an array that are read or written between two pauses."""


class TextTooLong(ValueError):
    """A string of a request is longer than the protocol allows.

    :ivar text: the string
    """

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(f"a string is longer than {MAX_STRING_BYTES} bytes")


_FIXED = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
_ZEROS = {
    "bool": "False",
    "float64": "0.0",
    "uuid": "None",
    "string": "''",
    "bytes": "b''",
    "records": "b''",
}
_MESSAGES = ("error_message", "status_detail")
"""Ends of the names of texts for people. They may quote a string of a client, and are cut off where
they are longer than a string may be.
"""
_LAST_VERSION = 0x7FFF


class Versions(NamedTuple):
    """A range of versions; empty if the last is before the first."""

    first: int
    last: int

    @classmethod
    def of(cls, text: str) -> Versions:
        if text == "none":
            return cls(0, -1)
        first, _, last = text.removesuffix("+").partition("-")
        return cls(int(first), _LAST_VERSION if text.endswith("+") else int(last or first))

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last


@dataclass(slots=True)
class Field:
    """A field of a structure.

    :ivar type: of its value, or of the items of an array
    :ivar default: the source code of its default
    """

    name: str
    type: str
    is_array: bool
    versions: Versions
    nullable: Versions
    tag: int
    tagged: Versions
    default: str

    @property
    def is_number(self) -> bool:
        """True if it is of a fixed size: consecutive ones are read and written at once."""
        return self.type in _FIXED and not self.is_array


@dataclass(slots=True)
class Structure:
    """A structure of a message: its fields, and the class that is made of them."""

    name: str
    fields: list[Field] = field(default_factory=list)
    type: Any = None


class Schema:
    """A message: its structures, and its readers and writers by version.

    :ivar key: its API key, or the type of a coordinator record; -1 for other data
    :ivar scope: the classes of the structures by name, and as ``NO_NAME`` the instances for fields
        that are left out
    """

    def __init__(self, block: str) -> None:
        head, *lines = block.splitlines()
        self.kind, key, self.name, versions, flexible = head.split()
        self.key = -1 if key == "-" else int(key)
        self.versions, self.flexible = Versions.of(versions), Versions.of(flexible)
        self.structures: dict[str, Structure] = {}
        self._parse(lines)
        self.scope: dict[str, Any] = {}
        for structure in self.structures.values():
            self.scope[structure.name] = structure.type = self._class(structure)
        for name, structure in self.structures.items():
            self._make_absent(structure)
            if name != self.name:
                setattr(self.message_type, name, structure.type)

    @property
    def message_type(self) -> Any:
        """The class of the message."""
        return self.structures[self.name].type

    def _parse(self, lines: list[str]) -> None:
        path = [self.structures.setdefault(self.name, Structure(self.name))]
        for line in lines:
            depth = len(line) - len(line := line.lstrip())
            del path[depth:]
            words = line.split(" ")
            if words[0] == "struct":
                path.append(self.structures.setdefault(words[1], Structure(words[1])))
                continue
            item = _field(words)
            path[-1].fields.append(item)
            if item.type not in _FIXED and item.type not in {"string", "bytes", "records"}:
                path.append(self.structures.setdefault(item.type, Structure(item.type)))

    def _make_absent(self, structure: Structure) -> None:
        """Make the instance for a field that is left out, after those of its own fields."""
        name = f"NO_{structure.name}"
        if name not in self.scope:
            for item in structure.fields:
                if item.default == f"NO_{item.type}":
                    self._make_absent(self.structures[item.type])
            self.scope[name] = structure.type()

    def _class(self, structure: Structure) -> Any:
        names = tuple(item.name for item in structure.fields)
        parameters, lines = ["self"], []
        for item in structure.fields:
            default = item.default
            if default == f"NO_{item.type}":
                lines += [f"if {item.name} is None:", f"    {item.name} = {default}"]
                default = "None"
            parameters.append(f"{item.name}={default}")
        lines += [f"self.{name} = {name}" for name in names]
        body = _compile("__init__", parameters, lines, f"{structure.name}()", self.scope)
        members = {"__slots__": names, "FIELDS": names, "__init__": body, "__module__": __name__}
        if structure.name == self.name:
            members["SCHEMA"] = self
        return type(structure.name, (Message,), members)

    def filled(self, values: Iterable[Any], name: str = "") -> Any:
        """Return the message with these values of its fields, in order, as
        :meth:`Message.as_tuple` returns them. The last ones may be left out.

        :param name: of one of its structures, to return this instead
        """
        structure = self.structures[name or self.name]
        message = structure.type(*values)
        for item in structure.fields:
            value = getattr(message, item.name)
            if item.type not in self.structures or value is None:
                continue
            if item.is_array:
                filled: Any = tuple(self.filled(part, item.type) for part in value)
            else:
                filled = self.filled(value, item.type)
            setattr(message, item.name, filled)
        return message

    def is_flexible(self, version: int) -> bool:
        """Return whether a version has the encoding of KIP-482."""
        return version in self.flexible

    def reader(self, version: int, *, allow_nulls: bool = False) -> Read:
        """Return the function that reads a version.

        :param allow_nulls: accept null for everything
        """
        return _function(self, _Reader, version, allow_nulls=allow_nulls)

    def sliced_reader(self, version: int) -> Any:
        """Return the function that reads a version as a generator: it yields between items."""
        return _function(self, _Reader, version, sliced=True)

    def writer(self, version: int) -> Write:
        """Return the function that writes a version. Fields that it lacks are left out."""
        return _function(self, _Writer, version)

    def sliced_writer(self, version: int) -> Callable[[Put, Any], Generator[None]]:
        """Return the function that writes a version as a generator: it yields between items."""
        return _function(self, _Writer, version, sliced=True)

    def encode(self, version: int, items: Sequence[Any]) -> Encoded:
        """Return the items of an array as bytes: for an array that many messages share."""
        pieces: list[Any] = []
        if items:
            write = _function(self, _Writer, version, type(items[0]).__name__)
            for item in items:
                write(pieces.append, item)
        return Encoded(len(items), b"".join(pieces))


@cache
def _function(
    schema: Schema, kind: type[_Generator], version: int, structure: str = "", **options: bool
) -> Any:
    if version not in schema.versions:
        raise KeyError(f"{schema.name} has no version {version}")
    return kind(schema, version, **options).function(schema.structures[structure or schema.name])


class Message:
    """A message or a structure of one: its fields are its attributes. A structure that is left out
    has its defaults, and is the same for all: set another, do not change it.

    :cvar FIELDS: the names of its fields
    :cvar SCHEMA: of a message; structures have none
    """

    __slots__ = ()
    FIELDS: ClassVar[tuple[str, ...]]
    SCHEMA: ClassVar[Schema]

    @classmethod
    def read(cls, version: int, data: bytes | memoryview, offset: int = 0) -> Self:
        """Return the message in ``data`` from ``offset``.

        :raises ValueError, IndexError, struct.error: there is none
        """
        message: Self
        message, _ = cls.SCHEMA.reader(version)(data, offset, len(data))
        return message

    def encoded(self, version: int) -> bytes:
        """Return the bytes of the message."""
        pieces: list[Any] = []
        self.SCHEMA.writer(version)(pieces.append, self)
        return b"".join(pieces)

    def field_values(self) -> tuple[Any, ...]:
        """Return the values of its fields, in their order."""
        return tuple(getattr(self, name) for name in self.FIELDS)

    def refused(self, refusal: Refusal | None) -> Self:
        """Set the error code and the error message, and return the structure, which has both.

        :param refusal: None for success
        """
        structure: Any = self
        structure.error_code, structure.error_message = 0, None
        if refusal is not None:
            structure.error_code, structure.error_message = refusal.code, refusal.message
        return self

    def as_tuple(self) -> tuple[Any, ...]:
        """Return the values of its fields, in order; structures and arrays are tuples, too."""
        return tuple(map(_plain, self.field_values()))

    def summary(self) -> str:
        """Return the kind and the sizes of its fields: never its contents."""
        sizes = (
            f"{name}: {len(value)}"
            for name, value in zip(self.FIELDS, self.field_values(), strict=True)
            if isinstance(value, Sized) and not isinstance(value, str)
        )
        return f"{type(self).__name__}({', '.join(sizes)})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.field_values() == other.field_values()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.FIELDS)
        return f"{type(self).__name__}({values})"


def _plain(value: Any) -> Any:
    if isinstance(value, Message):
        return value.as_tuple()
    if isinstance(value, list | tuple):
        has_structures = value and isinstance(value[0], Message)
        return tuple(map(_plain, value)) if has_structures else tuple(value)
    return value


@dataclass(slots=True, repr=False, eq=False)
class Encoded(Collection[Any]):
    """An array of a response whose items are written already.

    :ivar data: their bytes, in the version of the response
    """

    _count: int
    data: bytes

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> NoReturn:
        raise TypeError("the items are bytes")

    def __contains__(self, item: object) -> NoReturn:
        raise TypeError("the items are bytes")


def _field(words: list[str]) -> Field:
    name, kind, versions, *more = words
    facts = {"null": "none", "tag": "-1 none"}
    while more:
        size = 3 if more[0] == "tag" else 2
        facts[more[0]], more = " ".join(more[1:size]), more[size:]
    tag, tagged = facts["tag"].split()
    base = kind.removeprefix("[]")
    return Field(
        name=snake_case(name),
        type=base,
        is_array=kind != base,
        versions=Versions.of(versions),
        nullable=Versions.of(facts["null"]),
        tag=int(tag),
        tagged=Versions.of(tagged),
        default=_default(base, kind != base, facts.get("="), facts["null"]),
    )


def _default(base: str, is_array: bool, text: str | None, nullable: str) -> str:
    if text == "null" or (text is None and base == "records" and nullable.endswith("+")):
        return "None"
    if is_array:
        return "()"
    if text:
        return repr(text) if base == "string" else text.capitalize() if base == "bool" else text
    if base in _FIXED:
        return _ZEROS.get(base, "0")
    return _ZEROS.get(base, f"NO_{base}")


def snake_case(name: str) -> str:
    """Return the name of a field as attributes are named: ``throttle_time_ms``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _compile(
    name: str, parameters: list[str], lines: list[str], title: str, scope: dict[str, Any]
) -> Any:
    source = "\n".join([f"def {name}({', '.join(parameters)}):", *_indented(lines or ["pass"])])
    made: dict[str, Any] = {}
    exec(compile(source, f"<{title}>", "exec"), scope, made)
    return made[name]


def _indented(lines: Iterable[str], levels: int = 1) -> list[str]:
    return [f"{'    ' * levels}{line}" for line in lines]


# Called by generated functions --------------------------------------------------------------------

_NO_ID = bytes(16)


def _identity(data: bytes) -> UUID | None:
    return None if data == _NO_ID else topic_id_from(data)


def _uuid_bytes(value: UUID | None) -> bytes:
    return _NO_ID if value is None else value.bytes


def _refuse_null(name: str) -> None:
    raise NullArray(f"{name} is null")


def _refuse(name: str, size: int, left: int) -> None:
    raise ValueError(f"{name} claims {size}, {left} bytes are left")


# The generators ----------------------------------------------------------------------------------


class _Generator:
    """What generates the reader or the writer of a version: one function for each structure. Its
    methods return lines of the function.
    """

    VERB: ClassVar[str]
    PARAMETERS: ClassVar[list[str]]
    HELPERS: ClassVar[dict[str, Any]]

    def __init__(
        self, schema: Schema, version: int, *, sliced: bool = False, allow_nulls: bool = False
    ) -> None:
        self._schema, self._version = schema, version
        self._is_flexible = schema.is_flexible(version)
        self._is_sliced = sliced
        self._allows_nulls = allow_nulls
        # Reading texts out of bytes takes half the time of reading them out of a view. Records are
        # not copied, nor what is so large that it is read in slices.
        self._has_bytes = not sliced and all(
            item.type != "records"
            for structure in schema.structures.values()
            for item in structure.fields
        )
        self._scope = schema.scope | self.HELPERS

    def function(self, structure: Structure) -> Any:
        """Return the function of a structure."""
        return self._scope[self._function_of(structure, "sliced" if self._is_sliced else "")]

    def _function_of(self, structure: Structure, shape: str = "") -> str:
        """Make the function of a structure, if it is not made; return its name.

        :param shape: ``sliced`` for a generator, ``list`` for the reader of many structures
        """
        name = f"{self.VERB}_{shape}_{structure.name}"
        if name not in self._scope:
            outer_is_sliced, self._is_sliced = self._is_sliced, shape == "sliced"
            parameters, lines = self._body(structure, shape)
            if self._is_sliced:
                lines.append("if False: yield")
            title = f"{name} v{self._version}"
            self._scope[name] = _compile(name, parameters, lines, title, self._scope)
            self._is_sliced = outer_is_sliced
        return name

    def _body(self, structure: Structure, shape: str) -> tuple[list[str], list[str]]:
        """Return the parameters of the function of a structure, and its lines."""
        raise NotImplementedError

    def _plain_fields(self, structure: Structure) -> tuple[list[str], list[Field]]:
        """Return the lines for the fields of this version that are not tagged, except for the
        numbers at the end, and these.
        """
        lines: list[str] = []
        numbers: list[Field] = []
        for item in structure.fields:
            if self._version not in item.versions or self._is_tagged(item):
                continue
            if item.is_number:
                numbers.append(item)
            else:
                lines += [*self._numbers(numbers), *self._value(item, f"message.{item.name}")]
                numbers = []
        return lines, numbers

    def _numbers(self, fields: list[Field]) -> list[str]:
        raise NotImplementedError

    def _value(self, item: Field, name: str) -> list[str]:
        raise NotImplementedError

    def _tagged_fields(self, structure: Structure) -> list[Field]:
        return sorted(filter(self._is_tagged, structure.fields), key=lambda item: item.tag)

    def _is_tagged(self, item: Field) -> bool:
        return self._version in item.tagged and self._version in item.versions

    def _is_nullable(self, item: Field) -> bool:
        return self._allows_nulls or self._version in item.nullable

    def _packer(self, fields: list[Field], more: str = "") -> tuple[str, int]:
        """Return a name for the ``struct`` of fields, and its size."""
        layout = struct.Struct(">" + "".join(_FIXED[item.type] for item in fields) + more)
        name = f"layout_{layout.format[1:].replace('?', 't')}"
        self._scope[name] = layout.pack if self.VERB == "write" else layout.unpack_from
        return name, layout.size

    def _item(self, nested: Structure, arguments: str) -> str:
        """Return the call of the function for an item of an array: items that have arrays of
        structures themselves are long enough to pause within each.
        """
        is_long = self._is_sliced and any(
            item.is_array and item.type in self._schema.structures for item in nested.fields
        )
        function = self._function_of(nested, "sliced" if is_long else "")
        return f"{'yield from ' * is_long}{function}({arguments})"

    def _loop(self, head: str, lines: list[str]) -> list[str]:
        """Return a loop over the items of an array. ``number`` is that of an item."""
        if self._is_sliced:
            lines.append(f"if not number % {ITEMS_PER_STEP}: yield")
        return [head, *_indented(lines)]


class _Reader(_Generator):
    VERB = "read"
    PARAMETERS: ClassVar = ["data", "offset", "end"]

    HELPERS: ClassVar = {
        "new": object.__new__,
        "compact_length": read_compact_length,
        "int16": INT16.unpack_from,
        "int32": INT32.unpack_from,
        "tag_count": read_tag_count,
        "skip_tags": skip_tagged_fields,
        "varint": read_unsigned_varint,
        "identity": _identity,
        "numbers": struct.unpack_from,
        "null": _refuse_null,
        "refuse": _refuse,
    }

    def _body(self, structure: Structure, shape: str) -> tuple[list[str], list[str]]:
        absent = [item for item in structure.fields if self._version not in item.versions]
        tagged = self._tagged_fields(structure)
        copies = self._has_bytes and structure.name == self._schema.name
        lines = ["data = bytes(data)"] if copies else []
        # its constructor takes twice as long
        lines.append(f"message = new({structure.name})")
        lines += [f"message.{item.name} = {item.default}" for item in [*absent, *tagged]]
        plain, numbers = self._plain_fields(structure)
        end = self._tags(numbers, tagged) if self._is_flexible else self._numbers(numbers)
        lines += [*plain, *end]
        if shape != "list":
            return self.PARAMETERS, [*lines, "return message, offset"]
        return [*self.PARAMETERS, "items"], [
            "messages = []",
            "add_message = messages.append",
            "for _ in range(items):",
            *_indented([*lines, "add_message(message)"]),
            "return messages, offset",
        ]

    def _numbers(self, fields: list[Field], more: str = "", *names: str) -> list[str]:
        """Read numbers, and more after them.

        :param more: of a ``struct``
        :param names: of the variables for the additional values
        """
        if not (fields or more):
            return []
        layout, size = self._packer(fields, more)
        targets = ", ".join([*(f"message.{item.name}" for item in fields), *names])
        return [
            f"{targets}, = {layout}(data, offset)",
            f"offset += {size}",
            *(
                f"message.{item.name} = identity(message.{item.name})"
                for item in fields
                if item.type == "uuid"
            ),
        ]

    def _tags(self, numbers: list[Field], tagged: list[Field]) -> list[str]:
        """Read the tagged fields, and the numbers before them."""
        lines = ["count = data[offset]", "offset += 1"]
        if numbers:
            lines = self._numbers(numbers, "B", "count")
        if not tagged:
            return [*lines, "if count: offset = skip_tags(data, offset - 1)"]
        lines += [
            "if count:",
            "    if count > 127: count, offset = tag_count(data, offset - 1)",
            "    for _ in range(count):",
            "        tag, size = data[offset], data[offset + 1]",
            "        if tag < 128 and size < 128: offset += 2",
            "        else:",
            "            tag, offset = varint(data, offset)",
            "            size, offset = varint(data, offset)",
            "        if size > end - offset: refuse('a tagged field', size, end - offset)",
            "        after = offset + size",
        ]
        for item in tagged:
            lines.append(f"        if tag == {item.tag}:")
            lines += _indented(self._value(item, f"message.{item.name}"), 3)
        return [*lines, "        offset = after"]

    def _value(self, item: Field, name: str) -> list[str]:
        if item.is_array:
            return self._array(item, name)
        if item.is_number:  # of a tag
            return self._numbers([item])
        if item.type not in self._schema.structures:
            return self._text_or_data(item, name)
        function = self._function_of(self._schema.structures[item.type])
        call = f"{name}, offset = {function}(data, offset, end)"
        if self._version not in item.nullable:
            return [call]
        return [
            "offset += 1",
            f"if data[offset - 1] {'== 0' if self._is_tagged(item) else '> 127'}:",
            f"    {name} = None",
            "else:",
            f"    {call}",
        ]

    def _text_or_data(self, item: Field, name: str) -> list[str]:
        is_text = item.type == "string"
        is_nullable = self._is_nullable(item) and not item.is_array  # items are never null
        null = "None" if is_nullable else f"refuse({item.name!r}, size, end - offset)"
        value = self._text("offset", "offset + size") if is_text else "data[offset:offset + size]"
        if item.type == "bytes":
            value = f"bytes({value})"
        most = f" or size > {MAX_STRING_BYTES}" if is_text and self._is_flexible else ""
        lines = [
            *self._length(16 if is_text else 32),
            f"if size > end - offset{most}: refuse({item.name!r}, size, end - offset)",
            f"if size < 0: {name} = {null}",
            "else:",
            f"    {name} = {value}",
            "    offset += size",
        ]
        if not is_text or not self._is_flexible:
            return lines
        return [  # most are short: the byte before them counts itself and their bytes
            "size = data[offset]",
            "if 0 < size < 128 and offset + size <= end:",
            f"    {name} = {self._text('offset + 1', 'offset + size')}",
            "    offset += size",
            "else:",
            *_indented(lines),
        ]

    def _text(self, start: str, end: str) -> str:
        # A log may have what a client was once allowed to send.
        errors = ", 'surrogatepass'" if self._schema.kind.startswith("coordinator") else ""
        if self._has_bytes and not errors:
            return f"data[{start}:{end}].decode()"
        return f"str(data[{start}:{end}], 'utf-8'{errors})"

    def _length(self, bits: int) -> list[str]:
        """Return the lines that read a length; most flexible ones are one byte.

        :param bits: of a length that is not flexible
        """
        if not self._is_flexible:
            return [f"size, = int{bits}(data, offset)", f"offset += {bits // 8}"]
        return [
            "size = data[offset] - 1",
            "if size < 127: offset += 1",
            "else: size, offset = compact_length(data, offset)",
        ]

    def _array(self, item: Field, name: str) -> list[str]:
        null = "None" if self._is_nullable(item) else f"null({item.name!r})"
        lines = [
            *self._length(32),
            f"if size > end - offset or size > {MAX_ARRAY_ITEMS}:",
            f"    refuse({item.name!r}, size, end - offset)",
            f"if size < 0: {name} = {null}",
            "else:",
        ]
        nested = self._schema.structures.get(item.type)
        if item.type in _FIXED:
            code = _FIXED[item.type]
            values = f"numbers(f'>{{size}}{code}', data, offset)"
            if item.type == "uuid":
                values = "tuple(map(identity, numbers('>' + '16s' * size, data, offset)))"
            items = [f"{name} = {values}", f"offset += size * {struct.calcsize(code)}"]
            return [*lines, *_indented(items)]
        if nested is not None and not self._is_sliced:
            function = self._function_of(nested, "list")
            items = [f"{name}, offset = {function}(data, offset, end, size)"]
        else:
            value = (
                self._text_or_data(item, "value")
                if nested is None
                else [f"value, offset = {self._item(nested, 'data, offset, end')}"]
            )
            loop = self._loop("for number in range(size):", [*value, "add(value)"])
            items = [f"{name} = []", f"add = {name}.append", *loop]
        if self._schema.kind == "coordinator-value":  # equal to what a machine has decided
            items.append(f"{name} = tuple({name})")
        return [*lines, *_indented(items)]


class _Writer(_Generator):
    VERB = "write"
    PARAMETERS: ClassVar = ["put", "message"]

    HELPERS: ClassVar = {
        "compact_length": compact_length,
        "i16": i16,
        "i32": i32,
        "shortened": shortened,
        "uuid_bytes": _uuid_bytes,
        "varint": unsigned_varint,
        "null": _refuse_null,
        "pack": struct.pack,
        "TextTooLong": TextTooLong,
        "Encoded": Encoded,
    }

    def _body(self, structure: Structure, shape: str) -> tuple[list[str], list[str]]:
        lines, numbers = self._plain_fields(structure)
        tagged = self._tagged_fields(structure)
        if tagged or not self._is_flexible:
            lines += self._numbers(numbers)
        elif numbers:
            lines += self._numbers(numbers, "x")  # no tagged fields
        else:
            lines.append("put(b'\\0')")
        return self.PARAMETERS, [*lines, *(self._tags(tagged) if tagged else ())]

    def _numbers(self, fields: list[Field], more: str = "") -> list[str]:
        if not fields:
            return []
        layout, _ = self._packer(fields, more)
        values = (
            f"uuid_bytes(message.{item.name})" if item.type == "uuid" else f"message.{item.name}"
            for item in fields
        )
        return [f"put({layout}({', '.join(values)}))"]

    def _tags(self, tagged: list[Field]) -> list[str]:
        lines = ["tags = []"]
        for item in tagged:
            lines += [
                f"value = message.{item.name}",
                f"if {self._differs(item)}:",
                "    pieces = []",
                "    put_aside, put = put, pieces.append",
                *_indented(self._value(item, "value")),
                "    put = put_aside",
                "    data = b''.join(pieces)",
                f"    tags.append({unsigned_varint(item.tag)!r} + varint(len(data)) + data)",
            ]
        return [*lines, "put(varint(len(tags)) + b''.join(tags))"]

    def _differs(self, item: Field) -> str:
        is_structure = item.type in self._schema.structures and not item.is_array
        if item.default == "None":
            return "True" if is_structure else "value is not None"  # Kafka writes a null structure
        if is_structure:
            return f"value is not {item.default} and value != {item.default}"
        return "value is None or len(value)" if item.is_array else f"value != {item.default}"

    def _value(self, item: Field, name: str) -> list[str]:
        if item.is_array:
            return self._array(item, name)
        if item.is_number:  # of a tag
            return self._numbers([item])
        if item.type not in self._schema.structures:
            return self._text_or_data(item, name)
        call = f"{self._function_of(self._schema.structures[item.type])}(put, {name})"
        if not self._is_nullable(item):
            return [call]
        null = r"b'\0'" if self._is_tagged(item) else r"b'\xff'"
        return [f"if {name} is None: put({null})", "else:", "    put(b'\\1')", f"    {call}"]

    def _text_or_data(self, item: Field, name: str) -> list[str]:
        is_text = item.type == "string"
        length = self._length(16 if is_text else 32)
        is_nullable = self._is_nullable(item) and not item.is_array  # items are never null
        null = f"put({length}(-1))" if is_nullable else f"null({item.name!r})"
        if is_text:
            text = f"shortened({name})" if item.name.endswith(_MESSAGES) else name
            put = [f"text = {text}.encode('utf-8', 'surrogatepass')"]
            if self._schema.kind == "request":
                put.append(f"if len(text) > {MAX_STRING_BYTES}: raise TextTooLong({name})")
            put.append(f"put({length}(len(text)) + text)")
        else:
            put = [f"put({length}(len({name})))", f"put({name})"]
        return [f"if {name} is None: {null}", "else:", *_indented(put)]

    def _length(self, bits: int) -> str:
        """Return a name for the function that encodes a length.

        :param bits: of a length that is not flexible
        """
        return "compact_length" if self._is_flexible else f"i{bits}"

    def _array(self, item: Field, name: str) -> list[str]:
        nested = self._schema.structures.get(item.type)
        length = self._length(32)
        null = f"put({length}(-1))" if self._is_nullable(item) else f"null({item.name!r})"
        lines = [f"put({length}(len(items)))"]
        if item.type in _FIXED and item.type != "uuid":
            lines.append(f"put(pack(f'>{{len(items)}}{_FIXED[item.type]}', *items))")
        else:
            if nested is not None and self._schema.kind == "response":
                lines += [
                    "if items.__class__ is Encoded:",
                    "    put(items.data)",
                    "    items = ()",
                ]
            if nested is not None:
                value = [self._item(nested, "put, item")]
            elif item.type == "uuid":
                value = ["put(uuid_bytes(item))"]
            else:
                value = self._text_or_data(item, "item")
            head = "number, item in enumerate(items)" if self._is_sliced else "item in items"
            lines += self._loop(f"for {head}:", value)
        return [f"items = {name}", f"if items is None: {null}", "else:", *_indented(lines)]


# The table ----------------------------------------------------------------------------------------


@cache
def _blocks() -> dict[str, str]:
    """Return the table: a block of lines for each message, by name."""
    here = Path(__file__)
    text = here.with_name("schemas.txt").read_text()
    blocks = {block.split(" ", 3)[2]: block for block in text.rstrip().split("\n\n")}
    for addition in here.with_name("own_fields.txt").read_text().rstrip().split("\n\n"):
        name, _, fields = addition.partition("\n")
        blocks[name] += f"\n{fields}"
    return blocks


@cache
def _names_by_key() -> dict[tuple[str, int], str]:
    heads = (block.split(" ", 3) for block in _blocks().values())
    return {(kind, int(key)): name for kind, key, name, _ in heads if key != "-"}


@cache
def schema(name: str) -> Schema:
    """Return a message by its name in Kafka, such as ``ShareFetchRequest``.

    :raises KeyError: there is none
    """
    return Schema(_blocks()[name])


def schema_of(kind: str, key: int) -> Schema:
    """Return a message by its kind and its key.

    :param kind: ``request`` or ``response``
    :raises KeyError: there is none
    """
    return schema(_names_by_key()[kind, key])


@cache
def versions_of(kind: str, key: int) -> Versions:
    """Return the versions of a message, whose parameters are those of :func:`schema_of`."""
    _, _, _, versions, _ = _blocks()[_names_by_key()[kind, key]].partition("\n")[0].split(" ")
    return Versions.of(versions)


def message_type(name: str, *kinds: str) -> Any:
    """Return the class of a message, for a module whose attributes are those of some kinds.

    :raises AttributeError: there is none
    """
    if not _blocks().get(name, "").startswith(kinds):
        raise AttributeError(name)
    return schema(name).message_type


def type_of_record(name: str) -> int:
    """Return the type of a coordinator record by its name in Kafka, such as ``GroupMetadata``."""
    _, record_type, _ = _blocks()[f"{name}Key"].split(" ", 2)
    return int(record_type)


def names() -> list[str]:
    """Return the names of all messages."""
    return list(_blocks())
