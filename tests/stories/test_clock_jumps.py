"""The wall clock is set: sessions, locks and timeouts keep their length."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import kio.schema.consumer_group_heartbeat.v1.request as consumer
import kio.schema.heartbeat.v4.request as classic
import kio.schema.join_group.v9.request as joins
import kio.schema.share_group_heartbeat.v1.request as share
import pytest

from headrace.coordinators.transactions import Transactions
from headrace.errors import ErrorCode, Refusal
from headrace.handlers import handler
from headrace.handlers.context import RequestContext
from headrace.transactions.producer import NO_PRODUCER, Producer
from headrace.transactions.records import State

from .share_stage import Stage, stage, story

HOUR_MS, MINUTE = 3_600_000, timedelta(minutes=1)
JUMPS = [HOUR_MS, -HOUR_MS]
CONTEXT = RequestContext(9, "c", "/127.0.0.1", 1, "h", 1)

each_jump = pytest.mark.parametrize("jump_ms", JUMPS, ids=["forward", "back"])


async def ask(s: Stage, api_key: int, request: Any) -> Any:
    response = handler(api_key)(s.broker, request, CONTEXT)
    return await response if hasattr(response, "__await__") else response


class ClassicMember:
    session_ms = 6_000

    def __init__(self, s: Stage) -> None:
        self.s = s

    async def join(self) -> None:
        request = joins.JoinGroupRequest(
            group_id="classic",
            session_timeout=timedelta(milliseconds=self.session_ms),
            rebalance_timeout=MINUTE,
            member_id="",
            protocol_type="consumer",
            protocols=(joins.JoinGroupRequestProtocol(name="range", metadata=b""),),
        )
        context = RequestContext(3, "c", "/127.0.0.1", 1, "h", 1)
        joined = await handler(11)(self.s.broker, request, context)
        assert joined.error_code == ErrorCode.NONE
        self.member_id, self.generation_id = joined.member_id, joined.generation_id

    async def beats(self) -> bool:
        request = classic.HeartbeatRequest(
            group_id="classic", generation_id=self.generation_id, member_id=self.member_id
        )
        return (await ask(self.s, 12, request)).error_code == ErrorCode.NONE


class ConsumerMember:
    session_ms = 45_000
    epoch = 0

    def __init__(self, s: Stage) -> None:
        self.s = s

    async def join(self) -> None:
        assert await self.beats()

    async def beats(self) -> bool:
        request = consumer.ConsumerGroupHeartbeatRequest(
            group_id="consumer",
            member_id="m",
            member_epoch=self.epoch,
            rebalance_timeout=MINUTE,
            subscribed_topic_names=("t",),
            topic_partitions=(),
        )
        response = await ask(self.s, 68, request)
        self.epoch = response.member_epoch
        return response.error_code == ErrorCode.NONE


class ShareMember:
    session_ms = 45_000
    epoch = 0

    def __init__(self, s: Stage) -> None:
        self.s = s

    async def join(self) -> None:
        assert await self.beats()

    async def beats(self) -> bool:
        request = share.ShareGroupHeartbeatRequest(
            group_id="share", member_id="m", member_epoch=self.epoch, subscribed_topic_names=("t",)
        )
        response = await ask(self.s, 76, request)
        self.epoch = response.member_epoch
        return response.error_code == ErrorCode.NONE


@each_jump
@pytest.mark.parametrize("kind", [ClassicMember, ConsumerMember, ShareMember])
def test_a_member_stays_while_it_beats_and_goes_when_it_is_silent(kind: Any, jump_ms: int) -> None:
    @story
    async def told() -> None:
        async with stage(configs={"group.initial.rebalance.delay.ms": "0"}) as s:
            s.clock.stop()
            member = kind(s)
            await member.join()
            s.clock.wall_ahead_ms = jump_ms
            for _ in range(6):
                s.pass_ms(member.session_ms // 2)
                assert await member.beats()
            s.clock.wall_ahead_ms = 0
            assert await member.beats()
            s.pass_ms(member.session_ms)
            assert not await member.beats()

    told()


@each_jump
def test_locks_last_as_long_as_they_should(jump_ms: int) -> None:
    @story
    async def told() -> None:
        async with stage(share_record_lock_duration_ms="1000") as s:
            s.clock.stop()
            s.produce(3)
            m = s.member()
            assert await m.fetch() == [(0, 2, 1)]
            s.clock.wall_ahead_ms = jump_ms
            s.pass_ms(999)
            assert await s.member("n").fetch() == []
            s.pass_ms(1)
            assert await s.member("n").fetch() == [(0, 2, 2)]

    told()


@each_jump
def test_transactions_time_out_when_they_should(jump_ms: int) -> None:
    timeout_ms = 10_000

    def begin(transactions: Transactions, name: str) -> None:
        producer = transactions.init_producer_id(name, timeout_ms, NO_PRODUCER)
        assert isinstance(producer, Producer)
        assert not isinstance(transactions.add_partitions(name, producer, [("t", 0)]), Refusal)

    @story
    async def told() -> None:
        async with stage() as s:
            s.clock.stop()
            transactions = s.broker.transactions
            begin(transactions, "before")
            s.clock.wall_ahead_ms = jump_ms
            begin(transactions, "after")
            for _ in s.broker.transactions.topics_deleted({"t"}):  # which writes them again
                pass
            s.pass_ms(timeout_ms - 1)
            known = transactions.coordinator.transactions
            assert {one.state for one in known.values()} == {State.ONGOING}
            s.pass_ms(1)
            assert {one.state for one in known.values()} == {State.COMPLETE_ABORT}

    told()
