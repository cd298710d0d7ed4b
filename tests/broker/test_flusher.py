"""Group commit: a write waits for a flush that began after it; a failed flush acknowledges no
write.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.log.log_config import FOREVER
from headrace.protocol.errors import StorageError
from headrace.topics.flusher import Flusher
from tests.support import story


class FakeLog:
    """A log that counts its flushes. Tests can block a flush.

    :ivar begun: flushes begun
    :ivar flushes: flushes finished without an error
    """

    def __init__(self, flush_messages: int = 1, flush_ms: int = FOREVER) -> None:
        self.config = SimpleNamespace(flush_messages=flush_messages, flush_ms=flush_ms)
        self.unflushed_records = 1
        self.begun = 0
        self.flushes = 0
        self.permits = threading.Semaphore(1000)
        self.error: Exception | None = None

    def block(self) -> None:
        """Have each further flush wait for :meth:`let_go`."""
        self.permits = threading.Semaphore(0)

    def let_go(self) -> None:
        """Let one flush finish."""
        self.permits.release()

    def flush(self) -> None:
        self.begun += 1
        self.permits.acquire(timeout=5)
        if self.error is not None:
            raise self.error
        self.flushes += 1


def appended(flusher: Flusher, log: Any) -> None:
    flusher.appended(log)


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not happen")


def waiting(durable: Awaitable[None]) -> asyncio.Future[None]:
    async def wait() -> None:
        await durable

    return asyncio.ensure_future(wait())


@story
async def test_writers_during_a_round_share_the_next_one() -> None:
    flusher, log = Flusher(), FakeLog()
    log.block()
    appended(flusher, log)
    first = waiting(flusher.pending_flush())
    await until(lambda: log.begun == 1)
    others = []
    for _ in range(10):
        appended(flusher, log)
        others.append(waiting(flusher.pending_flush()))
    await asyncio.sleep(0)
    assert not first.done()
    log.let_go()
    await first
    await until(lambda: log.begun == 2)
    assert not any(other.done() for other in others)
    log.let_go()
    await asyncio.gather(*others)
    assert log.flushes == 2
    assert flusher.pending_flush() is None
    flusher.close()


@story
async def test_a_write_that_nobody_waits_for_is_flushed_too() -> None:
    flusher, log = Flusher(), FakeLog()
    appended(flusher, log)
    await until(lambda: log.flushes == 1)
    assert flusher.pending_flush() is None
    flusher.close()


@story
async def test_a_writer_who_waits_later_still_waits_for_its_round() -> None:
    """The answer is made at once, and awaited when the round of its write has begun."""
    flusher, log = Flusher(), FakeLog()
    log.block()
    appended(flusher, log)
    first = waiting(flusher.pending_flush())
    await until(lambda: log.begun == 1)
    appended(flusher, log)
    late = flusher.pending_flush()
    appended(flusher, log)
    other = waiting(flusher.pending_flush())
    await asyncio.sleep(0)
    log.let_go()
    await first
    await until(lambda: log.begun == 2)
    late_answer = waiting(late)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not late_answer.done(), "acknowledged before the disk has it"
    log.let_go()
    await asyncio.gather(late_answer, other)
    assert log.flushes == 2
    flusher.close()


@story
async def test_a_caller_waits_for_the_running_round() -> None:
    """A parked request asks some turns after its write, which may be in the running round."""
    flusher, log = Flusher(), FakeLog()
    log.block()
    appended(flusher, log)
    first = waiting(flusher.pending_flush())
    await until(lambda: log.begun == 1)
    parked = waiting(flusher.pending_flush())
    await asyncio.sleep(0)
    assert not parked.done()
    log.let_go()
    await asyncio.gather(first, parked)
    assert log.begun == 1, "one round serves both"
    assert flusher.pending_flush() is None
    flusher.close()


@story
async def test_nothing_is_pending_by_default() -> None:
    flusher, log = Flusher(), FakeLog(flush_messages=FOREVER)
    appended(flusher, log)
    assert flusher.pending_flush() is None
    assert log.begun == 0
    flusher.close()


@story
async def test_a_failed_round_fails_its_writers_and_those_of_the_next_round() -> None:
    """A writer that came meanwhile may have written before the round began."""
    flusher, log, other = Flusher(), FakeLog(), FakeLog()
    log.block()
    log.error = OSError(5, "I/O error")
    appended(flusher, log)
    first = waiting(flusher.pending_flush())
    await until(lambda: log.begun == 1)
    appended(flusher, other)
    meanwhile = waiting(flusher.pending_flush())
    await asyncio.sleep(0)
    log.let_go()
    for waiter in (first, meanwhile):
        with pytest.raises(StorageError, match="I/O error"):
            await waiter
    await until(lambda: other.flushes == 1)
    appended(flusher, other)
    await flusher.pending_flush()
    assert other.flushes == 2
    flusher.close()


@story
async def test_a_failing_log_does_not_keep_others_from_the_disk() -> None:
    flusher, bad, good = Flusher(), FakeLog(), [FakeLog() for _ in range(10)]
    bad.error = OSError(5, "I/O error")
    for log in (bad, *good):
        appended(flusher, log)
    with pytest.raises(StorageError, match="I/O error"):
        await flusher.pending_flush()
    assert [log.flushes for log in good] == [1] * 10
    flusher.close()


@story
async def test_a_failing_log_that_nobody_waits_for_fails_nobody() -> None:
    flusher, bad, good = Flusher(), FakeLog(FOREVER, flush_ms=1), FakeLog()
    good.block()
    appended(flusher, good)
    first = waiting(flusher.pending_flush())
    await until(lambda: good.begun == 1)
    appended(flusher, bad)
    bad.error = OSError(5, "I/O error")
    await until(lambda: not flusher._timers)
    appended(flusher, good)
    second = waiting(flusher.pending_flush())
    await asyncio.sleep(0)
    good.let_go()
    good.let_go()
    await first
    await second
    assert (good.flushes, bad.begun, bad.flushes) == (2, 1, 0)
    flusher.close()


@story
async def test_a_bug_in_a_flush_fails_the_waiting_writers() -> None:
    flusher, log = Flusher(), FakeLog()
    log.error = ValueError("a bug")
    appended(flusher, log)
    with pytest.raises(ValueError, match="a bug"):
        await flusher.pending_flush()
    log.error = None
    appended(flusher, log)
    await flusher.pending_flush()
    assert log.flushes == 1
    flusher.close()


@story
async def test_flush_ms_flushes_in_the_background() -> None:
    """No writer waits for a flush by flush.ms."""
    flusher, log = Flusher(), FakeLog(flush_messages=FOREVER, flush_ms=1)
    log.block()
    appended(flusher, log)
    appended(flusher, log)
    await until(lambda: log.begun == 1)
    assert flusher.pending_flush() is None
    assert log.flushes == 0
    log.let_go()
    await until(lambda: log.flushes == 1)
    assert log.begun == 1
    flusher.close()
