"""An event loop in a thread of its own, for callers that are not asynchronous."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """An asyncio event loop in a daemon thread, from the first call until :meth:`close`.

    May be used from several threads.

    :param name: of the thread
    :ivar is_closed: True after :meth:`close`
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self.is_closed = False

    def is_current(self) -> bool:
        """Return whether the caller runs in this thread, which then cannot wait for its results."""
        return threading.current_thread() is self._thread

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine on the loop.

        :returns: the future of its result; to cancel it cancels the coroutine
        :raises RuntimeError: after :meth:`close`
        """
        with self._lock:
            if self.is_closed:
                work.close()
                raise RuntimeError(f"{self._name} is closed")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_run, args=(self._loop,), name=self._name, daemon=True
                )
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run a coroutine on the loop and return its result.

        An exception in the waiting thread, such as Ctrl-C, cancels the coroutine.

        :param timeout: in seconds; None waits for ever
        :raises TimeoutError: it takes longer, and is cancelled
        """
        future = self.submit(work)
        try:
            return future.result(timeout)
        except BaseException:
            future.cancel()
            raise

    def close(self, timeout: float = 5.0, last: Coroutine[Any, Any, None] | None = None) -> None:
        """Cancel unfinished work, run ``last``, and end the thread. May be called again.

        :param timeout: seconds to wait for the thread
        :param last: closes what belongs to the loop
        """
        with self._lock:
            self.is_closed = True
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None:
            if last is not None:
                last.close()
            return
        asyncio.run_coroutine_threadsafe(_finish(last), loop).add_done_callback(
            lambda _: loop.call_soon_threadsafe(loop.stop)
        )
        if thread is not threading.current_thread():  # a finalizer may run on any thread
            thread.join(timeout)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def _finish(last: Coroutine[Any, Any, None] | None) -> None:
    """Cancel all other tasks of the running loop, then await ``last``."""
    await cancel_all(asyncio.all_tasks() - {asyncio.current_task()})
    if last is not None:
        await last


async def cancel_all(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and wait until they have ended, whatever their results."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
