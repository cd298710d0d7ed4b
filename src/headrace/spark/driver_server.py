"""The server of a source's reader: requests from other processes of the Spark application.

Spark runs a stream's reader, a sink's commit, the user's program and the tasks in processes of
their own. The reader listens, on a Unix socket that only its user can open, or over TCP where its
clients may be on other hosts or share no files with it. It asks for a random token. The
:class:`Address` has both.

A connection has one request and one answer: the token and a line of JSON, and a line of JSON.
Nothing is read from a connection that has not sent the token.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import ipaddress
import json
import os
import secrets
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from headrace.client.cluster import parse_bootstrap

_TOKEN_BYTES = 16
_TOKEN_LENGTH = 2 * _TOKEN_BYTES
MAX_STRANGERS = 64
"""Number of connections that may be open without having sent the token. One more ends the
oldest."""
_STRANGER_TIMEOUT_S = 10.0
"""Time in which a connection must send the token."""
TIMEOUT_S = 60.0
"""Time in which a process that has sent the token must send its request."""
_MAX_ANSWER_BYTES = 1 << 20
_BACKLOG = 1024
_MAX_PATH_LENGTH = 100
"""Longest path of a Unix socket; the systems allow 103 to 107 bytes."""
_DISCARD_PORT = 9
_LOCK_INTERVAL_S = 0.1


class Address(NamedTuple):
    """The address of a server, and the secret that it asks for. ``str()`` is the inverse of
    :meth:`parse`.

    :param place: ``host:port``, or the path of a Unix socket: what an error may show
    """

    place: str
    token: str

    def __str__(self) -> str:
        return f"{self.place}/{self.token}"

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parse the text of an address.

        :raises ValueError: it is none
        """
        place, _, token = text.rpartition("/")
        host, _, port = place.rpartition(":")
        if not (token and (place.startswith("/") or (host and port.isdigit()))):
            raise ValueError(f"'{text}' is no address of a reader")
        return cls(place, token)


class DriverServer:
    """A server on the running event loop.

    :param answer: returns the answer to a request; an error that it raises is the answer, too
    :param max_request_bytes: the largest request of a process that has sent the token
    """

    def __init__(
        self, answer: Callable[[Any], Awaitable[dict[str, Any]]], max_request_bytes: int
    ) -> None:
        self._answer = answer
        self._bounds = {"backlog": _BACKLOG, "limit": max_request_bytes}
        self._token = secrets.token_hex(_TOKEN_BYTES)
        self._strangers: dict[asyncio.StreamWriter, None] = {}
        self._server: asyncio.Server | None = None
        self._path: Path | None = None

    async def listen_on_host(self) -> Address:
        """Listen for processes of this host and user, on a Unix socket."""
        self._path = _short_directory() / "s"
        self._server = await asyncio.start_unix_server(self._serve, self._path, **self._bounds)
        self._path.chmod(0o600)
        return Address(str(self._path), self._token)

    async def listen_for_tasks(self, bootstrap_servers: str) -> Address:
        """Listen for tasks: on this host if the brokers are, else over TCP."""
        host = own_address(bootstrap_servers)
        if ipaddress.ip_address(host).is_loopback:
            return await self.listen_on_host()
        return await self.listen_at(host)

    async def listen_at(self, host: str) -> Address:
        """Listen at an address of this host, over TCP."""
        self._server = await asyncio.start_server(self._serve, host, 0, **self._bounds)
        port = self._server.sockets[0].getsockname()[1]
        return Address(f"[{host}]:{port}" if ":" in host else f"{host}:{port}", self._token)

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)
                self._path.parent.rmdir()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Those errors are a stranger's, a killed process's, or of too large a request.
        errors = OSError, EOFError, asyncio.LimitOverrunError
        with contextlib.closing(writer), contextlib.suppress(*errors):
            if await self._has_token(reader, writer):
                request = await _in_time(partial(reader.readuntil, b"\n"), TIMEOUT_S)
                writer.write(line(await self._answer_or_error(request)))
                await writer.drain()

    async def _has_token(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        if len(self._strangers) >= MAX_STRANGERS:
            # The oldest has had the most time. A process with the token sends it at once.
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.transport.abort()
        self._strangers[writer] = None
        try:
            token = await _in_time(partial(reader.readexactly, _TOKEN_LENGTH), _STRANGER_TIMEOUT_S)
        finally:
            self._strangers.pop(writer, None)
        return secrets.compare_digest(token, self._token.encode())

    async def _answer_or_error(self, body: bytes) -> dict[str, Any]:
        try:
            return await self._answer(json.loads(body))
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"}


async def _in_time(read: Callable[[], Awaitable[bytes]], timeout_s: float) -> bytes:
    """Read bytes.

    :raises TimeoutError: they have not arrived in time. Those that arrived while this process stood
        still (no free core, SIGSTOP, a suspended machine) have
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            return await read()
    async with asyncio.timeout(0):  # returns what is in the buffer, and waits for nothing
        return await read()


def _short_directory() -> Path:
    """Make a directory for a socket, in one whose path is short enough.

    Spark removes its own directory when the application ends, so that killed readers leave nothing.
    """
    longest = _MAX_PATH_LENGTH - len("/headrace-01234567/s")
    parents = (
        parent
        for parent in (_spark_directory(), tempfile.gettempdir(), "/tmp")
        if parent and len(os.fsencode(parent)) < longest and os.access(parent, os.W_OK)
    )
    return Path(tempfile.mkdtemp(prefix="headrace-", dir=next(parents, None)))


def _spark_directory() -> str:
    return os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0]


def lock_of_driver(name: str, timeout_s: float) -> BinaryIO | None:
    """Return a file that no other process of this driver's Spark application has until this one
    closes it, or ends; None if another one has it for ``timeout_s``.
    """
    path = Path(_spark_directory() or tempfile.gettempdir()) / f"headrace-{name}.lock"
    file = path.open("wb")
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            if time.monotonic() > deadline_s:
                file.close()
                return None
            time.sleep(_LOCK_INTERVAL_S)


def own_address(bootstrap_servers: str) -> str:
    """Return the address of this host from which packets to the first broker are sent.

    :returns: an IP address; that of the loopback interface if there is no route to the broker
    """
    broker, _ = parse_bootstrap(bootstrap_servers)[0]
    try:
        candidates = socket.getaddrinfo(broker, _DISCARD_PORT, type=socket.SOCK_DGRAM)
        family, *_, address = candidates[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)  # sends nothing
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"


def exit_on_sigterm() -> None:
    """Have SIGTERM, by which Spark ends a reader, exit normally, so that ``stop()`` is called."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))


def ignore_sigterm() -> None:
    """Ignore SIGTERM, which may come while the reader stops."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def exchange(address: Address, request: object, timeout_s: float = TIMEOUT_S) -> bytes:
    """Send a request; return the JSON of the answer, empty if there is none, or a huge one.

    :raises OSError: the server cannot be reached
    """
    with _connected(address.place, timeout_s) as connection:
        connection.sendall(address.token.encode() + line(request))
        answer = connection.makefile("rb").readline(_MAX_ANSWER_BYTES)
        return answer if answer.endswith(b"\n") else b""


def _connected(place: str, timeout_s: float) -> socket.socket:
    if not place.startswith("/"):
        host, _, port = place.rpartition(":")
        return socket.create_connection((host.strip("[]"), int(port)), timeout_s)
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(timeout_s)
        connection.connect(place)
    except BaseException:
        connection.close()
        raise
    return connection


def line(value: object) -> bytes:
    """Return a value in JSON, as a line."""
    return json.dumps(value).encode() + b"\n"
