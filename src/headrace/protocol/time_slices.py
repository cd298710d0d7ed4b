"""Time slices: long work on the event loop yields after each slice, so that other requests are
served.

All long work of a loop takes turns: in one turn of the loop at most one slice runs, however many
requests are being worked on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Generator, Iterator, Sequence
from time import perf_counter
from typing import Any, TypeVar

R = TypeVar("R")
T = TypeVar("T")

SLICE_MS = 5
"""The length of a slice. One item of work that takes longer makes its slice longer."""


class TimeSlices:
    """The slices of one event loop, given out in the order in which they are asked for."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_scheduled = False
        self._end = 0.0
        self._tasks: set[asyncio.Task[Any]] = set()

    async def next(self) -> None:
        """Wait for the next slice. Await this before the first slice, too."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._waiting.append(future)
        if not self._is_scheduled:
            self._is_scheduled = True
            loop.call_soon(self._give)
        await future
        self._end = perf_counter() + SLICE_MS / 1000

    def _give(self) -> None:
        """Wake the first who waits; the others follow in later turns."""
        waiting = self._waiting
        while waiting:
            first = waiting.popleft()
            if not first.done():  # else it was cancelled
                first.set_result(None)
                break
        self._is_scheduled = bool(waiting)
        if waiting:
            asyncio.get_running_loop().call_soon(self._give)

    async def run(self, steps: Generator[None, None, R]) -> R:
        """Run a generator that yields between its steps, and return its value. Wait for the next
        slice whenever one is over.
        """
        await self.next()
        while True:
            try:
                next(steps)
            except StopIteration as finished:
                result: R = finished.value
                return result
            if perf_counter() >= self._end:
                await self.next()

    def run_to_end(self, steps: Generator[None, None, R]) -> Awaitable[R]:
        """Run a generator as :meth:`run` does, until it ends or :meth:`close`, also if the caller
        stops waiting: for a change of which nobody may see a half.
        """
        task = asyncio.get_running_loop().create_task(self.run(steps))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return asyncio.shield(task)

    def close(self) -> None:
        """Take no further step of what :meth:`run_to_end` runs."""
        for task in self._tasks:
            task.cancel()


def run_now(steps: Generator[None, None, R]) -> R:
    """Run a generator that yields between its steps without interruption; return its value."""
    while True:
        try:
            next(steps)
        except StopIteration as finished:
            result: R = finished.value
            return result


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield the items in runs of ``size``; the last may be shorter."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
