"""Long polls: requests that wait for a change of one of their keys.

A key is ``("log", topic_id, partition)`` or ``("share", group_id, topic_id, partition)``. Notifying
a key takes time in proportion to its waiters.

A request waits for its keys by :meth:`LongPolls.until`, and looks again when it returns. A fetch
session keeps its keys over many requests and watches them instead: a watcher is notified once, and
must watch the key again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable
from typing import Protocol

MAX_FETCH_WAIT_MS = 5 * 60_000
"""The longest time that a fetch waits for records, even if it requests more."""


class Watcher(Protocol):
    """An object that watches a key."""

    def notified(self) -> None:
        """Note that the key was notified. The watcher no longer watches it."""


class LongPolls:
    """The waiting requests of one broker. Belongs to the broker's event loop."""

    def __init__(self) -> None:
        # In order of arrival: the first waiter may take all records.
        self._waiting: dict[Hashable, dict[asyncio.Future[bool], None]] = {}
        self._watching: dict[Hashable, list[Watcher]] = {}

    async def until(self, keys: Iterable[Hashable], end_s: float) -> bool:
        """Wait until one of the keys is notified, or a time; return False if it was the time.
        Waiters of a key go on in order of arrival.

        :param end_s: by the clock of the event loop
        """
        loop = asyncio.get_running_loop()
        keys, waiter = dict.fromkeys(keys), loop.create_future()
        timer = loop.call_at(end_s, _end, waiter, False)
        for key in keys:
            self._waiting.setdefault(key, {})[waiter] = None
        try:
            return await waiter
        finally:
            timer.cancel()
            for key in keys:
                waiters = self._waiting[key]
                del waiters[waiter]
                if not waiters:
                    del self._waiting[key]

    def watch(self, key: Hashable, watcher: Watcher) -> None:
        """Notify ``watcher`` once, when ``key`` is notified. It must not watch the key already."""
        self._watching.setdefault(key, []).append(watcher)

    def unwatch(self, key: Hashable, watcher: Watcher) -> None:
        """Forget a watcher that was not notified yet."""
        watchers = self._watching[key]
        watchers.remove(watcher)
        if not watchers:
            del self._watching[key]

    def notify(self, key: Hashable) -> None:
        """Wake all waiters of ``key`` in order of arrival, and notify its watchers."""
        if self._waiting:
            for waiter in self._waiting.get(key, ()):
                _end(waiter, True)
        if self._watching:
            for watcher in self._watching.pop(key, ()):
                watcher.notified()

    def __len__(self) -> int:
        """Return the number of keys that have a waiter or a watcher."""
        return len(self._waiting.keys() | self._watching.keys())


def _end(waiter: asyncio.Future[bool], is_in_time: bool) -> None:
    if not waiter.done():
        waiter.set_result(is_in_time)
