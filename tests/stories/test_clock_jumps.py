"""The wall clock is set: sessions, locks and timeouts keep their length."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from headrace.coordinators.transactions import Transactions
from headrace.protocol.errors import ErrorCode
from headrace.transactions.producer import NO_PRODUCER, Producer
from headrace.transactions.records import State

from .share_stage import Stage, on_stage

HOUR_MS, MINUTE_MS = 3_600_000, 60_000
JUMPS = [HOUR_MS, -HOUR_MS]

each_jump = pytest.mark.parametrize("jump_ms", JUMPS, ids=["forward", "back"])


class ClassicMember:
    session_ms = 6_000

    def __init__(self, s: Stage) -> None:
        self.s = s

    async def join(self) -> None:
        joined = await self.s.ask(
            11,
            3,
            group_id="members",
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=MINUTE_MS,
            protocol_type="consumer",
            protocols=[{"name": "range"}],
        )
        assert joined.error_code == ErrorCode.NONE
        self.member_id, self.generation_id = joined.member_id, joined.generation_id

    async def beats(self) -> bool:
        response = await self.s.ask(
            12, group_id="members", generation_id=self.generation_id, member_id=self.member_id
        )
        return response.error_code == ErrorCode.NONE


class EpochMember:
    """A member that joins and stays with heartbeats (68, 76)."""

    session_ms = 45_000

    def __init__(self, api_key: int, fields: Mapping[str, Any], s: Stage) -> None:
        self.api_key, self.fields, self.s = api_key, fields, s
        self.epoch = 0

    async def join(self) -> None:
        assert await self.beats()

    async def beats(self) -> bool:
        response = await self.s.ask(
            self.api_key,
            group_id="members",
            member_id="m",
            member_epoch=self.epoch,
            subscribed_topic_names=["t"],
            **self.fields,
        )
        self.epoch = response.member_epoch
        return response.error_code == ErrorCode.NONE


KINDS = {
    "classic": ClassicMember,
    "consumer": partial(
        EpochMember, 68, {"rebalance_timeout_ms": MINUTE_MS, "topic_partitions": ()}
    ),
    "share": partial(EpochMember, 76, {}),
}


@each_jump
@pytest.mark.parametrize("kind", KINDS)
@on_stage(configs={"group.initial.rebalance.delay.ms": "0"})
async def test_a_member_stays_while_it_beats_and_goes_when_it_is_silent(
    s: Stage, kind: str, jump_ms: int
) -> None:
    s.clock.stop()
    member = KINDS[kind](s)
    await member.join()
    s.clock.wall_ahead_ms = jump_ms
    for _ in range(6):
        s.pass_ms(member.session_ms // 2)
        assert await member.beats()
    s.clock.wall_ahead_ms = 0
    assert await member.beats()
    s.pass_ms(member.session_ms)
    assert not await member.beats()


@each_jump
@on_stage(share_record_lock_duration_ms="1000")
async def test_locks_last_as_long_as_they_should(s: Stage, jump_ms: int) -> None:
    s.clock.stop()
    s.produce(3)
    m = s.member()
    assert await m.fetch() == [(0, 2, 1)]
    s.clock.wall_ahead_ms = jump_ms
    s.pass_ms(999)
    assert await s.member("n").fetch() == []
    s.pass_ms(1)
    assert await s.member("n").fetch() == [(0, 2, 2)]


@each_jump
@on_stage()
async def test_transactions_time_out_when_they_should(s: Stage, jump_ms: int) -> None:
    timeout_ms = 10_000

    def begin(transactions: Transactions, name: str) -> Producer:
        producer = transactions.init_producer_id(name, timeout_ms, NO_PRODUCER)
        assert isinstance(producer, Producer)
        assert transactions.add_partitions(name, producer, [("t", 0)]) is None
        return producer

    s.clock.stop()
    transactions = s.broker.coordinators.transactions
    producer = begin(transactions, "before")
    s.clock.wall_ahead_ms = jump_ms
    begin(transactions, "after")
    transactions.add_partitions("before", producer, [("u", 0)])
    deleted = [s.broker.catalog.topics["t"]]
    for _ in s.broker.coordinators.topics_deleted(deleted):  # which writes them again
        pass
    s.pass_ms(timeout_ms - 1)
    known = transactions.coordinator.transactions
    assert {one.state for one in known.values()} == {State.ONGOING}
    s.pass_ms(1)
    assert {one.state for one in known.values()} == {State.COMPLETE_ABORT}
