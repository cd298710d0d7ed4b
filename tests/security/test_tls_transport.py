"""What a turn of the event loop takes of one connection with TLS, whatever its records are."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from headrace.log_lines import LIMITER
from headrace.net.tls.transport import (
    MAX_EMPTY_TLS_RECORDS,
    TLS_RECORDS_PER_TURN,
    Handshakes,
    TlsTransport,
)
from tests.attacks.key_updates import APPLICATION_DATA, KeyUpdates
from tests.throwaway_ca import ThrowawayCA

pytestmark = pytest.mark.broker

CHANGE_CIPHER_SPEC, ALERT = 20, 21
CLOSE_NOTIFY = b"\1\0"
CHANGE = b"\x14\3\3\0\1\1"
"""A whole record of that kind, which clients may send during a handshake only."""

WITHIN_S = 60
ROOM_BYTES = 8 * 1024
"""Less than a record."""


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> ThrowawayCA:
    authority = ThrowawayCA(tmp_path_factory.mktemp("ca"))
    authority.issue("broker")
    return authority


class Turns:
    """The turns of the event loop, counted while the object is in use."""

    def __init__(self) -> None:
        self.count = 0
        self._loop = asyncio.get_running_loop()
        self._next = self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self.count += 1
        self._next = self._loop.call_soon(self._turn)

    def close(self) -> None:
        self._next.cancel()


class Receiver(asyncio.BufferedProtocol):
    """Keeps what arrives, and counts the bytes of each turn."""

    def __init__(self, turns: Turns) -> None:
        self.transport: Any = None
        self.received = bytearray()
        self.bytes_in_turn: Counter[int] = Counter()
        self.is_lost = self.is_at_end = False
        self.pauses = False
        """True if it reads no more after the first bytes."""
        self._turns = turns
        self._buffer = memoryview(bytearray(ROOM_BYTES))

    def connection_made(self, transport: Any) -> None:
        transport.set_write_buffer_limits(high=0)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self._buffer[:nbytes]
        self.bytes_in_turn[self._turns.count] += nbytes
        if self.pauses:
            self.transport.pause_reading()

    def eof_received(self) -> bool:
        self.is_at_end = True
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True

    async def wait_for(self, size_bytes: int) -> None:
        await until(lambda: len(self.received) >= size_bytes)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not condition():
            await asyncio.sleep(0)


class Scene:
    """A listening socket with TLS."""

    def __init__(self, ca: ThrowawayCA, folder: Path) -> None:
        self.turns = Turns()
        self._loop = asyncio.get_running_loop()
        self._folder = folder
        self._ca = ca
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(ca.certificate.with_name("broker.both"))
        self._handshakes = Handshakes(WITHIN_S, 100)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.setblocking(False)
        self._clients: list[KeyUpdates] = []

    async def connect(self) -> tuple[KeyUpdates, Receiver]:
        """Return a client after its handshake, and what receives from it."""
        port = self._listening.getsockname()[1]
        context = ssl.create_default_context(cafile=self._ca.certificate)
        secrets = self._folder / f"secrets-{len(self._clients)}"
        connecting = asyncio.create_task(asyncio.to_thread(KeyUpdates, port, context, secrets))
        sock, _ = await self._loop.sock_accept(self._listening)
        sock.setblocking(False)
        receiver = Receiver(self.turns)
        TlsTransport(sock, self._context, lambda: receiver, self._handshakes, lambda: None)
        client = await asyncio.wait_for(connecting, WITHIN_S)
        await until(lambda: receiver.transport is not None)
        client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._clients.append(client)
        return client, receiver

    def close(self) -> None:
        self.turns.close()
        self._handshakes.close()
        self._listening.close()
        for client in self._clients:
            client.socket.close()


Play = Callable[[Callable[[Scene], Coroutine[Any, Any, None]]], None]


@pytest.fixture(params=["asyncio", "uvloop"])
def play(request: pytest.FixtureRequest, ca: ThrowawayCA, tmp_path: Path) -> Play:
    """Run a scene on an event loop of each kind."""
    LIMITER.clear()

    @asynccontextmanager
    async def opened() -> AsyncIterator[Scene]:
        scene = Scene(ca, tmp_path)
        try:
            yield scene
        finally:
            scene.close()

    def run(act: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            async with opened() as scene:
                await act(scene)

        factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(main())

    return run


def test_a_turn_takes_one_key_update_of_each_connection(play: Play) -> None:
    """Before, a turn took all that had arrived: 10 clients held the event loop for 0.4 s."""
    updates = 50

    async def act(scene: Scene) -> None:
        pairs = [await scene.connect() for _ in range(3)]
        before = scene.turns.count
        for client, _ in pairs:
            flood = client.updates(updates, wants_answers=False)
            client.socket.sendall(flood + client.record(APPLICATION_DATA, b"end"))
        for _, receiver in pairs:
            await receiver.wait_for(3)
        assert scene.turns.count - before >= updates

    play(act)


def test_a_turn_takes_a_number_of_records(play: Play) -> None:
    records = 5 * TLS_RECORDS_PER_TURN

    async def act(scene: Scene) -> None:
        client, receiver = await scene.connect()
        client.socket.sendall(
            b"".join(client.record(APPLICATION_DATA, b"1") for _ in range(records))
        )
        await receiver.wait_for(records)
        assert max(receiver.bytes_in_turn.values()) <= TLS_RECORDS_PER_TURN

    play(act)


def test_records_without_data_end_the_connection(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    async def act(scene: Scene) -> None:
        client, receiver = await scene.connect()
        client.socket.sendall(client.updates(MAX_EMPTY_TLS_RECORDS, wants_answers=False))
        client.socket.sendall(client.record(APPLICATION_DATA, b"1"))
        await receiver.wait_for(1)
        client.socket.sendall(client.updates(2, wants_answers=False))
        await until(lambda: receiver.is_lost)

    with caplog.at_level(logging.WARNING, "headrace.tls"):
        play(act)
    (line,) = caplog.messages
    assert "it sends TLS messages without data" in line


def test_records_without_data_may_come_between_those_with_data(play: Play) -> None:
    count = 2 * MAX_EMPTY_TLS_RECORDS

    async def act(scene: Scene) -> None:
        client, receiver = await scene.connect()
        for _ in range(count):
            client.socket.sendall(
                client.updates(1, wants_answers=False) + client.record(APPLICATION_DATA, b"1")
            )
        await receiver.wait_for(count)
        assert not receiver.is_lost

    play(act)


@pytest.mark.parametrize("kind", [APPLICATION_DATA, CHANGE_CIPHER_SPEC])
def test_empty_records_and_late_changes_of_ciphers_end_the_connection(
    play: Play, kind: int
) -> None:
    """OpenSSL refuses the second kind, and the first one when there are many."""

    async def act(scene: Scene) -> None:
        client, receiver = await scene.connect()
        empty = client.record if kind == APPLICATION_DATA else lambda _kind, _payload: CHANGE
        client.socket.sendall(b"".join(empty(kind, b"") for _ in range(MAX_EMPTY_TLS_RECORDS + 1)))
        await until(lambda: receiver.is_lost)
        assert not receiver.received

    play(act)


def test_the_end_is_told_after_a_pause(play: Play) -> None:
    """A protocol that pauses has requests to serve."""

    async def act(scene: Scene) -> None:
        client, receiver = await scene.connect()
        receiver.pauses = True
        client.socket.sendall(
            client.record(APPLICATION_DATA, b"1") + client.record(ALERT, CLOSE_NOTIFY)
        )
        await receiver.wait_for(1)
        for _ in range(100):
            await asyncio.sleep(0)
        assert not receiver.is_at_end
        receiver.transport.resume_reading()
        await until(lambda: receiver.is_at_end)
        await until(lambda: receiver.is_lost)

    play(act)


class FullSocket:
    """A socket that takes nothing until it is told to."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self.is_full = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)

    def sendmsg(self, pieces: Any) -> int:
        if self.is_full:
            raise BlockingIOError
        return self._socket.sendmsg(pieces)


