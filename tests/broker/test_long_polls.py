"""Long polls: a change wakes the requests that it concerns, and no others."""

from __future__ import annotations

import asyncio

import pytest

from headrace.broker.long_polls import LongPoll, LongPolls
from tests.support import HANG_S, story


class Request:
    """A request that waits for keys. Its answer is the number of its attempts, after ``enough``
    attempts or at its deadline.
    """

    def __init__(
        self, long_polls: LongPolls, keys: list[str], enough: int = 1, wait_ms: float = 10_000
    ) -> None:
        self.looks: list[bool] = []
        self._enough = enough
        self.poll = LongPoll(long_polls, lambda: keys, self._look, wait_ms)
        self.answer = self.poll.future()

    def _look(self, is_over: bool) -> int | None:
        self.looks.append(is_over)
        return len(self.looks) if is_over or len(self.looks) >= self._enough else None


async def turn() -> None:
    """Let due callbacks run."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


@story
async def test_a_notification_wakes_the_waiters_of_its_key() -> None:
    long_polls = LongPolls()
    a, b, both = (Request(long_polls, keys) for keys in (["a"], ["b"], ["a", "b"]))
    long_polls.notify("a")
    await turn()
    assert (a.looks, b.looks, both.looks) == ([False], [], [False])
    assert await a.answer == 1
    long_polls.notify("b")
    assert await b.answer == 1
    assert both.looks == [False]
    assert len(long_polls) == 0


@story
async def test_two_notifications_of_one_turn_are_one_look() -> None:
    long_polls = LongPolls()
    request = Request(long_polls, ["a", "b"], enough=2)
    long_polls.notify("a")
    long_polls.notify("b")
    await turn()
    assert request.looks == [False]
    long_polls.notify("b")
    assert await request.answer == 2


@story
async def test_waiters_look_in_the_order_in_which_they_came() -> None:
    long_polls = LongPolls()
    order: list[str] = []
    for name in ("first", "second"):
        LongPoll(long_polls, lambda: ["a"], lambda _, name=name: order.append(name), 10_000)
    long_polls.notify("a")
    await turn()
    assert order == ["first", "second"]


@story
async def test_a_waiter_looks_a_last_time_at_its_deadline() -> None:
    long_polls = LongPolls()
    request = Request(long_polls, ["a", "b"], enough=5, wait_ms=1)
    assert await request.answer == 1
    assert request.looks == [True]
    assert len(long_polls) == 0


@story
async def test_an_error_of_a_look_is_the_answer() -> None:
    long_polls = LongPolls()

    def look(is_over: bool) -> None:
        raise OSError("no disk")

    poll = LongPoll(long_polls, lambda: ["a"], look, 10_000)
    answer = poll.future()
    long_polls.notify("a")
    with pytest.raises(OSError, match="no disk"):
        await answer
    assert len(long_polls) == 0


@story
async def test_a_cancelled_waiter_is_forgotten() -> None:
    long_polls = LongPolls()
    request, woken = Request(long_polls, ["a"]), Request(long_polls, ["a"])
    request.poll.cancel()
    long_polls.notify("a")
    woken.poll.cancel()
    await turn()
    assert (request.looks, woken.looks, len(long_polls)) == ([], [], 0)


@story
async def test_a_notification_before_the_wait_is_not_remembered() -> None:
    long_polls = LongPolls()
    long_polls.notify("a")
    request = Request(long_polls, ["a"], wait_ms=1)
    await request.answer
    assert request.looks == [True]


@story
async def test_a_waiter_without_keys_is_answered_when_its_time_is_over() -> None:
    long_polls = LongPolls()
    request = Request(long_polls, [], wait_ms=1)
    assert await asyncio.wait_for(request.answer, HANG_S) == 1
    assert request.looks == [True]


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
