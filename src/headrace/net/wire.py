"""The bytes of requests and responses: header and body."""

from __future__ import annotations

from collections.abc import Generator
from functools import cache
from typing import Any, NamedTuple

from headrace.protocol.file_range import FileRange, Piece, joined
from headrace.protocol.frames import SIZE, BadFrame, RequestHeader
from headrace.protocol.primitives import NullArray, skip_tagged_fields
from headrace.protocol.schema import Read, Write

from .api import Api

_API_VERSIONS = 18
_JOIN_BYTES = 64 * 1024
"""Frames up to this size are sent as one piece. In larger frames, values of a page or more are
pieces of their own and are not copied.
"""
_PAGE_BYTES = 4096
_PARTS_TO_JOIN = 4096
"""The parts of a response written in slices that are joined at a time."""


class _Version(NamedTuple):
    """What is needed to read and write one version of an API.

    :ivar read: reads its request
    :ivar write: writes its response
    :ivar has_tags: whether tagged fields end the header of a request
    :ivar head: what follows the correlation id in the header of a response. That of ApiVersions has
        no tagged fields: its client does not know yet what the broker speaks (KIP-511)
    """

    read: Read
    write: Write
    has_tags: bool
    head: bytes


@cache
def _version(api: Api, version: int) -> _Version:
    request, response = api.request, api.response
    head = b"\0" if api.key != _API_VERSIONS and response.is_flexible(version) else b""
    read, write = request.reader(version), response.writer(version)
    return _Version(read, write, request.is_flexible(version), head)


def read_request(
    api: Api, frame: bytes | memoryview, header: RequestHeader, *, allow_nulls: bool = False
) -> Any:
    """Return the request in a frame.

    :param allow_nulls: accept null for everything
    :raises NullArray: an array is null that must not be
    :raises BadFrame: the bytes are not a valid request
    """
    version = _version(api, header.api_version)
    read, offset = version.read, header.body_offset
    if allow_nulls:
        read = api.request.reader(header.api_version, allow_nulls=True)
    try:
        if version.has_tags:
            offset = skip_tagged_fields(frame, offset)
        request, _ = read(frame, offset, len(frame))
    except NullArray:
        raise
    except Exception as error:
        raise _unreadable(api, header, error) from error
    return request


def read_request_sliced(
    api: Api, frame: memoryview, header: RequestHeader
) -> Generator[None, None, Any]:
    """Return a generator that reads a request as :func:`read_request` does, and yields between the
    items of its arrays.
    """
    read = api.request.sliced_reader(header.api_version)
    try:
        offset = header.body_offset
        if _version(api, header.api_version).has_tags:
            offset = skip_tagged_fields(frame, offset)
        request, _ = yield from read(frame, offset, len(frame))
    except NullArray:
        raise
    except Exception as error:
        raise _unreadable(api, header, error) from error
    return request


def write_response(api: Api, header: RequestHeader, response: Any) -> list[Piece]:
    """Return the frame of a response, as pieces to send."""
    version = _version(api, header.api_version)
    parts: list[Any] = [SIZE.pack(header.correlation_id) + version.head]
    version.write(parts.append, response)
    return _frame(parts)


def write_response_sliced(
    api: Api, header: RequestHeader, response: Any
) -> Generator[None, None, list[Piece]]:
    """Return a generator that writes a response as :func:`write_response` does, and yields between
    the items of its arrays.
    """
    parts: list[Any] = [SIZE.pack(header.correlation_id) + _version(api, header.api_version).head]
    chunks: list[Any] = []
    for _ in api.response.sliced_writer(header.api_version)(parts.append, response):
        if len(parts) >= _PARTS_TO_JOIN:
            chunks += _joined(parts)
            parts.clear()
        yield
    return _frame(chunks + parts)


def throttled(
    api: Api, header: RequestHeader, response: Any, pieces: list[Piece], throttle_ms: int
) -> list[Piece]:
    """Return the frame of a response with a throttle time: in most responses the first field."""
    field = api.response.structures[api.response.name].fields[0]
    if field.name == "throttle_time_ms":
        if header.api_version not in field.versions:
            return pieces
        first, *rest = pieces
        assert isinstance(first, bytes)
        start = 2 * SIZE.size + len(_version(api, header.api_version).head)
        return [first[:start] + SIZE.pack(throttle_ms) + first[start + SIZE.size :], *rest]
    response.throttle_time_ms = throttle_ms
    return write_response(api, header, response)


def _unreadable(api: Api, header: RequestHeader, error: Exception) -> BadFrame:
    return BadFrame(f"{api.request.name} v{header.api_version} cannot be read: {error}")


def _frame(parts: list[Any]) -> list[Piece]:
    size = sum(map(len, parts))
    parts.insert(0, SIZE.pack(size))
    return [joined(parts)] if size < _JOIN_BYTES else _joined(parts)


def _joined(parts: list[Any]) -> list[Piece]:
    """Join parts, but do not copy those that are a page or more."""
    if max(map(len, parts)) < _PAGE_BYTES:
        return [joined(parts)]
    pieces: list[Piece] = []
    small: list[Any] = []
    for part in parts:
        if len(part) < _PAGE_BYTES and not isinstance(part, FileRange):
            small.append(part)
        else:
            pieces += (b"".join(small), part)
            small = []
    pieces.append(b"".join(small))
    return pieces
