"""The bounds of all connections together, without sockets."""

from __future__ import annotations

import asyncio
import os
import random
import socket
from pathlib import Path

import pytest

from headrace.log.segment import OpenFiles, Segment
from headrace.net import flow
from headrace.net.flow import AnswerMemory, RequestMemory, Turns
from headrace.net.metrics import MemoryUse
from headrace.net.requests import IncompleteFrame, RequestQueue
from headrace.net.unsent import FileReadError, Unsent
from headrace.protocol.file_range import FileRange, Piece
from headrace.protocol.frames import SIZE, frame_ends
from tests.support import story

MIB = 1 << 20


class FakeClient:
    """A connection with an incomplete frame."""

    def __init__(self, memory: RequestMemory, size_bytes: int) -> None:
        self.memory = memory
        self.frame: IncompleteFrame | None = IncompleteFrame(bytearray(4), size_bytes)
        self.is_receiving = True
        self.is_closed = False
        memory.hold(self, self.frame.capacity)

    def receive(self, size_bytes: int) -> None:
        """Receive as much of this as the broker reads."""
        while size_bytes and self.is_receiving and self.frame is not None:
            frame = self.frame
            got = min(size_bytes, frame.capacity - frame.received_bytes)
            frame.received_bytes += got
            size_bytes -= got
            if frame.received_bytes == frame.size_bytes:
                self.finish()
            elif frame.is_full:
                if self.memory.admits(self, frame.next_capacity - frame.capacity):
                    self.memory_granted()
                else:
                    self.is_receiving = False

    def memory_granted(self) -> None:
        assert self.frame is not None
        self.is_receiving = True
        self.frame.grow()
        self.memory.hold(self, self.frame.capacity)

    def finish(self) -> None:
        self.frame = None
        self.memory.leave(self)
        self.memory.hold(self, 0)

    def abandon(self) -> None:
        self.is_closed = True
        self.finish()


@pytest.fixture
def use() -> MemoryUse:
    return MemoryUse()


def memory_of(use: MemoryUse, limit_bytes: int) -> RequestMemory:
    return RequestMemory(use, limit_bytes, memoryview(bytearray(256 * 1024)))


@story
async def test_one_request_is_received_when_all_memory_is_spent(use: MemoryUse) -> None:
    memory = memory_of(use, 10 * MIB)
    clients = [FakeClient(memory, 8 * MIB) for _ in range(20)]
    for client in clients:
        client.receive(4 * MIB)
    assert use.used_bytes <= 10 * MIB + 8 * MIB
    assert memory.is_spent and len(memory.room) < 256 * 1024
    for _ in range(20):  # the first in line goes on, and then the next one
        for client in clients:
            client.receive(8 * MIB)
    assert all(client.frame is None for client in clients)
    assert use.used_bytes == 0 and not memory.is_spent and len(memory.room) == 256 * 1024


@story
async def test_without_a_limit_nobody_waits(use: MemoryUse) -> None:
    memory = memory_of(use, -1)
    clients = [FakeClient(memory, 8 * MIB) for _ in range(20)]
    for client in clients:
        client.receive(8 * MIB)
    assert all(client.frame is None for client in clients)


