"""(api key, version) to typed message and back, through kio.

kio's classes for a version are imported when that version is first met: a broker that only ever sees one client's
versions loads only those.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from .frames import SIZE, BadFrame, skip_tagged_fields

NO_THROTTLE = timedelta(0)
"""What ``throttle_time`` is set to: this broker never throttles."""

# A value at least this large goes out as it is instead of being copied into the buffer around it.
_BLOB_SIZE_BYTES = 4096


class Chunks:
    """A file-like sink that keeps large byte strings apart, so that record data is never copied on the way out."""

    __slots__ = ("_blobs", "_small")

    def __init__(self, start: bytes) -> None:
        self._small = bytearray(start)
        self._blobs: list[bytes | bytearray] = []

    def write(self, data: bytes) -> None:
        if len(data) < _BLOB_SIZE_BYTES:
            self._small += data
        else:
            self._blobs.append(self._small)
            self._blobs.append(data)
            self._small = bytearray()

    def frame(self) -> list[bytes | bytearray]:
        """All that was written, in order, with the frame's size in its first four bytes."""
        pieces = [*self._blobs, self._small]
        SIZE.pack_into(pieces[0], 0, sum(map(len, pieces)) - SIZE.size)
        return pieces


@dataclass(frozen=True, slots=True)
class Codec:
    """How one version of one API is read and written, from either end.

    :param request_type: kio's class of this version's request
    :param response_type: kio's class of this version's response
    """

    api_key: int
    version: int
    request_type: Any
    response_type: Any
    _read_request: Callable[[bytes | memoryview, int], tuple[Any, int]]
    _write_response: Callable[[Chunks, Any], None]
    _flexible_request: bool
    _flexible_response_header: bool

    def read_request(self, frame: bytes | memoryview, offset: int) -> Any:
        """The request whose header's fixed part ends at ``offset``.

        :raises BadFrame: when the bytes are not such a request
        """
        if self._flexible_request:
            offset = skip_tagged_fields(frame, offset)
        try:
            request, _ = self._read_request(frame, offset)
        except Exception as error:  # kio raises many kinds; to us they are one: these bytes are no such request
            raise BadFrame(f"{self.request_type.__name__} v{self.version} cannot be read: {error}") from error
        return request

    def write_response(self, correlation_id: int, response: Any) -> list[bytes | bytearray]:
        """The response's whole frame, in pieces to be sent one after the other.

        ``response`` may be of a later version's class: what this version has no field for is left out.
        """
        head = bytes(4) + SIZE.pack(correlation_id)
        chunks = Chunks(head + b"\0" if self._flexible_response_header else head)
        self._write_response(chunks, response)
        return chunks.frame()


@cache
def codec(api_key: int, version: int) -> Codec:
    """The codec of a version that Apache Kafka knows.

    :raises kio.index.KioIndexError: for an unknown api key or version
    """
    request_type = load_request_schema(api_key, version)
    response_type = load_response_schema(api_key, version)
    return Codec(
        api_key=api_key,
        version=version,
        request_type=request_type,
        response_type=response_type,
        _read_request=entity_reader(request_type),
        _write_response=entity_writer(response_type),
        _flexible_request=request_type.__header_schema__.__version__ >= 2,
        _flexible_response_header=response_type.__header_schema__.__version__ >= 1,
    )
