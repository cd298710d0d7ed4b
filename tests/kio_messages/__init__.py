"""The classes of messages by api key and version: kio's, or headrace's own where kio has none, or
where headrace adds fields.

A class is imported when it is first used, so that processes load only the versions in use.
"""

from __future__ import annotations

import dataclasses
import typing
from importlib import import_module
from typing import Any

from kio.index import load_request_schema, load_response_schema

_INSPECTION, _NEWER = ".share_inspection", ".newer_messages"
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
"""kio's types of numbers → their letters in ``struct``."""
_MODULES = {
    (18, 5): ".api_versions",
    (28, 6): _NEWER,
    (42, 3): _NEWER,
    (78, 2): _INSPECTION,
    (79, 2): _INSPECTION,
    (88, 1): _NEWER,
    (89, 1): _NEWER,
    (90, 1): _INSPECTION,
    (91, 0): _INSPECTION,
    (93, 0): _NEWER,
    (94, 0): _NEWER,
}
"""Modules with ``REQUESTS`` and ``RESPONSES`` by api key and version; those that are in neither are
kio's.
"""


def request_type(api_key: int, version: int) -> Any:
    """Return the class of a request.

    :raises kio.index.KioIndexError: the api key or the version is unknown
    """
    return _own("REQUESTS", api_key, version) or load_request_schema(api_key, version)


def response_type(api_key: int, version: int) -> Any:
    """Return the class of a response.

    :raises kio.index.KioIndexError: the api key or the version is unknown
    """
    return _own("RESPONSES", api_key, version) or load_response_schema(api_key, version)


def _own(table: str, api_key: int, version: int) -> Any:
    module = _MODULES.get((api_key, version))
    if module is None:
        return None
    return getattr(import_module(module, __name__), table).get((api_key, version))


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