@story
async def test_connections_that_stall_make_room(
    use: MemoryUse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow, "FRAME_CHECK_S", 0.02)
    memory = memory_of(use, 4 * MIB)
    stalled = [FakeClient(memory, 100 * MIB) for _ in range(64)]
    for client in stalled:
        client.receive(100_000)
    honest = FakeClient(memory, 8 * MIB)
    for _ in range(200):
        honest.receive(MIB // 2)
        if honest.frame is None or honest.is_closed:
            break
        await asyncio.sleep(0.005)
    assert honest.frame is None and not honest.is_closed
    assert use.closed_connections > 0


@story
async def test_who_stalls_is_left_alone_while_there_is_memory(
    use: MemoryUse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow, "FRAME_CHECK_S", 0.01)
    memory = memory_of(use, 100 * MIB)
    client = FakeClient(memory, 8 * MIB)
    client.receive(100_000)
    await asyncio.sleep(0.1)
    assert not client.is_closed


def test_the_connections_stalled_for_longest_are_closed(use: MemoryUse) -> None:
    requests = memory_of(MemoryUse(), -1)
    memory = AnswerMemory(use, 3 * MIB)
    clients = [FakeClient(requests, 100) for _ in range(4)]
    for client in clients[:3]:
        memory.hold(client, MIB)
    memory.hold(clients[0], MIB - 1)  # it has read something
    memory.hold(clients[3], MIB)
    assert [client.is_closed for client in clients] == [False, True, False, False]
    assert use.used_bytes == 3 * MIB - 1
    assert use.closed_connections == 1


def test_one_answer_may_be_larger_than_the_limit(use: MemoryUse) -> None:
    client = FakeClient(memory_of(MemoryUse(), -1), 100)
    AnswerMemory(use, MIB).hold(client, 5 * MIB)
    assert not client.is_closed


def test_connections_take_turns() -> None:
    now_ms = 0

    class Busy(FakeClient):
        def __init__(self, name: str, requests: int) -> None:
            self.name, self.requests = name, requests

        def serve_until(self, end_ms: int) -> None:
            nonlocal now_ms
            served.append(self.name)
            self.requests -= 1
            now_ms += 2
            if self.requests:
                turns.add(self.serve_until)

    async def main() -> None:
        turns.add(Busy("a", 5).serve_until)
        turns.add(Busy("b", 2).serve_until)
        assert turns.is_spent
        turns_of_loop = 0
        while turns.is_spent:
            await asyncio.sleep(0)
            turns_of_loop += 1
        assert turns_of_loop >= 3, "others have their turn between"

    served: list[str] = []
    turns = Turns(lambda: now_ms)
    asyncio.run(main())
    assert served == ["a", "b", "a", "b", "a", "a", "a"]


# Requests -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_a_queue_returns_the_requests_in_order(seed: int) -> None:
    chance = random.Random(seed)
    shared = memoryview(bytearray(2000))
    queue = RequestQueue()
    added: list[bytes] = []
    returned: list[bytes] = []
    for _ in range(200):
        if chance.random() < 0.4:
            frames = [
                chance.randbytes(chance.randrange(8, 100)) for _ in range(chance.randrange(9))
            ]
            data = b"".join(SIZE.pack(len(one)) + one for one in frames)
            shared[: len(data)] = data
            ends = list(frame_ends(shared, len(data), range(8, 1000)))
            assert (len(ends), sum(ends[-1:])) == (len(frames), len(data))
            queue.add(shared.toreadonly()[: len(data)], len(ends))
            added += frames
            while queue.count and chance.random() < 0.5:
                returned.append(bytes(queue.next()))
            queue.keep(shared.obj)
            shared[:] = bytes(2000)
        elif queue.count:
            returned.append(bytes(queue.next()))
        assert queue.count == len(added) - len(returned)
        assert queue.size_bytes == sum(4 + len(one) for one in added[len(returned) :])
    while queue.count:
        returned.append(bytes(queue.next()))
    assert returned == added


def test_a_frame_grows_with_what_arrives() -> None:
    data = random.Random(1).randbytes(3 * MIB)
    frame = IncompleteFrame(bytearray(data[:14]), len(data))
    assert frame.capacity <= 4096
    while frame.received_bytes < len(data):
        if frame.is_full:
            frame.grow()
        room = frame.room()
        part = data[frame.received_bytes :][: min(len(room), 10_000)]
        room[: len(part)] = part
        room.release()
        frame.received_bytes += len(part)
        assert frame.capacity <= max(4096, 4 * frame.received_bytes)
    assert frame.whole() == data


# Answers ------------------------------------------------------------------------------------------


def filled_segment(directory: Path, files: OpenFiles, data: bytes) -> Segment:
    (directory / f"{0:020d}.log").write_bytes(data)
    return Segment(files, str(directory), 0, len(data), 0)


@pytest.mark.parametrize("seed", range(10))
def test_everything_is_sent_in_order(tmp_path: Path, seed: int) -> None:
    """Whatever a socket takes at a time, from memory and from files."""
    chance = random.Random(seed)
    stored = chance.randbytes(MIB)
    segment = filled_segment(tmp_path, OpenFiles(4), stored)
    segment.fd = os.open(segment.path(".log"), os.O_RDONLY)
    writing, reading = socket.socketpair()
    writing.setblocking(False)
    reading.setblocking(False)
    unsent, expected, received = Unsent(), bytearray(), bytearray()
    room = memoryview(bytearray(50_000))
    for _ in range(30):
        pieces: list[Piece] = []
        for _ in range(chance.randrange(1, 5)):
            start, size = chance.randrange(MIB // 2), chance.randrange(200_000)
            content = stored[start : start + size]
            kind = chance.randrange(3)
            if kind == 0:
                pieces.append(content)
            else:
                data = content if kind == 1 else None
                pieces.append(FileRange(segment, start, size, data))
            expected += content
        unsent.add(pieces)
        del pieces
        while unsent:
            if not unsent.write_to(writing.fileno(), room):
                unsent.forget_data()
                if chance.random() < 0.5:
                    received += reading.recv(chance.randrange(1, 300_000))
                elif unsent:
                    taken = unsent.take(4096)
                    while taken:
                        try:
                            taken = taken[writing.send(taken) :]
                        except BlockingIOError:
                            received += reading.recv(MIB)
    writing.close()
    reading.setblocking(True)
    while data := reading.recv(MIB):
        received += data
    assert received == expected
    assert unsent.held_bytes == 0
    os.close(segment.fd)


def test_a_range_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    segment = filled_segment(tmp_path, OpenFiles(4), bytes(10_000))
    segment.fd = os.open(segment.path(".log"), os.O_RDWR)
    unsent = Unsent()
    unsent.add([b"head", FileRange(segment, 0, 10_000)])
    os.ftruncate(segment.fd, 5_000)
    writing, _reading = socket.socketpair()
    with pytest.raises(FileReadError):
        unsent.write_to(writing.fileno(), memoryview(bytearray(20_000)))
    os.close(segment.fd)
