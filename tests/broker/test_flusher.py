"""Group commit: one round of fsync for all who wait; a failed one acknowledges nobody."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.broker.flusher import Flusher


class FakeLog:
    """A log that counts its flushes, and waits in each until it is let go."""

    def __init__(self, flush_messages: int = 1, flush_ms: int = 2**63 - 1) -> None:
        self.config = SimpleNamespace(flush_messages=flush_messages, flush_ms=flush_ms)
        self.unflushed_records = 1
        self.flushes = 0
        self.go = threading.Event()
        self.go.set()
        self.error: OSError | None = None

    def flush(self) -> None:
        self.go.wait(5)
        if self.error is not None:
            raise self.error
        self.flushes += 1


def appended(flusher: Flusher, log: Any) -> None:
    flusher.appended(log)


def test_writers_during_a_round_share_the_next_one() -> None:
    async def story() -> None:
        flusher, log = Flusher(), FakeLog()
        log.go.clear()
        appended(flusher, log)
        first = asyncio.ensure_future(flusher.durable())
        await asyncio.sleep(0.01)  # the first round is now in its thread
        others = []
        for _ in range(10):
            appended(flusher, log)
            others.append(asyncio.ensure_future(flusher.durable()))
        await asyncio.sleep(0)
        assert not first.done()
        log.go.set()
        await asyncio.gather(first, *others)
        assert log.flushes == 2
        assert not flusher.due
        flusher.close()

    asyncio.run(story())


def test_nothing_is_due_by_default() -> None:
    async def story() -> None:
        flusher, log = Flusher(), FakeLog(flush_messages=2**63 - 1)
        appended(flusher, log)
        assert not flusher.due
        await flusher.durable()
        assert log.flushes == 0
        flusher.close()

    asyncio.run(story())


def test_a_failed_round_reaches_its_writers_and_only_them() -> None:
    async def story() -> None:
        flusher, log = Flusher(), FakeLog()
        log.error = OSError(5, "I/O error")
        appended(flusher, log)
        with pytest.raises(OSError, match="I/O error"):
            await flusher.durable()
        log.error = None
        appended(flusher, log)
        await flusher.durable()
        assert log.flushes == 1
        flusher.close()

    asyncio.run(story())


def test_flush_ms_flushes_in_the_background() -> None:
    async def story() -> None:
        flusher, log = Flusher(), FakeLog(flush_messages=2**63 - 1, flush_ms=1)
        appended(flusher, log)
        appended(flusher, log)
        for _ in range(500):
            if log.flushes:
                break
            await asyncio.sleep(0.01)
        assert log.flushes == 1
        flusher.close()

    asyncio.run(story())
