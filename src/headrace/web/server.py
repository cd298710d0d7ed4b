"""The web server of the page: uvicorn on a socket of our own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from .limits import MAX_CONCURRENT_REQUESTS

_BACKLOG = 128
_KEEP_ALIVE_S = 15
_STOP_S = 2
_HEAD_BYTES = 32 * 1024


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket.

    :raises OSError: the address is in use or cannot be bound
    """
    family, _, _, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    dual = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
    listening = socket.create_server(address, family=family, backlog=_BACKLOG, dualstack_ipv6=dual)
    listening.setblocking(False)
    return listening


async def serve(
    app: ASGIApp,
    listening: socket.socket,
    stopping: asyncio.Event,
    *,
    tls: Path | None = None,
    ready: Callable[[], object] = lambda: None,
) -> None:
    """Serve until ``stopping`` is set.

    :param tls: a PEM file with a private key and certificates; None for plain HTTP
    :param ready: called when requests are served
    :raises OSError: the PEM file cannot be used
    """
    options: dict[str, Any] = {}
    if tls is not None:
        options = {"ssl_certfile": str(tls), "ssl_keyfile": str(tls), "ssl_keyfile_password": ""}
        options["ssl_version"] = ssl.PROTOCOL_TLS_SERVER
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        http="h11",
        lifespan="on",
        limit_concurrency=MAX_CONCURRENT_REQUESTS,
        h11_max_incomplete_event_size=_HEAD_BYTES,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_STOP_S,
        **options,
    )
    server = uvicorn.Server(config)
    # The command has handlers of its own.
    server.capture_signals = contextlib.nullcontext  # type: ignore
    serving = asyncio.ensure_future(server.serve([listening]))
    waiting = asyncio.ensure_future(stopping.wait())
    try:
        while not server.started and not serving.done():
            await asyncio.sleep(0.01)
        if server.started:
            ready()
        await asyncio.wait((serving, waiting), return_when=asyncio.FIRST_COMPLETED)
        server.should_exit = True
        await serving
    finally:
        waiting.cancel()
