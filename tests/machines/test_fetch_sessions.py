"""Fetch sessions: their epochs, who makes place for whom, and what they keep being told of."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import count
from types import SimpleNamespace
from uuid import UUID

import pytest

from headrace.protocol.errors import ErrorCode
from headrace.topics import fetch_sessions
from headrace.topics.fetch_sessions import (
    FETCH_SESSION_EVICTION_MS,
    FetchSession,
    FetchSessions,
)
from headrace.topics.long_polls import LongPolls

TOPIC = UUID(int=7)
LONG = FETCH_SESSION_EVICTION_MS + 1


def asked(partition: int, offset: int = 0) -> SimpleNamespace:
    return SimpleNamespace(
        partition=partition,
        fetch_offset=offset,
        partition_max_bytes=1,
        current_leader_epoch=-1,
        last_fetched_epoch=-1,
    )


class Desk:
    """A cache of sessions, with ids from 1 on and a clock."""

    def __init__(self, most: int = 3, ids: Sequence[int] = ()) -> None:
        self.waits = LongPolls()
        numbers = iter(ids) if ids else count(1)
        self.sessions = FetchSessions(self.waits, most, lambda: next(numbers))
        self.now_ms = 0

    def open(self, size: int = 1, *, uses_names: bool = False) -> FetchSession | None:
        session = self.sessions.open(size, self.now_ms, uses_names=uses_names, isolation_level=0)
        for partition in range(0 if session is None else size):
            session.update(TOPIC, asked(partition))
        return session

    def use(self, session: FetchSession) -> bool:
        """Go on with it; whether it was there."""
        found = self.sessions.find(session.session_id, session.epoch, uses_names=False)
        return (
            isinstance(found, FetchSession) and self.sessions.advance(found, self.now_ms) is found
        )

    def settle(self, session: FetchSession) -> None:
        for cached in list(session.pending):
            session.watch(cached, ("log", TOPIC, cached.partition))

    def changed(self, partition: int) -> None:
        self.waits.notify(("log", TOPIC, partition))


def pending(session: FetchSession) -> list[int]:
    return [cached.partition for cached in session.pending]


def test_epochs_count_up_and_around() -> None:
    desk = Desk()
    session = desk.open()
    assert session.epoch == 1
    find = desk.sessions.find
    assert find(session.session_id, 2, uses_names=False) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert find(session.session_id + 1, 1, uses_names=False) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert find(session.session_id, 1, uses_names=True) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert find(session.session_id, 2, uses_names=True) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert desk.use(session)
    assert session.epoch == 2
    session.epoch = 0x7FFF_FFFF
    assert desk.use(session)
    assert session.epoch == 1


def test_an_id_that_is_taken_is_not_given_again() -> None:
    desk = Desk(ids=(5, 5, 5, 6))
    assert [desk.open().session_id, desk.open().session_id] == [5, 6]


def test_a_stale_session_makes_place() -> None:
    desk = Desk(most=2)
    first, second = desk.open(), desk.open(9)
    desk.now_ms = LONG - 1
    assert desk.use(first)
    assert desk.open(5) is None
    desk.now_ms = LONG
    # in the place of the one that was not used for longest, whatever its size
    assert desk.open(1) is not None
    assert (desk.use(first), desk.use(second), second.is_open) == (True, False, False)
    assert (len(desk.sessions), desk.sessions.evictions) == (2, 1)


def test_a_smaller_session_makes_place_once_it_is_old() -> None:
    desk = Desk(most=3)
    sizes = {size: desk.open(size) for size in (4, 2, 3)}
    assert desk.open(9) is None
    desk.now_ms = LONG
    assert all(desk.use(session) for session in sizes.values())
    assert desk.open(2) is None
    assert desk.open(3) is not None
    assert [desk.use(sizes[size]) for size in (2, 3, 4)] == [False, True, True]
    sizes[3].update(TOPIC, asked(3))
    sizes[3].update(TOPIC, asked(4))
    assert desk.use(sizes[3])  # now it is the larger one
    assert desk.open(5) is not None
    assert [desk.use(sizes[size]) for size in (3, 4)] == [True, False]


def test_without_slots_there_are_no_sessions() -> None:
    assert Desk(most=0).open() is None


def test_all_sessions_together_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "MAX_FETCH_SESSION_PARTITIONS", 10)
    desk = Desk()
    first, second = desk.open(6), desk.open(4)
    assert desk.sessions.partitions == 10
    assert desk.open(1) is None
    first.forget(TOPIC, 0)
    assert desk.use(first)
    second.update(TOPIC, asked(4))
    assert desk.use(second)
    second.update(TOPIC, asked(5))
    # and the client names all its partitions again
    assert desk.sessions.advance(second, 0) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert not second.is_open
    assert desk.sessions.partitions == 5
    for partition in range(1, 6):
        first.forget(TOPIC, partition)
    assert desk.sessions.advance(first, 0) is first
    assert (first.is_open, len(desk.sessions), desk.sessions.partitions) == (False, 0, 0)


def test_only_what_has_changed_is_looked_at() -> None:
    desk = Desk()
    session = desk.open(4)
    assert pending(session) == [0, 1, 2, 3]
    desk.settle(session)
    assert pending(session) == []
    desk.changed(2)
    desk.changed(0)
    desk.changed(2)
    assert pending(session) == [2, 0]
    session.requeue(next(iter(session.pending)))
    assert pending(session) == [0, 2]
    session.update(TOPIC, asked(3, offset=5))
    desk.changed(3)
    assert pending(session) == [0, 2, 3]
    session.isolate(1)
    assert sorted(pending(session)) == [0, 1, 2, 3]
    desk.settle(session)
    desk.changed(1)
    assert pending(session) == [1]


def test_a_session_that_ends_leaves_nothing_behind() -> None:
    desk = Desk()
    session, other = desk.open(3), desk.open(3)
    desk.settle(session)
    desk.settle(other)
    session.forget(TOPIC, 1)
    session.forget(TOPIC, 1)
    desk.changed(0)
    desk.sessions.close(session.session_id)
    desk.sessions.close(session.session_id)
    desk.changed(2)
    assert (pending(other), len(desk.waits)) == ([0, 2], 1)
    desk.sessions.close(other.session_id)
    assert (len(desk.waits), len(desk.sessions), desk.sessions.partitions) == (0, 0, 0)


def test_a_partition_takes_little_memory() -> None:
    """That many fit into a session: a few numbers each, no dict."""
    session = Desk().open(1)
    (cached,) = session.pending
    assert not hasattr(cached, "__dict__")
    assert sys.getsizeof(cached) < 128
