"""Long polls: a change wakes the requests that it concerns, and no others."""

from __future__ import annotations

import asyncio

from headrace.topics.long_polls import LongPolls
from tests.support import HANG_S, story


class Request:
    """A request that waits for keys, up to ``enough`` notifications or a time.

    :ivar wakes: whether each wake was in time
    """

    def __init__(
        self, long_polls: LongPolls, keys: list[str], enough: int = 1, wait_ms: float = 10_000
    ) -> None:
        self.wakes: list[bool] = []
        self._enough = enough
        self.task = asyncio.get_running_loop().create_task(self._wait(long_polls, keys, wait_ms))

    async def _wait(self, long_polls: LongPolls, keys: list[str], wait_ms: float) -> None:
        end_s = asyncio.get_running_loop().time() + wait_ms / 1000
        while len(self.wakes) < self._enough and False not in self.wakes:
            self.wakes.append(await long_polls.until(keys, end_s))


async def turn() -> None:
    """Let due callbacks run."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


@story
async def test_a_notification_wakes_the_waiters_of_its_key() -> None:
    long_polls = LongPolls()
    a, b, both = (Request(long_polls, keys) for keys in (["a"], ["b"], ["a", "b", "a"]))
    await turn()
    long_polls.notify("a")
    await turn()
    assert (a.wakes, b.wakes, both.wakes) == ([True], [], [True])
    long_polls.notify("b")
    await b.task
    assert both.wakes == [True]
    assert len(long_polls) == 0


@story
async def test_two_notifications_of_one_turn_wake_once() -> None:
    long_polls = LongPolls()
    request = Request(long_polls, ["a", "b"], enough=2)
    await turn()
    long_polls.notify("a")
    long_polls.notify("b")
    await turn()
    assert request.wakes == [True]
    long_polls.notify("b")
    await request.task
    assert request.wakes == [True, True]


@story
async def test_waiters_go_on_in_the_order_in_which_they_came() -> None:
    long_polls = LongPolls()
    order: list[str] = []

    async def wait(name: str) -> None:
        await long_polls.until(["a"], asyncio.get_running_loop().time() + HANG_S)
        order.append(name)

    waiting = [asyncio.create_task(wait(name)) for name in ("first", "second")]
    await turn()
    long_polls.notify("a")
    await asyncio.gather(*waiting)
    assert order == ["first", "second"]


@story
async def test_a_waiter_wakes_a_last_time_at_its_deadline() -> None:
    long_polls = LongPolls()
    request = Request(long_polls, ["a", "b"], enough=5, wait_ms=1)
    await request.task
    assert request.wakes == [False]
    assert len(long_polls) == 0


@story
async def test_a_cancelled_waiter_is_forgotten() -> None:
    long_polls = LongPolls()
    request, woken = Request(long_polls, ["a"]), Request(long_polls, ["a"])
    await turn()
    request.task.cancel()
    long_polls.notify("a")
    woken.task.cancel()
    await turn()
    assert (request.wakes, woken.wakes, len(long_polls)) == ([], [], 0)


@story
async def test_a_notification_before_the_wait_is_not_remembered() -> None:
    long_polls = LongPolls()
    long_polls.notify("a")
    request = Request(long_polls, ["a"], wait_ms=1)
    await request.task
    assert request.wakes == [False]


@story
async def test_a_waiter_without_keys_goes_on_when_its_time_is_over() -> None:
    request = Request(LongPolls(), [], wait_ms=1)
    await asyncio.wait_for(request.task, HANG_S)
    assert request.wakes == [False]


class Told:
    """A callback that counts its calls."""

    def __init__(self) -> None:
        self.times = 0

    def notified(self) -> None:
        self.times += 1


def test_a_watcher_is_notified_once() -> None:
    long_polls = LongPolls()
    first, second, other = Told(), Told(), Told()
    for watcher in (first, second):
        long_polls.watch("a", watcher)
    long_polls.watch("b", other)
    long_polls.notify("a")
    long_polls.notify("a")
    assert (first.times, second.times, other.times) == (1, 1, 0)
    long_polls.watch("a", first)
    long_polls.notify("a")
    assert (first.times, second.times) == (2, 1)
    assert len(long_polls) == 1


def test_an_unwatched_key_does_not_notify() -> None:
    long_polls = LongPolls()
    goes, stays = Told(), Told()
    for watcher in (goes, stays):
        long_polls.watch("a", watcher)
    long_polls.unwatch("a", goes)
    long_polls.notify("a")
    assert (goes.times, stays.times, len(long_polls)) == (0, 1, 0)


def test_a_watcher_may_watch_again_when_notified() -> None:
    long_polls = LongPolls()

    class Faithful(Told):
        def notified(self) -> None:
            super().notified()
            long_polls.watch("a", self)

    watcher = Faithful()
    long_polls.watch("a", watcher)
    long_polls.notify("a")
    long_polls.notify("a")
    assert watcher.times == 2
