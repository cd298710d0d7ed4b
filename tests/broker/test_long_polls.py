"""Long polls wake exactly those who wait for what has happened."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from headrace.broker.long_polls import LongPolls


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


def test_only_waiters_of_the_key_wake() -> None:
    async def story() -> None:
        waits = LongPolls()
        a, b, both = (
            waits.wait(["a"], 10_000),
            waits.wait(["b"], 10_000),
            waits.wait(["a", "b"], 10_000),
        )
        waits.notify("a")
        await asyncio.sleep(0)
        assert (a.done(), b.done(), both.done()) == (True, False, True)
        assert a.result() is True
        waits.notify("b")
        assert await b is True
        await asyncio.sleep(0)
        assert len(waits) == 0

    run(story())


def test_timeout_says_so_and_leaves_nothing_behind() -> None:
    async def story() -> None:
        waits = LongPolls()
        assert await waits.wait(["a", "b"], 1) is False
        await asyncio.sleep(0)
        assert len(waits) == 0

    run(story())


def test_a_cancelled_waiter_is_forgotten() -> None:
    async def story() -> None:
        waits = LongPolls()
        waiter = waits.wait(["a"], 10_000)
        waiter.cancel()
        await asyncio.sleep(0)
        assert len(waits) == 0
        waits.notify("a")

    run(story())


def test_a_notification_before_the_wait_is_not_remembered() -> None:
    async def story() -> None:
        waits = LongPolls()
        waits.notify("a")
        assert await waits.wait(["a"], 1) is False

    run(story())


class Told:
    """Counts how often it was told."""

    def __init__(self) -> None:
        self.times = 0

    def notified(self) -> None:
        self.times += 1


def test_who_watches_is_told_once() -> None:
    waits = LongPolls()
    first, second, other = Told(), Told(), Told()
    for watcher in (first, second):
        waits.watch("a", watcher)
    waits.watch("b", other)
    waits.notify("a")
    waits.notify("a")
    assert (first.times, second.times, other.times) == (1, 1, 0)
    waits.watch("a", first)
    waits.notify("a")
    assert (first.times, second.times) == (2, 1)
    assert len(waits) == 1


def test_who_no_longer_watches_is_not_told() -> None:
    waits = LongPolls()
    goes, stays = Told(), Told()
    for watcher in (goes, stays):
        waits.watch("a", watcher)
    waits.unwatch("a", goes)
    waits.notify("a")
    assert (goes.times, stays.times, len(waits)) == (0, 1, 0)


def test_a_watcher_may_watch_again_when_it_is_told() -> None:
    waits = LongPolls()

    class Faithful(Told):
        def notified(self) -> None:
            super().notified()
            waits.watch("a", self)

    watcher = Faithful()
    waits.watch("a", watcher)
    waits.notify("a")
    waits.notify("a")
    assert watcher.times == 2
