"""Searches by timestamp beside other work, and the thread that opens large batches."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import pytest

from headrace.broker.broker import Broker
from headrace.broker.config.broker_config import Config
from headrace.log import timestamps
from headrace.log.partition_log import PartitionLog
from headrace.log.timestamps import TimestampSteps
from headrace.protocol.compression import ZSTD
from headrace.protocol.record_batch import BatchHeader, Opening, build
from headrace.protocol.time_slices import run_now
from headrace.topics.batch_opener import BatchOpener
from headrace.topics.recently_used import RecentlyUsed
from tests.bombs import batch_of, compressed, count_bomb, record
from tests.log.disk import apply_retention, delete_records
from tests.support import story

R = TypeVar("R")
NOW_MS = int(time.time() * 1000)
LARGE = 3000
"""More records than a batch has that is opened on the event loop."""


def large_batch(count: int = LARGE, first_ms: int = NOW_MS, codec: int = ZSTD) -> bytes:
    """Return a batch whose records are a millisecond apart."""
    return build(
        [(b"k", None)] * count,
        timestamp_ms=0,
        timestamps_ms=range(first_ms, first_ms + count),
        codec=codec,
    )


def with_log(work: Callable[[Broker, PartitionLog], Awaitable[R]], **configs: str) -> R:
    """Run a coroutine with a broker and the log of a topic with one partition."""

    async def run() -> R:
        broker = Broker(Config({}))
        broker.start()
        try:
            named = {name.replace("_", "."): value for name, value in configs.items()}
            log = broker.topic_logs.log(broker.catalog.create_topic("t", 1, named), 0)
            assert log is not None
            return await work(broker, log)
        finally:
            broker.close()

    return asyncio.run(run())


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """The batches that are opened: base offset, and the thread's name."""
    found: list[tuple[int, str]] = []
    real = timestamps.timestamp_steps

    def counting(data: bytes, header: BatchHeader, *rest: Any) -> TimestampSteps:
        steps = real(data, header, *rest)
        found.append((header.base_offset, threading.current_thread().name[:15]))
        return steps

    monkeypatch.setattr(timestamps, "timestamp_steps", counting)
    monkeypatch.setattr("headrace.topics.timestamp_searches.timestamp_steps", counting)
    return found


def test_small_batches_are_opened_on_the_loop_and_once(opened: list[tuple[int, str]]) -> None:
    async def work(broker: Broker, log: PartitionLog) -> None:
        broker.topic_logs.append(log, large_batch(1000))
        searches = broker.timestamp_searches
        for number in (0, 1, 500, 999):
            found = await searches.offset_for_timestamp(log, NOW_MS + number)
            assert found == (number, NOW_MS + number)
        assert await searches.offset_for_timestamp(log, NOW_MS + 1000) is None
        assert await searches.max_timestamp(log) == (999, NOW_MS + 999)
        assert await searches.offset_for_timestamp(log, 0) == (0, NOW_MS)

    with_log(work)
    assert opened == [(0, "MainThread")]


@pytest.mark.parametrize("codec", [0, ZSTD])
def test_large_batches_are_opened_in_a_thread_and_once_for_many_at_a_time(
    opened: list[tuple[int, str]], codec: int
) -> None:
    async def work(broker: Broker, log: PartitionLog) -> None:
        broker.topic_logs.append(log, large_batch(codec=codec))
        searches = broker.timestamp_searches
        found = await asyncio.gather(
            *(searches.offset_for_timestamp(log, NOW_MS + number) for number in range(20))
        )
        assert found == [(number, NOW_MS + number) for number in range(20)]
        assert await searches.max_timestamp(log) == (LARGE - 1, NOW_MS + LARGE - 1)

    with_log(work)
    assert opened == [(0, "headrace-opener")]


def test_the_records_before_the_log_start_do_not_count(opened: list[tuple[int, str]]) -> None:
    async def work(broker: Broker, log: PartitionLog) -> None:
        latest_first = [NOW_MS + 50, NOW_MS + 10, NOW_MS + 20]
        broker.topic_logs.append(
            log, build([(b"k", b"v")] * 3, timestamp_ms=0, timestamps_ms=latest_first)
        )
        searches = broker.timestamp_searches
        assert await searches.offset_for_timestamp(log, NOW_MS + 5) == (0, NOW_MS + 50)
        delete_records(log, 1)
        assert await searches.offset_for_timestamp(log, NOW_MS + 5) == (1, NOW_MS + 10)
        assert await searches.offset_for_timestamp(log, NOW_MS + 15) == (2, NOW_MS + 20)
        assert await searches.offset_for_timestamp(log, NOW_MS + 25) is None

    with_log(work)
    assert len(opened) == 2


def test_a_topic_that_is_created_again_is_searched_again(opened: list[tuple[int, str]]) -> None:
    async def work(broker: Broker, log: PartitionLog) -> None:
        broker.topic_logs.append(log, large_batch(10))
        searches = broker.timestamp_searches
        assert await searches.offset_for_timestamp(log, NOW_MS + 3) == (3, NOW_MS + 3)
        run_now(broker.topic_deletions.delete([broker.catalog.topics["t"]]))
        assert await searches.offset_for_timestamp(log, NOW_MS + 3) is None
        again = broker.topic_logs.log(broker.catalog.create_topic("t", 1), 0)
        assert again is not None
        assert await searches.offset_for_timestamp(again, NOW_MS + 3) is None
        broker.topic_logs.append(again, large_batch(10))
        assert await searches.offset_for_timestamp(again, NOW_MS + 3) == (3, NOW_MS + 3)

    with_log(work)
    assert len(opened) == 2


