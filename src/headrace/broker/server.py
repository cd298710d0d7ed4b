"""The only sockets: where to listen, and which connections there are. What is done on one:
``connection.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING

from .broker import Broker
from .connection import Connection, Connections, Listener

if TYPE_CHECKING:
    from .metrics.server import MetricsServer

__all__ = ["Listener", "Server"]


class Server:
    """Serves a broker on one or more listeners. ``await start()``, ``addresses``, ``await
    close()``.
    """

    def __init__(self, broker: Broker, listeners: Sequence[Listener]) -> None:
        self.broker = broker
        self.listeners = list(listeners)
        self.shared = Connections(broker)
        self.connections = self.shared.connections
        self.max_idle_ms = broker.config.get_int("connections.max.idle.ms")
        self._servers: list[asyncio.Server] = []
        self._reaper: asyncio.TimerHandle | None = None
        self._metrics_server: MetricsServer | None = None

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """(host, port) of each listener as clients should use it, in the order of the listeners."""
        return [
            (one.advertised_host or one.host, one.advertised_port or one.port)
            for one in self.listeners
        ]

    async def start(self) -> None:
        """Listen on all listeners.

        :raises OSError: when an address is in use or cannot be bound; then nothing is listening
        """
        loop = asyncio.get_running_loop()
        try:
            for i, listener in enumerate(self.listeners):
                server = await loop.create_server(
                    lambda i=i: Connection(self.shared, self.listeners[i]),  # type: ignore[misc]
                    listener.host,
                    listener.port,
                    backlog=1024,
                )
                self._servers.append(server)
                self.listeners[i] = replace(listener, port=server.sockets[0].getsockname()[1])
        except OSError:
            await self.close()
            raise
        self.broker.advertise([(str(host), port) for host, port in self.addresses])
        if self.max_idle_ms > 0:
            self._reaper = loop.call_later(self.max_idle_ms / 2000, self._reap)

    async def serve_metrics(self, host: str, port: int) -> int:
        """Serve metrics over HTTP, too, until :meth:`close`.

        :param port: 0 picks a free one
        :returns: the port
        :raises OSError: when the address is in use or cannot be bound
        """
        from .metrics.page import metrics_page  # most brokers do without, and start sooner
        from .metrics.server import MetricsServer

        self._metrics_server = MetricsServer(lambda: metrics_page(self.broker))
        await self._metrics_server.start(host, port)
        return self._metrics_server.port

    def _reap(self) -> None:
        """Close connections on which nothing has happened for ``connections.max.idle.ms``."""
        oldest = perf_counter() - self.max_idle_ms / 1000
        for connection in list(self.connections):
            if connection.last_active < oldest and connection.task is None:
                connection.abandon()
        self._reaper = asyncio.get_running_loop().call_later(self.max_idle_ms / 2000, self._reap)

    async def close(self) -> None:
        """Stop listening and close every connection; requests that are waiting are given up."""
        if self._reaper is not None:
            self._reaper.cancel()
        if self._metrics_server is not None:
            await self._metrics_server.close()
        for server in self._servers:
            server.close()
        self._servers.clear()
        for connection in list(self.connections):
            connection.abandon()
        # Cancelled requests and lost connections are told so in the loop's next rounds.
        for _ in range(100):
            if not self.connections:
                break
            await asyncio.sleep(0.01)
