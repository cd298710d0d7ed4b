"""The metrics port: HTTP/1.1 for ``GET /metrics`` on the broker's event loop.

Each connection serves one request. Pages are made one at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from headrace.broker.limits import (
    MAX_SCRAPE_CONNECTIONS,
    MAX_SCRAPE_REQUEST_BYTES,
    SCRAPE_TIMEOUT_S,
)
from headrace.log_lines import LimitedLog, get_logger

from .text import CONTENT_TYPE

log = LimitedLog(get_logger("headrace.metrics"))

_PLAIN = "text/plain; charset=utf-8"
_HINT = b"This is the metrics port of headrace. The metrics are at /metrics\n"


class MetricsServer:
    """HTTP server of the metrics page.

    :param page: makes the page
    :ivar port: the port it listens on
    """

    def __init__(self, page: Callable[[], Awaitable[bytes]]) -> None:
        self._page = page
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._one_at_a_time = asyncio.Lock()
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Start to listen. Port 0 picks a free port.

        :raises OSError: when the address is in use or cannot be bound
        """
        self._server = await asyncio.start_server(
            self._connected, host, port, limit=MAX_SCRAPE_REQUEST_BYTES
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening, and cancel the requests that are being served."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            async with asyncio.timeout(SCRAPE_TIMEOUT_S):
                if len(self._connections) > MAX_SCRAPE_CONNECTIONS:
                    writer.write(
                        _answer(
                            "503 Service Unavailable", b"Too many connections to the metrics port\n"
                        )
                    )
                else:
                    writer.write(await self._respond(reader))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, OSError, EOFError):
            pass  # the client sends nothing, receives nothing, or has gone
        except Exception as error:
            log.error("clients", "cannot serve the metrics page", exc_info=error)
        finally:
            writer.transport.abort()
            self._connections.discard(task)

    async def _respond(self, reader: asyncio.StreamReader) -> bytes:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _answer("431 Request Header Fields Too Large", b"The request is too long\n")
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return _answer("400 Bad Request", b"This is not HTTP/1.1\n")
        method, path = words[0], words[1].partition(b"?")[0]
        if path != b"/metrics":
            return _answer("404 Not Found", _HINT)
        if method not in (b"GET", b"HEAD"):
            return _answer("405 Method Not Allowed", _HINT, "Allow: GET, HEAD\r\n")
        async with self._one_at_a_time:
            body = await self._page()
        whole = _answer("200 OK", body, content_type=CONTENT_TYPE)
        return whole[: len(whole) - len(body)] if method == b"HEAD" else whole


def _answer(status: str, body: bytes, more: str = "", content_type: str = _PLAIN) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: "
        f"{len(body)}\r\n{more}"
    )
    return f"{head}Connection: close\r\n\r\n".encode() + body
