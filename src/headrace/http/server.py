"""HTTP/1.1 behind the broker's acceptor.

A connection has a task. It waits for a request and for its turn, has it answered, sends the
response, and waits for the next one when the client has received it. Connections are few, and end
in time: one more than there may be closes the oldest one that has not sent a whole request yet, a
*stranger*, or else the one that is idle for the longest time. An address has at most half of the
connections, and addresses are served in turn. So whoever sends a request at once is answered,
whatever other addresses do.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable, Iterable
from enum import IntEnum, auto
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, cast

from headrace.log_lines import LimitedLog
from headrace.net.acceptor import Acceptor, Begin, listening_sockets, plain

from .hosts import Hosts
from .messages import Head, Refused, Request, Response, parse_head
from .turns import Turns

if TYPE_CHECKING:
    from headrace.net.tls.transport import Handshakes

log = LimitedLog("headrace.http")

_BUSY = Response.plain(503, "Too many requests at a time.")
_BUFFER_BYTES = 16 * 1024
MAX_HEAD_BYTES = 32 * 1024
"""The request line and the headers of a request."""
MAX_BODIES = 16
"""Bodies that are being received, or whose requests wait, at a time; half of them of one address.
One more closes the oldest.
"""
MAX_UNSENT_BYTES = 64 * 1024 * 1024
"""Responses that clients have not read, half of them of one address. More closes those that were
sent first.
"""
HEAD_S = 10
"""The time for the head of the first request on a connection, and for a TLS handshake."""
TURN_S = 10
"""The time that a request waits until it is served. After it, the answer is 503."""
BODY_S = 30
"""The time for the body of a request."""
IDLE_S = 15
"""The time from a response to the whole head of the next request."""
SEND_S = 30
"""The time in which a client must read a response."""
DISCARD_S = 2
"""The time for which the rest of a refused request is received."""


class _State(IntEnum):
    """The progress of a connection. For another one, a connection in the first of these states is
    closed; never one whose request is being answered.
    """

    LEAVING = auto()
    """Its request was refused, and the answer sent."""
    STRANGER = auto()
    IDLE = auto()
    BODY = auto()
    SENDING = auto()
    QUEUED = auto()
    """Its request waits for its turn."""
    WAITING = auto()


class _Connection(asyncio.StreamReaderProtocol, asyncio.BufferedProtocol):
    """A connection, whose transport receives into a buffer.

    :param buffer: shared by all connections, as the bytes are copied out of it at once
    :param begin: called when it is open; begins the task
    :ivar is_safe: whether its request changes nothing
    :ivar has_body: whether its request has a body
    """

    task: asyncio.Task[None]
    state = _State.STRANGER
    is_safe = False
    has_body = False

    def __init__(self, buffer: bytearray, begin: Callable[[_Connection], None]) -> None:
        self.reader = asyncio.StreamReader(MAX_HEAD_BYTES)
        super().__init__(self.reader)
        self._buffer, self._begin = buffer, begin

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        to_client = cast(asyncio.WriteTransport, transport)  # uvloop has classes of its own
        loop = asyncio.get_running_loop()
        self.writer = asyncio.StreamWriter(to_client, self, self.reader, loop)
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if peer else ""
        self._begin(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(self._buffer[:nbytes]))

    def _stop_answering(self) -> None:
        if self.state in (_State.QUEUED, _State.WAITING) and self.is_safe:
            self.task.cancel()

    def eof_received(self) -> bool | None:
        self._stop_answering()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_answering()
        super().connection_lost(exc)


class HttpServer:
    """An HTTP server.

    :param answer: answers requests; it is cancelled if the client of a GET or HEAD goes
    :param hosts: the names under which the port is served
    :param tls: None for plain HTTP
    :param max_connections: at a time, half of them of one address, and as many TLS handshakes
    :param max_requests: at a time, half of them of one address; further ones wait
    :ivar port: the port it listens on
    """

    def __init__(
        self,
        answer: Callable[[Request], Awaitable[Response]],
        hosts: Hosts,
        tls: ssl.SSLContext | None = None,
        *,
        max_connections: int,
        max_requests: int,
    ) -> None:
        self._answer = answer
        self._hosts = hosts
        self._tls = tls
        self._max_connections = max_connections
        self._turns = Turns(max_requests)
        self._acceptors: list[Acceptor] = []
        self._handshakes: Handshakes | None = None
        self._connected = partial(_Connection, bytearray(_BUFFER_BYTES), self._begin)
        self._connections: dict[_Connection, None] = {}
        """In the order in which they came to their states."""
        self._tasks: set[asyncio.Task[None]] = set()
        """The tasks of all connections, also of those that were closed for another one."""
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Start to listen. Port 0 picks a free port.

        :raises OSError: when the address is in use or cannot be bound
        """
        begin = plain(self._connected) if self._tls is None else self._tls_beginning(self._tls)
        sockets = await listening_sockets(host, port)
        self.port = sockets[0].getsockname()[1]
        self._acceptors = [Acceptor(sock, begin) for sock in sockets]

    async def close(self, grace_s: float = 0) -> None:
        """Stop listening, and cancel the requests that are being served.

        :param grace_s: the time that they get to end
        """
        for acceptor in self._acceptors:
            acceptor.close()
        self._acceptors.clear()
        if self._handshakes is not None:
            self._handshakes.close()
        waiting = [connection.task for connection in self._in(_State.WAITING)]
        if grace_s and waiting:
            await asyncio.wait(waiting, timeout=grace_s)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Connections ----------------------------------------------------------------------------------

    def _tls_beginning(self, context: ssl.SSLContext) -> Begin:
        """Return the function that begins connections with TLS."""
        from headrace.net.tls.transport import Handshakes, TlsTransport

        handshakes = self._handshakes = Handshakes(HEAD_S, self._max_connections)
        return lambda sock, ended: TlsTransport(sock, context, self._connected, handshakes, ended)

    def _begin(self, connection: _Connection) -> None:
        connection.task = asyncio.create_task(self._serve(connection))
        self._tasks.add(connection.task)
        connection.task.add_done_callback(self._tasks.discard)

    def _in(self, *states: _State) -> list[_Connection]:
        return [connection for connection in self._connections if connection.state in states]

    def _enter(self, connection: _Connection, state: _State) -> None:
        connection.state = state
        # One that was closed for another one stays away until its task has ended.
        if self._connections.pop(connection, self) is None:
            self._connections[connection] = None

    def _has_room(self, address: str) -> bool:
        """Return whether there is room for a connection; close another one if there must be."""
        of_address = [
            connection for connection in self._connections if connection.address == address
        ]
        if len(of_address) >= max(1, self._max_connections // 2):
            return self._make_room(of_address)
        return len(self._connections) < self._max_connections or self._make_room(self._connections)

    def _make_room(self, connections: Iterable[_Connection]) -> bool:
        closable = [each for each in connections if each.state is not _State.WAITING]
        if closable:
            self._close_for_another(min(closable, key=attrgetter("state")))  # the oldest of these
        return bool(closable)

    def _bound(
        self,
        limit: int,
        connections: list[_Connection],
        address: str,
        size: Callable[[list[_Connection]], int] = len,
    ) -> None:
        """Close the oldest of some connections while they are too many for a limit, or those of an
        address for half of it.

        :param size: what the limit is about
        """
        of_address = [connection for connection in connections if connection.address == address]
        while of_address and size(of_address) > max(1, limit // 2):
            connections.remove(of_address[0])
            self._close_for_another(of_address.pop(0))
        while connections and size(connections) > limit:
            self._close_for_another(connections.pop(0))

    def _close_for_another(self, connection: _Connection) -> None:
        del self._connections[connection]
        connection.task.cancel()
        connection.writer.transport.abort()

    async def _serve(self, connection: _Connection) -> None:
        writer = connection.writer
        # A response is sent when no byte of it waits any more: an idle connection may be closed.
        writer.transport.set_write_buffer_limits(0)
        has_room = self._has_room(connection.address)
        try:
            if not has_room:
                writer.write(_BUSY.head(keeps_open=False) + _BUSY.body)
                return
            self._connections[connection] = None
            while await self._exchange(connection):
                self._enter(connection, _State.IDLE)
                # Half of the places stay for strangers.
                self._bound(self._max_connections // 2, self._in(_State.IDLE), connection.address)
        except (TimeoutError, OSError, EOFError, asyncio.CancelledError):
            pass  # the client sends nothing, receives nothing, or has gone; or this makes room
        finally:
            self._connections.pop(connection, None)
            # They refer to the connection, whose memory is free at once without this cycle.
            del connection.reader, connection.writer
            writer.transport.close() if not has_room else writer.transport.abort()

    # Requests -------------------------------------------------------------------------------------

    async def _exchange(self, connection: _Connection) -> bool:
        """Receive a request, and send the response; return whether another one may follow."""
        writer = connection.writer
        method, keeps_open, is_refused = "", False, False
        try:
            async with asyncio.timeout(HEAD_S if connection.state is _State.STRANGER else IDLE_S):
                head = await _read_head(connection.reader)
            method = head.method
            if not all(map(self._hosts.admits, head.hosts)):
                raise Refused(421, "This port is not served under this name: see --allow-host.")
            body = await self._read_body(connection, head)
            response = await self._respond(connection, head, body)
            keeps_open = head.keeps_open
        except Refused as refused:
            response = Response.plain(refused.status, str(refused))
            is_refused = True
        self._bound(
            MAX_UNSENT_BYTES,
            self._in(_State.SENDING),
            connection.address,
            lambda unread: _unsent_bytes(unread) + len(response.body),
        )
        self._enter(connection, _State.SENDING)
        async with asyncio.timeout(SEND_S):
            writer.write(response.head(keeps_open=keeps_open))
            if method != "HEAD":
                writer.write(response.body)
            await writer.drain()
            if is_refused:
                self._enter(connection, _State.LEAVING)
                await _discard_rest(connection)
            if not keeps_open:
                writer.close()
                await writer.wait_closed()
        return keeps_open

    async def _read_body(self, connection: _Connection, head: Head) -> bytes:
        connection.has_body = head.length != 0
        if not connection.has_body:
            return b""
        self._enter(connection, _State.BODY)
        in_memory = self._in(_State.BODY, _State.QUEUED)
        with_body = [sender for sender in in_memory if sender.has_body]
        self._bound(MAX_BODIES, with_body, connection.address)
        if (b"expect", b"100-continue") in ((name, value.lower()) for name, value in head.headers):
            connection.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        async with asyncio.timeout(BODY_S):
            return await connection.reader.readexactly(head.length)

    async def _respond(self, connection: _Connection, head: Head, body: bytes) -> Response:
        connection.is_safe = head.method in ("GET", "HEAD")
        self._enter(connection, _State.QUEUED)
        try:
            async with asyncio.timeout(TURN_S):
                await self._turns.begin(connection.address)
        except TimeoutError:
            raise Refused(503, "Too many requests at a time.") from None
        self._enter(connection, _State.WAITING)
        request = Request(head.method, head.target, head.headers, body, connection.address)
        try:
            return await self._answer(request)
        except Exception as error:
            log.error("", "cannot answer a request", exc_info=error)
            return Response.plain(500, "This request has failed; the log has the reason.")
        finally:
            self._turns.end(connection.address)


def _unsent_bytes(connections: list[_Connection]) -> int:
    return sum(connection.writer.transport.get_write_buffer_size() for connection in connections)


async def _read_head(reader: asyncio.StreamReader) -> Head:
    try:
        return parse_head(await reader.readuntil(b"\r\n\r\n"))
    except asyncio.LimitOverrunError:
        raise Refused(431, "The head of the request is too long.") from None


async def _discard_rest(connection: _Connection) -> None:
    """Receive what a client sends after a request that was refused. A connection that is closed
    with unread bytes is reset, and the client may lose the answer.
    """
    if connection.writer.can_write_eof():
        connection.writer.write_eof()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DISCARD_S):
            while await connection.reader.read(MAX_HEAD_BYTES):
                pass