def test_nothing_is_read_before_the_answers_to_key_updates_are_sent(play: Play) -> None:
    """So a client that does not read them makes the broker keep one."""

    async def act(scene: Scene) -> None:
        client, receiver = await scene.connect()
        transport = receiver.transport
        full = transport._socket = FullSocket(transport._socket)
        client.socket.sendall(client.updates(20, wants_answers=True))
        client.socket.sendall(client.record(APPLICATION_DATA, b"end"))
        await until(lambda: transport.get_write_buffer_size() > 0)
        kept = transport.get_write_buffer_size()
        for _ in range(100):
            await asyncio.sleep(0)
        assert not transport.is_reading()
        assert transport.get_write_buffer_size() == kept < 100
        full.is_full = False
        await receiver.wait_for(3)
        assert transport.is_reading()
        assert not transport.get_write_buffer_size()

    play(act)


def test_records_arrive_in_any_pieces(play: Play) -> None:
    async def act(scene: Scene) -> None:
        client, receiver = await scene.connect()
        sizes = (1, 2, 100, 9_000, 16 * 1024, 3, 16 * 1024, 12_345)
        expected = b"".join(bytes([number]) * size for number, size in enumerate(sizes))
        sent = b"".join(
            client.record(APPLICATION_DATA, bytes([number]) * size)
            for number, size in enumerate(sizes)
        )
        start, step = 0, 1
        while start < len(sent):
            client.socket.sendall(sent[start : start + step])
            start += step
            step = step % 1000 + 37 if start > 300 else 1
            await asyncio.sleep(0)
        await receiver.wait_for(len(expected))
        assert bytes(receiver.received) == expected

    play(act)
