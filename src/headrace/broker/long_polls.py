"""Long polls: who waits for what, and waking exactly those.

A waiter names the keys that concern it, ``("log", topic_id, partition)`` or ``("share", group_id,
topic_id, partition)``. A notification costs in proportion to the waiters of its key and nothing
when there are none.

A request that waits is a future, and gone with its answer. Who wants to know of many keys over many
requests, as a fetch session does, watches them: each watcher is told once, and watches again when
it has looked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable
from typing import Protocol


class Watcher(Protocol):
    """Who watches a key."""

    def notified(self) -> None:
        """The key was notified for the first time since it is watched; it no longer is."""


class LongPolls:
    """The waiting requests of one broker. Belongs to the broker's event loop."""

    def __init__(self) -> None:
        # The waiters of a key in the order in which they came: the first may get what the others
        # then do not.
        self._waiting: dict[Hashable, dict[asyncio.Future[bool], None]] = {}
        self._watching: dict[Hashable, list[Watcher]] = {}

    def wait(self, keys: Iterable[Hashable], timeout_ms: float) -> asyncio.Future[bool]:
        """A future that becomes True at the first notification of any key, or False when
        ``timeout_ms`` have passed.

        Cancelling it, as happens when the client goes away, forgets the waiter.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        keys = tuple(keys)
        for key in keys:
            self._waiting.setdefault(key, {})[future] = None
        timer = loop.call_later(max(timeout_ms, 0) / 1000, _settle, future, False)

        def forget(_: asyncio.Future[bool]) -> None:
            timer.cancel()
            for key in keys:
                waiters = self._waiting.get(key)
                if waiters is not None:
                    waiters.pop(future, None)
                    if not waiters:
                        del self._waiting[key]

        future.add_done_callback(forget)
        return future

    def watch(self, key: Hashable, watcher: Watcher) -> None:
        """Have ``watcher`` told of the next notification of ``key``. It must not be watching that
        key yet.
        """
        watchers = self._watching.get(key)
        if watchers is None:
            self._watching[key] = [watcher]
        else:
            watchers.append(watcher)

    def unwatch(self, key: Hashable, watcher: Watcher) -> None:
        """Forget a watcher that has not been told yet."""
        watchers = self._watching[key]
        watchers.remove(watcher)
        if not watchers:
            del self._watching[key]

    def notify(self, key: Hashable) -> None:
        """Wake all who wait for ``key``, first come first served, and tell who watches it."""
        waiters = self._waiting.get(key)
        if waiters:
            for future in waiters:
                _settle(future, True)
        if self._watching:
            for watcher in self._watching.pop(key, ()):
                watcher.notified()

    def __len__(self) -> int:
        """How many keys somebody waits for or watches."""
        return len(self._waiting.keys() | self._watching.keys())


def _settle(future: asyncio.Future[bool], notified: bool) -> None:
    if not future.done():
        future.set_result(notified)
