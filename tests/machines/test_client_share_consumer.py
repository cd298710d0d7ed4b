"""A share consumer whose brokers are a model in memory."""

from __future__ import annotations

import asyncio
import functools
import inspect
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headrace.client.records import Record
from headrace.client.share.consumer import ShareConsumer, Undecodable

from .share_brokers import Brokers, JumpingLoop, on_jumping_loop

CONF = {"bootstrap.servers": "node1:1,node2:1", "group.id": "g", "socket.timeout.ms": 5000}
LIMIT_S = 600


def story(play: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test with brokers, which have the topic ``orders`` of two partitions. Each has
    another leader.
    """

    @functools.wraps(play)
    def run(monkeypatch: pytest.MonkeyPatch, **fixtures: Any) -> None:
        loop = JumpingLoop()
        brokers = Brokers(loop, random.Random(0))
        on_jumping_loop(brokers, monkeypatch)
        brokers.create("orders", 2)
        try:
            loop.run_until_complete(asyncio.wait_for(play(brokers, **fixtures), LIMIT_S))
        finally:
            asyncio.set_event_loop(None)
            loop.close()
        assert not loop.failures

    patches = inspect.Parameter("monkeypatch", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    _, *fixtures = inspect.signature(play).parameters.values()
    run.__signature__ = inspect.Signature([patches, *fixtures])  # type: ignore[attr-defined]
    return run


def consumer(**options: Any) -> ShareConsumer:
    return ShareConsumer(CONF, ["orders"], **options)


@story
async def test_a_poll_rests_in_its_last_millisecond(brokers: Brokers) -> None:
    """It would look again and again for records, and nothing else would run."""
    async with consumer() as queue:
        for node_id in (1, 2):
            brokers.stall(node_id, 1000)
        for timeout in (0, 0.0005):
            assert await queue.poll(timeout=timeout) == []


@story
async def test_a_close_that_is_cancelled_closes_the_connections(brokers: Brokers) -> None:
    """A connection that stays open keeps the locks of its share session."""
    for turns in range(1, 30):
        queue = consumer()
        await queue.open()
        closing = asyncio.create_task(queue.close())
        brokers.loop.after(turns, closing.cancel)
        await asyncio.wait([closing])
        assert not brokers.connections


@story
async def test_records_that_were_lost_before_a_poll_has_taken_them(brokers: Brokers) -> None:
    """Another member may have them: this one does not hand them out."""
    async with consumer() as queue:
        brokers.produce("orders", 0, 3)
        polling = asyncio.create_task(queue.poll())
        await asyncio.sleep(0)
        polling.cancel()
        await asyncio.sleep(1)
        assert len(brokers.held_by(queue._ranges.member_id)) == 3
        brokers.cut(1)
        await asyncio.sleep(2)  # the next renewal tells it
        assert [record.delivery_count for record in await queue.poll()] == [2, 2, 2]


def refuse(value: bytes) -> int:
    raise ValueError("it is not a number")


async def undecodable(queue: ShareConsumer) -> Record:
    with pytest.raises(Undecodable) as error:
        await queue.poll()
    return error.value.record


@story
async def test_records_that_do_not_decode_count_in_bytes(brokers: Brokers) -> None:
    options = {"value": refuse, "on_undecodable": "raise", "max_held_bytes": 3}
    async with consumer(**options) as queue:
        brokers.produce("orders", 0, 9)
        records = [await undecodable(queue) for _ in range(3)]
        assert await queue.poll() == []
        await queue.accept(records)
        assert (await undecodable(queue)).offset == 3


@story
async def test_a_record_that_is_lost_before_it_is_raised(brokers: Brokers) -> None:
    """Its caller has never seen it: neither is its loss told, nor is it raised."""
    lost: list[Record] = []
    options = {"value": refuse, "on_undecodable": "raise", "on_lock_lost": lost.extend}
    async with consumer(**options) as queue:
        brokers.produce("orders", 0, 2)
        first = await undecodable(queue)
        brokers.cut(1)
        await asyncio.sleep(2)
        assert lost == [first]
        assert [(await undecodable(queue)).delivery_count for _ in range(2)] == [2, 2]
