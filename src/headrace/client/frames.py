"""The framing of a connection: cut the bytes of a socket into frames of Kafka's protocol.

Small frames are copied from the buffer. For a large frame the buffer grows to its size as bytes
arrive, because a broker may announce more bytes than it sends, and belongs to the frame afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from headrace.protocol.frames import SIZE, BadFrameSize, cut_frames

_FRAME_BYTES = range(SIZE.size, (1 << 30) + 1)
_BUFFER_BYTES = 64 * 1024
_GROWTH = 4
"""The factor by which a full buffer grows."""


class Frames(asyncio.BufferedProtocol):
    """The asyncio protocol of one connection: delivers frames and sends bytes.

    :ivar lost: the error that ended the connection; None if there is none
    """

    def __init__(self) -> None:
        self._take: Callable[[memoryview], None] = lambda frame: None
        self._over: Callable[[str | None], None] = lambda reason: None
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._closed = asyncio.Event()
        self._buffer = bytearray(_BUFFER_BYTES)
        self._filled = 0
        self.lost: Exception | None = None

    def begin(self, take: Callable[[memoryview], None], over: Callable[[str | None], None]) -> None:
        """Set the callbacks. Call it before the first request.

        :param take: called with each frame, without its size; it may keep the memory
        :param over: called when the connection is closed, with None, or the broker has sent a
            malformed frame, with the reason
        """
        self._take, self._over = take, over

    async def send(self, data: bytes) -> None:
        """Send bytes, and wait while the send buffer is full.

        :raises ConnectionError: the connection is closed
        """
        if self._transport is None or self._closed.is_set():
            raise ConnectionResetError("it is closed")
        self._transport.write(data)
        await self._writable.wait()

    def hang_up(self) -> None:
        """Close the connection, without waiting for the peer to read what was sent."""
        if self._transport is not None:
            self._transport.close()  # with TLS, this sends close_notify
            self._transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the connection is closed."""
        await self._closed.wait()

    # -- callbacks of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods, not the type
        self._transport = cast("asyncio.Transport", transport)
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = exc
        self._closed.set()
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
        try:
            end = cut_frames(received, self._filled, _FRAME_BYTES, take)
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
