"""A broker that counts every delivery is made to forget them, before the last one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from headrace.client import AcquiredRange, RangeConsumer
from headrace.client.configs import ConfigType, alter_configs
from headrace.spark.errors import SourceError
from headrace.spark.share import acquisitions
from headrace.spark.share.acquisitions import Acquisitions
from headrace.spark.share.options import ShareOptions
from tests.spark.conftest import Queue
from tests.support import story


@pytest.fixture
def orders(queue: Callable[..., Queue], monkeypatch: pytest.MonkeyPatch) -> Queue:
    """A group that gives up records after three deliveries, one of which is used."""

    async def cannot(*_: object) -> bool:
        return False

    monkeypatch.setattr(Acquisitions, "_broker_can_uncount", cannot)
    orders = queue(2, partitions=1)
    configs = {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": "3"}
    orders.ask(lambda cluster: alter_configs(cluster, ConfigType.GROUP, orders.group_id, configs))
    asyncio.run(fail(orders))
    return orders


def member(orders: Queue) -> RangeConsumer:
    return RangeConsumer(orders.bootstrap_servers, orders.group_id, [orders.topic])


async def acquire(consumer: RangeConsumer, orders: Queue) -> list[AcquiredRange]:
    query = Acquisitions(consumer, ShareOptions.parse(orders.options(), is_source=True))
    ranges: list[AcquiredRange] = []
    while not ranges:
        ranges = await query.acquire()
    return ranges


async def fail(orders: Queue) -> None:
    async with member(orders) as consumer:
        assert [r.delivery_count for r in await acquire(consumer, orders)] == [1]


@story
async def test_the_query_waits_until_other_members_leave(
    orders: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    other = member(orders)
    await other.start()
    async with member(orders) as consumer:
        ranges = asyncio.create_task(acquire(consumer, orders))
        while "NON_EMPTY_GROUP" not in caplog.text:
            await asyncio.sleep(0.01)
        assert (await other.acquire(max_wait_ms=20_000)).ranges[0].delivery_count == 3
        await other.close()  # which gives up a record
        assert [(r.first_offset, r.delivery_count) for r in await ranges] == [(0, 1)]


@story
async def test_the_query_ends_if_other_members_stay(
    orders: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acquisitions, "_PATIENCE_S", 0.3)
    async with member(orders), member(orders) as consumer:
        with pytest.raises(
            SourceError, match=r"NON_EMPTY_GROUP.*after 3 deliveries, and .* 0 to 1 have had 2"
        ):
            await acquire(consumer, orders)


@story
async def test_an_unknown_start_offset_skips_no_record(
    orders: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tells_nothing(*_: object) -> dict[object, object]:
        return {}

    monkeypatch.setattr(acquisitions, "_PATIENCE_S", 0.3)
    monkeypatch.setattr(acquisitions, "share_states", tells_nothing)
    async with member(orders) as consumer:
        with pytest.raises(SourceError, match="does not tell the start offset"):
            await acquire(consumer, orders)
    async with member(orders) as consumer:
        assert (await consumer.acquire(max_wait_ms=5000)).ranges[0].delivery_count == 3
