"""A share consumer whose calls overlap, or are cancelled, also while records are on the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from headrace import Broker
from headrace.admin import AdminClient
from headrace.client import RangeConsumer
from headrace.client.connection import Connection
from headrace.client.errors import ClientError, RequestRefused
from headrace.client.share.membership import Membership
from headrace.client.share.node import ShareNode
from headrace.client.share.types import Acknowledgement, AcknowledgeType, Acquired
from tests.clients.confluent import create_topic, produce, share_from_earliest
from tests.support import story

TOPIC, GROUP = "t", "g"


class Answers:
    """Holds back the answers of one API until they are let through.

    :ivar arrived: set when an answer has come: the broker has executed the request
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, request_name: str) -> None:
        self.arrived, self._let_through = asyncio.Event(), asyncio.Event()
        send: Callable[..., Awaitable[Any]] = Connection.ask

        async def request(connection: Connection, payload: Any, **more: Any) -> Any:
            answer = await send(connection, payload, **more)
            if type(payload).__name__ == request_name:
                self.arrived.set()
                await self._let_through.wait()
            return answer

        monkeypatch.setattr(Connection, "ask", request)

    def let_through(self) -> None:
        self._let_through.set()


@asynccontextmanager
async def member(servers: str) -> AsyncIterator[RangeConsumer]:
    async with RangeConsumer(servers, GROUP, [TOPIC]) as consumer:
        assert await consumer.wait_for_assignment(20_000)
        yield consumer


@pytest.fixture
def servers() -> Any:
    """A broker with a topic of five records, whose locks do not end during a test."""
    with Broker() as broker:
        create_topic(broker.bootstrap_servers, TOPIC)
        share_from_earliest(broker.bootstrap_servers, GROUP, share_record_lock_duration_ms="60000")
        produce(broker.bootstrap_servers, TOPIC, [b"%d" % number for number in range(5)])
        yield broker.bootstrap_servers


async def cancelled(call: asyncio.Task[Any]) -> None:
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def begins(call: asyncio.Task[Any]) -> None:
    """Wait until a call waits for the request before it."""
    for _ in range(10):
        await asyncio.sleep(0)
    assert not call.done()


async def arrives(consumer: RangeConsumer) -> list[tuple[int, int, int]]:
    """Return the next records that a member gets, as (first, last, delivery count)."""
    while True:
        acquired = await consumer.acquire(max_wait_ms=100)
        if acquired.ranges:
            assert acquired.data
            return [
                (one.first_offset, one.last_offset, one.delivery_count) for one in acquired.ranges
            ]


def accepted(first: int, last: int) -> Acknowledgement:
    return Acknowledgement(TOPIC, 0, first, last, AcknowledgeType.ACCEPT)


@pytest.mark.parametrize("times", [1, 2, 3])
@story
async def test_the_next_call_returns_what_a_cancelled_one_has_acquired(
    servers: str, monkeypatch: pytest.MonkeyPatch, times: int
):
    answers = Answers(monkeypatch, "ShareFetchRequest")
    async with member(servers) as consumer:
        for _ in range(times):
            call = asyncio.create_task(consumer.acquire(max_wait_ms=10_000))
            await answers.arrived.wait()
            await cancelled(call)
        answers.let_through()
        assert await arrives(consumer) == [(0, 4, 1)]
        assert await consumer.acknowledge([accepted(0, 4)]) == [accepted(0, 4)]
        produce(servers, TOPIC, [b"5"])
        assert await arrives(consumer) == [(5, 5, 1)]


@story
async def test_a_call_that_is_cancelled_before_it_begins_acquires_nothing(servers: str):
    async with member(servers) as consumer:
        await cancelled(asyncio.create_task(consumer.acquire()))
        assert not consumer.held()
        assert await arrives(consumer) == [(0, 4, 1)]


@story
async def test_a_call_that_is_cancelled_as_its_records_are_there_loses_none(
    servers: str, monkeypatch: pytest.MonkeyPatch
):
    async with member(servers) as consumer:
        call = asyncio.create_task(consumer.acquire(max_wait_ms=10_000))
        handed = RangeConsumer._fetch

        async def acquire_at(*arguments: Any) -> Acquired:
            acquired = await handed(*arguments)
            asyncio.get_running_loop().call_soon(call.cancel)  # in the turn after the last
            return acquired

        monkeypatch.setattr(RangeConsumer, "_fetch", acquire_at)
        with pytest.raises(asyncio.CancelledError):
            await call
        monkeypatch.undo()
        assert await arrives(consumer) == [(0, 4, 1)]


