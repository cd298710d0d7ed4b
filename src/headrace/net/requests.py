"""Received requests of one connection: those that wait to be served or for their response, and the
incomplete one.
"""

from __future__ import annotations

from collections.abc import Container

from headrace.protocol.frames import SIZE

FIRST_FRAME_BYTES = 4096
FRAME_GROWTH = 4
MAX_ROOM_BYTES = 128 * 1024
"""The bytes that one read returns: uvloop reads 32 times in one turn of the event loop."""
MAX_FRAME_GROWTH_BYTES = 1024 * 1024
"""The buffer is filled with zeros as it grows, which holds the event loop."""


class RequestQueue:
    """Whole requests that wait to be served, in order.

    They are kept as the bytes that were received, because a request of 20 bytes would take ten
    times as much as an object of its own.

    :ivar count: the number of requests
    :ivar size_bytes: their size
    """

    __slots__ = ("_blocks", "_position", "count", "size_bytes")

    def __init__(self) -> None:
        self._blocks: list[memoryview] = []  # few; an empty deque takes ten times as much
        self._position = 0  # of the next request in the first block
        self.count = 0
        self.size_bytes = 0

    def add(self, block: memoryview, count: int) -> None:
        """Add ``count`` frames, with their size fields."""
        if count:
            self._blocks.append(block)
            self.count += count
            self.size_bytes += len(block)

    def next(self) -> memoryview:
        """Remove the first request and return it, without its size field."""
        block, start = self._blocks[0], self._position + SIZE.size
        end = start + SIZE.unpack_from(block, self._position)[0]
        self.count -= 1
        self.size_bytes -= end - self._position
        self._position = end
        if end == len(block):
            del self._blocks[0]
            self._position = 0
        return block[start:end]

    def is_next_in(self, api_keys: Container[int]) -> bool:
        """Return whether the first request is one of these APIs, below 256."""
        return self._blocks[0][self._position + SIZE.size + 1] in api_keys

    def keep(self, shared: object) -> None:
        """Copy what is in the memory ``shared``, which other connections are about to overwrite."""
        if self._blocks and self._blocks[-1].obj is shared:
            block = self._blocks.pop()
            if not self._blocks:  # what was served of the first one is not needed any more
                block, self._position = block[self._position :], 0
            self._blocks.append(memoryview(bytes(block)))

    def clear(self) -> None:
        """Remove all requests."""
        self._blocks.clear()
        self._position = self.count = self.size_bytes = 0


class IncompleteFrame:
    """A frame whose end has not arrived. Its buffer grows with what arrives: the size in
    front of a frame is only a claim.

    :param start: what has arrived, at least the size field
    :param size_bytes: the size of the whole frame, including the size field
    :ivar received_bytes: how much has arrived
    :ivar capacity: the size of the buffer
    :ivar checked_bytes: how much had arrived at the last check of its speed; -1 before the first
    """

    __slots__ = ("_buffer", "capacity", "checked_bytes", "received_bytes", "size_bytes")

    def __init__(self, start: memoryview | bytearray, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.received_bytes = len(start)
        self.checked_bytes = -1
        self.capacity = self.next_capacity
        self._buffer = bytearray(self.capacity)  # one allocation for most frames
        self._buffer[: len(start)] = start

    @property
    def is_full(self) -> bool:
        """True if the buffer has to grow before more can be received."""
        return self.received_bytes == self.capacity

    @property
    def next_capacity(self) -> int:
        """The size of the buffer after the next :meth:`grow`."""
        received = self.received_bytes
        growth = min(received * (FRAME_GROWTH - 1), MAX_FRAME_GROWTH_BYTES)
        return min(self.size_bytes, max(FIRST_FRAME_BYTES, received + growth))

    def grow(self) -> None:
        """Let the buffer grow when it is used next."""
        self.capacity = self.next_capacity

    def room(self) -> memoryview:
        """Return the next part of the buffer, to receive into."""
        missing = self.capacity - len(self._buffer)
        if missing:
            self._buffer.extend(bytes(missing))
        start = self.received_bytes
        return memoryview(self._buffer)[start : start + MAX_ROOM_BYTES]

    def whole(self) -> memoryview:
        """Return the whole frame, with its size field."""
        return memoryview(self._buffer).toreadonly()
