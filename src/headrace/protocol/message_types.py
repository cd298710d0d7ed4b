"""The classes of messages by api key and version: kio's, or headrace's own with further fields.

A class is imported when it is first used, so that processes load only the versions in use.
"""

from __future__ import annotations

from typing import Any

from kio.index import load_request_schema, load_response_schema

_EXTENDED = frozenset(((79, 2), (90, 1), (91, 0)))
"""Versions whose request or response is in :mod:`.share_inspection`."""


def request_type(api_key: int, version: int) -> Any:
    """Return the class of a request.

    :raises kio.index.KioIndexError: the api key or the version is unknown
    """
    if (api_key, version) in _EXTENDED:
        from .share_inspection import REQUESTS

        return REQUESTS[api_key, version]
    return load_request_schema(api_key, version)


def response_type(api_key: int, version: int) -> Any:
    """Return the class of a response.

    :raises kio.index.KioIndexError: the api key or the version is unknown
    """
    if (api_key, version) in _EXTENDED:
        from .share_inspection import RESPONSES

        if (api_key, version) in RESPONSES:
            return RESPONSES[api_key, version]
    return load_response_schema(api_key, version)
