"""Coroutines that run to their end, whoever awaits them."""

from __future__ import annotations

import asyncio

import pytest

from headrace.coordinators.waiting import Deferred, run_to_end
from tests.support import story


@story
async def test_a_coroutine_that_waits_for_nothing_ends_at_once() -> None:
    async def steps() -> int:
        return 4

    async def fails() -> None:
        raise ValueError("no")

    value = run_to_end(steps())
    assert value.done()
    assert await value == 4
    with pytest.raises(ValueError, match="no"):
        await run_to_end(fails())


@story
async def test_a_coroutine_goes_on_before_those_that_wait_since_later() -> None:
    written = asyncio.get_running_loop().create_future()
    order = []

    async def steps() -> None:
        await written
        order.append("first")

    value = run_to_end(steps())
    written.add_done_callback(lambda _: order.append("second"))
    written.set_result(None)
    await value
    assert order == ["first", "second"]


@story
async def test_a_coroutine_ends_also_if_nobody_waits_any_more() -> None:
    written = asyncio.get_running_loop().create_future()
    ended = asyncio.get_running_loop().create_future()

    async def steps() -> None:
        await written
        ended.set_result("done")

    value = run_to_end(steps())
    value.cancel()
    written.set_result(None)
    assert await ended == "done"
    assert value.cancelled()


@story
async def test_a_coroutine_whose_wait_is_cancelled_is_cancelled() -> None:
    written = asyncio.get_running_loop().create_future()

    async def steps() -> None:
        await written

    value = run_to_end(steps())
    written.cancel()
    with pytest.raises(asyncio.CancelledError):
        await value


@story
async def test_an_answer_for_a_task_that_was_just_cancelled_is_nobodys() -> None:
    deferred: Deferred[int] = Deferred()

    async def waits() -> int:
        return await deferred

    task = asyncio.ensure_future(waits())
    await asyncio.sleep(0)
    task.cancel()
    deferred.answer(4)
    with pytest.raises(asyncio.CancelledError):
        await task
