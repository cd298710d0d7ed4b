"""An event loop with a clock of its own, which is moved by hand."""

from __future__ import annotations

import asyncio
import heapq
import math
import socket
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any

EPOCH_MS = 1_750_000_000_000
"""The time at which every simulation begins."""

MAX_CALLBACKS = 100_000
"""Callbacks in one go that show an endless loop."""


class VirtualLoop(asyncio.AbstractEventLoop):
    """An event loop that runs callbacks in :meth:`settle` and :meth:`advance`; `now_ms` counts
    whole milliseconds.

    :param is_alive: nothing runs any more when this returns False
    :ivar failures: contexts of exceptions in callbacks and tasks, as asyncio describes them
    """

    def __init__(self, now_ms: int, is_alive: Callable[[], bool]) -> None:
        self.now_ms = now_ms
        self._is_alive = is_alive
        self.failures: list[dict[str, Any]] = []
        self._is_running = False
        self._in_thread = False
        self._delay_ms = 0
        self._work: dict[asyncio.Future[Any], Callable[[], None]] = {}
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[int, int, asyncio.TimerHandle]] = []
        self._serial = count()

    # What the simulation calls

    def settle(self) -> None:
        """Run everything that is ready, and everything that becomes ready by it."""
        self.advance(0)

    def advance(self, ms: int) -> None:
        """Let `ms` milliseconds pass, timer by timer."""
        self._is_running = True
        try:
            self._advance(self.now_ms + ms)
        finally:
            self._is_running = False

    def _advance(self, end_ms: int) -> None:
        left = MAX_CALLBACKS
        while self._is_alive():
            while self._ready and self._is_alive():
                handle = self._ready.popleft()
                if not handle.cancelled():
                    handle._run()
                left -= 1
                assert left, f"this never comes to rest: {handle}"
            if not self._timers or self._timers[0][0] > end_ms:
                break
            when_ms, _, timer = heapq.heappop(self._timers)
            self.now_ms = max(self.now_ms, when_ms)
            self._ready.append(timer)
        self.now_ms = max(self.now_ms, end_ms)

    def pass_ms(self, ms: int) -> None:
        """Let time pass within a callback, or within the work of a thread, which ends later."""
        if self._in_thread:
            self._delay_ms += ms
        else:
            self.now_ms += ms

    def finish_work(self) -> None:
        """End the work in threads."""
        for finish in list(self._work.values()):
            finish()

    def kill(self) -> None:
        """Drop everything that is scheduled."""
        self._work.clear()
        self._ready.clear()
        self._timers.clear()
        self.call_exception_handler = lambda context: None  # type: ignore[method-assign]

    # What asyncio and the broker call

    def time(self) -> float:
        return self.now_ms / 1000

    def call_soon(
        self, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.Handle:  # type: ignore[override]
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (math.ceil(when * 1000 - 1e-3), next(self._serial), handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:  # type: ignore[override]
        return asyncio.Task(coro, loop=self, **options)

    def run_in_executor(
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:  # type: ignore[override]
        """Run work at once. If the disk was slow in it, its end is known only later."""
        future = self.create_future()
        self._in_thread, self._delay_ms = True, 0
        result: Any = None
        error: Exception | None = None
        try:
            result = func(*args)
        except Exception as raised:
            error = raised
        finally:
            self._in_thread = False

        def finish() -> None:
            self._work.pop(future, None)
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        if self._delay_ms:
            self._work[future] = finish
            self.call_later(self._delay_ms / 1000, finish)
        else:
            finish()
        return future

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        """Fail: a simulation has no network."""
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self._is_running

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.failures.append(context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: cancelled timers are dropped when their time comes."""
