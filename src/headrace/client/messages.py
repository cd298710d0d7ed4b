"""Requests as frames, and the responses in frames.

The topic names in a response are checked before anybody sees them: a client makes paths, queries
and lines of its output of these names.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cache
from typing import Any

from headrace.log_lines import printable
from headrace.protocol.primitives import MAX_STRING_BYTES, skip_tagged_fields
from headrace.protocol.schema import Field, Message, Schema, TextTooLong, schema_of
from headrace.topic_names import why_illegal

from .errors import StringTooLong

SIZE = struct.Struct(">i")
API_VERSIONS = 18
"""The key of the API whose response has a header without tagged fields (KIP-511)."""
_HEADER = struct.Struct(">ihhih")
"""Size of the frame, API key, version, correlation id, length of the client id."""
_MAX_SHOWN_CHARS = 40
"""The length of the beginning of a string that an error text quotes."""


def encode_request(request: Message, version: int, correlation_id: int, client_id: str) -> bytes:
    """Return the frame of a request, with its size.

    :raises StringTooLong: a name or value, or the client id, does not fit into it
    """
    schema = request.SCHEMA
    pieces = [b"", client_id.encode()]
    if schema.is_flexible(version):
        pieces.append(b"\0")
    try:
        if len(pieces[1]) > MAX_STRING_BYTES:
            raise TextTooLong(client_id)
        schema.writer(version)(pieces.append, request)
    except TextTooLong as error:
        raise StringTooLong(
            f"'{printable(error.text, _MAX_SHOWN_CHARS)}' is longer than {MAX_STRING_BYTES} bytes, "
            f"the limit of a name or value in the Kafka protocol: give a shorter one"
        ) from None
    size_bytes = sum(map(len, pieces)) + _HEADER.size - SIZE.size
    pieces[0] = _HEADER.pack(size_bytes, schema.key, version, correlation_id, len(pieces[1]))
    return b"".join(pieces)


def decode_response(request: Message, version: int, frame: memoryview) -> Any:
    """Return the response to a request.

    :param frame: without its size
    :raises ValueError, IndexError, struct.error: it has no such response
    """
    schema = schema_of("response", request.SCHEMA.key)
    offset = SIZE.size  # after the correlation id
    if schema.key != API_VERSIONS and schema.is_flexible(version):
        offset = skip_tagged_fields(frame, offset)
    response, _ = schema.reader(version)(frame, offset, len(frame))
    return response


# Topic names --------------------------------------------------------------------------------------

_OF_MEMBERS = "topology"
"""The field with names that members of groups have said, which a broker does not check."""


class IllegalTopicName(ValueError):
    """A broker has named a topic that cannot exist."""


def check_topic_names(request: Message, version: int, response: Message) -> None:
    """Check that all topics in a response can exist, except those that the request has named.

    :raises IllegalTopicName: one cannot
    """
    for name in _topic_names(response, response.SCHEMA, version):
        reason = why_illegal(name)
        if reason is not None and name not in _topic_names(request, request.SCHEMA, version):
            raise IllegalTopicName(f"it names an illegal topic: {reason}")


def _topic_names(structure: Message, schema: Schema, version: int) -> Iterator[str]:
    for field in _fields_with_names(schema, version, type(structure).__name__):
        value = getattr(structure, field.name)
        if value is None:
            continue
        if field.type == "string":
            yield value
        else:
            for item in value if field.is_array else (value,):
                yield from _topic_names(item, schema, version)


@cache
def _fields_with_names(schema: Schema, version: int, structure: str) -> tuple[Field, ...]:
    """Return the fields of a structure that have names of topics: themselves, or in structures."""
    return tuple(
        field
        for field in schema.structures[structure].fields
        if version in field.versions
        and field.name != _OF_MEMBERS
        and (
            _fields_with_names(schema, version, field.type)
            if field.type in schema.structures
            else field.type == "string" and _is_of_topic(field.name, structure)
        )
    )


def _is_of_topic(field: str, structure: str) -> bool:
    """Return whether a field has the name of a topic: ``topic``, ``topic_name``, or ``name`` in a
    structure about a topic.
    """
    if field == "name":
        return "Topic" in structure and "Config" not in structure
    return field in ("topic", "topic_name")
