"""The fields of kio's classes, as their type hints tell them."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

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
"""The format of ``struct`` for each of kio's types with a fixed size."""


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
