"""The metrics port: HTTP/1.1 for ``GET /metrics`` on the broker's event loop.

Each connection serves one request. Pages are made one at a time, and requests that wait meanwhile
share the next one. A connection that sends no request, or does not read its response, is closed
when another one needs its place. So is a TLS handshake that is not complete.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from headrace.broker.limits import (
    MAX_SCRAPE_CONNECTIONS,
    MAX_SCRAPE_HANDSHAKES,
    MAX_SCRAPE_REQUEST_BYTES,
    MAX_SCRAPE_RESPONSES,
    SCRAPE_TIMEOUT_S,
)
from headrace.log_lines import LimitedLog, get_logger

from ..acceptor import Acceptor, Begin, listening_sockets
from .text import CONTENT_TYPE

if TYPE_CHECKING:
    from ..tls.transport import Handshakes

log = LimitedLog(get_logger("headrace.metrics"))

_PLAIN = "text/plain; charset=utf-8"
_HINT = b"This is the metrics port of headrace. The metrics are at /metrics\n"
_NOT_ADMITTED = b"The metrics need a name and a password\n"
_CHALLENGE = 'WWW-Authenticate: Basic realm="headrace", charset="UTF-8"\r\n'
_TOO_MANY = b"Too many connections to the metrics port\n"


class _State(Enum):
    """The progress of a connection."""

    RECEIVING = auto()
    WAITING = auto()
    SENDING = auto()


@dataclass(slots=True, eq=False)
class _Scrape:
    """A connection to the metrics port."""

    task: asyncio.Task[None]
    transport: asyncio.WriteTransport
    state: _State = _State.RECEIVING


@dataclass(frozen=True, slots=True)
class MetricsAccess:
    """The protection of the metrics port.

    :ivar tls: None for plain HTTP
    :ivar users: ``name:password`` of those who may read the metrics (RFC 7617); empty for everybody
    """

    tls: ssl.SSLContext | None = None
    users: Sequence[bytes] = field(default=(), repr=False)

    def admits(self, head: bytes) -> bool:
        """Return whether a request may be served.

        :param head: its lines up to the empty one
        """
        if not self.users:
            return True
        given = b""
        for line in head.split(b"\r\n")[1:]:
            name, _, value = line.partition(b":")
            scheme, _, encoded = value.strip().partition(b" ")
            if name.strip().lower() == b"authorization" and scheme.lower() == b"basic":
                try:
                    given = base64.b64decode(encoded.strip(), validate=True)
                except ValueError:
                    return False
        # Compared with all, so that the time does not tell which one was nearly right.
        return sum(hmac.compare_digest(given, user) for user in self.users) > 0


class _BufferedStream(asyncio.StreamReaderProtocol, asyncio.BufferedProtocol):
    """A stream whose transport receives into a buffer.

    :param buffer: shared by all streams, as the bytes are copied out of it at once
    """

    def __init__(self, buffer: bytearray, reader: asyncio.StreamReader, connected: Any) -> None:
        super().__init__(reader, connected)
        self._buffer = buffer

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(self._buffer[:nbytes]))


class MetricsServer:
    """HTTP server of the metrics page.

    :param page: makes the page
    :param access: its protection
    :ivar port: the port it listens on
    """

    def __init__(
        self, page: Callable[[], Awaitable[bytes]], access: MetricsAccess | None = None
    ) -> None:
        self._page = page
        self._access = access or MetricsAccess()
        self._server: asyncio.Server | None = None
        """Listens without TLS."""
        self._acceptors: list[Acceptor] = []
        """Listen with TLS."""
        self._handshakes: Handshakes | None = None
        self._buffer = bytearray(MAX_SCRAPE_REQUEST_BYTES)
        self._scrapes: dict[_Scrape, None] = {}
        """The connections, the oldest first."""
        self._tasks: set[asyncio.Task[None]] = set()
        """The tasks of all connections, also of those that were closed for another one."""
        self._one_at_a_time = asyncio.Lock()
        self._next_page: asyncio.Task[bytes] | None = None
        """The page that waits until it can be made."""
        self._pages: set[asyncio.Task[bytes]] = set()
        self.port = 0

    @property
    def open_connections(self) -> int:
        """The number of connections."""
        return len(self._scrapes)

    @property
    def open_handshakes(self) -> int:
        """The number of TLS handshakes that are not complete."""
        return 0 if self._handshakes is None else len(self._handshakes)

    @property
    def unsent_pages(self) -> int:
        """The number of connections that have not read their whole response."""
        return sum(one.state is _State.SENDING for one in self._scrapes)

    async def start(self, host: str, port: int) -> None:
        """Start to listen. Port 0 picks a free port.

        :raises OSError: when the address is in use or cannot be bound
        """
        if self._access.tls is None:
            limit = MAX_SCRAPE_REQUEST_BYTES
            self._server = await asyncio.start_server(self._begin, host, port, limit=limit)
            self.port = self._server.sockets[0].getsockname()[1]
            return
        begin = self._tls_beginning(self._access.tls)
        sockets = await listening_sockets(host, port)
        self.port = sockets[0].getsockname()[1]
        self._acceptors = [Acceptor(one, None, self._stream, begin) for one in sockets]

    def _stream(self) -> asyncio.BufferedProtocol:
        """Return the protocol of a new connection with TLS."""
        reader = asyncio.StreamReader(MAX_SCRAPE_REQUEST_BYTES)
        return _BufferedStream(self._buffer, reader, self._begin)

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _tls_beginning(self, context: ssl.SSLContext) -> Begin:
        """Return the function that begins connections with TLS."""
        from ..tls.transport import Handshakes, TlsTransport

        handshakes = Handshakes(SCRAPE_TIMEOUT_S, MAX_SCRAPE_HANDSHAKES)
        self._handshakes = handshakes

        def begin(sock: socket.socket, ended: Callable[[], None]) -> None:
            TlsTransport(sock, context, self._stream, handshakes, ended)

        return begin

    async def close(self) -> None:
        """Stop listening, and cancel the requests that are being served."""
        if self._server is not None:
            self._server.close()
        for acceptor in self._acceptors:
            acceptor.close()
        self._acceptors.clear()
        if self._handshakes is not None:
            self._handshakes.close()
        tasks = [*self._tasks, *self._pages]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _make_room(self, state: _State) -> bool:
        """Close the oldest connection in a state.

        :returns: True if there was one
        """
        oldest = next((one for one in self._scrapes if one.state is state), None)
        if oldest is None:
            return False
        del self._scrapes[oldest]
        oldest.task.cancel()
        oldest.transport.abort()
        return True

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        full = len(self._scrapes) >= MAX_SCRAPE_CONNECTIONS
        refused = full and not any(map(self._make_room, (_State.RECEIVING, _State.SENDING)))
        scrape = _Scrape(task, writer.transport)
        self._scrapes[scrape] = None
        try:
            async with asyncio.timeout(SCRAPE_TIMEOUT_S):
                if refused:
                    response = _answer("503 Service Unavailable", _TOO_MANY)
                else:
                    response = await self._respond(reader, scrape)
                if self.unsent_pages >= MAX_SCRAPE_RESPONSES:
                    self._make_room(_State.SENDING)
                scrape.state = _State.SENDING
                writer.write(response)
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, OSError, EOFError):
            pass  # the client sends nothing, receives nothing, or has gone
        except Exception as error:
            log.error("clients", "cannot serve the metrics page", exc_info=error)
        finally:
            writer.transport.abort()
            self._scrapes.pop(scrape, None)

    async def _shared_page(self) -> bytes:
        """Return a page that is made from now on, together with the others that wait for it."""
        if self._next_page is None:
            self._next_page = page = asyncio.get_running_loop().create_task(self._make_page())
            self._pages.add(page)
            page.add_done_callback(self._pages.discard)
        return await asyncio.shield(self._next_page)

    async def _make_page(self) -> bytes:
        async with self._one_at_a_time:
            self._next_page = None
            return await self._page()

    async def _respond(self, reader: asyncio.StreamReader, scrape: _Scrape) -> bytes:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _answer("431 Request Header Fields Too Large", b"The request is too long\n")
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return _answer("400 Bad Request", b"This is not HTTP/1.1\n")
        if not self._access.admits(head):
            return _answer("401 Unauthorized", _NOT_ADMITTED, _CHALLENGE)
        method, path = words[0], words[1].partition(b"?")[0]
        if path != b"/metrics":
            return _answer("404 Not Found", _HINT)
        if method not in (b"GET", b"HEAD"):
            return _answer("405 Method Not Allowed", _HINT, "Allow: GET, HEAD\r\n")
        scrape.state = _State.WAITING
        body = await self._shared_page()
        whole = _answer("200 OK", body, content_type=CONTENT_TYPE)
        return whole[: len(whole) - len(body)] if method == b"HEAD" else whole


def _answer(status: str, body: bytes, more: str = "", content_type: str = _PLAIN) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: "
        f"{len(body)}\r\n{more}"
    )
    return f"{head}Connection: close\r\n\r\n".encode() + body
