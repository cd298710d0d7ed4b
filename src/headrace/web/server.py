"""The page behind the HTTP server: requests become those of ASGI."""

from __future__ import annotations

import asyncio
import resource
import ssl
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote

from starlette.types import ASGIApp

from headrace.http.hosts import Hosts
from headrace.http.messages import Request, Response
from headrace.http.server import HttpServer

from .app import create_app
from .limits import MAX_CONCURRENT_REQUESTS, MAX_CONNECTIONS
from .site import Site

_STOP_S = 2


async def serve(
    site: Site,
    hosts: Hosts,
    at: tuple[str, int],
    stopping: asyncio.Event,
    *,
    tls: ssl.SSLContext | None = None,
    ready: Callable[[int], object] = lambda port: None,
) -> None:
    """Serve until ``stopping`` is set.

    :param at: host and port; 0 picks a free port
    :param tls: None for plain HTTP
    :param ready: called with the port when requests are served
    :raises OSError: the address is in use or cannot be bound
    """
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    is_unlimited = descriptors == resource.RLIM_INFINITY
    server = HttpServer(
        answering(create_app(site), "http" if tls is None else "https"),
        hosts,
        tls,
        # Handshakes take as many again; the rest is for the connections to the cluster.
        max_connections=MAX_CONNECTIONS if is_unlimited else min(MAX_CONNECTIONS, descriptors // 4),
        max_requests=MAX_CONCURRENT_REQUESTS,
    )
    await server.start(*at)
    site.observer.start()
    try:
        ready(server.port)
        await stopping.wait()
    finally:
        await server.close(_STOP_S)
        site.observer.close()
        await site.redrives.close()
        await site.cluster.close()


def answering(app: ASGIApp, scheme: str) -> Callable[[Request], Awaitable[Response]]:
    """Return the function that has an application answer requests."""

    async def answer(request: Request) -> Response:
        path, _, query = request.target.partition(b"?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": scheme,
            "path": unquote(path.decode("ascii")),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": list(request.headers),
            "client": (request.address, 0),
            "server": None,
            "state": {},
        }
        bodies = [request.body]
        started: dict[str, Any] = {}
        sent = bytearray()

        async def receive() -> dict[str, Any]:
            if not bodies:
                await asyncio.Event().wait()  # the server cancels the answer if the client goes
            return {"type": "http.request", "body": bodies.pop()}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                started.update(message)
            else:
                sent.extend(message.get("body", b""))

        await app(scope, receive, send)
        return Response(started["status"], bytes(sent), list(started["headers"]))

    return answer
