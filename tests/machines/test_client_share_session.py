"""The state of a share-group member: its membership, its sessions, the records it holds."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from headrace.client.cluster import Cluster
from headrace.client.errors import RequestRefused
from headrace.client.share.membership import Membership, Trouble
from headrace.client.share.node import next_epoch
from headrace.client.share.spans import PartitionSpans, add, drop
from headrace.protocol.errors import ErrorCode
from tests.support import story

FLIGHTS, WEATHER = UUID(int=1), UUID(int=2)
A, B = (FLIGHTS, 0), (FLIGHTS, 1)


class Coordinator:
    """Stands for the coordinator of a group.

    :ivar assigned: partitions of FLIGHTS; None leaves the assignment unchanged
    :ivar heartbeats: (member epoch, topics) of each heartbeat
    :ivar meanwhile: called while a heartbeat is under way
    """

    def __init__(self) -> None:
        self.code = ErrorCode.NONE
        self.assigned: list[int] | None = [0]
        self.heartbeats: list[tuple[int, tuple[str, ...] | None]] = []
        self.meanwhile: Callable[[], object] = lambda: None
        self.member = Membership(
            Cluster("nowhere:9092"), "g", ["flights"], None, Trouble("nowhere:9092")
        )
        self.member.topics[FLIGHTS] = self.member.topics[WEATHER] = SimpleNamespace()  # type: ignore[assignment]
        self.member._send = self._answer  # type: ignore[method-assign]

    async def _answer(self, epoch: int, names: tuple[str, ...] | None) -> Any:
        self.heartbeats.append((epoch, names))
        self.meanwhile()
        topics = [SimpleNamespace(topic_id=FLIGHTS, partitions=self.assigned)]
        return SimpleNamespace(
            error_code=self.code,
            error_message=None,
            member_epoch=epoch + 1,
            heartbeat_interval_ms=5000,
            assignment=None if self.assigned is None else SimpleNamespace(topic_partitions=topics),
        )

    async def beat(self, times: int = 1) -> None:
        for _ in range(times):
            await self.member._heartbeat()


class TestMembership:
    @story
    async def test_it_names_its_topics_when_joining_and_not_again(self) -> None:
        coordinator = Coordinator()
        await coordinator.beat(2)
        assert coordinator.heartbeats == [(0, ("flights",)), (1, None)]

    @story
    async def test_topics_that_change_while_a_heartbeat_is_under_way_are_named_in_the_next(
        self,
    ) -> None:
        coordinator = Coordinator()
        both = ("flights", "weather")
        coordinator.meanwhile = lambda: setattr(coordinator.member, "names", both)
        await coordinator.beat(3)
        assert coordinator.heartbeats == [(0, ("flights",)), (1, both), (2, None)]

    @story
    async def test_an_answer_without_assignment_leaves_it_unchanged(self) -> None:
        coordinator = Coordinator()
        await coordinator.beat()
        coordinator.assigned = None
        await coordinator.beat()
        assert coordinator.member.assignment == {A}

    @pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH])
    @story
    async def test_it_joins_again_when_the_group_has_forgotten_it(self, code: ErrorCode) -> None:
        coordinator = Coordinator()
        await coordinator.beat(3)
        coordinator.code = code
        await coordinator.beat()
        assert coordinator.member.assignment == frozenset()
        await coordinator.beat()
        assert coordinator.heartbeats[-1] == (0, ("flights",))
        assert coordinator.member.ended is None

    @story
    async def test_it_gives_up_when_the_group_is_of_another_type(self) -> None:
        coordinator = Coordinator()
        coordinator.code = ErrorCode.GROUP_ID_NOT_FOUND
        await coordinator.beat()
        assert isinstance(coordinator.member.ended, RequestRefused)

    @story
    async def test_it_asks_soon_while_nothing_is_assigned_and_less_often_with_time(self) -> None:
        coordinator = Coordinator()
        coordinator.assigned = []
        delays_ms = []
        for _ in range(2000):
            await coordinator.beat()
            delays_ms.append(coordinator.member._delay_ms())
        assert delays_ms[0] <= 200
        assert delays_ms == sorted(delays_ms)
        assert delays_ms[-1] == 5000
        coordinator.assigned = [0]
        await coordinator.beat()
        assert coordinator.member._delay_ms() == 5000


def test_the_epoch_of_a_session_wraps_to_1() -> None:
    assert next_epoch(2**31 - 1) == 1


def test_dropping_the_last_of_a_partition_forgets_it() -> None:
    held: PartitionSpans = {}
    add(held, {A: [(0, 4)]})
    add(held, {A: [(5, 9)]})
    drop(held, {A: [(0, 4)]})
    assert held == {A: [(5, 9)]}
    drop(held, {A: [(5, 9)], B: [(0, 0)]})
    assert held == {}
