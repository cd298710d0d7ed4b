"""Long polls: who waits for what, and waking exactly those.

A waiter names the keys that concern it, ``("log", topic_id, partition)`` or ``("share", group_id, topic_id,
partition)``. A notification costs in proportion to the waiters of its key and nothing when there are none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable


class Waits:
    """The waiting requests of one broker. Belongs to the broker's event loop."""

    def __init__(self) -> None:
        # The waiters of a key in the order in which they came: the first may get what the others then do not.
        self._waiting: dict[Hashable, dict[asyncio.Future[bool], None]] = {}

    def wait(self, keys: Iterable[Hashable], timeout_ms: float) -> asyncio.Future[bool]:
        """A future that becomes True at the first notification of any key, or False when ``timeout_ms`` have passed.

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

    def notify(self, key: Hashable) -> None:
        """Wake all who wait for ``key``, first come first served."""
        waiters = self._waiting.get(key)
        if waiters:
            for future in waiters:
                _settle(future, True)

    def __len__(self) -> int:
        return len(self._waiting)


def _settle(future: asyncio.Future[bool], notified: bool) -> None:
    if not future.done():
        future.set_result(notified)
