"""Heartbeats that change nothing: their member stays, and hears of every change that does not come
with its own heartbeat.
"""

from __future__ import annotations

import pytest

from headrace.groups.consumer.group import MemberTransition
from headrace.groups.share.group import ShareMemberTransition
from headrace.groups.streams.group import StreamsTransition
from headrace.groups.streams.member import StatusCode
from headrace.protocol.errors import ErrorCode
from tests.machines.group_desk import Desk

SESSION_MS = 45_000


@pytest.fixture
def desk():
    desk = Desk()
    desk.add_topic("t", 4)
    return desk


@pytest.fixture
def decided(monkeypatch):
    """The heartbeats that were decided, by member id."""
    found = []
    for transition in (MemberTransition, ShareMemberTransition, StreamsTransition):

        def run(self, _run=transition.run):
            found.append(self.member_id)
            return _run(self)

        monkeypatch.setattr(transition, "run", run)
    return found


@pytest.fixture(params=["consumer", "share", "streams"])
def member(request, desk):
    """``member(epoch)``: a heartbeat of the only member of a group."""
    if request.param == "consumer":
        beat = lambda epoch: desk.consume("m", epoch, ["t"] if epoch == 0 else None)  # noqa: E731
    elif request.param == "share":
        beat = lambda epoch: desk.beat("m", epoch, ["t"] if epoch == 0 else None)  # noqa: E731
    else:
        beat = lambda epoch: desk.run("m", epoch)  # noqa: E731
    beat(0)
    return beat


def test_an_equal_heartbeat_is_not_decided_again(desk, member, decided):
    replies = [member(2) for _ in range(5)]
    assert decided == ["m"]
    assert all(reply is replies[0] for reply in replies)


def test_it_keeps_the_session(desk, member):
    for _ in range(4):
        desk.pass_ms(SESSION_MS - 1)
        assert member(2).member_epoch == 2
    desk.pass_ms(SESSION_MS)
    assert member(2).code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_new_session_timeout_holds_from_the_next_one(desk, member):
    for _ in range(3):
        member(2)
    for kind in ("consumer", "share", "streams"):
        desk.configure(f"{kind}.session.timeout.ms", 10_000)
    member(2)
    desk.pass_ms(10_000)
    assert member(2).code == ErrorCode.UNKNOWN_MEMBER_ID


def test_after_it_a_topic_is_created_again(desk, member):
    for _ in range(3):
        member(2)
    desk.delete_topic("t")
    desk.add_topic("t", 6, incarnation=1)
    assert member(2).assigned is not None


def test_after_it_another_epoch_is_fenced(desk, member):
    for _ in range(3):
        member(2)
    assert member(3).code == ErrorCode.FENCED_MEMBER_EPOCH
    assert member(2).member_epoch == 2


def test_other_members_join(desk):
    desk.consume("m", 0, ["t"])
    for _ in range(3):
        desk.consume("m", 2)
    desk.consume("n", 0, ["t"])
    assert desk.by_name(desk.consume("m", 2).assigned) == {"t": [0, 1]}


def test_a_target_that_was_put_off_is_computed(desk):
    desk.config.values["consumer.assignment.interval.ms"] = 1_000
    desk.consume("m", 0, ["t"])
    desk.consume("n", 0, ["t"])
    for _ in range(3):
        assert desk.consume("m", 2).assigned is None
    desk.pass_ms(1_000)
    assert desk.by_name(desk.consume("m", 2).assigned) == {"t": [0, 1]}


def test_partitions_that_were_not_ready_are_assigned(desk):
    desk.config.values["share.assignment.interval.ms"] = 1_000
    desk.state_works = False
    desk.beat("m", 0, ["t"])
    for _ in range(3):
        assert desk.beat("m", 2).assigned is None
    desk.state_works = True
    assert desk.beat("m", 2).assigned is None
    desk.pass_ms(1_000)
    assert desk.by_name(desk.beat("m", 2).assigned) == {"t": [0, 1, 2, 3]}


def test_a_shutdown_is_told(desk):
    desk.run("m", 0)
    desk.run("n", 0)
    for _ in range(4):
        for member_id in "mn":
            held = desk.coordinator.groups["a"].state.current[member_id]
            owned = {id_: tuple(epochs) for id_, epochs in held.assigned.active.items()}
            steady = desk.run(member_id, held.member_epoch, owned=(owned, {}))
    assert not steady.statuses
    desk.run("m", 3, shutdown_application=True)
    again = desk.run("n", 3, owned=(owned, {}))
    assert [status.code for status in again.statuses] == [StatusCode.SHUTDOWN_APPLICATION]


def test_endpoints_are_told(desk):
    desk.run("m", 0)
    desk.run("n", 0, endpoint=("host", 1))
    for _ in range(3):
        desk.run("m", 2, owned=({"0": (0, 1)}, {}))
        desk.run("n", 3, owned=({"0": (2, 3)}, {}))
    known = desk.coordinator.groups["a"].endpoint_epoch
    for _ in range(3):
        steady = desk.run("m", 3, owned=({"0": (0, 1)}, {}), endpoint_epoch=known)
    assert steady.endpoints is None
    desk.run("n", 0, endpoint=("host", 2))
    told = desk.run("m", 3, owned=({"0": (0, 1)}, {}), endpoint_epoch=known)
    assert told.endpoints
