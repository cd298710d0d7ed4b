"""The sockets of a broker. ``connection.py`` serves the requests on one connection."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

from headrace.handlers import APIS
from headrace.log_lines import get_logger
from headrace.net.acceptor import Acceptor, Begin, Connected, listening_sockets, plain
from headrace.net.connection import Connection, Connections
from headrace.net.listeners import Listener
from headrace.net.open_ports import warn_if_open
from headrace.net.session import LOGIN_TIMEOUT_S

from .broker import Broker
from .control import ControlServer
from .descriptors import descriptor_budget

if TYPE_CHECKING:
    from headrace.net.tls.listener import TlsListener
    from headrace.net.tls.transport import Handshakes

    from .metrics.server import MetricsAccess

MAX_HANDSHAKES = 1000
"""TLS handshakes that are not complete. One more ends the oldest."""

log = get_logger("headrace.server")


class Server:
    """A broker on one or more listeners: ``await start()``, ``listeners``, ``await close()``.

    :raises ConfigError: when the security settings of a listener cannot be used
    """

    def __init__(self, broker: Broker, listeners: Sequence[Listener]) -> None:
        self.broker = broker
        self.listeners = list(listeners)
        self.shared = Connections(broker, APIS, descriptor_budget().connections)
        self.connections = self.shared.connections
        self.max_idle_ms = broker.config.get_int("connections.max.idle.ms")
        self._securities = [broker.security.add(listener) for listener in self.listeners]
        self._reaper: asyncio.TimerHandle | None = None
        self._handshakes: Handshakes | None = None
        self._ends = AsyncExitStack()
        """Ends what accepts requests."""
        self._ends.callback(broker.security.close)

    async def start(self) -> None:
        """Listen on all listeners.

        :raises OSError: when an address is in use or cannot be bound; then nothing is listening
        """
        await self.broker.security.ready()
        try:
            for i, security in enumerate(self._securities):
                listener = self.listeners[i]
                sockets = await listening_sockets(listener.host, listener.port)
                listener = self.listeners[i] = replace(listener, port=sockets[0].getsockname()[1])
                connected = partial(Connection, self.shared, listener, security)
                begin = plain(connected)
                if security.tls is not None:
                    begin = self._tls_beginning(security.tls, connected)
                for sock in sockets:
                    acceptor = Acceptor(sock, begin, self.shared.limits, listener.name)
                    self._ends.callback(acceptor.close)
        except OSError:
            await self.close()
            raise
        if not self.broker.ephemeral:
            control = ControlServer(self.broker)
            self._ends.callback(control.close)
            await control.start()
        self.broker.security.start()
        if any(security.sasl for security in self._securities):
            from headrace.net.login_requests import load_logins

            load_logins(APIS)
        self._warn_if_open()
        self.broker.loop_watch.start()
        self.broker.advertise(self.listeners)
        if self.max_idle_ms > 0:
            self._reap()

    def _warn_if_open(self) -> None:
        """Log a warning if clients of other machines reach the broker without authentication."""
        config = self.broker.config
        for listener in self.listeners:
            client_auth = config.listener_value(listener.name, "ssl.client.auth")
            has_certificates = listener.protocol.uses_tls and client_auth == "required"
            login = listener.protocol.uses_sasl or has_certificates
            warn_if_open(f"the listener {listener.name}", listener.host, login=login)

    def _tls_beginning(self, tls: TlsListener, connected: Connected) -> Begin:
        """Return the function that begins connections with TLS."""
        from headrace.net.tls.transport import Handshakes, TlsTransport

        if self._handshakes is None:
            self._handshakes = Handshakes(LOGIN_TIMEOUT_S, MAX_HANDSHAKES)
        handshakes = self._handshakes

        def begin(sock: socket.socket, ended: Callable[[], None]) -> None:
            TlsTransport(sock, tls.context, connected, handshakes, ended)

        return begin

    async def serve_metrics(self, host: str, port: int, access: MetricsAccess | None = None) -> int:
        """Serve metrics over HTTP until :meth:`close`.

        :param port: 0 picks a free port
        :param access: the protection of the metrics, by default none
        :returns: the port
        :raises OSError: when the address is in use or cannot be bound
        """
        # Imported here, so that a start without metrics is quick.
        from .metrics.page import metrics_page
        from .metrics.server import MetricsServer

        metrics_server = MetricsServer(lambda: metrics_page(self.broker), access)
        self._ends.push_async_callback(metrics_server.close)
        return await metrics_server.start(host, port)

    def _reap(self) -> None:
        """Close the connections that were idle for ``connections.max.idle.ms``."""
        oldest = perf_counter() - self.max_idle_ms / 1000
        for connection in list(self.connections):
            if connection.last_active < oldest and not connection.session.is_waiting:
                connection.abandon()
        self._reaper = asyncio.get_running_loop().call_later(self.max_idle_ms / 2000, self._reap)

    async def stop_serving(self) -> None:
        """Stop listening and answering. Connections stay open until :meth:`close`.

        Close the broker in between: then its clients are disconnected when it has written
        everything, and do not try to connect again while it is still stopping.
        """
        if self._reaper is not None:
            self._reaper.cancel()
        await self._ends.aclose()
        for connection in list(self.connections):
            connection.stop_serving()
        await asyncio.sleep(0)  # requests that wait are cancelled in the next turn of the loop

    async def close(self) -> None:
        """Stop listening and close every connection. Waiting requests are not answered."""
        await self.stop_serving()
        for connection in list(self.connections):
            connection.abandon()
        if self._handshakes is not None:
            self._handshakes.close()
        # Connections learn that they are lost in the next turns of the event loop.
        for _ in range(100):
            if not self.connections:
                break
            await asyncio.sleep(0.01)


async def stop(broker: Broker, server: Server) -> None:
    """Stop a broker and its server: first answering, then the broker, then the connections."""
    await server.stop_serving()
    try:
        broker.close()
    finally:
        await server.close()
