"""Requests that read records: few at a time, each only while its client waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from .limits import MAX_READS

T = TypeVar("T")

Handle = Callable[[Request], Awaitable[Response]]
_CLIENT_CLOSED_REQUEST = 499
"""The status that web servers log for a client that has gone; nobody receives it."""

_THREADS = ThreadPoolExecutor(MAX_READS, "records")
"""Few threads, because each keeps some of the memory that it has used."""


async def in_thread(function: Callable[..., T], *arguments: object) -> T:
    """Return what a function returns that opens, or writes, megabytes of records."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, function, *arguments)


class Reads:
    """The requests that read records."""

    def __init__(self) -> None:
        self._running = asyncio.Semaphore(MAX_READS)

    def __call__(self, handle: Handle) -> Handle:
        """Return a handler that waits for its turn, and ends when its client has gone."""

        async def take_turn(request: Request) -> Response:
            async with self._running:
                return await handle(request)

        async def read(request: Request) -> Response:
            reading = asyncio.ensure_future(take_turn(request))
            leaving = asyncio.ensure_future(_left(request))
            try:
                await asyncio.wait((reading, leaving), return_when=asyncio.FIRST_COMPLETED)
                if reading.done():
                    return reading.result()
                leaving.result()
                raise HTTPException(_CLIENT_CLOSED_REQUEST)
            finally:
                reading.cancel()
                leaving.cancel()
                await asyncio.gather(reading, leaving, return_exceptions=True)

        return read


async def _left(request: Request) -> None:
    """Wait until the client of a request without a body has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
