"""Requests as frames, made of plain fields, and the responses in frames.

The topic names in a response are checked before anybody sees them: a client makes paths, queries
and lines of its output of these names.
"""

from __future__ import annotations

import dataclasses
import struct
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from typing import Any

from kio.schema.types import TopicName
from kio.serial import entity_reader

from headrace.log_lines import printable
from headrace.protocol.message_types import request_type, response_type
from headrace.protocol.primitives import MAX_STRING_BYTES
from headrace.protocol.skimmer import skimmer
from headrace.protocol.writer import nested_type, writer
from headrace.topic_names import why_illegal

from .errors import StringTooLong

SIZE = struct.Struct(">i")
_HEADER = struct.Struct(">ihhih")
"""Size of the frame, API key, version, correlation id, length of the client id."""
_MAX_SHOWN_CHARS = 40
"""The length of the beginning of a string that an error text quotes."""


def request_of(api_key: int, version: int, fields: Mapping[str, Any]) -> Any:
    """Return a request: one of kio's messages.

    :param fields: see :func:`message`
    :raises StringTooLong: see :func:`message`
    """
    return message(request_type(api_key, version), fields)


def message(kind: Any, fields: Mapping[str, Any]) -> Any:
    """Return a message of one of kio's classes.

    :param fields: name → value, with mappings for nested messages and iterables for arrays
    :raises StringTooLong: a name or value does not fit into it
    """
    converters = _converters(kind)
    if not converters:
        return kind(**fields)
    values = dict(fields)
    for name, convert in converters.items():
        if values.get(name) is not None:
            values[name] = convert(values[name])
    return kind(**values)


@cache
def _converters(kind: Any) -> dict[str, Callable[[Any], Any]]:
    """Return field → what makes its value, of the fields with strings, arrays and messages."""
    hints = typing.get_type_hints(kind)
    converters: dict[str, Callable[[Any], Any]] = {}
    for field in dataclasses.fields(kind):
        nested, is_array = nested_type(hints[field.name])
        make: Callable[[Any], Any] | None = None
        if nested is not None:
            make = partial(message, nested)
        elif field.metadata.get("kafka_type") == "string":
            make = _text
        if is_array:
            converters[field.name] = tuple if make is None else partial(_tuple, make)
        elif make is not None:
            converters[field.name] = make
    return converters


def _tuple(make: Callable[[Any], Any], items: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(map(make, items))


def _text(text: str) -> str:
    """Return a name or value if the protocol can carry it: a writer would not refuse it."""
    if len(text.encode()) > MAX_STRING_BYTES:
        raise StringTooLong(
            f"'{printable(text, _MAX_SHOWN_CHARS)}' is longer than {MAX_STRING_BYTES} bytes, "
            f"the limit of a name or value in the Kafka protocol: give a shorter one"
        )
    return text


def encode_request(payload: Any, correlation_id: int, client_id: str) -> bytes:
    """Return the frame of one of kio's requests, with its size.

    :raises StringTooLong: the client id is too long
    """
    name = _text(client_id).encode()
    pieces = [b"", name]
    if payload.__header_schema__.__flexible__:
        pieces.append(b"\0")
    writer(payload.__class__)(pieces.append, payload)
    size_bytes = sum(map(len, pieces)) + _HEADER.size - SIZE.size
    pieces[0] = _HEADER.pack(
        size_bytes, payload.__api_key__, payload.__version__, correlation_id, len(name)
    )
    return b"".join(pieces)


def decode_response(payload: Any, frame: memoryview) -> Any:
    """Return the response to a request.

    :param frame: without its size
    """
    kind = response_type(payload.__api_key__, payload.__version__)
    _, header_size = entity_reader(kind.__header_schema__)(frame, 0)
    # kio would allocate what an array claims, and read a null array as None.
    skimmer(kind)(frame, header_size, len(frame))
    response, _ = entity_reader(kind)(frame, header_size)
    return response


# Topic names --------------------------------------------------------------------------------------

_OF_MEMBERS = frozenset({"subscribed_topic_names", "topology"})
"""Fields with names that members of groups have said, which a broker does not check."""


class IllegalTopicName(ValueError):
    """A broker has named a topic that cannot exist."""


def check_topic_names(request: Any, response: Any) -> None:
    """Check that all topics in a response can exist, except those that the request has named.

    :raises IllegalTopicName: one cannot
    """
    for name in _topic_names(response):
        reason = why_illegal(name)
        if reason is not None and name not in _topic_names(request):
            raise IllegalTopicName(f"it names an illegal topic: {reason}")


def _topic_names(entity: Any) -> Iterator[str]:
    entity_type: Any = type(entity)
    for field, is_nested in _fields_with_names(entity_type):
        value = getattr(entity, field)
        for item in value if isinstance(value, tuple) else (value,):
            if item is None:
                continue
            if is_nested:
                yield from _topic_names(item)
            else:
                yield item


@cache
def _fields_with_names(entity_type: Any) -> tuple[tuple[str, bool], ...]:
    """Return the fields of a class of kio's that have topic names: themselves, or in entities."""
    hints = typing.get_type_hints(entity_type)
    fields = []
    for field in dataclasses.fields(entity_type):
        hint = hints[field.name]
        nested, _ = nested_type(hint)
        if field.name in _OF_MEMBERS:
            continue
        if nested is not None:
            if _fields_with_names(nested):
                fields.append((field.name, True))
        elif hint is TopicName or TopicName in typing.get_args(hint):
            fields.append((field.name, False))
    return tuple(fields)
