"""Accept connections, as many as there are file descriptors for."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.log_lines import LimitedLog, get_logger

if TYPE_CHECKING:
    from .connection_limits import ConnectionRates
    from .metrics import Metrics

ACCEPTS_PER_TURN = 100
"""The connections that a listener accepts in one turn of the event loop."""

ACCEPT_RETRY_S = 0.1
"""The pause after the system has refused to accept a connection."""

MAX_HELD_CONNECTIONS = 100
"""The connections of a listener that exceed the quota of their address and are held before they are
closed. One more closes the oldest.
"""

log = LimitedLog(get_logger("headrace.server"))

Connected = Callable[[], asyncio.BufferedProtocol]
"""Makes the protocol of a connection."""

Begin = Callable[[socket.socket, Callable[[], None]], None]
"""Begins a connection on a socket, and calls a function when it is open or has failed."""

_BACKLOG = 1024
_GONE = frozenset((errno.EAGAIN, errno.ECONNABORTED, errno.EINTR))


async def listening_sockets(host: str, port: int) -> list[socket.socket]:
    """Return a listening socket for each address of a host.

    :param port: 0 picks a free port, the same for all addresses
    :raises OSError: when an address is in use or cannot be bound; then nothing is listening
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            sock = socket.socket(family, kind, protocol)
            sockets.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            at = address[0], port, *address[2:]
            try:
                sock.bind(at)
            except OSError as error:
                message = f"cannot listen on {at[0]}:{port}: {error.strerror}"
                raise OSError(error.errno, message) from None
            port = sock.getsockname()[1]
            sock.listen(_BACKLOG)
            sock.setblocking(False)
    except BaseException:
        for sock in sockets:
            sock.close()
        raise
    return sockets


class ConnectionSlots:
    """The number of connections that may be open.

    :param limit: of all listeners together
    :param metrics: counts the open and the refused connections
    :ivar beginning: accepted connections that are not open yet
    """

    def __init__(self, limit: int, metrics: Metrics) -> None:
        self.limit = limit
        self.metrics = metrics
        self.beginning = 0

    @property
    def is_full(self) -> bool:
        """True if no more connections may be opened."""
        return len(self.metrics.connections) + self.beginning >= self.limit


class Acceptor:
    """A listening socket. It accepts connections, and closes those above the limit.

    asyncio's own servers accept all waiting connections before the first one is seen, and could
    thus take the last file descriptor.

    :param slots: the limit; None if the owner of the connections limits their number itself
    :param connected: makes the protocol of a connection
    :param begin: begins a connection; by default asyncio does
    :param rates: the rates of new connections; None for no limit
    :param listener: the name of the listener, for its rate
    """

    def __init__(
        self,
        listening: socket.socket,
        slots: ConnectionSlots | None,
        connected: Connected,
        begin: Begin | None = None,
        rates: ConnectionRates | None = None,
        listener: str = "",
    ) -> None:
        self._rates = rates
        self._listener = listener
        self._held: dict[socket.socket, asyncio.TimerHandle] = {}
        """Connections that exceed the quota of their address, and will be closed."""
        self.listening = listening
        self._slots = slots
        self._connected = connected
        self._begin_with = begin
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None
        self._loop.add_reader(listening, self._accept)

    def close(self) -> None:
        """Stop listening."""
        self._loop.remove_reader(self.listening)
        if self._retry is not None:
            self._retry.cancel()
        self.listening.close()
        for sock in list(self._held):
            self._drop(sock)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                sock, address = self.listening.accept()
            except OSError as error:
                if error.errno not in _GONE:
                    log.error("", "cannot accept a connection: %s", error.strerror)
                    self._pause(ACCEPT_RETRY_S)  # the next attempt would fail, too
                return
            if self._slots is not None and self._slots.is_full:
                sock.close()
                self._slots.metrics.connections_refused += 1
                log.warning(
                    "",
                    "refused a connection: %d are open, and the process has file descriptors for "
                    "no more (ulimit -n)",
                    self._slots.limit,
                )
                continue
            sock.setblocking(False)
            if self._slots is not None:
                self._slots.beginning += 1
            throttle_ms = 0 if self._rates is None else self._rates.address_ms(address[0])
            if throttle_ms:
                self._hold(sock, throttle_ms)
                continue
            pause_ms = 0 if self._rates is None else self._rates.listener_ms(self._listener)
            self._open(sock)
            if pause_ms:
                self._pause(pause_ms / 1000)
                return

    def _open(self, sock: socket.socket) -> None:
        if self._begin_with is None:
            task = self._loop.create_task(self._begin(sock))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._begin_with(sock, self._begun)
        except (OSError, ValueError):  # it is gone already
            sock.close()
            self._begun()

    def _begun(self) -> None:
        if self._slots is not None:
            self._slots.beginning -= 1

    async def _begin(self, sock: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._connected, sock)
        except OSError:  # it is gone already
            sock.close()
        finally:
            self._begun()

    def _hold(self, sock: socket.socket, throttle_ms: int) -> None:
        """Keep a connection that exceeds the quota of its address waiting, then close it."""
        if len(self._held) >= MAX_HELD_CONNECTIONS:
            self._drop(next(iter(self._held)))
        self._held[sock] = self._loop.call_later(throttle_ms / 1000, self._drop, sock)

    def _drop(self, sock: socket.socket) -> None:
        """Close a connection that exceeds the quota of its address."""
        self._held.pop(sock).cancel()
        sock.close()
        self._begun()

    def _pause(self, pause_s: float) -> None:
        """Accept nothing for a moment."""
        self._loop.remove_reader(self.listening)
        self._retry = self._loop.call_later(
            pause_s, self._loop.add_reader, self.listening, self._accept
        )