@story
async def test_a_call_waits_for_a_cancelled_one_as_long_as_it_may(
    servers: str, monkeypatch: pytest.MonkeyPatch
):
    answers = Answers(monkeypatch, "ShareFetchRequest")
    async with member(servers) as consumer:
        call = asyncio.create_task(consumer.acquire(max_wait_ms=10_000))
        await answers.arrived.wait()
        await cancelled(call)
        assert await consumer.acquire(max_wait_ms=1) == Acquired(complete=False)
        answers.let_through()
        assert await arrives(consumer) == [(0, 4, 1)]


@story
async def test_the_close_releases_what_a_cancelled_call_has_acquired(
    servers: str, monkeypatch: pytest.MonkeyPatch
):
    async with member(servers) as other:
        with monkeypatch.context() as patch:
            answers = Answers(patch, "ShareFetchRequest")
            async with member(servers) as consumer:
                call = asyncio.create_task(consumer.acquire(max_wait_ms=10_000))
                await answers.arrived.wait()
                await cancelled(call)
        assert await arrives(other) == [(0, 4, 2)]


@story
async def test_a_cancelled_close_releases_what_was_acquired(
    servers: str, monkeypatch: pytest.MonkeyPatch
):
    async def never_ends(_: ShareNode) -> None:
        await asyncio.Event().wait()

    async with member(servers) as other:
        consumer = RangeConsumer(servers, GROUP, [TOPIC])
        await consumer.start()
        assert await arrives(consumer) == [(0, 4, 1)]
        with monkeypatch.context() as patch:
            patch.setattr(ShareNode, "close", never_ends)
            call = asyncio.create_task(consumer.close(timeout_ms=60_000))
            await begins(call)
            await cancelled(call)
        assert await arrives(other) == [(0, 4, 2)]


@story
async def test_a_close_ends_a_call_that_waits_for_records(
    servers: str, monkeypatch: pytest.MonkeyPatch
):
    asks = asyncio.Event()
    send: Callable[..., Awaitable[Any]] = Connection.ask

    async def request(connection: Connection, payload: Any, **more: Any) -> Any:
        if type(payload).__name__ == "ShareFetchRequest":
            asks.set()
        return await send(connection, payload, **more)

    monkeypatch.setattr(Connection, "ask", request)
    consumer = RangeConsumer(servers, "idle", [TOPIC])  # it begins at the end of the topic
    await consumer.start()
    call = asyncio.create_task(consumer.acquire(max_wait_ms=60_000))
    await asks.wait()
    await consumer.close()
    with AdminClient({"bootstrap.servers": servers}) as admin:
        assert not admin.describe_groups(["idle"])["idle"].result(20).members
    asks.clear()
    for one in (call, consumer.acquire()):
        with pytest.raises(ClientError, match="closed"):
            await one
    assert not asks.is_set()


@story
async def test_a_closed_consumer_starts_again(servers: str):
    consumer = RangeConsumer(servers, GROUP, [TOPIC])
    for delivery_count in (1, 2):
        await consumer.start()
        assert await arrives(consumer) == [(0, 4, delivery_count)]
        await consumer.close()


