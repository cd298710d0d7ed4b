"""The state of a share-group member: its membership, its sessions, the records it holds."""

from __future__ import annotations

from uuid import UUID

import pytest

from headrace.client.share.session import HeldRecords, SessionStep, ShareMembership, ShareSession
from headrace.errors import ErrorCode

FLIGHTS, WEATHER = UUID(int=1), UUID(int=2)
A, B, C = (FLIGHTS, 0), (FLIGHTS, 1), (WEATHER, 0)


class TestMembership:
    def test_it_names_its_topics_when_joining_and_not_again(self) -> None:
        member = ShareMembership("m", ("flights",))
        assert member.next_heartbeat() == (0, ("flights",))
        member.joined(1, 5000, frozenset({A}))
        assert member.next_heartbeat() == (1, None)

    def test_topics_that_change_while_a_heartbeat_is_under_way_are_named_in_the_next(self) -> None:
        member = ShareMembership("m", ("flights",))
        member.next_heartbeat()
        member.joined(1, 5000, frozenset({A}))
        member.next_heartbeat()
        member.topics = ("flights", "weather")
        member.joined(1, 5000, None)  # the answer to what was said before
        assert member.next_heartbeat() == (1, ("flights", "weather"))
        member.joined(2, 5000, None)
        assert member.next_heartbeat() == (2, None)

    def test_an_answer_without_assignment_leaves_it_unchanged(self) -> None:
        member = ShareMembership("m", ("flights",))
        member.joined(1, 5000, frozenset({A}))
        member.joined(2, 5000, None)
        assert member.assignment == {A}

    @pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH])
    def test_it_joins_again_when_the_group_has_forgotten_it(self, code: ErrorCode) -> None:
        member = ShareMembership("m", ("flights",))
        member.joined(7, 5000, frozenset({A}))
        assert member.refused(code)
        assert member.assignment == frozenset()
        assert member.next_heartbeat() == (0, ("flights",))

    def test_it_gives_up_when_the_group_is_of_another_type(self) -> None:
        assert not ShareMembership("m", ("flights",)).refused(ErrorCode.GROUP_ID_NOT_FOUND)

    def test_it_asks_soon_while_nothing_is_assigned_and_less_often_with_time(self) -> None:
        member = ShareMembership("m", ("flights",))
        delays_ms = []
        for epoch in range(1, 2000):
            member.joined(epoch, 5000, frozenset())
            delays_ms.append(member.heartbeat_delay_ms())
        assert delays_ms[0] <= 200
        assert delays_ms == sorted(delays_ms)
        assert delays_ms[-1] == 5000
        member.joined(2000, 5000, frozenset({A}))
        assert member.heartbeat_delay_ms() == 5000


class TestSession:
    def test_it_opens_at_epoch_0_and_says_only_what_changed_afterwards(self) -> None:
        session = ShareSession()
        opening = session.fetch({A, B})
        assert opening == SessionStep(0, (A, B), ())
        session.fetched(opening)
        assert session.fetch({A, B}) == SessionStep(1, (), ())
        session.acknowledged()
        assert session.fetch({B, C}) == SessionStep(2, (C,), (A,))

    def test_a_step_that_was_not_taken_is_said_again(self) -> None:
        session = ShareSession()
        session.fetched(session.fetch({A}))
        for _ in range(2):
            assert session.fetch({B}) == SessionStep(1, (B,), (A,))

    def test_a_lost_session_is_opened_anew_with_everything(self) -> None:
        session = ShareSession()
        session.fetched(session.fetch({A, B}))
        session.lost()
        assert not session.is_open
        assert session.fetch({A, B}) == SessionStep(0, (A, B), ())

    def test_the_epoch_wraps_to_1(self) -> None:
        session = ShareSession(epoch=2**31 - 1)
        session.acknowledged()
        assert session.epoch == 1


class TestHeldRecords:
    def test_only_what_is_held_can_be_acknowledged(self) -> None:
        held = HeldRecords()
        held.add(A, [(0, 9), (20, 29)], now_ms=0)
        assert held.held(A, [(5, 24)]) == [(5, 9), (20, 24)]
        assert held.held(B, [(5, 24)]) == []

    def test_dropping_the_last_of_a_partition_forgets_it(self) -> None:
        held = HeldRecords()
        held.add(A, [(0, 9)], now_ms=0)
        held.drop(A, [(0, 4)])
        assert held.spans(A) == [(5, 9)]
        held.drop(A, [(5, 9)])
        assert held.partitions() == []
        assert held.locked_before(10**9) == []

    def test_a_partition_is_due_by_its_oldest_lock(self) -> None:
        held = HeldRecords()
        held.add(A, [(0, 9)], now_ms=1000)
        held.add(A, [(10, 19)], now_ms=2000)
        held.add(B, [(0, 9)], now_ms=2000)
        assert held.locked_before(1500) == [A]
        held.renewed(A, 3000)
        assert held.locked_before(2500) == [B]
