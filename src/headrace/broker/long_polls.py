"""Long polls: requests that wait for a change of one of their keys.

A key is ``("log", topic_id, partition)`` or ``("share", group_id, topic_id, partition)``. Notifying
a key takes time in proportion to its waiters.

A :class:`LongPoll` waits for the keys of one request until it is answered. A fetch session keeps
its keys over many requests and watches them instead: a watcher is notified once, and must watch the
key again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Protocol, TypeVar

from headrace.coordinators.runtime import Deferred

R = TypeVar("R")


class Watcher(Protocol):
    """An object that watches a key."""

    def notified(self) -> None:
        """Note that the key was notified. The watcher no longer watches it."""


class LongPoll(Deferred[R]):
    """A request that waits until it can be answered or its time has run out.

    :param long_polls: the waiting requests of the broker
    :param keys: returns the keys to wait for; called again each time ``look`` returns None
    :param look: returns the answer, or None to keep waiting. Called in a separate turn after a
        notification; called with True when the time has run out, and then must return the answer
    :param wait_ms: the longest wait
    """

    __slots__ = ("_is_done", "_is_woken", "_keys", "_keys_of", "_long_polls", "_look", "_timer")

    def __init__(
        self,
        long_polls: LongPolls,
        keys: Callable[[], Iterable[Hashable]],
        look: Callable[[bool], R | None],
        wait_ms: float,
    ) -> None:
        super().__init__()
        self._long_polls = long_polls
        self._keys_of = keys
        self._look = look
        self._is_done = False
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(wait_ms, 0) / 1000, self._look_again, True)
        self._wait()

    def _wait(self) -> None:
        self._is_woken = False
        self._keys = tuple(self._keys_of())
        self._long_polls.add(self, self._keys)

    def notified(self) -> None:
        """Look again soon: one of the keys was notified."""
        if not self._is_woken:
            self._is_woken = True
            asyncio.get_running_loop().call_soon(self._look_again, False)

    def _look_again(self, is_over: bool) -> None:
        if self._is_done:  # answered or cancelled since it was woken
            return
        self._long_polls.discard(self, self._keys)
        answer: R | Exception | None
        try:
            answer = self._look(is_over)
        except Exception as error:
            answer = error
        if answer is None:
            self._wait()
            return
        self._is_done = True
        self._timer.cancel()
        self.answer(answer)

    def cancel(self) -> None:
        """Stop waiting."""
        super().cancel()
        self._is_done = True
        self._timer.cancel()
        self._long_polls.discard(self, self._keys)


class _Wait:
    """A call that waits for its keys."""

    __slots__ = ("future",)

    def __init__(self) -> None:
        self.future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def notified(self) -> None:
        """Go on soon: one of the keys was notified."""
        self._end(is_in_time=True)

    def _end(self, *, is_in_time: bool) -> None:
        if not self.future.done():
            self.future.set_result(is_in_time)

    def time_out(self) -> None:
        """Go on: the time is over."""
        self._end(is_in_time=False)


class LongPolls:
    """The waiting requests of one broker. Belongs to the broker's event loop."""

    def __init__(self) -> None:
        # In order of arrival: the first waiter may take all records.
        self._waiting: dict[Hashable, dict[LongPoll[Any] | _Wait, None]] = {}
        self._watching: dict[Hashable, list[Watcher]] = {}

    async def until(self, keys: Iterable[Hashable], end_s: float) -> bool:
        """Wait until one of the keys is notified, or a time; return False if it was the time.
        Waiters of a key go on in order of arrival.

        :param end_s: by the clock of the event loop
        """
        keys, wait = tuple(keys), _Wait()
        timer = asyncio.get_running_loop().call_at(end_s, wait.time_out)
        self.add(wait, keys)
        try:
            return await wait.future
        finally:
            timer.cancel()
            self.discard(wait, keys)

    def add(self, waiter: LongPoll[Any] | _Wait, keys: Iterable[Hashable]) -> None:
        """Notify ``waiter`` of each of the keys until it is discarded."""
        for key in keys:
            self._waiting.setdefault(key, {})[waiter] = None

    def discard(self, waiter: LongPoll[Any] | _Wait, keys: Iterable[Hashable]) -> None:
        """Forget a waiter."""
        for key in keys:
            waiters = self._waiting.get(key)
            if waiters is not None:
                waiters.pop(waiter, None)
                if not waiters:
                    del self._waiting[key]

    def watch(self, key: Hashable, watcher: Watcher) -> None:
        """Notify ``watcher`` once, when ``key`` is notified. It must not watch the key already."""
        watchers = self._watching.get(key)
        if watchers is None:
            self._watching[key] = [watcher]
        else:
            watchers.append(watcher)

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
                waiter.notified()
        if self._watching:
            for watcher in self._watching.pop(key, ()):
                watcher.notified()

    def __len__(self) -> int:
        """Return the number of keys that have a waiter or a watcher."""
        return len(self._waiting.keys() | self._watching.keys())
