"""Share sessions: epochs, limits, closing."""

from __future__ import annotations

from uuid import UUID

import pytest

from headrace.protocol.errors import ErrorCode, Refusal
from headrace.share.share_session import ShareSession, ShareSessions

A, B, C = ((UUID(int=1), partition) for partition in range(3))


def fetch(sessions, epoch, member="m", connection=1, acknowledges=False, limit=10, group="g"):
    return sessions.fetch(group, member, epoch, connection, acknowledges=acknowledges, limit=limit)


def code(reply):
    assert isinstance(reply, Refusal)
    assert reply.message is None
    return reply.code


def test_epochs_go_up_with_fetches_and_acknowledges_alike():
    sessions = ShareSessions()
    session = fetch(sessions, 0)
    assert isinstance(session, ShareSession)
    assert fetch(sessions, 1) is session
    assert code(fetch(sessions, 1)) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert sessions.acknowledge("g", "m", 2) is session
    assert code(fetch(sessions, 2)) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert fetch(sessions, 3) is session
    session.epoch = 0x7FFF_FFFF
    assert fetch(sessions, 0x7FFF_FFFF) is session
    assert fetch(sessions, 1) is session


@pytest.mark.parametrize("epoch", [5, -1, 1])
def test_an_unknown_session_is_not_found(epoch):
    assert code(fetch(ShareSessions(), epoch)) == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert code(ShareSessions().acknowledge("g", "m", epoch)) == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_what_can_not_open_a_session():
    sessions = ShareSessions()
    assert code(fetch(sessions, 0, acknowledges=True)) == ErrorCode.INVALID_REQUEST
    assert code(sessions.acknowledge("g", "m", 0)) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert len(sessions) == 0


def test_the_limit_holds_for_new_sessions_only():
    sessions = ShareSessions()
    first = fetch(sessions, 0, limit=1)
    assert code(fetch(sessions, 0, member="n", limit=1)) == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    again = fetch(sessions, 0, limit=1)
    assert isinstance(again, ShareSession)
    assert again is not first
    assert len(sessions) == 1
    sessions.close("g", "m")
    assert isinstance(fetch(sessions, 0, member="n", limit=1), ShareSession)


def test_the_final_epoch_leaves_the_session_to_be_closed_by_the_caller():
    sessions = ShareSessions()
    session = fetch(sessions, 0)
    assert sessions.acknowledge("g", "m", -1) is session
    assert fetch(sessions, -1) is session
    assert sessions.close("g", "m") is session
    assert sessions.close("g", "m") is None
    assert code(fetch(sessions, 1)) == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_a_session_goes_with_the_connection_that_opened_it_last():
    sessions = ShareSessions()
    fetch(sessions, 0, member="m", connection=1)
    moved = fetch(sessions, 0, member="m", connection=2)
    other = fetch(sessions, 0, member="n", connection=2)
    elsewhere = fetch(sessions, 0, member="x", connection=3, group="h")
    assert sessions.disconnected(1) == []
    assert sessions.in_group("g") == 2
    assert sessions.disconnected(2) == [moved, other]
    assert sessions.disconnected(2) == []
    assert (sessions.in_group("g"), sessions.in_group("h")) == (0, 1)
    assert fetch(sessions, 1, member="x", group="h") is elsewhere


def test_partitions_are_added_and_forgotten():
    session = ShareSession("g", "m", 1)
    session.update([A, B, A, C], [])
    session.update([], [B, (UUID(int=9), 0)])
    assert list(session.partitions) == [A, C]
