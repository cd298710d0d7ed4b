"""The bounds of all connections together: memory of requests, memory of answers, and turns.

* Requests that are not served yet, whole or not, take at most ``queued.max.request.bytes``, and one
  request more. When that is spent, connections with an incomplete frame are not read, except the
  first in line. Connections that send slowly meanwhile are closed: others need their memory.
* Answers that clients do not read take at most ``MAX_UNSENT_BYTES``, and one answer more. When that
  is spent, the connection that was stalled for longest is closed. Records of fetches are not among
  them: they are read from their files when the socket takes them.
* A connection with more requests than fit into one slice of time takes turns with others like it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from . import log
from .metrics import MemoryUse
from .requests import IncompleteFrame

SERVE_SLICE_MS = 5
"""The time for requests and large answers in one turn of the event loop. Then connections with more
of them wait in line, except for requests that are quick in any case.
"""

CONNECTION_TURN_MS = 1
"""The time that one connection in line gets in a turn; at least one request is served."""

MAX_UNSENT_BYTES = 64 * 1024 * 1024
"""The memory of answers that clients do not read, of all connections together. Beyond it, the
connection that was stalled for longest is closed.
"""

SPENT_RECEIVE_BYTES = 8 * 1024
"""The bytes that one read returns while ``queued.max.request.bytes`` is spent."""

FRAME_CHECK_S = 2.0
"""The time between two checks for connections that send slowly while others wait for memory."""

MIN_FRAME_BYTES_PER_S = 16 * 1024
"""A connection that sends less is slow, see :data:`FRAME_CHECK_S`."""

_ENOUGH_BYTES = MIN_FRAME_BYTES_PER_S * FRAME_CHECK_S


class Client(Protocol):
    """A connection, as the bounds see it."""

    @property
    def frame(self) -> IncompleteFrame | None:
        """The incomplete frame."""

    @property
    def is_receiving(self) -> bool:
        """True unless the broker does not read from the connection now."""

    def memory_granted(self) -> None:
        """Receive more of the incomplete frame."""

    def abandon(self) -> None:
        """Close the connection at once."""


class RequestMemory:
    """The memory of all requests that are not served yet.

    :param use: counts it
    :param limit_bytes: -1 for no limit
    :param receive_buffer: the buffer that all connections receive into
    :ivar room: the part of the receive buffer to use now
    """

    def __init__(self, use: MemoryUse, limit_bytes: int, receive_buffer: memoryview) -> None:
        use.limit_bytes = limit_bytes
        self._use = use
        self.room = receive_buffer
        self._receive_buffer = receive_buffer
        self._held: dict[Client, int] = {}
        self._waiting: dict[Client, None] = {}
        self._check: asyncio.TimerHandle | None = None

    @property
    def is_spent(self) -> bool:
        """True if no memory is left."""
        return self._exceeds(1)

    def hold(self, client: Client, size_bytes: int) -> None:
        """Set the memory that a connection's requests take."""
        before = self._held.get(client, 0)
        if size_bytes == before:
            return
        self._held[client] = size_bytes
        if not size_bytes:
            del self._held[client]
        self._use.used_bytes += size_bytes - before
        buffer = self._receive_buffer
        self.room = buffer[:SPENT_RECEIVE_BYTES] if self.is_spent else buffer
        if size_bytes < before and self._waiting:
            self._grant()

    def admits(self, client: Client, more_bytes: int) -> bool:
        """Return whether an incomplete frame may grow now. Otherwise the connection waits, and
        :meth:`Client.memory_granted` is called later.
        """
        if not self._waiting:
            if not self._exceeds(more_bytes):
                return True
            loop = asyncio.get_running_loop()
            self._check = self._check or loop.call_later(FRAME_CHECK_S, self._close_slow)
        self._waiting[client] = None
        return client is next(iter(self._waiting))

    def leave(self, client: Client) -> None:
        """Note that a connection waits no more: its frame is complete, or it is closed."""
        if client in self._waiting:
            del self._waiting[client]
            self._grant()

    def _exceeds(self, more_bytes: int) -> bool:
        return 0 <= self._use.limit_bytes < self._use.used_bytes + more_bytes

    def _grant(self) -> None:
        """Let as many grow as fit, and the first in line in any case."""
        for client in list(self._waiting):
            frame = client.frame
            if frame is None or not self._exceeds(frame.next_capacity - frame.capacity):
                self._waiting.pop(client, None)
            elif client is not next(iter(self._waiting)):
                return
            if not client.is_receiving:
                client.memory_granted()

    def _close_slow(self) -> None:
        """Close connections whose incomplete frames take memory that others wait for.

        A connection that may send is slow if little has arrived since the last check. If the first
        in line is slow, the first half of the line is closed with it: it may be as slow, and those
        behind it came later.
        """
        self._check = None
        if not self._waiting:
            return
        line = list(self._waiting)
        slow: dict[Client, None] = {}
        for client in self._held:
            frame = client.frame
            if frame is not None and client.is_receiving:
                if 0 <= frame.checked_bytes > frame.received_bytes - _ENOUGH_BYTES:
                    slow[client] = None
                frame.checked_bytes = frame.received_bytes
        if line[0] in slow:
            slow.update(dict.fromkeys(line[: len(line) // 2]))
        if slow:
            log.warning(
                "",
                "closing %d connections that send large requests slowly: others wait for the "
                "memory, and queued.max.request.bytes is %d",
                len(slow),
                self._use.limit_bytes,
            )
        self._use.closed_connections += len(slow)
        for client in slow:
            client.abandon()
        self._check = asyncio.get_running_loop().call_later(FRAME_CHECK_S, self._close_slow)


class AnswerMemory:
    """The memory of all answers that clients have not read.

    :param use: counts it
    """

    def __init__(self, use: MemoryUse, limit_bytes: int) -> None:
        use.limit_bytes = limit_bytes
        self._use = use
        self._held: dict[Client, int] = {}
        """In the order of the last time that a client has read."""

    def hold(self, client: Client, size_bytes: int) -> None:
        """Set the memory that a connection's answers take, after they were made or sent."""
        held, use = self._held, self._use
        use.used_bytes += size_bytes - held.pop(client, 0)
        if size_bytes:
            held[client] = size_bytes
        closed = 0
        while use.used_bytes > use.limit_bytes and len(held) > 1:
            stalled = next(iter(held))
            use.used_bytes -= held.pop(stalled)
            stalled.abandon()
            closed += 1
        if closed:
            use.closed_connections += closed
            log.warning(
                "",
                "closed %d connections that do not read their responses: %d bytes wait to be sent, "
                "and at most %d may",
                closed,
                use.used_bytes,
                use.limit_bytes,
            )


class Turns:
    """The time that connections take in one turn of the event loop, and those that have to wait.

    When requests and large answers have taken ``SERVE_SLICE_MS``, connections with more of them
    wait in line, and get one slice in each further turn together. Requests that are quick in any
    case are served at once meanwhile.

    :param now_ms: a steady clock
    :ivar is_spent: True if the slice of this turn is spent, or connections are in line
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.now_ms = now_ms
        self.is_spent = False
        self._line: deque[Callable[[int], None]] = deque()
        self._end_ms = 0
        self._is_scheduled = False

    def end_ms(self) -> int:
        """Return the end of the slice of this turn of the event loop."""
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._take)
            self._end_ms = self.now_ms() + SERVE_SLICE_MS
        return self._end_ms

    def served(self) -> None:
        """Note that a request was served."""
        if self.now_ms() > self.end_ms():
            self.is_spent = True

    def add(self, serve_until: Callable[[int], None]) -> None:
        """Have a connection served in a later turn of the event loop.

        :param serve_until: sends its answers and serves its requests until a steady time
        """
        self.is_spent = True
        self._line.append(serve_until)
        self.end_ms()  # has a further turn scheduled

    def _take(self) -> None:
        """Begin a turn: serve the connections in line."""
        self._is_scheduled = False
        line = self._line
        if not line:
            self.is_spent = False
            return
        end_ms, now_ms = self.end_ms(), self.now_ms()
        for _ in range(len(line)):
            serve_until = line.popleft()
            serve_until(min(now_ms + CONNECTION_TURN_MS, end_ms))
            now_ms = self.now_ms()
            if now_ms > end_ms:
                break
        self.is_spent = bool(line)
