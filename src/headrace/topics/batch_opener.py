"""Opening of large batches in a thread, one after the other.

A batch that is small after decompression is opened on the event loop. For a larger one the request
waits, and the thread pauses after each piece, so that the loop goes on.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from time import perf_counter, sleep
from typing import TypeVar

from headrace.protocol.record_batch import Opening

from .disk_thread import DiskThread

OPENING_WORK_S, OPENING_REST_S = 0.002, 0.001
"""The thread that opens large batches pauses for ``OPENING_REST_S`` seconds after about
``OPENING_WORK_S`` seconds of work, so that the event loop can run.
"""

T = TypeVar("T")


class OpeningStopped(Exception):
    """The broker stops."""


class BatchOpener:
    """The thread that opens large batches. Belongs to the broker's event loop.

    One batch is opened at a time. Other requests wait in their order, without having read their
    batch from disk.
    """

    def __init__(self) -> None:
        self._thread = DiskThread("headrace-opener")
        self._turn = asyncio.Semaphore(1)
        self._stopped = threading.Event()

    async def run(
        self,
        prepare: Callable[[], Callable[[Opening], T] | None],
        keep: Callable[[T], None] | None = None,
    ) -> T | None:
        """Wait for the turn of this call, prepare it on the loop, and run it in the thread.

        :param prepare: returns the function to run, or None if nothing is left to do
        :param keep: called with the result before the next call is prepared, even if this one is
            cancelled meanwhile
        :returns: the result of the function, or None
        """
        await self._turn.acquire()
        future = None
        try:
            function = prepare()
            if function is None:
                return None
            work = self._thread.run(partial(function, Opening(pause=self._pauses())))
            future = asyncio.ensure_future(work)
        finally:
            if future is None:
                self._turn.release()

        def finished(done: asyncio.Future[T]) -> None:
            self._turn.release()
            if keep is not None and not done.cancelled() and done.exception() is None:
                keep(done.result())

        # The turn ends with the thread's work, even if the request is cancelled before.
        future.add_done_callback(finished)
        return await asyncio.shield(future)

    def _pauses(self) -> Callable[[], None]:
        """Return a function that rests whenever its thread has worked for a while."""
        since = perf_counter()

        def pause() -> None:
            nonlocal since
            if self._stopped.is_set():
                raise OpeningStopped
            if perf_counter() - since >= OPENING_WORK_S:
                sleep(OPENING_REST_S)
                since = perf_counter()

        return pause

    def close(self) -> None:
        """Stop soon; what is being opened is given up."""
        self._stopped.set()
        self._thread.close()
