"""A broker and its server in the event loop of a test, whose connections can be looked at."""

from __future__ import annotations

import asyncio
import functools
import logging
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvloop

from headrace.broker.broker import Broker
from headrace.broker.config.broker_config import Config
from headrace.broker.server import Server, stop
from headrace.log_lines import LIMITER
from headrace.net.connection import Connection
from tests.kio_messages import request_type
from tests.wire_client import decode, encode, fitted, message


class Serving:
    """A running broker."""

    def __init__(self, broker: Broker, server: Server) -> None:
        self.broker = broker
        self.server = server

    def address(self, name: str) -> tuple[str, int]:
        """Return host and port of a listener."""
        return next((one.host, one.port) for one in self.server.listeners if one.name == name)

    @property
    def connection(self) -> Connection:
        """The only connection."""
        (connection,) = self.server.connections
        return connection

    async def connect(self, name: str, context: ssl.SSLContext | None = None) -> Client:
        """Return a client of a listener."""
        host, port = self.address(name)
        return Client(*await asyncio.open_connection(host, port, ssl=context))


class Client:
    """A client that sends single requests."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, api_key: int, version: int, **fields: Any) -> Any:
        """Send a request and return its response."""
        request_class = request_type(api_key, version)
        request = message(request_class, **fitted(api_key, version, fields))
        self.writer.write(encode(request, 7))
        return decode(api_key, version, await self.frame())

    async def frame(self) -> bytes:
        """Return the next frame, without its size."""
        (size,) = struct.unpack(">i", await asyncio.wait_for(self.reader.readexactly(4), 20))
        return await asyncio.wait_for(self.reader.readexactly(size), 20)

    async def is_closed(self, within_s: float = 20) -> bool:
        """Return whether the broker closes the connection without a further byte."""
        try:
            return await asyncio.wait_for(self.reader.read(1), within_s) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self.writer.close()


@asynccontextmanager
async def serving(
    configs: Mapping[str, object], data_dir: Path | None = None
) -> AsyncIterator[Serving]:
    """Run a broker with this configuration."""
    LIMITER.clear()
    config = Config({name: str(value) for name, value in configs.items()})
    broker = Broker(config, data_dir)
    try:
        server = Server(broker, config.listeners("127.0.0.1"))
    except BaseException:
        broker.close()
        raise
    try:
        broker.start()
        await server.start()
        yield Serving(broker, server)
    finally:
        await stop(broker, server)


def run(scene: Any) -> None:
    """Run a coroutine on the event loop that brokers use."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scene)


def on_uvloop(function: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test on the event loop that brokers use."""

    @functools.wraps(function)
    def run_test(**fixtures: Any) -> None:
        run(function(**fixtures))

    return run_test


def warnings(caplog: Any) -> list[str]:
    """Return the warnings and errors that were logged, except those about a busy machine."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno >= logging.WARNING and record.name != "headrace.loop"
    ]
