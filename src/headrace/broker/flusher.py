"""Group commit: one fsync for all writers that wait (``log.flush.interval.messages``,
``log.flush.interval.ms``).

By default an acknowledged write is in the page cache, which survives the death of the process. A
log whose flush settings ask for more is *due* after an append; whoever wants to answer waits for
the round that flushes it. While one round runs in a thread, the next one collects.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor

from headrace.log.partition_log import PartitionLog

log = logging.getLogger("headrace.flusher")

_NEVER_MS = 2**62


class Flusher:
    """Decides when logs are flushed, and lets writers wait for it. Belongs to the broker's event
    loop.
    """

    def __init__(self) -> None:
        self._due: set[PartitionLog] = set()
        self._next: asyncio.Future[None] | None = None
        self._running: asyncio.Task[None] | None = None
        self._timers: dict[PartitionLog, asyncio.TimerHandle] = {}
        self._executor = ThreadPoolExecutor(1, "headrace-flush")

    @property
    def due(self) -> bool:
        """Whether something was appended that must be on disk before it is acknowledged."""
        return bool(self._due)

    def appended(self, partition: PartitionLog) -> None:
        """Note an append."""
        config = partition.config
        if partition.unflushed_records >= config.flush_messages:
            self._due.add(partition)
        elif config.flush_ms < _NEVER_MS and partition not in self._timers:
            loop = asyncio.get_running_loop()
            self._timers[partition] = loop.call_later(
                config.flush_ms / 1000, self._flush_later, partition
            )

    def _flush_later(self, partition: PartitionLog) -> None:
        del self._timers[partition]
        self._due.add(partition)
        self._round()

    async def durable(self) -> None:
        """Wait until all that is due now is on disk.

        :raises OSError: when the disk refuses; what was appended must not be acknowledged
        """
        if self._due:
            await asyncio.shield(self._round())

    def _round(self) -> asyncio.Future[None]:
        """The round that flushes what is due now: the next one."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        promised = self._next
        if self._running is None:
            self._running = asyncio.get_running_loop().create_task(self._run())
        return promised

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._next is not None:
            promised, self._next = self._next, None
            due, self._due = self._due, set()
            try:
                await loop.run_in_executor(self._executor, _flush_all, due)
            except OSError as error:
                log.error("cannot flush: %s", error)
                promised.set_exception(error)
                promised.exception()  # a round by timer has nobody who waits for it
            else:
                promised.set_result(None)
        self._running = None

    def close(self) -> None:
        """Stop the timers and the thread. The logs flush themselves when they are closed."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._executor.shutdown(wait=True)


def _flush_all(due: set[PartitionLog]) -> None:
    for partition in due:
        partition.flush()
