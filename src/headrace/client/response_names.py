"""The topic names in the responses of a broker, which are checked before anybody sees them.

A client makes paths, queries and lines of its output of these names.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from functools import cache
from typing import Any

from kio.schema.types import TopicName

from headrace.protocol.writer import nested_type
from headrace.topic_names import why_illegal

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
