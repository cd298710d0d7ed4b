"""A share consumer whose brokers are a model in memory."""

from __future__ import annotations

import asyncio
import functools
import inspect
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headrace.client.share.consumer import ShareConsumer

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
