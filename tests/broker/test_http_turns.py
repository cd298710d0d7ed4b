"""The turns of addresses at an HTTP port, for any order of requests, ends and cancellations."""

from __future__ import annotations

import asyncio
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from headrace.http.turns import Turns

ADDRESSES = ("a", "b", "c")


@given(
    st.integers(1, 6),
    st.lists(st.tuples(st.sampled_from(("ask", "end", "cancel", "step")), st.integers(0, 99))),
)
def test_places_are_shared_by_addresses_and_none_is_lost(
    places: int, events: list[tuple[str, int]]
) -> None:
    share = max(1, places // 2)

    async def run() -> None:
        turns = Turns(places)
        served: list[str] = []

        async def ask(address: str) -> None:
            await turns.begin(address)
            served.append(address)

        waiting: list[tuple[str, asyncio.Task[None]]] = []
        for event, number in events:
            if event == "ask":
                address = ADDRESSES[number % 3]
                waiting.append((address, asyncio.create_task(ask(address))))
            elif event == "end" and served:
                turns.end(served.pop(number % len(served)))
            elif event == "cancel" and waiting:
                waiting[number % len(waiting)][1].cancel()
            elif event == "step":
                await asyncio.sleep(0)
            counts = Counter(served)
            assert len(served) <= places
            assert all(count <= share for count in counts.values())
        # All who still wait are served, once those before them have ended.
        for _ in range(10 * len(events) + 10):
            await asyncio.sleep(0)
            if served:
                turns.end(served.pop())
        assert all(task.done() for _, task in waiting)
        assert served == []

    asyncio.run(run())


def test_an_address_waits_for_one_request_of_each_other_address() -> None:
    async def run() -> list[str]:
        turns = Turns(4)
        order: list[str] = []

        async def ask(address: str) -> None:
            await turns.begin(address)
            order.append(address)
            turns.end(address)

        async with asyncio.TaskGroup() as group:
            for address in ["a"] * 50 + ["b", "b", "c"]:
                group.create_task(ask(address))
        return order

    assert asyncio.run(run())[:6] == ["a", "b", "c", "a", "b", "a"]
