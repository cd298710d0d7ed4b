"""Responses to requests that failed as a whole: one error in every error field.

Some responses have a top-level error code, others only one for each topic, group or partition. The
response mirrors the request, so that clients find the error.
"""

from __future__ import annotations

import dataclasses
import typing
from functools import cache
from types import SimpleNamespace
from typing import Any

from headrace.errors import ErrorCode

from .versions import ABSENT, field_kind
from .writer import nested_type

# Response fields that are -1 if there is no position or time.
_UNKNOWN = frozenset(
    (
        "base_offset",
        "log_start_offset",
        "high_watermark",
        "leader_id",
        "leader_epoch",
        "offset",
        "timestamp",
    )
)
_ERROR_CODES = frozenset(("error_code", "partition_error_code"))
# Fields with different names in request and response.
_INDEX = ("partition_index", "partition", "index")
_TEXTS = ("group_id", "key", "name", "transactional_id")
_ALIASES = dict.fromkeys(_INDEX, _INDEX)


def refuse_all(request: Any, response_type: Any, error_code: int) -> Any:
    """Return a response of ``response_type`` with ``error_code`` in every error field.

    :param request: the request in the latest version, or the part that corresponds to the response
    """
    hints = typing.get_type_hints(response_type)
    fields = {}
    for field in dataclasses.fields(response_type):
        nested, many = nested_type(hints[field.name])
        if field.name in _ERROR_CODES:
            value: Any = error_code
        elif nested is not None and many:
            parts = _asked(request, field.name) if _has_place_for_error(nested) else ()
            value = tuple(refuse_all(_as_part(part, nested), nested, error_code) for part in parts)
        elif not many and (found := _same(request, field.name)) is not None:
            value = found
        elif field.default is not dataclasses.MISSING:
            value = field.default
        elif nested is not None:
            value = refuse_all(None, nested, error_code)
        else:
            value = -1 if field.name in _UNKNOWN else ABSENT[field_kind(field, many)]
        fields[field.name] = value
    return response_type(**fields)


def refuse_nulls(request: Any, response_type: Any) -> Any:
    """Return the response with INVALID_REQUEST to a request with null arrays, or None if it has no
    place for an error.

    :param request: the request in the version of the response
    """
    if getattr(request, "acks", None) == 0:  # Produce without a response
        return None
    response = refuse_all(request, response_type, ErrorCode.INVALID_REQUEST)
    return response if _has_error(response) else None


def _has_error(message: Any) -> bool:
    for field in dataclasses.fields(message):
        value = getattr(message, field.name)
        if field.name in _ERROR_CODES or (
            isinstance(value, tuple)
            and any(dataclasses.is_dataclass(one) and _has_error(one) for one in value)
        ):
            return True
    return False


@cache
def _has_place_for_error(message_type: Any) -> bool:
    hints = typing.get_type_hints(message_type)
    if not _ERROR_CODES.isdisjoint(hints):
        return True
    return any(
        (nested := nested_type(hint)[0]) is not None and _has_place_for_error(nested)
        for hint in hints.values()
    )


def _as_part(part: Any, response_type: Any) -> Any:
    """Return a bare partition number or group id as an object with the field's name."""
    if not isinstance(part, (int, str)):
        return part
    names = [field.name for field in dataclasses.fields(response_type)]
    kind = (*_ALIASES, "key") if isinstance(part, int) else _TEXTS
    return SimpleNamespace(**{next((name for name in kind if name in names), names[0]): part})


def _asked(request: Any, response_field: str) -> tuple[Any, ...]:
    """Return the request's array for an array of the response: by name, or else the first."""
    if not dataclasses.is_dataclass(request):
        return ()
    hints = typing.get_type_hints(type(request))
    arrays: dict[str, tuple[Any, ...]] = {
        field.name: getattr(request, field.name) or ()
        for field in dataclasses.fields(request)
        if nested_type(hints[field.name])[1]
    }
    return arrays[response_field] if response_field in arrays else next(iter(arrays.values()), ())


def _same(request: Any, name: str) -> Any:
    """Return the plain value with the same name in the request, or None."""
    for alias in _ALIASES.get(name, (name,)):
        value = getattr(request, alias, None)
        if value is not None and not isinstance(value, tuple):
            return value
    return None
