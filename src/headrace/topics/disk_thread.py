"""A thread for work that would hold the event loop: it waits for the disk, or takes long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class DiskThread:
    """One thread, which takes work in the order of the calls. Belongs to the broker's event loop.

    :param name: the name of the thread
    """

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, name)

    async def run(self, work: Callable[[], T]) -> T:
        """Run a function in the thread, and return its result."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    def close(self) -> None:
        """Wait for the work that is running; what waits behind it is given up."""
        self._executor.shutdown(wait=True, cancel_futures=True)
