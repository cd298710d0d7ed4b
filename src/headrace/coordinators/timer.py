"""One timer for all deadlines of a broker's coordinators."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from headrace.deadlines import RETRY_MS
from headrace.log_lines import get_logger
from headrace.protocol.errors import StorageError

log = get_logger("headrace.coordinators")


class Expiring(Protocol):
    """An object with deadlines."""

    def next_deadline_ms(self) -> int | None:
        """Return when :meth:`expire` is due, in steady milliseconds; None without a deadline."""

    def expire(self, now_ms: int) -> None:
        """Act on every deadline up to ``now_ms``.

        :raises Exception: when an action failed; it stays due
        """


class DeadlineTimer:
    """Calls :meth:`Expiring.expire` at the earliest deadline.

    :param now_ms: the steady clock
    :param timed: returns the objects with deadlines, in the order in which to expire them
    """

    def __init__(self, now_ms: Callable[[], int], timed: Callable[[], Iterable[Expiring]]) -> None:
        self._now_ms = now_ms
        self._timed = timed
        self._handle: asyncio.TimerHandle | None = None
        self._deadline_ms: int | None = None
        self._paused: dict[Expiring, int] = {}  # those that failed, and until when

    def schedule(self) -> None:
        """Set the timer to the earliest deadline."""
        deadline_ms: int | None = None
        for timed in self._timed():
            due_ms = timed.next_deadline_ms()
            if due_ms is None:
                continue
            if self._paused:
                due_ms = max(due_ms, self._paused.get(timed, due_ms))
            if deadline_ms is None or due_ms < deadline_ms:
                deadline_ms = due_ms
        if deadline_ms != self._deadline_ms:
            self._set(deadline_ms)

    def close(self) -> None:
        """Stop the timer."""
        self._set(None)

    def _set(self, deadline_ms: int | None) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._deadline_ms, self._handle = deadline_ms, None
        if deadline_ms is not None:
            delay_ms = max(deadline_ms - self._now_ms(), 0)
            loop = asyncio.get_running_loop()
            self._handle = loop.call_later(delay_ms / 1000, self.expire)

    def expire(self) -> None:
        """Act on every deadline that is due, and schedule the next one."""
        self._set(None)
        now_ms = self._now_ms()
        for timed in self._timed():
            if self._paused.get(timed, 0) > now_ms:
                continue
            self._paused.pop(timed, None)
            try:
                timed.expire(now_ms)
            except Exception as error:
                # It is still due: without a pause it would keep the event loop busy.
                self._paused[timed] = now_ms + RETRY_MS
                log.error(
                    "cannot act on a timeout: %s; trying again in %d ms",
                    error,
                    RETRY_MS,
                    exc_info=None if isinstance(error, StorageError) else error,
                )
        self.schedule()
