"""Group commit: one fsync for all writers that wait (``log.flush.interval.messages``,
``log.flush.interval.ms``).

By default an acknowledged write is in the page cache, which survives a crash of the process. When
the flush settings of a log require more, an append makes the log *due*. Due logs are flushed in
rounds: one round runs in a thread while the next one collects. A write is acknowledged after a
round that began after its append.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Collection, Generator, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from headrace.log.log_config import FOREVER
from headrace.log.partition_log import PartitionLog
from headrace.protocol.errors import StorageError

from .disk_thread import DiskThread


@dataclass(slots=True, eq=False)
class _RoundEnd:
    """The end of a round, which many may await. One waiter that is cancelled does not affect the
    others.
    """

    future: asyncio.Future[None]

    def __await__(self) -> Generator[Any, None, None]:
        yield from asyncio.shield(self.future).__await__()


class Flusher:
    """Decides when logs are flushed, and lets writers wait. Belongs to the broker's event loop."""

    def __init__(self) -> None:
        self._due: dict[PartitionLog, None] = {}
        """Logs whose writers wait for the next round, in the order of their appends."""
        self._timed: dict[PartitionLog, None] = {}
        """Logs to flush in the next round because flush.ms has passed, without waiting writers."""
        self._next: asyncio.Future[None] | None = None
        self._running: asyncio.Future[None] | None = None
        """The end of the round that runs in the thread; None if no writer waits for it."""
        self._task: asyncio.Task[None] | None = None
        self._timers: dict[PartitionLog, asyncio.TimerHandle] = {}
        self._thread = DiskThread("headrace-flush")

    def appended(self, partition: PartitionLog) -> None:
        """Make a log due after an append, if its flush settings require it."""
        config = partition.config
        if partition.unflushed_records >= config.flush_messages:
            if not self._due:  # nobody may ask for the flush, for example after a timeout
                asyncio.get_running_loop().call_soon(self.pending_flush)
            self._due[partition] = None
        elif config.flush_ms < FOREVER and partition not in self._timers:
            loop = asyncio.get_running_loop()
            self._timers[partition] = loop.call_later(
                config.flush_ms / 1000, self._flush_later, partition
            )

    def pending_flush(self) -> Awaitable[None] | None:
        """Return an awaitable for the flush of everything appended up to this call; None if an
        answer need not wait.

        Call it right after the append. It may be awaited later, or not at all.

        :raises StorageError: from the awaitable, when a flush failed; what was appended must not be
            acknowledged
        """
        end = self._next_round() if self._due else self._running
        return None if end is None else _RoundEnd(end)

    def _flush_later(self, partition: PartitionLog) -> None:
        del self._timers[partition]
        self._timed[partition] = None
        self._next_round()

    def _next_round(self) -> asyncio.Future[None]:
        """Return the end of the next round, which is started if none is running."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        return self._next

    async def _run(self) -> None:
        while self._next is not None:
            end, self._next = self._next, None
            self._running = end if self._due else None
            due, timed = self._due, self._timed
            self._due, self._timed = {}, {}
            try:
                await self._thread.run(partial(_flush_all, due, timed))
            except OSError as error:
                self._fail(end, StorageError(f"cannot flush: {error}"))
            except Exception as error:
                self._fail(end, error)
            else:
                end.set_result(None)
            self._running = None
        self._task = None

    def _fail(self, end: asyncio.Future[None], error: Exception) -> None:
        """Fail a round and the waiters of the next one, which may have appended before the failed
        round began.

        The logs of the next round are still flushed.
        """
        waiters = [end]
        if self._next is not None:
            waiters.append(self._next)
            self._next = asyncio.get_running_loop().create_future()
        for waiter in waiters:
            waiter.set_exception(error)
            waiter.exception()  # mark it as retrieved, as there may be no waiter

    def close(self) -> None:
        """Stop the timers and the thread. The logs flush themselves when they are closed."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._due.clear()
        self._thread.close()


def _flush_all(due: Collection[PartitionLog], timed: Iterable[PartitionLog]) -> None:
    """Flush all logs, then raise the first error of those that are due. No writer waits for the
    others.
    """
    for partition in timed:
        if partition not in due:
            with contextlib.suppress(OSError):  # the log went offline and logged why
                partition.flush()
    first_error: Exception | None = None
    for partition in due:
        try:
            partition.flush()
        except Exception as error:
            first_error = first_error or error
    if first_error is not None:
        raise first_error
