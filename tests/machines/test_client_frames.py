"""Frames are cut out of a stream, however it arrives."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.client.frames import Frames
from tests.support import story

SIZES = st.one_of(
    st.integers(4, 60), st.integers(60_000, 70_000), st.integers(65_528, 65_536), st.just(300_000)
)


def feed(frames: Frames, data: bytes, steps: list[int]) -> None:
    """Let `data` arrive in pieces of these sizes, over and over, as far as buffers allow."""
    at = number = 0
    while at < len(data):
        buffer = frames.get_buffer(-1)
        assert len(buffer)
        piece = data[at : at + min(steps[number % len(steps)], len(buffer))]
        buffer[: len(piece)] = piece
        frames.buffer_updated(len(piece))
        at += len(piece)
        number += 1


@settings(deadline=None)
@given(
    st.lists(SIZES, min_size=1, max_size=6),
    st.lists(st.integers(1, 100_000), min_size=1, max_size=5),
)
@story
async def test_frames_come_out_as_they_were_sent(sizes: list[int], steps: list[int]) -> None:
    if sum(sizes) > 1000:
        steps = [max(step, 1000) for step in steps]
    sent = [bytes([i + 1]) * size for i, size in enumerate(sizes)]
    got: list[memoryview] = []
    frames = Frames(got.append, lambda reason: pytest.fail(f"over: {reason}"))
    feed(frames, b"".join(len(frame).to_bytes(4, "big") + frame for frame in sent), steps)
    assert [bytes(frame) for frame in got] == sent
    assert all(frame.readonly for frame in got)


@pytest.mark.parametrize("size", [70_000, 300_000, 5_000_000])
@story
async def test_a_frame_takes_no_more_memory_than_it_says(size: int) -> None:
    largest = 0
    got: list[memoryview] = []
    frames = Frames(got.append, lambda reason: pytest.fail(f"over: {reason}"))
    sent = size.to_bytes(4, "big") + bytes(size) + (4).to_bytes(4, "big") + b"next"
    for at in range(0, len(sent), 50_000):
        feed(frames, sent[at : at + 50_000], [50_000])
        largest = max(largest, memoryview(frames.get_buffer(-1).obj).nbytes)
    assert [len(frame) for frame in got] == [size, 4]
    assert largest <= size + 4


@pytest.mark.parametrize("size", [-1, 3, 2**31 - 1])
@story
async def test_what_is_no_frame_is_told(size: int) -> None:
    reasons: list[str | None] = []
    frames = Frames(lambda frame: pytest.fail("a frame"), reasons.append)
    feed(frames, size.to_bytes(4, "big", signed=True) + b"HTTP", [8])
    assert reasons == [f"sent a frame of {size} bytes"]


class DeafPeer(asyncio.Protocol):
    """A peer that accepts a connection and reads nothing from it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.pause_reading()


@story
async def test_closing_does_not_wait_for_a_peer_that_does_not_read() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(DeafPeer, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    frames = Frames(lambda frame: pytest.fail("a frame"), lambda reason: None)
    await loop.create_connection(lambda: frames, host, port)
    sending = asyncio.ensure_future(frames.send(bytes(64 << 20)))
    await asyncio.sleep(0)
    frames.hang_up()
    async with asyncio.timeout(10):
        await asyncio.gather(frames.closed.wait(), sending)
    server.close()
