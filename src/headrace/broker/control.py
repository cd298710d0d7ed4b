"""The control socket of a broker: snapshots for ``headrace backup``."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sqlite3
from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.backup.control_socket import SNAPSHOT, SOCKET_FILE, listen
from headrace.log_lines import get_logger
from headrace.topics.catalog import CATALOG_FILE, CatalogError
from headrace.topics.catalog_file import save

from .broker import Broker

if TYPE_CHECKING:
    from headrace.log.snapshot import Snapshot

log = get_logger("headrace.broker")


class ControlServer:
    """The control socket of a broker with a data directory."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._directory = broker.logs.directory
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._snapshot: Snapshot | None = None
        """The snapshot that a client uses, or that is being deleted."""
        self._removing: asyncio.Future[None] | None = None

    async def start(self) -> None:
        """Listen. A failure is logged: without the socket only a backup of the running broker is
        not possible.
        """
        try:
            listening = listen(self._directory.path)
            self._server = await asyncio.start_unix_server(self._connected, sock=listening)
        except OSError as error:
            log.warning(
                "cannot listen on %s/%s, no backup is possible while the broker runs: %s",
                self._directory.path,
                SOCKET_FILE,
                error,
            )

    def close(self) -> None:
        """Stop listening and end all connections. A snapshot that is left is deleted by the next
        start.
        """
        if self._server is None:
            return
        self._server.close()
        self._server = None
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self._directory.path}/{SOCKET_FILE}")
        if self._snapshot is not None:
            self._snapshot.abandon()
        for connection in self._connections:
            connection.cancel()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.current_task()
        assert connection is not None
        self._connections.add(connection)
        try:
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await self._serve(reader, writer)
        finally:
            self._connections.discard(connection)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = json.loads(await reader.readline())
        except ValueError:
            request = None
        if request != {"request": SNAPSHOT}:
            await _respond(writer, {"error": "unknown request"})
        elif not await self._is_free():
            await _respond(writer, {"error": "another backup is running"})
        else:
            await self._lend_snapshot(reader, writer)

    async def _is_free(self) -> bool:
        """Return True if no client uses a snapshot. Wait a moment for one that has just gone."""
        for _ in range(10):
            if self._removing is not None:
                await asyncio.wait((self._removing,))
            if self._snapshot is None:
                return True
            await asyncio.sleep(0.05)
        return False

    async def _lend_snapshot(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Take a snapshot, and delete it when the client closes the connection."""
        from headrace.log.snapshot import Snapshot  # few brokers need it

        try:
            catalog = self._broker.catalog.view()
            snapshot = Snapshot(self._broker.logs)  # in the same turn as the view
        except (OSError, CatalogError) as error:
            await _respond(writer, {"error": f"cannot take a snapshot: {error}"})
            return
        self._snapshot = snapshot
        log.info("took the snapshot %s for a backup", snapshot.name)
        filling = asyncio.ensure_future(asyncio.to_thread(_fill, snapshot, catalog))
        gone = asyncio.ensure_future(_end_of(reader))
        try:
            await asyncio.wait((filling, gone), return_when=asyncio.FIRST_COMPLETED)
            if filling.done():
                await _respond(writer, _response(snapshot, filling.exception()))
                await gone
        finally:
            gone.cancel()
            snapshot.stop()
            self._removing = asyncio.ensure_future(self._remove(snapshot, filling))

    async def _remove(self, snapshot: Snapshot, filling: asyncio.Future[None]) -> None:
        await asyncio.wait((filling,))
        try:
            await asyncio.to_thread(snapshot.remove)
        except OSError as error:
            log.warning("cannot delete the snapshot %s: %s", snapshot.path, error)
        finally:
            self._snapshot = self._removing = None


def _fill(snapshot: Snapshot, catalog: sqlite3.Connection) -> None:
    """Complete a snapshot. This runs in a thread."""
    try:
        snapshot.link_all()
        save(catalog, f"{snapshot.path}/{CATALOG_FILE}")
    finally:
        catalog.close()


def _response(snapshot: Snapshot, error: BaseException | None) -> Mapping[str, object]:
    if error is None:
        return {"name": snapshot.name, "offline": snapshot.offline}
    expected = isinstance(error, (OSError, sqlite3.Error))
    log.error("cannot take a snapshot: %s", error, exc_info=None if expected else error)
    return {"error": f"cannot take a snapshot: {error}. Stop the broker to back it up without one"}


async def _end_of(reader: asyncio.StreamReader) -> None:
    """Wait until the client closes the connection. Whatever it sends is discarded."""
    with contextlib.suppress(ConnectionError):
        while await reader.read(1 << 16):
            pass


async def _respond(writer: asyncio.StreamWriter, response: Mapping[str, object]) -> None:
    writer.write(json.dumps(response).encode() + b"\n")
    await writer.drain()
