"""Codecs of requests and responses by api key and version.

Messages are kio's classes. kio reads requests after :mod:`.skimmer` has checked their arrays, and
:mod:`.writer` writes responses. The classes of a version are imported when it is first used, so
that a broker loads only the versions in use.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import cache
from typing import Any

from kio.serial import entity_reader

from .file_range import FileRange, Piece, joined
from .frames import SIZE, BadFrame, NullInRequest
from .large_responses import Frame
from .message_types import request_type, response_type
from .primitives import NullArray, skip_tagged_fields
from .skimmer import skimmer
from .sliced_reader import read_sliced
from .writer import NO_TIME, SlicedWrite, Write, sliced_writer, writer

NO_THROTTLE = NO_TIME
"""The ``throttle_time`` of a response of a handler. Those of throttled clients are changed later,
see :mod:`headrace.protocol.throttle_time`.
"""

Read = Callable[[bytes | memoryview, int], tuple[Any, int]]
"""``read(frame, offset)``: returns a message and the position after it. Raises any exception if the
bytes are not a valid message.
"""

# Frames up to this size are sent as one piece. In larger frames, values of a page or more are
# separate pieces and are not copied.
_JOIN_BYTES = 64 * 1024
_PAGE_BYTES = 4096

_PARTS_TO_JOIN = 4096
"""The parts of a response written in slices that are joined at a time."""


def joined_parts(parts: list[Any]) -> list[Piece]:
    """Join parts, but do not copy those that are a page or more."""
    if max(map(len, parts)) < _PAGE_BYTES:
        return [_as_one(parts)]
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


def _as_one(parts: list[Any]) -> Piece:
    try:
        return b"".join(parts)
    except TypeError:  # only a file range has no bytes
        return joined(parts)


def frame_of(parts: list[Any]) -> list[Piece]:
    """Return the frame of ``parts`` with its size, as pieces to send."""
    size = sum(map(len, parts))
    parts.insert(0, SIZE.pack(size))
    return [_as_one(parts)] if size < _JOIN_BYTES else joined_parts(parts)


@dataclass(frozen=True, slots=True)
class Codec:
    """The reader and the writer of one version of an API.

    :param request_type: kio's class of the request
    :param response_type: kio's class of the response
    :param refusal_type: the class of responses with one error for everything
    """

    api_key: int
    version: int
    request_type: Any
    response_type: Any
    refusal_type: Any
    _read_request: Read
    _write_response: Write
    _write_response_sliced: SlicedWrite
    _flexible_request: bool
    _flexible_response_header: bool

    def read_request(self, frame: bytes | memoryview, offset: int) -> Any:
        """Read the request; the fixed part of its header ends at ``offset``.

        :raises NullInRequest: an array is null that must not be
        :raises BadFrame: the bytes are not a valid request
        """
        try:
            if self._flexible_request:
                offset = skip_tagged_fields(frame, offset)
            try:
                request, _ = self._read_request(frame, offset)
            except NullArray as error:
                request, _ = _skimmed(self.request_type, allow_nulls=True)(frame, offset)
                raise self._null(error, request) from error
        except NullInRequest:
            raise
        except Exception as error:  # kio raises many types
            raise self._unreadable(error) from error
        return request

    def read_request_sliced(self, frame: memoryview, offset: int) -> Generator[None, None, Any]:
        """Return a generator that reads the request as :meth:`read_request` does, and yields
        between the items of its arrays.
        """
        try:
            if self._flexible_request:
                offset = skip_tagged_fields(frame, offset)
            try:
                request, _ = yield from read_sliced(self.request_type, frame, offset)
            except NullArray as error:
                request, _ = yield from read_sliced(
                    self.request_type, frame, offset, allow_nulls=True
                )
                raise self._null(error, request) from error
        except NullInRequest:
            raise
        except Exception as error:  # kio raises many types
            raise self._unreadable(error) from error
        return request

    def _null(self, error: NullArray, request: Any) -> NullInRequest:
        return NullInRequest(f"{self.request_type.__name__} v{self.version}: {error}", request)

    def _unreadable(self, error: Exception) -> BadFrame:
        return BadFrame(f"{self.request_type.__name__} v{self.version} cannot be read: {error}")

    def write_response(self, correlation_id: int, response: Any) -> list[Piece]:
        """Return the frame of a response, as pieces to send.

        ``response`` may have a later version's class; fields that this version lacks are omitted.
        """
        parts: list[Any] = [SIZE.pack(correlation_id)]
        if self._flexible_response_header:
            parts.append(b"\0")
        self._write_response(parts.append, response)
        return frame_of(parts)

    def write_response_sliced(
        self, correlation_id: int, response: Any
    ) -> Generator[None, None, Frame]:
        """Return a generator that writes a response piece by piece, and returns its frame."""
        parts: list[Any] = [SIZE.pack(correlation_id)]
        if self._flexible_response_header:
            parts.append(b"\0")
        chunks: list[Any] = []
        for _ in self._write_response_sliced(parts.append, response):
            if len(parts) >= _PARTS_TO_JOIN:
                chunks += joined_parts(parts)
                parts.clear()
            yield
        return Frame(frame_of(chunks + parts), getattr(response, "error_code", None))


def _skimmed(request_type: Any, *, allow_nulls: bool = False) -> Read:
    """Return kio's reader, preceded by the skimmer."""
    skim = skimmer(request_type, allow_nulls=allow_nulls)
    read = entity_reader(request_type)

    def skim_and_read(frame: bytes | memoryview, offset: int) -> tuple[Any, int]:
        skim(frame, offset, len(frame))
        message: tuple[Any, int] = read(frame, offset)
        return message

    return skim_and_read


@cache
def codec(api_key: int, version: int) -> Codec:
    """Return the codec of any version that Apache Kafka knows.

    :raises kio.index.KioIndexError: the api key or the version is unknown
    """
    request, response = request_type(api_key, version), response_type(api_key, version)
    return Codec(
        api_key=api_key,
        version=version,
        request_type=request,
        response_type=response,
        refusal_type=response,
        _read_request=_skimmed(request),
        _write_response=writer(response),
        _write_response_sliced=sliced_writer(response),
        _flexible_request=request.__header_schema__.__version__ >= 2,
        _flexible_response_header=response.__header_schema__.__version__ >= 1,
    )
