"""The framing of a connection: cut the bytes of a socket into frames of Kafka's protocol.

Small frames are copied from the buffer. For a large frame the buffer grows to its size as bytes
arrive, because a broker may announce more bytes than it sends, and belongs to the frame afterwards.

The topic names in a response are checked before anybody sees them: a client makes paths, queries
and lines of its output of these names.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, cast

from headrace.log_lines import printable
from headrace.protocol.frames import SIZE, BadFrameSize, frame_ends
from headrace.protocol.primitives import MAX_STRING_BYTES, skip_tagged_fields
from headrace.protocol.schema import Field, Message, Schema, TextTooLong, schema_of
from headrace.protocol.topic_names import why_illegal

from .errors import StringTooLong

_FRAME_BYTES = range(SIZE.size, (1 << 30) + 1)
_BUFFER_BYTES = 64 * 1024
_GROWTH = 4
"""The factor by which a full buffer grows."""


class Frames(asyncio.BufferedProtocol):
    """The asyncio protocol of one connection: delivers frames and sends bytes.

    :param take: called with each frame, without its size; it may keep the memory
    :param over: called when the connection is closed, with None, or the broker has sent a
        malformed frame, with the reason
    :ivar closed: set when the connection is closed
    :ivar lost: the error that ended the connection; None if there is none
    """

    def __init__(
        self, take: Callable[[memoryview], None], over: Callable[[str | None], None]
    ) -> None:
        self._take, self._over = take, over
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self.closed = asyncio.Event()
        self._buffer = bytearray(_BUFFER_BYTES)
        self._filled = 0
        self.lost: Exception | None = None

    async def send(self, data: bytes) -> None:
        """Send bytes, and wait while the send buffer is full.

        :raises ConnectionError: the connection is closed
        """
        if self._transport is None or self.closed.is_set():
            raise ConnectionResetError("it is closed")
        self._transport.write(data)
        await self._writable.wait()

    def hang_up(self) -> None:
        """Close the connection, without waiting for the peer to read what was sent."""
        if self._transport is not None:
            self._transport.close()  # with TLS, this sends close_notify
            self._transport.abort()

    # -- callbacks of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods, not the type
        self._transport = cast("asyncio.Transport", transport)
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = exc
        self.closed.set()
        self._writable.set()
        self._over(None)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._filled == len(self._buffer):
            (size_bytes,) = SIZE.unpack_from(self._buffer)  # of the frame that has filled it
            grown = bytearray(min(_GROWTH * self._filled, SIZE.size + size_bytes))
            grown[: self._filled] = self._buffer
            self._buffer = grown
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        received = memoryview(self._buffer).toreadonly()
        is_large = len(received) > _BUFFER_BYTES
        take = self._take if is_large else self._take_copy
        end = 0
        try:
            for frame_end in frame_ends(received, self._filled, _FRAME_BYTES):
                take(received[end + SIZE.size : frame_end])
                end = frame_end
        except BadFrameSize as error:
            self._over(f"sent {error}")
            self.hang_up()
            return
        if end:
            rest = bytes(received[end : self._filled])
            if is_large:  # its memory is the frames' now
                self._buffer = bytearray(max(_BUFFER_BYTES, len(rest)))
            self._buffer[: len(rest)] = rest
            self._filled = len(rest)

    def _take_copy(self, frame: memoryview) -> None:
        self._take(memoryview(bytes(frame)))


# Messages -----------------------------------------------------------------------------------------


API_VERSIONS = 18
"""The key of the API whose response has a header without tagged fields (KIP-511)."""
_HEADER = struct.Struct(">ihhih")
"""Size of the frame, API key, version, correlation id, length of the client id."""
_MAX_SHOWN_CHARS = 40
"""The length of the beginning of a string that an error text quotes."""


def encode_request(request: Message, version: int, correlation_id: int, client_id: str) -> bytes:
    """Return the frame of a request, with its size.

    :raises StringTooLong: a name or value, or the client id, does not fit into it
    """
    schema = request.SCHEMA
    pieces = [b"", client_id.encode()]
    if schema.is_flexible(version):
        pieces.append(b"\0")
    try:
        if len(pieces[1]) > MAX_STRING_BYTES:
            raise TextTooLong(client_id)
        schema.writer(version)(pieces.append, request)
    except TextTooLong as error:
        raise StringTooLong(
            f"'{printable(error.text, _MAX_SHOWN_CHARS)}' is longer than {MAX_STRING_BYTES} bytes, "
            f"the limit of a name or value in the Kafka protocol: give a shorter one"
        ) from None
    size_bytes = sum(map(len, pieces)) + _HEADER.size - SIZE.size
    pieces[0] = _HEADER.pack(size_bytes, schema.key, version, correlation_id, len(pieces[1]))
    return b"".join(pieces)


def decode_response(request: Message, version: int, frame: memoryview) -> Any:
    """Return the response to a request.

    :param frame: without its size
    :raises ValueError, IndexError, struct.error: it has no such response
    """
    schema = schema_of("response", request.SCHEMA.key)
    offset = SIZE.size  # after the correlation id
    if schema.key != API_VERSIONS and schema.is_flexible(version):
        offset = skip_tagged_fields(frame, offset)
    response, _ = schema.reader(version)(frame, offset, len(frame))
    return response


# Topic names --------------------------------------------------------------------------------------

_OF_MEMBERS = "topology"
"""The field with names that members of groups have said, which a broker does not check."""


class IllegalTopicName(ValueError):
    """A broker has named a topic that cannot exist."""


def check_topic_names(request: Message, version: int, response: Message) -> None:
    """Check that all topics in a response can exist, except those that the request has named.

    :raises IllegalTopicName: one cannot
    """
    for name in _topic_names(response, response.SCHEMA, version):
        reason = why_illegal(name)
        if reason is not None and name not in _topic_names(request, request.SCHEMA, version):
            raise IllegalTopicName(f"it names an illegal topic: {reason}")


def _topic_names(structure: Message, schema: Schema, version: int) -> Iterator[str]:
    for field in _fields_with_names(schema, version, type(structure).__name__):
        value = getattr(structure, field.name)
        if value is None:
            continue
        if field.type == "string":
            yield value
        else:
            for item in value if field.is_array else (value,):
                yield from _topic_names(item, schema, version)


@cache
def _fields_with_names(schema: Schema, version: int, structure: str) -> tuple[Field, ...]:
    """Return the fields of a structure that have names of topics: themselves, or in structures."""
    return tuple(
        field
        for field in schema.structures[structure].fields
        if version in field.versions
        and field.name != _OF_MEMBERS
        and (
            _fields_with_names(schema, version, field.type)
            if field.type in schema.structures
            else field.type == "string" and _is_of_topic(field.name, structure)
        )
    )


def _is_of_topic(field: str, structure: str) -> bool:
    """Return whether a field has the name of a topic: ``topic``, ``topic_name``, or ``name`` in a
    structure about a topic.
    """
    if field == "name":
        return "Topic" in structure and "Config" not in structure
    return field in ("topic", "topic_name")
