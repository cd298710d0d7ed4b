"""The page behind the HTTP server."""

from __future__ import annotations

import asyncio
import resource
import ssl
from collections.abc import Callable

from headrace.http.hosts import Hosts
from headrace.http.server import HttpServer

from .app import App
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
        App(site).answer,
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
