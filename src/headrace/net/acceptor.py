"""Accept connections, as many as there are file descriptors for."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from headrace.coordinators.waiting import run_to_end

from . import log

if TYPE_CHECKING:
    from .connection_limits import ConnectionLimits

ACCEPTS_PER_TURN = 100
"""The connections that a listener accepts in one turn of the event loop."""

ACCEPT_RETRY_S = 0.1
"""The pause after the system has refused to accept a connection."""

MAX_HELD_CONNECTIONS = 100
"""The connections of a listener that exceed the quota of their address and are held before they are
closed. One more closes the oldest.
"""

Connected = Callable[[], asyncio.BufferedProtocol]
"""Makes the protocol of a connection."""

Begin = Callable[[socket.socket, Callable[[], None]], object]
"""Begins a connection on a socket, and calls a function when it is open or has failed."""

_BACKLOG = 1024
_GONE = frozenset((errno.EAGAIN, errno.ECONNABORTED, errno.EINTR))


async def listening_sockets(host: str, port: int) -> list[socket.socket]:
    """Return a listening socket for each address of a host.

    :param port: 0 picks a free port, the same for all addresses
    :raises OSError: when an address is in use or cannot be bound; then nothing is listening
    """
    infos = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    with ExitStack() as undo:
        sockets = []
        for family, _, _, _, address in dict.fromkeys(infos):
            endpoint: Any = address[0], port, *address[2:]
            try:
                sock = socket.create_server(endpoint, family=family, backlog=_BACKLOG)
            except OSError as error:
                # Without the text of the error, which may name the address, too.
                message = f"cannot listen on {address[0]}:{port}: {os.strerror(error.errno or 0)}"
                raise OSError(error.errno, message) from None
            sockets.append(undo.enter_context(sock))
            port = sock.getsockname()[1]
            sock.setblocking(False)
        undo.pop_all()
    return sockets


def plain(connected: Connected) -> Begin:
    """Return the function that begins connections without TLS."""

    async def connect(sock: socket.socket, ended: Callable[[], None]) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(connected, sock)
        except OSError:  # it is gone already
            sock.close()
        finally:
            ended()

    return lambda sock, ended: run_to_end(connect(sock, ended))


class Acceptor:
    """A listening socket. It accepts connections, and closes those above the limit.

    asyncio's own servers accept all waiting connections before the first one is seen, and could
    thus take the last file descriptor.

    :param begin: begins a connection
    :param limits: None if the owner of the connections limits them itself
    :param listener: the name of the listener, for its rate
    """

    def __init__(
        self,
        listening: socket.socket,
        begin: Begin,
        limits: ConnectionLimits | None = None,
        listener: str = "",
    ) -> None:
        self._limits = limits
        self._listener = listener
        self._held: dict[socket.socket, asyncio.TimerHandle] = {}
        """Connections that exceed the quota of their address, and will be closed."""
        self.listening = listening
        self._begin = begin
        self._loop = asyncio.get_running_loop()
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
        limits = self._limits
        for _ in range(ACCEPTS_PER_TURN):
            try:
                sock, address = self.listening.accept()
            except OSError as error:
                if error.errno not in _GONE:
                    log.error("", "cannot accept a connection: %s", error.strerror)
                    self._pause(ACCEPT_RETRY_S)  # the next attempt would fail, too
                return
            sock.setblocking(False)
            if limits is None:
                self._open(sock)
            elif not limits.admit():
                sock.close()
            elif throttle_ms := limits.address_ms(address[0]):
                self._hold(sock, throttle_ms)
            else:
                pause_ms = limits.listener_ms(self._listener)
                self._open(sock)
                if pause_ms:
                    self._pause(pause_ms / 1000)
                    return

    def _open(self, sock: socket.socket) -> None:
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._begin(sock, self._begun)
        except (OSError, ValueError):  # it is gone already
            sock.close()
            self._begun()

    def _begun(self) -> None:
        if self._limits is not None:
            self._limits.beginning -= 1

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
