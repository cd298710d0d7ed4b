"""The fields of requests, read from their message classes."""

from __future__ import annotations

import dataclasses
import typing
from functools import cache
from typing import Any, NamedTuple

from headrace.handlers import APIS
from tests.kio_messages import request_type
from tests.kio_messages.fields import nested_type


class Field(NamedTuple):
    """A field of a message.

    :ivar kind: kio's name of the type, "" for a nested message
    :ivar nested: the schema of the nested message, None for a plain value
    :ivar tag: the number of a tagged field, None for others
    """

    name: str
    kind: str
    nested: Schema | None
    is_array: bool
    is_nullable: bool
    tag: int | None


class Schema(NamedTuple):
    """The fields of one version of a message."""

    name: str
    is_flexible: bool
    fields: tuple[Field, ...]


class Version(NamedTuple):
    """A served version of an API."""

    api_key: int
    api_version: int
    schema: Schema
    has_tagged_header: bool


@cache
def schema_of(message_type: Any) -> Schema:
    """Return the schema of one of kio's classes."""
    hints = typing.get_type_hints(message_type)
    fields = []
    for field in dataclasses.fields(message_type):
        hint = hints[field.name]
        nested, is_array = nested_type(hint)
        is_nullable = type(None) in typing.get_args(hint)
        fields.append(
            Field(
                field.name,
                str(field.metadata.get("kafka_type", "")),
                None if nested is None else schema_of(nested),
                is_array,
                is_nullable,
                field.metadata.get("tag"),
            )
        )
    return Schema(message_type.__name__, message_type.__flexible__, tuple(fields))


@cache
def version_of(api_key: int, api_version: int) -> Version:
    """Return the schema of a request."""
    message_type = request_type(api_key, api_version)
    has_tagged_header = message_type.__header_schema__.__version__ >= 2
    return Version(api_key, api_version, schema_of(message_type), has_tagged_header)


@cache
def served_versions() -> tuple[Version, ...]:
    """Return every version of every API that the broker serves."""
    return tuple(
        version_of(api.key, api_version)
        for api in APIS.values()
        for api_version in range(api.lowest, api.highest + 1)
    )
