"""Requests that read records: few at a time, in threads of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from headrace.http.messages import Response

from .limits import MAX_READS
from .requests import PageRequest

T = TypeVar("T")

Handle = Callable[[PageRequest], Awaitable[Response]]

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
        """Return a handler that waits for its turn. The server cancels it if its client goes."""

        async def read(request: PageRequest) -> Response:
            async with self._running:
                return await handle(request)

        return read
