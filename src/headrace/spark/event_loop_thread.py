"""An event loop for callers that are not asynchronous."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class EventLoopThread:
    """An asyncio event loop that runs in a daemon thread of its own until :meth:`stop`."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """True until the thread has ended."""
        return self._thread.is_alive()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine on the loop and return the future of its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def stop(self, timeout_s: float) -> None:
        """Stop the loop and wait for the thread, for ``timeout_s`` at most."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout_s)
