"""No partition of a share group that has records waits longer than a round, whatever mix of
requests its members send.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from headrace.protocol.errors import ErrorCode
from headrace.share.acknowledgement import ACCEPT, RELEASE, RENEW
from tests.stories.share_stage import GROUP, Member, begun, stage

PARTITIONS = 4
VALUE_BYTES = {0: 1, 1: 1, 2: 700, 3: 9_000}
"""The size of a record of each partition."""

members = st.integers(0, 2)
partition_sets = st.sets(st.integers(0, PARTITIONS - 1), min_size=1).map(sorted).map(tuple)
limits = st.fixed_dictionaries(
    {
        "max_records": st.integers(1, 8),
        "max_bytes": st.sampled_from((1, 3_000, 50_000_000)),
        "mode": st.integers(0, 1),
    }
)


class Held(NamedTuple):
    """Records that a member has acquired."""

    member: Member
    partition: int
    first_offset: int
    last_offset: int

    def ended_by(self, acknowledge_type: int) -> tuple[int, int, int]:
        return (self.first_offset, self.last_offset, acknowledge_type)


class Rotation(RuleBasedStateMachine):
    """Three members of a share group.

    :ivar passed_over: for each partition, the fetches that had it in their session and acquired
        only from others, since it was served or had no records
    """

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.exit = AsyncExitStack()
        self.stage = self.run(self.exit.enter_async_context(stage(PARTITIONS)))
        self.members = [self.stage.member(name) for name in "mno"]
        self.held: list[Held] = []
        self.passed_over = dict.fromkeys(range(PARTITIONS), 0)
        for partition in self.passed_over:
            self.produce(partition, 60)

    def teardown(self) -> None:
        self.run(self.exit.aclose())
        self.loop.close()

    def run(self, request: Any) -> Any:
        return self.loop.run_until_complete(request)

    def produce(self, partition: int, batches: int) -> None:
        value = b"v" * VALUE_BYTES[partition]
        self.stage.produce(*[2] * batches, partition=partition, value=value)

    def has_records(self, partition: int) -> bool:
        share = self.stage.broker.coordinators.share
        loaded = self.stage.loaded(partition)
        if loaded is None:
            return True
        offset = loaded.partition.fetch_offset(share.settings(GROUP))
        return offset is not None and offset < loaded.log.end_offset

    def fetch(self, member: Member, *batches: Any, **options: Any) -> None:
        self.run(self.fetch_and_count(member, *batches, **options))

    async def fetch_and_count(
        self, member: Member, *batches: Any, produced: tuple[int, ...] = (), **options: Any
    ) -> None:
        """Fetch and note who is passed over.

        :param produced: partitions that get records while the fetch waits
        """
        fetch = await begun(member.share_fetch(*batches, **options))
        for partition in produced:
            if not fetch.done():
                self.produce(partition, 1)
                await asyncio.sleep(0)
        response = await fetch
        assert response.error_code == ErrorCode.NONE
        fetched = [one for topic in response.responses for one in topic.partitions]
        self.held += [
            Held(member, one.partition_index, run.first_offset, run.last_offset)
            for one in fetched
            for run in one.acquired_records
        ]
        served = {one.partition_index for one in fetched if one.acquired_records}
        session = self.stage.broker.coordinators.share.sessions._sessions.get((GROUP, member.name))
        assert session is not None
        for partition in self.passed_over:
            if partition in served or not self.has_records(partition):
                self.passed_over[partition] = 0
            elif served and (self.stage.topic_id, partition) in session.partitions:
                self.passed_over[partition] += 1
        assert max(self.passed_over.values()) < PARTITIONS, self.passed_over

    @rule(which=members, partitions=partition_sets, limits=limits)
    def open_session(self, which: int, partitions: tuple[int, ...], limits: Any) -> None:
        self.fetch(self.members[which], epoch=0, partitions=partitions, **limits)

    def open_members(self) -> list[Member]:
        return [member for member in self.members if member.epoch]

    @precondition(open_members)
    @rule(
        data=st.data(),
        add=st.just(()) | partition_sets,
        forget=st.just(()) | partition_sets,
        limits=limits,
    )
    def fetch_more(
        self, data: st.DataObject, add: tuple[int, ...], forget: tuple[int, ...], limits: Any
    ) -> None:
        member = data.draw(st.sampled_from(self.open_members()))
        self.fetch(member, add=add, forget=forget, **limits)

    @precondition(open_members)
    @rule(
        data=st.data(),
        min_bytes=st.sampled_from((1, 150, 1_000)),
        produced=st.lists(st.integers(0, PARTITIONS - 1)).map(tuple),
        limits=limits,
    )
    def wait_for_records(
        self, data: st.DataObject, min_bytes: int, produced: tuple[int, ...], limits: Any
    ) -> None:
        member = data.draw(st.sampled_from(self.open_members()))
        self.fetch(member, min_bytes=min_bytes, wait_ms=1, produced=produced, **limits)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), acknowledge_type=st.sampled_from((ACCEPT, RELEASE)))
    def acknowledge(self, data: st.DataObject, acknowledge_type: int) -> None:
        held = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        batch = held.ended_by(acknowledge_type)
        if held.member.epoch:
            self.run(held.member.ack(batch, partition=held.partition))

    @precondition(lambda self: self.held)
    @rule(data=st.data(), acknowledge_type=st.sampled_from((ACCEPT, RELEASE)), limits=limits)
    def acknowledge_with_a_fetch(
        self, data: st.DataObject, acknowledge_type: int, limits: Any
    ) -> None:
        held = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        batch = held.ended_by(acknowledge_type)
        if held.member.epoch:
            self.fetch(held.member, batch, partitions=(held.partition,), **limits)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        held = data.draw(st.sampled_from(self.held))
        if held.member.epoch:
            self.run(held.member.ack(held.ended_by(RENEW), partition=held.partition, renew=True))

    @precondition(open_members)
    @rule(data=st.data())
    def close_session(self, data: st.DataObject) -> None:
        member = data.draw(st.sampled_from(self.open_members()))
        self.run(member.share_acknowledge(epoch=-1))
        self.held = [held for held in self.held if held.member is not member]
        if not self.open_members():  # the broker forgets a group without sessions, also its turns
            self.passed_over = dict.fromkeys(self.passed_over, 0)


Rotation.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestRotation = Rotation.TestCase
