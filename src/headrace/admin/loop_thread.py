"""An event loop in a thread of its own, for calls from any thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import TypeVar

from headrace.client import Cluster
from headrace.client.settings import Settings

T = TypeVar("T")

_CLOSE_TIMEOUT_S = 5.0


class LoopThread:
    """Connections to a cluster, used from any thread.

    The loop, its thread and the connections are created on first use.

    :ivar cluster: belongs to the loop; use it only inside :meth:`submit`
    """

    def __init__(self, settings: Settings) -> None:
        self.cluster = settings.cluster()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._is_closed = False

    def submit(self, work: Callable[[Cluster], Awaitable[T]]) -> Future[T]:
        """Run ``work`` on the loop.

        :returns: the future of its result
        :raises RuntimeError: after :meth:`close`
        """

        async def run() -> T:
            return await work(self.cluster)

        with self._lock:
            if self._is_closed:
                raise RuntimeError("the admin client is closed")
            if self._loop is None:
                self._start()
            assert self._loop is not None
            return asyncio.run_coroutine_threadsafe(run(), self._loop)

    @property
    def is_closed(self) -> bool:
        """True after :meth:`close`."""
        return self._is_closed

    def change_login(self, username: str, password: str) -> None:
        """Use these credentials for connections opened from now on.

        Does nothing when the configuration has no SASL login.
        """
        security = self.cluster.security
        if security.sasl is None:
            return
        sasl = replace(security.sasl, username=username, password=password)
        self.cluster.security = replace(security, sasl=sasl)

    def close(self) -> None:
        """Close the connections and end the thread. Cancel unfinished work."""
        with self._lock:
            self._is_closed = True
            thread, loop, stop = self._thread, self._loop, self._stop
            self._thread = self._loop = self._stop = None
        if thread is None or loop is None or stop is None:
            return
        loop.call_soon_threadsafe(stop.set)
        if thread is not threading.current_thread():  # a finalizer may run on any thread
            thread.join(_CLOSE_TIMEOUT_S)

    def _start(self) -> None:
        started = threading.Event()

        async def run_until_stopped() -> None:
            self._loop = asyncio.get_running_loop()
            self._stop = stop = asyncio.Event()
            started.set()
            await stop.wait()
            await self.cluster.close()

        self._thread = threading.Thread(
            target=lambda: asyncio.run(run_until_stopped()), name="headrace-admin", daemon=True
        )
        self._thread.start()
        started.wait()
