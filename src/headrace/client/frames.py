"""The framing of a connection: cut the bytes of a socket into frames of Kafka's protocol.

Small frames are copied from a shared buffer. A large frame is received into separate memory, which
grows as bytes arrive: a broker may announce more bytes than it sends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from headrace.protocol.frames import SIZE, BadFrameSize, cut_frames

_FRAME_BYTES = range(SIZE.size, (1 << 30) + 1)
_SCRATCH_BYTES = 64 * 1024
_FIRST_FRAME_BYTES = 4 * 1024 * 1024
"""The memory allocated at the beginning of a large frame."""
_GROWTH = 4
"""The factor by which its memory grows when it is full."""


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
        self._scratch = bytearray(_SCRATCH_BYTES)
        self._scratch_filled = 0
        self._frame: memoryview | None = None
        """The memory of the large frame that is being received; smaller than the frame at first."""
        self._frame_bytes = 0
        self._frame_filled = 0
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
        if self._frame is not None:
            return self._frame[self._frame_filled :]
        return memoryview(self._scratch)[self._scratch_filled :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._frame is not None:
            self._frame_filled += nbytes
            if self._frame_filled == self._frame_bytes:
                frame, self._frame = self._frame, None
                self._take(frame.toreadonly())
            elif self._frame_filled == len(self._frame):
                self._grow(len(self._frame) * _GROWTH)
            return
        self._scratch_filled += nbytes
        self._cut()

    def _cut(self) -> None:
        received = memoryview(self._scratch)
        try:
            start = cut_frames(received, self._scratch_filled, _FRAME_BYTES, self._take_copy)
        except BadFrameSize as error:
            self._over(f"sent {error}")
            self.hang_up()
            return
        rest = bytes(received[start : self._scratch_filled])
        if len(rest) >= SIZE.size:
            (size_bytes,) = SIZE.unpack_from(rest)
            if SIZE.size + size_bytes > _SCRATCH_BYTES:
                self._frame_bytes = size_bytes
                self._frame = memoryview(rest)[SIZE.size :]
                self._frame_filled = len(self._frame)
                self._grow(_FIRST_FRAME_BYTES)
                rest = b""
        self._scratch[: len(rest)] = rest
        self._scratch_filled = len(rest)

    def _grow(self, capacity_bytes: int) -> None:
        """Move the bytes of the large frame to larger memory."""
        assert self._frame is not None
        grown = memoryview(bytearray(min(capacity_bytes, self._frame_bytes)))
        grown[: self._frame_filled] = self._frame[: self._frame_filled]
        self._frame = grown

    def _take_copy(self, frame: memoryview) -> None:
        self._take(memoryview(bytes(frame)))
