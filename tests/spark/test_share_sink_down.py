"""A sink that is down, and a query that is started again and again, cost no record."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from headrace.client import RangeConsumer
from tests.spark.conftest import Batches, Queue

Drain = Callable[..., Batches]
LIMIT = {"share__delivery__count__limit": 3}


def is_down(_: DataFrame) -> None:
    raise ConnectionError("the database is down")


def test_no_record_is_lost_while_a_sink_is_down(queue: Callable[..., Queue], drain: Drain) -> None:
    orders = queue(40, partitions=1)
    for _ in range(3):
        with pytest.raises(StreamingQueryException, match="the database is down"):
            drain(orders, is_down, **LIMIT)
    assert drain(orders, **LIMIT).values() == list(range(40))


def test_the_last_delivery_is_not_spent(queue: Callable[..., Queue], drain: Drain) -> None:
    """A member holds records without success, as a driver does that is killed."""
    orders = queue(2, partitions=1)
    drain(queue(0, topic=orders.topic + "-empty", group_id=orders.group_id), **LIMIT)
    for _ in range(2):
        asyncio.run(hold(orders))
    for _ in range(2):
        with pytest.raises(StreamingQueryException, match="the database is down"):
            drain(orders, is_down, **LIMIT)
    assert drain(orders, **LIMIT).values() == [0, 1]


def test_a_record_that_fails_each_time_is_left_alone(
    queue: Callable[..., Queue], drain: Drain
) -> None:
    """A query that is started again whenever it fails processes the neighbours."""
    orders, poison = queue(12, partitions=1), 7

    def work(batch: DataFrame) -> None:
        if any(int(row.value) == poison for row in batch.select("value").collect()):
            raise ValueError(f"{poison} is poison")

    batches = Batches(work)
    for _ in range(5):  # with 12, 6, 3 and 1 records, and with the one again, after all others
        with pytest.raises(StreamingQueryException, match="7 is poison"):
            drain(orders, checkpoint="kept", batches=batches)
    assert set(batches.values()) == set(range(12)) - {poison}
    if orders.broker_can_uncount():
        assert len(batches.all()) == 11
        assert {row.deliveryCount for row in batches.all()} == {1}

    assert poison in drain(orders, checkpoint="kept").values()
    assert orders.is_drained()


async def hold(orders: Queue) -> None:
    """Acquire all records, and leave the group with them."""
    held = 0
    async with RangeConsumer(orders.bootstrap_servers, orders.group_id, [orders.topic]) as member:
        while held < 2:
            acquired = await member.acquire(max_records=2, max_wait_ms=500)
            held += sum(r.count for r in acquired.ranges)
