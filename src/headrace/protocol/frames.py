"""Length-prefixed frames and request headers.

A frame is a big-endian int32 size, followed by that many bytes. A request frame starts with its
header: api key, api version, correlation id, client id, and, in flexible versions, tagged fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from .primitives import INT32

SIZE = INT32
_FIXED_HEADER = Struct(">hhih")

_HTTP = (b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI ")
_OTHER_PROTOCOLS = {**dict.fromkeys(_HTTP, "HTTP"), b"SSH-": "SSH", b"AMQP": "AMQP"}
_TLS_HANDSHAKE = b"\x16\x03"


class BadFrame(ValueError):
    """Bytes that are not a Kafka request. The connection is closed."""


class BadFrameSize(BadFrame):
    """A frame size that is out of range.

    :ivar size_bytes: the size that was received
    """

    def __init__(self, size_bytes: int) -> None:
        super().__init__(f"a frame of {size_bytes} bytes")
        self.size_bytes = size_bytes


def other_protocol(data: bytes | memoryview) -> str | None:
    """Return the name of another protocol of which a connection begins with these bytes; None if it
    is not known.

    :param data: at least as many bytes as a size field
    """
    start = bytes(data[: SIZE.size])
    return "TLS" if start.startswith(_TLS_HANDSHAKE) else _OTHER_PROTOCOLS.get(start)


def frame_ends(data: memoryview, end: int, sizes: range) -> Iterator[int]:
    """Yield the end of each whole frame at the beginning of ``data``.

    :param end: the end of the received bytes
    :param sizes: the valid frame sizes
    :raises BadFrameSize: the size of a frame, complete or not, is invalid
    """
    position = 0
    while end - position >= SIZE.size:
        (size_bytes,) = SIZE.unpack_from(data, position)
        if size_bytes not in sizes:
            raise BadFrameSize(size_bytes)
        position += SIZE.size + size_bytes
        if position > end:
            return
        yield position


class RequestHeader(NamedTuple):
    """The fixed part of a request header.

    :ivar body_offset: its end in the frame; in flexible versions tagged fields follow
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_offset: int


def request_header(frame: bytes | memoryview) -> RequestHeader:
    """Read the fixed part of the header.

    :raises BadFrame: the frame ends too early, or the client id is not UTF-8
    """
    if len(frame) < 8:
        raise BadFrame(f"a request of {len(frame)} bytes is too short for its header")
    if len(frame) < _FIXED_HEADER.size:  # old clients may omit the client id
        raise BadFrame("the request header has no client id")
    api_key, api_version, correlation_id, length = _FIXED_HEADER.unpack_from(frame)
    if length < 0:
        return RequestHeader(api_key, api_version, correlation_id, None, _FIXED_HEADER.size)
    end = _FIXED_HEADER.size + length
    if end > len(frame):
        raise BadFrame(
            f"the client id claims {length} bytes, the request has "
            f"{len(frame) - _FIXED_HEADER.size}"
        )
    try:
        client_id = str(frame[_FIXED_HEADER.size : end], "utf-8")
    except UnicodeDecodeError as error:
        raise BadFrame("the client id is not UTF-8") from error
    # in half the time of calling the class
    return tuple.__new__(RequestHeader, (api_key, api_version, correlation_id, client_id, end))
