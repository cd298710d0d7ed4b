"""Brokers that are away or full, clocks that jump, and records as anybody may write them."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import headrace
from headrace.client.share import membership
from headrace.client.share.consumer import ShareConsumer
from headrace.log_lines import LIMITER
from headrace.worker.breaker import Breaker
from headrace.worker.task import Task
from tests.clients.confluent import create_topic
from tests.faults.small_disk import SmallDisk
from tests.support import COMMON_CONFIGS, HeadraceProcess, is_soak, story, unique

from . import functions
from .support import runner, until, working

pytestmark = pytest.mark.broker

POLLS_PER_S = 30
LOCKS = {  # that end never
    "group.share.record.lock.duration.ms": "3600000",
    "group.share.max.record.lock.duration.ms": "3600000",
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[HeadraceProcess]:
    """A broker of this test, whose port stays."""
    server = HeadraceProcess(tmp_path / "data", {**COMMON_CONFIGS, **LOCKS}).start()
    yield server
    if server.process is not None and server.process.poll() is None:
        os.kill(server.pid, signal.SIGCONT)
    server.kill()


def write(bootstrap: str, topic: str, records: Sequence[tuple[Any, ...]], **configs: Any) -> None:
    """Write (value, headers) as anybody may."""
    producer = Producer({"bootstrap.servers": bootstrap, **configs})
    for value, *headers in records:
        producer.produce(topic, value, headers=headers[0] if headers else None)
    assert producer.flush(60) == 0


@pytest.mark.parametrize("how", ["stands still", "is killed"])
def test_a_broker_that_is_away_costs_no_outcome_and_no_busy_loop(
    server: HeadraceProcess,
    how: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, membership.__name__)  # as in the command
    conf = {"bootstrap.servers": server.bootstrap_servers, "socket.timeout.ms": 3000}
    apps = headrace.App(server.bootstrap_servers), headrace.App(conf)
    runs: Counter[int] = Counter()
    may_end = asyncio.Event()
    polls = 0
    poll = ShareConsumer.poll

    async def counted(queue: ShareConsumer, *args: Any) -> list[headrace.Record]:
        nonlocal polls
        polls += 1
        return await poll(queue, *args)

    monkeypatch.setattr(ShareConsumer, "poll", counted)
    name = unique("away")

    @apps[0].task(name=name)
    async def warm_up(number: int) -> None:
        runs[number] += 1

    @apps[1].task(name=name, retry=headrace.Retry(100, first=0.1))
    async def process(number: int) -> None:
        runs[number] += 1
        await may_end.wait()
        if number == 3 and runs[number] == 1:
            raise OSError("try again")

    @story
    async def run() -> None:
        nonlocal polls
        async with working(apps[0]):  # a broker has much to import
            await warm_up.send(-1)
            await until(lambda: runs.pop(-1, 0))
        await process.send_many(range(10))
        async with working(apps[1]) as worker:
            counts = runner(worker, name).counts
            await until(lambda: len(runs) == 10)
            if how == "is killed":
                server.kill()
            else:
                os.kill(server.pid, signal.SIGSTOP)
            polls, began_s = 0, time.monotonic()
            may_end.set()
            await asyncio.sleep(5)  # longer than the client waits for an answer
            assert polls <= POLLS_PER_S * (time.monotonic() - began_s)
            if how == "is killed":
                server.start()
            else:
                os.kill(server.pid, signal.SIGCONT)
            await until(lambda: counts["accepted"] >= 10 and runs[3] >= 2)
            await process.send(10)  # nothing stands in the way
            await until(lambda: runs[10])
            await until(lambda: not runner(worker, name)._endings.is_busy)
        # The outcomes that the broker has not confirmed are known when the records come again.
        assert {number: times for number, times in runs.items() if times > 1} == {3: 2}
        lines = [
            (record.levelno, record.getMessage())
            for record in caplog.records
            if record.levelno >= logging.WARNING or record.name == membership.__name__
            if record.name.startswith("headrace.client")
        ]
        assert [level for level, _ in lines] == [logging.WARNING, logging.INFO], lines
        assert lines[1][1].endswith("in order again")

    run()
    for app in apps:
        app.close()


@story
async def test_a_full_disk_holds_records_until_their_letters_are_written(tmp_path: Path) -> None:
    with SmallDisk(tmp_path, 64) as disk:
        server = HeadraceProcess(disk.path / "data", COMMON_CONFIGS).start()
        app = headrace.App(server.bootstrap_servers)
        name, runs = unique("full"), Counter[int]()

        @app.task(name=name, retry=0, breaker=None)
        async def fail(number: int) -> None:
            runs[number] += 1
            if number == 0:
                disk.fill()
            raise ValueError(number)

        try:
            await fail.send_many(range(20))
            async with working(app) as worker:
                one = runner(worker, name)
                await until(lambda: len(runs) == 20)
                await asyncio.sleep(1)
                assert one.counts["dead_letters"] < 20
                disk.make_room()
                await until(lambda: one.counts["dead_letters"] == 20)
                await until(lambda: not one._endings.is_busy)
            assert set(runs.values()) == {1}
        finally:
            app.close()
            server.kill()


@pytest.mark.parametrize("hours", [1, -1])
def test_a_clock_that_jumps_disturbs_no_function(
    bootstrap_servers: str, hours: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = headrace.App(bootstrap_servers)
    name, done, jump_s = unique("clock"), Counter[int](), 0.0
    clock = time.time
    monkeypatch.setattr(time, "time", lambda: clock() + jump_s)

    @app.task(name=name, timeout=60, retry=headrace.Retry(5, first=0.2, jitter=0))
    async def process(delivery: headrace.Delivery, number: int) -> None:
        await asyncio.sleep(0.3)
        if delivery.attempt < 3:
            raise OSError("try again")
        done[number] += 1

    @story
    async def run() -> None:
        nonlocal jump_s
        await process.send_many(range(5))
        async with working(app) as worker:
            counts = runner(worker, name).counts
            await until(lambda: counts["failed"] >= 5)
            jump_s = hours * 3600
            await process.send_many(range(5, 10))
            await until(lambda: counts["accepted"] == 10)

    run()
    assert done == dict.fromkeys(range(10), 1)


@pytest.mark.parametrize("place", ["loop", "thread", "process"])
def test_a_payload_of_ten_megabytes(bootstrap_servers: str, place: str) -> None:
    app = headrace.App({"bootstrap.servers": bootstrap_servers, "message.max.bytes": 20_000_000})
    name, lengths = unique("large"), []
    create_topic(bootstrap_servers, name, max_message_bytes="20000000")

    async def on_the_loop(value: str) -> None:
        lengths.append(len(value))

    def in_a_thread(value: str) -> None:
        lengths.append(len(value))

    function = {"loop": on_the_loop, "thread": in_a_thread, "process": functions.length.function}
    task: Task[Any, Any] = app.task(name=name, run_in=place, concurrency=2)(function[place])

    @story
    async def run() -> None:
        await task.send("x" * 10_000_000)
        async with working(app) as worker:
            await until(lambda: runner(worker, name).counts["accepted"])
            assert runner(worker, name).counts["failed"] == 0

    run()
    assert lengths == ([] if place == "process" else [10_000_000])


@pytest.mark.timeout(3600 if is_soak() else 300)
@story
async def test_many_failures_are_few_lines_and_all_counted(
    bootstrap_servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = headrace.App(bootstrap_servers)
    name = unique("failures")

    @app.task(name=name, retry=0, breaker=None, dead_letters=False)
    async def fail(number: int) -> None:
        raise ValueError("no such item")

    total = 1_000_000 if is_soak() else 20_000
    for start in range(0, total, 20_000):
        await fail.send_many(range(start, start + 20_000))
    began_s = time.monotonic()
    async with working(app) as worker:
        one = runner(worker, name)
        await until(lambda: one.counts["failed"] == total)
        LIMITER.report()
    lines = [line for line in caplog.messages if f"task '{name}' failed on" in line]
    assert len(lines) <= 10 * (time.monotonic() - began_s + 1)
    after = [re.search(r"\((\d+) more like this", line) for line in lines]
    reports = [
        re.match(rf"(\d+) more lines because of task '{name}'", line) for line in caplog.messages
    ]
    left_out = sum(int(told[1]) for told in (*after, *reports) if told)
    assert len(lines) + left_out == total
    assert len(one.failures) <= 20


def envelope(name: str, **others: bytes | None) -> list[tuple[str, bytes | None]]:
    headers = {"headrace-task": name.encode(), "headrace-envelope": b"1"}
    return list({**headers, **{k.replace("_", "-"): v for k, v in others.items()}}.items())


@story
async def test_records_that_are_no_calls_hurt_no_other(
    bootstrap_servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = headrace.App(bootstrap_servers)
    name, numbers = unique("odd"), []

    @app.task(name=name, breaker=None)
    async def process(number: int, text: str = "") -> None:
        numbers.append(number)

    own = envelope(name)
    odd: list[tuple[Any, ...]] = [
        (None, own),
        (b"", own),
        (b"{", own),
        (b"[1]", own),
        (b"{}", own),
        (b'{"number": "1"}', own),
        (b'{"number": 1.5}', own),
        (b'{"number": NaN}', own),
        (b'{"number": 1, "other": 2}', own),
        (b'{"number": 1, "text": null}', own),
        (b'{"number": 1, "text": "\xff\xfe"}', own),
        (b'{"number": 1} {"number": 2}', own),
        (b"[" * 100_000, own),
        (b'{"number": ' + b"9" * 5000 + b"}", own),
        (b"\x00\x01\x02", own),
        (b'{"number": 1}',),
        (b'{"number": 1}', envelope("another")),
        (b'{"number": 1}', [("headrace-task", None), ("headrace-envelope", None)]),
        (b'{"number": 1}', [("headrace-task", name.encode()), ("headrace-envelope", b"2")]),
        (b'{"number": 1}', [("headrace-task", b"\xff\x00\x1b[2J" * 1000)]),
    ]
    good: list[tuple[Any, ...]] = [
        (b'{"number": 2}', own),
        (b' {"text": "x", "number": 3}\n', own),
        (b'{"number": 4}', [*reversed(own)]),
        (b'{"number": 5}', [("other", None), *own, *[("more", b"x")] * 1000]),
    ]
    create_topic(bootstrap_servers, name)
    write(bootstrap_servers, name, [*odd, *good])
    async with working(app) as worker:
        counts = runner(worker, name).counts
        await until(lambda: counts["accepted"] == len(odd) + len(good))
    assert sorted(numbers) == [2, 3, 4, 5]
    assert counts["failed"] == counts["dead_letters"] == len(odd)
    lines = [line for line in caplog.messages if f"task '{name}' failed on" in line]
    assert lines and all("not tried again: does not decode: " in line for line in lines)


@story
async def test_a_pause_is_one_line_with_the_record_that_has_failed_last(
    bootstrap_servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = headrace.App(bootstrap_servers)
    name = unique("pausing")

    @app.task(name=name, breaker=Breaker(pause=0.5, max_pause=60), concurrency=1)
    async def process(number: int) -> None:
        raise OSError("away")

    await process.send_many(range(30))
    async with working(app) as worker:
        counts = runner(worker, name).counts
        await until(lambda: counts["failed"] == Breaker.MIN_OUTCOMES + 1)
    *failures, first, second = (
        line for line in caplog.messages if line.startswith(f"task '{name}'")
    )
    assert all("failed on" in line for line in failures)
    for line, pause in ((first, "0.5"), (second, "1.0")):
        start = f"task '{name}' pauses for {pause} s, because most records fail, such as {name}-0 "
        assert line.startswith(start), line
        assert re.search(r"offset \d+, attempt \d of 4: OSError: away; next try in ", line), line


@story
async def test_headers_that_somebody_has_forged(bootstrap_servers: str) -> None:
    app = headrace.App(bootstrap_servers)
    name, done = unique("forged"), Counter[str]()

    @app.task(name=name, retry=headrace.Retry(2, first=0.01))
    async def process(text: str) -> None:
        done[text] += 1

    values = {
        "nothing": None,
        "empty": b"",
        "letters": b"tomorrow",
        "negative": b"-1",
        "long": b"9" * 5000,
        "float": b"1e3",
        "not ASCII": "١٢٣".encode(),
        "bytes": b"\xff\x00",
        "past": b"1",
    }
    records: list[tuple[Any, ...]] = []
    for header in ("headrace_due", "headrace_attempts", "headrace_expires"):
        records += [
            (
                b'{"text": "%s %s"}' % (header.encode(), kind.encode()),
                envelope(name, **{header: value}),
            )
            for kind, value in values.items()
        ]
    far = b"999999999999999"  # the year 33658
    records.append((b'{"text": "many attempts"}', envelope(name, headrace_attempts=far)))
    records.append((b'{"text": "never"}', envelope(name, headrace_due=far)))
    create_topic(bootstrap_servers, name)
    write(bootstrap_servers, name, records)
    async with working(app) as worker:
        await until(lambda: len(done) == len(records) - 2)
        await process.send("last")
        await until(lambda: done["last"])
        assert runner(worker, name).counts["expired"] == 1
    assert "headrace_expires past" not in done and "never" not in done
    assert done["many attempts"] == 1
    assert set(done.values()) == {1}