def test_a_log_that_is_deleted_while_its_batch_is_opened() -> None:
    async def work(broker: Broker, log: PartitionLog) -> None:
        broker.topic_logs.append(log, large_batch())
        search = asyncio.create_task(
            broker.timestamp_searches.offset_for_timestamp(log, NOW_MS + 3)
        )
        await asyncio.sleep(0)
        run_now(broker.topic_deletions.delete([broker.catalog.topics["t"]]))
        assert await search is None

    with_log(work)


def test_segments_that_are_deleted_while_a_batch_is_opened() -> None:
    """The search begins again in what is left."""

    async def work(broker: Broker, log: PartitionLog) -> None:
        broker.topic_logs.append(log, large_batch())
        log.roll(NOW_MS)
        broker.topic_logs.append(log, large_batch(10, NOW_MS + 100))
        search = asyncio.create_task(
            broker.timestamp_searches.offset_for_timestamp(log, NOW_MS + 103)
        )
        await asyncio.sleep(0)
        delete_records(log, LARGE)
        apply_retention(log, NOW_MS)
        assert len(log.segments) == 1
        assert await search == (LARGE + 3, NOW_MS + 103)

    with_log(work)


def test_a_bomb_is_found_at_its_first_record(caplog: pytest.LogCaptureFixture) -> None:
    async def work(broker: Broker, log: PartitionLog) -> None:
        bomb = count_bomb(ZSTD, 2_000_000, base_timestamp=NOW_MS, max_timestamp=NOW_MS + 5)
        broker.topic_logs.append(log, bomb)
        searches = broker.timestamp_searches
        for _ in range(3):
            assert await searches.offset_for_timestamp(log, NOW_MS + 3) == (0, NOW_MS + 5)
        assert await searches.offset_for_timestamp(log, NOW_MS + 6) is None

    with_log(work)
    assert caplog.text.count("is not opened") == 1


def test_other_requests_go_on_while_headers_lie() -> None:
    lying = batch_of(
        compressed(ZSTD, [record(0), record(1)]),
        2,
        ZSTD,
        base_timestamp=NOW_MS,
        max_timestamp=NOW_MS + 10,
    )

    async def work(broker: Broker, log: PartitionLog) -> int:
        for _ in range(2000):
            broker.topic_logs.append(log, lying)
        search = asyncio.create_task(
            broker.timestamp_searches.offset_for_timestamp(log, NOW_MS + 5)
        )
        turns = 0
        while not search.done():
            await asyncio.sleep(0)
            turns += 1
        assert await search is None
        return turns

    assert with_log(work) > 5


def test_what_was_used_last_is_remembered() -> None:
    remembered: RecentlyUsed[int, str] = RecentlyUsed(max_size=100)
    for key in range(4):
        remembered.put(key, "small", 16)
    assert remembered.get(0) == "small"
    for _ in range(2):  # the second time it only replaces itself
        remembered.put(4, "large", 56)
        assert [remembered.get(key) is not None for key in range(5)] == [
            *(True, False, False, True, True)
        ]
    remembered.put(5, "too large together with others", 101)
    assert [key for key in range(6) if remembered.get(key) is not None] == [5]
    remembered.put(6, "small", 16)
    assert [key for key in range(7) if remembered.get(key) is not None] == [6]


@story
async def test_one_batch_is_opened_at_a_time_even_if_its_request_ends() -> None:
    """Clients that go away do not fill the queue of the thread."""
    opener = BatchOpener()
    running, most, go_on = 0, 0, threading.Event()

    def function(opening: Opening) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        go_on.wait(10)
        running -= 1
        return 1

    first = asyncio.create_task(opener.run(lambda: function))
    await asyncio.sleep(0.01)
    first.cancel()
    prepared: list[int] = []

    def prepare(number: int) -> Callable[[Opening], int]:
        prepared.append(number)
        return function

    others = [asyncio.create_task(opener.run(partial(prepare, n))) for n in range(5)]
    await asyncio.sleep(0.05)
    assert prepared == []
    others[0].cancel()
    go_on.set()
    assert await asyncio.gather(*others[1:]) == [1] * 4
    assert prepared == [1, 2, 3, 4]
    assert most == 1
    assert await opener.run(lambda: None) is None
    opener.close()


def test_a_broker_stops_while_it_opens_a_batch() -> None:
    async def work(broker: Broker, log: PartitionLog) -> float:
        broker.topic_logs.append(log, large_batch(500_000))
        search = asyncio.create_task(
            broker.timestamp_searches.offset_for_timestamp(log, NOW_MS + 3)
        )
        await asyncio.sleep(0.05)
        assert not search.done()
        started = time.perf_counter()
        broker.opener.close()
        search.cancel()
        return time.perf_counter() - started

    assert with_log(work, max_message_bytes="100000000") < 0.2
