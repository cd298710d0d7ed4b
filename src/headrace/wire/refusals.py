"""The same error everywhere: the answer to a request that failed as a whole.

Some APIs have a place for an error at the top of their response, others only with each topic, group or partition. The
response here mirrors the request, so that a client finds the error where it looks for it.
"""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

from .versions import ABSENT, field_kind, nested_type

_SAME = {"index": "partition", "partition_index": "partition", "index_": "partition", "topic_data": "responses"}


def refuse_all(request: Any, response_type: Any, error_code: int) -> Any:
    """A response of ``response_type`` that says ``error_code`` wherever it has a place for an error.

    :param request: the request in the latest version's shape, or one of its nested parts
    """
    hints = typing.get_type_hints(response_type)
    fields = {}
    for field in dataclasses.fields(response_type):
        nested, many = nested_type(hints[field.name])
        if field.name == "error_code":
            fields[field.name] = error_code
        elif nested is not None and many:
            fields[field.name] = tuple(_mirrored(one, nested, error_code) for one in _asked(request, field.name))
        elif (value := _value(request, field.name)) is not None and not many:
            fields[field.name] = value
        elif field.default is not dataclasses.MISSING:
            fields[field.name] = field.default
        elif nested is not None:
            fields[field.name] = None
        else:
            fields[field.name] = -1 if field.name in _UNKNOWN else ABSENT[field_kind(field, many)]
    return response_type(**fields)


_UNKNOWN = ("base_offset", "log_append_time_ms", "log_start_offset", "high_watermark", "offset", "timestamp", "leader_id")


def _mirrored(part: Any, response_type: Any, error_code: int) -> Any:
    if isinstance(part, (int, str)):  # a bare partition number or group id
        first = dataclasses.fields(response_type)[0].name
        names = [field.name for field in dataclasses.fields(response_type)]
        key = next((name for name in ("partition_index", "partition", "group_id", "key") if name in names), first)
        part = type("Part", (), {key: part})()
    return refuse_all(part, response_type, error_code)


def _asked(request: Any, response_field: str) -> tuple[Any, ...]:
    """The array of the request that an array of the response answers: the only one, or the one of the same name."""
    arrays = {
        name: value
        for name in (field.name for field in dataclasses.fields(request) if dataclasses.is_dataclass(request))
        if isinstance(value := getattr(request, name), tuple)
    }
    if response_field in ("node_endpoints", "record_errors", "aborted_transactions"):
        return ()
    if response_field in arrays:
        return arrays[response_field]
    return next(iter(arrays.values()), ())


def _value(request: Any, name: str) -> Any:
    for alias in (name, "index", "partition_index", "partition") if name.endswith(("index", "partition")) else (name,):
        if hasattr(request, alias):
            value = getattr(request, alias)
            return None if isinstance(value, tuple) else value
    return None
