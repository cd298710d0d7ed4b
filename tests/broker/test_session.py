"""The session of a client without a socket: bytes in, answers out."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.broker.broker import Broker
from headrace.broker.config.broker_config import Config
from headrace.handlers import APIS
from headrace.net.call import Client
from headrace.net.listeners import Listener
from headrace.net.session import Progress, Session, Sessions, State

pytestmark = pytest.mark.broker

MEMORY = memoryview(bytearray(256 * 1024))
FOREVER_MS = 1 << 60


@pytest.fixture(scope="module")
def sessions() -> Iterator[Sessions]:
    broker = Broker(Config({}))
    yield Sessions(broker, APIS, MEMORY.toreadonly())
    broker.close()


def api_versions(correlation_id: int, version: int = 0) -> bytes:
    body = struct.pack(">hhih", 18, version, correlation_id, -1)
    return struct.pack(">i", len(body)) + body


def begun(sessions: Sessions) -> Session:
    client = Client("192.0.2.1", 1, Listener("127.0.0.1", 9092))
    return Session(sessions, client, lambda: None)


def receive(session: Session, data: bytes) -> None:
    """Hand bytes over as a line does."""
    while data:
        frame = session.frame
        room = MEMORY if frame is None else frame.room()
        part, data = data[: len(room)], data[len(room) :]
        room[: len(part)] = part
        if frame is None:
            session.receive(len(part))
            session.queue.keep(MEMORY.obj)
            continue
        frame.received_bytes += len(part)
        if frame.received_bytes == frame.size_bytes:
            session.end_frame(frame)
        elif frame.is_full:
            frame.grow()


def correlation_ids(session: Session) -> list[int]:
    """Return those of the answers, in order, and forget the answers."""
    sent, ids = b"".join(map(bytes, session.answers)), []
    session.answers.clear()
    while sent:
        size, correlation_id = struct.unpack_from(">ii", sent)
        ids.append(correlation_id)
        sent = sent[4 + size :]
    return ids


def in_loop(body: Callable[[], None]) -> None:
    async def run() -> None:
        body()

    asyncio.run(run())


@given(cuts=st.lists(st.integers(1, 59), unique=True).map(sorted))
@settings(max_examples=50)
def test_requests_are_the_same_wherever_their_bytes_are_cut(
    sessions: Sessions, cuts: list[int]
) -> None:
    sent = b"".join(api_versions(number) for number in range(1, 6))
    session = begun(sessions)
    ends = [cut for cut in cuts if cut < len(sent)]
    for start, end in zip([0, *ends], [*ends, len(sent)], strict=True):
        receive(session, sent[start:end])

    def body() -> None:
        assert session.serve(FOREVER_MS) is Progress.DONE
        assert correlation_ids(session) == [1, 2, 3, 4, 5]

    in_loop(body)


def test_answers_are_collected_up_to_what_is_worth_sending(sessions: Sessions) -> None:
    session = begun(sessions)
    for number in range(300):  # of some 400 bytes each
        receive(session, api_versions(number))

    def body() -> None:
        assert session.serve(FOREVER_MS) is Progress.COLLECTED
        first = correlation_ids(session)
        assert 100 < len(first) < 300
        assert session.serve(FOREVER_MS) is Progress.DONE
        assert first + correlation_ids(session) == list(range(300))

    in_loop(body)


def test_the_rest_waits_when_the_time_is_over(sessions: Sessions) -> None:
    session = begun(sessions)
    receive(session, api_versions(1) + api_versions(2))

    def body() -> None:
        assert session.serve(0) is Progress.LATE
        assert correlation_ids(session) == [1]
        assert session.queue.count == 1

    in_loop(body)


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(struct.pack(">i", 7) + b"1234567", id="too small for a header"),
        pytest.param(struct.pack(">i", 1 << 30), id="too large"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="another protocol"),
        pytest.param(struct.pack(">ihhih", 10, 9999, 0, 1, -1), id="an unknown API"),
        pytest.param(struct.pack(">ihhih", 10, 3, 99, 1, -1), id="an unknown version"),
    ],
)
def test_what_is_no_request_closes_the_line_after_the_answers(
    sessions: Sessions, sent: bytes
) -> None:
    session = begun(sessions)
    receive(session, api_versions(1) + sent)

    def body() -> None:
        session.serve(FOREVER_MS)
        assert session.state is State.CLOSING
        assert not session.queue.count

    in_loop(body)


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(sessions: Sessions) -> None:
    session = begun(sessions)
    receive(session, api_versions(7, 9999))

    def body() -> None:
        session.serve(FOREVER_MS)
        answer = b"".join(map(bytes, session.answers))
        assert struct.unpack_from(">iih", answer)[1:] == (7, 35)
        assert session.state is State.OPEN

    in_loop(body)


def test_a_held_session_answers_nothing(sessions: Sessions) -> None:
    session = begun(sessions)
    receive(session, api_versions(1))
    session.hold()

    def body() -> None:
        assert session.serve(FOREVER_MS) is Progress.DONE
        assert session.answers == []

    in_loop(body)
