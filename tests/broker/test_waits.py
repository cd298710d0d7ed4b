"""Long polls wake exactly those who wait for what has happened."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from headrace.broker.waits import Waits


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


def test_only_waiters_of_the_key_wake() -> None:
    async def story() -> None:
        waits = Waits()
        a, b, both = waits.wait(["a"], 10_000), waits.wait(["b"], 10_000), waits.wait(["a", "b"], 10_000)
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
        waits = Waits()
        assert await waits.wait(["a", "b"], 1) is False
        await asyncio.sleep(0)
        assert len(waits) == 0

    run(story())


def test_a_cancelled_waiter_is_forgotten() -> None:
    async def story() -> None:
        waits = Waits()
        waiter = waits.wait(["a"], 10_000)
        waiter.cancel()
        await asyncio.sleep(0)
        assert len(waits) == 0
        waits.notify("a")

    run(story())


def test_a_notification_before_the_wait_is_not_remembered() -> None:
    async def story() -> None:
        waits = Waits()
        waits.notify("a")
        assert await waits.wait(["a"], 1) is False

    run(story())
