"""Responses to requests that failed as a whole: one error in every error field.

Some responses have a top-level error code, others only one for each topic, group or partition. The
response mirrors the request, so that clients find the error.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import cache
from types import SimpleNamespace
from typing import Any

from headrace.protocol.errors import ErrorCode, Refusal
from headrace.protocol.schema import Message, Schema, Structure

_UNKNOWN = frozenset(
    (
        "base_offset",
        "log_start_offset",
        "low_watermark",
        "high_watermark",
        "leader_id",
        "offset",
        "timestamp",
    )
)
"""Fields that are -1 if there is no position or time."""
_ERROR_CODES = frozenset(("error_code", "partition_error_code"))
_INDEX = ("partition_index", "partition", "index")
"""A field with different names in request and response."""
_TEXTS = ("group_id", "key", "name", "transactional_id")
_ARRAYS = {"results_by_topic_v3_and_below": "v3_and_below_topics"}
"""Arrays of responses whose items are not those of the request's first array."""


Steps = Generator[None, None, Any]
"""Makes a response or a part of it; yields between the items of its arrays."""


def refusing_all(
    request: Any, response: Schema, code: ErrorCode, message: str | None = None
) -> Steps:
    """Make a response with ``code`` in every error field.

    :param request: the request, or None for a response without items
    :param message: the message beside each error; None for that of the schema
    """
    structure = response.structures[response.name]
    return _refusing(request, response, structure, Refusal(code, message))


def refusing_item(item: Any, response: Schema, item_type: type, refusal: Refusal) -> Steps:
    """Make the item of a response to an item of its request: the error is in every error field.

    :param item_type: of the items in the response
    """
    structure = response.structures[item_type.__name__]
    return _refusing(_as_part(item, structure), response, structure, refusal)


def _refusing(request: Any, response: Schema, structure: Structure, refusal: Refusal) -> Steps:
    refused = structure.type()
    for field in structure.fields:
        nested = response.structures.get(field.type)
        if field.name in _ERROR_CODES:
            setattr(refused, field.name, refusal.code)
        elif field.name == "error_message" and refusal.message is not None:
            setattr(refused, field.name, refusal.message)
        elif field.is_array:
            if nested is not None and field.default != "None" and _has_place(response, nested.name):
                items = []
                for part in _items_of(request, field.name):
                    item = yield from _refusing(_as_part(part, nested), response, nested, refusal)
                    items.append(item)
                    yield
                setattr(refused, field.name, items)
        elif field.name in _UNKNOWN:
            setattr(refused, field.name, -1)
        elif (value := _same(request, field.name)) is not None:
            setattr(refused, field.name, value)
        elif field.name == "leader_epoch":  # not in the request
            setattr(refused, field.name, -1)
    return refused


@cache
def _has_place(response: Schema, name: str) -> bool:
    """Return whether a structure has a place for an error."""
    return any(
        field.name in _ERROR_CODES
        or (field.type in response.structures and _has_place(response, field.type))
        for field in response.structures[name].fields
    )


def _as_part(part: Any, structure: Structure) -> Any:
    """Return a bare partition number or group id as an object with the field's name."""
    if not isinstance(part, (int, str)):
        return part
    names = [field.name for field in structure.fields]
    kind = (*_INDEX, "key") if isinstance(part, int) else _TEXTS
    return SimpleNamespace(**{next((name for name in kind if name in names), names[0]): part})


def _items_of(request: Any, name: str) -> Any:
    """Return the request's array for an array of the response: by name, or else the first."""
    if not isinstance(request, Message):
        return ()
    arrays = {
        field: value
        for field in request.FIELDS
        if isinstance(value := getattr(request, field), (list, tuple))
    }
    first: Any = next(iter(arrays.values()), ())
    return arrays.get(_ARRAYS.get(name, name), first)


def _same(request: Any, name: str) -> Any:
    """Return the plain value with the same name in the request, or None."""
    for alias in _INDEX if name in _INDEX else (name,):
        value = getattr(request, alias, None)
        if value is not None and not isinstance(value, (list, tuple)):
            return value
    return None