@story
async def test_a_cancelled_start_leaves_no_member(servers: str, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patch:
        answers = Answers(patch, "ShareGroupHeartbeatRequest")
        consumer = RangeConsumer(servers, GROUP, [TOPIC])
        call = asyncio.create_task(consumer.start())
        await answers.arrived.wait()  # the broker has a member
        answers.let_through()
        await cancelled(call)
    with AdminClient({"bootstrap.servers": servers}) as admin:
        assert not admin.describe_groups([GROUP])[GROUP].result(20).members


@story
async def test_a_second_close_asks_nobody(servers: str, monkeypatch: pytest.MonkeyPatch):
    async with member(servers) as consumer:
        await consumer.close()
        with monkeypatch.context() as patch:
            patch.setattr(Membership, "_send", None)
            await consumer.close()


@story
async def test_a_close_leaves_the_group_though_a_release_is_not_answered(
    servers: str, monkeypatch: pytest.MonkeyPatch
):
    consumer = RangeConsumer(servers, GROUP, [TOPIC])
    await consumer.start()
    acquired = await consumer.acquire(max_wait_ms=20_000)
    answers = Answers(monkeypatch, "ShareAcknowledgeRequest")
    release = asyncio.create_task(consumer.release_unprocessed(acquired.ranges))
    await answers.arrived.wait()
    await consumer.close(timeout_ms=400)
    assert not consumer._membership._may_be_known
    await cancelled(release)


@story
async def test_the_next_call_raises_the_error_of_a_cancelled_one(
    servers: str, monkeypatch: pytest.MonkeyPatch
):
    begun, refused = asyncio.Event(), asyncio.Event()

    async def refuse(*_: object) -> Any:
        begun.set()
        await refused.wait()
        raise RequestRefused("ShareFetch", 30)

    async with member(servers) as consumer:
        with monkeypatch.context() as patch:
            patch.setattr(ShareNode, "fetch", refuse)
            call = asyncio.create_task(consumer.acquire())
            await begun.wait()
            await cancelled(call)
            refused.set()
            with pytest.raises(RequestRefused):
                await arrives(consumer)
        assert await arrives(consumer) == [(0, 4, 1)]


@story
async def test_acknowledgements_of_a_cancelled_call_are_applied(
    servers: str, monkeypatch: pytest.MonkeyPatch
):
    async with member(servers) as consumer:
        assert await arrives(consumer) == [(0, 4, 1)]
        answers = Answers(monkeypatch, "ShareAcknowledgeRequest")
        call = asyncio.create_task(consumer.acknowledge([accepted(0, 2)]))
        await answers.arrived.wait()
        await cancelled(call)
        answers.let_through()
        assert await consumer.acknowledge([accepted(0, 4)]) == [accepted(3, 4)]
        assert not consumer.held()


@story
async def test_an_acknowledgement_during_a_renewal_keeps_the_other_locks(
    servers: str, monkeypatch: pytest.MonkeyPatch
):
    async with member(servers) as consumer:
        assert await arrives(consumer) == [(0, 4, 1)]
        answers = Answers(monkeypatch, "ShareAcknowledgeRequest")
        first = asyncio.create_task(consumer.acknowledge([accepted(1, 2)]))
        await answers.arrived.wait()
        renewal = asyncio.create_task(consumer.renew())
        await begins(renewal)
        answers.let_through()
        assert await first == [accepted(1, 2)]
        await renewal
        assert consumer.held() == {(TOPIC, 0): [(0, 0), (3, 4)]}
        left = [accepted(0, 0), accepted(3, 4)]
        assert await consumer.acknowledge(left) == left


@story
async def test_acknowledgements_that_overlap_are_applied_once(
    servers: str, monkeypatch: pytest.MonkeyPatch
):
    async with member(servers) as consumer:
        assert await arrives(consumer) == [(0, 4, 1)]
        answers = Answers(monkeypatch, "ShareAcknowledgeRequest")
        first = asyncio.create_task(consumer.acknowledge([accepted(1, 2)]))
        await answers.arrived.wait()
        second = asyncio.create_task(consumer.acknowledge([accepted(0, 4)]))
        await begins(second)
        answers.let_through()
        assert await first == [accepted(1, 2)]
        assert await second == [accepted(0, 0), accepted(3, 4)]
        assert not consumer.held()


@story
async def test_what_was_never_processed_does_not_count(servers: str):
    async with member(servers) as consumer:
        acquired = await consumer.acquire(max_wait_ms=10_000)
        assert [one.delivery_count for one in acquired.ranges] == [1]
        await consumer.release_unprocessed(acquired.ranges)
        assert await arrives(consumer) == [(0, 4, 1)]
    async with member(servers) as consumer:
        assert await arrives(consumer) == [(0, 4, 2)]  # the one before has had them in hand


@story
async def test_what_no_call_has_returned_does_not_count(
    servers: str, monkeypatch: pytest.MonkeyPatch
):
    answers = Answers(monkeypatch, "ShareFetchRequest")
    async with member(servers) as consumer:
        call = asyncio.create_task(consumer.acquire(max_wait_ms=10_000))
        await answers.arrived.wait()
        await cancelled(call)
        answers.let_through()
        await asyncio.wait(consumer._fetches.values())
    async with member(servers) as consumer:
        assert await arrives(consumer) == [(0, 4, 1)]
