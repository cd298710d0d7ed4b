"""Write a throttle time into the frame of a response (KIP-124).

Responses are written with a throttle time of 0. Few are throttled, so their frames are changed
afterwards, and all others cost nothing.
"""

from __future__ import annotations

import dataclasses
from functools import cache

from .file_range import Piece
from .frames import SIZE
from .message_types import response_type
from .primitives import i32, read_compact_count

_API_VERSIONS = 18
_CORRELATION_ID_BYTES, _ERROR_CODE_BYTES, _TAGS_BYTES = 4, 2, 1
_API_BYTES = 6
"""The size of an API in the response to ApiVersions, without tagged fields."""
_NOWHERE, _AT_START, _AFTER_ERROR, _AT_END, _AFTER_APIS = range(5)


def with_throttle_time(
    pieces: list[Piece], api_key: int, version: int, throttle_ms: int
) -> list[Piece]:
    """Return the frame of a response with a throttle time, if its version has one.

    :param pieces: the frame, as :meth:`~headrace.protocol.messages.Codec.write_response` returns it
    """
    place = _place(api_key, version)
    if place == _NOWHERE:
        return pieces
    message_type = response_type(api_key, version)
    is_flexible: bool = message_type.__flexible__
    if place == _AT_END:
        last = bytes(pieces[-1])
        end = len(last) - _TAGS_BYTES * is_flexible
        return [*pieces[:-1], _replaced(last, end - SIZE.size, throttle_ms)]
    first = bytes(pieces[0])
    start = SIZE.size + _CORRELATION_ID_BYTES
    if message_type.__header_schema__.__version__ >= 1:
        start += _TAGS_BYTES
    if place == _AFTER_ERROR:
        start += _ERROR_CODE_BYTES
    elif place == _AFTER_APIS:
        start += _ERROR_CODE_BYTES
        if is_flexible:
            count, start = read_compact_count(first, start)
            start += count * (_API_BYTES + _TAGS_BYTES)
        else:
            (count,) = SIZE.unpack_from(first, start)
            start += SIZE.size + count * _API_BYTES
    return [_replaced(first, start, throttle_ms), *pieces[1:]]


def _replaced(piece: bytes, position: int, throttle_ms: int) -> bytes:
    return piece[:position] + i32(throttle_ms) + piece[position + SIZE.size :]


@cache
def _place(api_key: int, version: int) -> int:
    """Return where the throttle time is in the body of a response."""
    fields = dataclasses.fields(response_type(api_key, version))
    names = [one.name for one in fields if "tag" not in one.metadata]
    if "throttle_time" not in names:
        return _NOWHERE
    if names[0] == "throttle_time":
        return _AT_START
    if api_key == _API_VERSIONS:
        return _AFTER_APIS
    return _AT_END if names[-1] == "throttle_time" else _AFTER_ERROR
