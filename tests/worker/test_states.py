"""What workers tell of themselves: measured, written, and read from a topic that anybody writes."""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import Producer

from headrace.cli.main import main
from headrace.cli.worker.command import new_loop
from headrace.client import workers
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.records import Record
from headrace.client.topics import NewTopic
from headrace.client.workers import (
    MAX_STATE_BYTES,
    MAX_TEXT_CHARS,
    WORKERS_TOPIC,
    Failure,
    RunningRecord,
    SeenWorker,
    TaskState,
    WorkerState,
    WorkerWatch,
    by_task,
    decode,
    encode,
    shortened,
    summed,
)
from headrace.secure_broker import SecureBroker
from headrace.worker import meter as meter_module
from headrace.worker import reporter as reporter_module
from headrace.worker.app import App
from headrace.worker.meter import WINDOW_S, Meter
from headrace.worker.reporter import Reporter
from headrace.worker.sending import NewRecord, Sender, Sent
from tests.support import HeadraceProcess, story, write_properties

NOW_MS = 1_700_000_000_000
TASK = TaskState(
    task="pack",
    group_id="packers",
    topics=("pack",),
    dead_letter_queue="dlq.pack",
    run_in="loop",
    slots=10,
    running=4,
    occupancy=0.5,
    done=100,
    failed=3,
    retried=2,
    dead_letters=1,
    rejected=0,
    late=0,
    expired=0,
    waiting=1,
    done_per_s=5.0,
    failed_per_s=0.1,
    retried_per_s=0.1,
    breaker="closed",
    breaker_reason="",
    records=(RunningRecord("pack", 0, 7, 1, NOW_MS - 5000),),
    failures=(Failure(NOW_MS - 1000, "pack", 0, 6, 2, "ValueError: no", "next try in 2.0 s"),),
)
STATE = WorkerState("host-1", NOW_MS - 60_000, False, (TASK,))


def record(value: bytes | None, key: bytes | None = b"host-1") -> Record:
    return Record(WORKERS_TOPIC, 0, 0, key, value, (), NOW_MS, "LogAppendTime", 0)


def changed(**fields: Any) -> bytes:
    """Return the state with other fields of its task."""
    plain: Any = json.loads(encode(STATE))
    plain["tasks"][0] |= fields
    return json.dumps(plain).encode()


def test_a_state_is_read_as_it_was_written() -> None:
    assert decode(record(encode(STATE))) == STATE
    assert decode(record(changed(new_field={"of": "a later version"}))) == STATE


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"null",
        b"[]",
        b"\xff\xfe",
        b"[" * 60_000,
        b'{"worker":' * 6_000,
        b'{"worker": "host-1"}',
        changed(slots=-1),
        changed(slots=True),
        changed(slots="10"),
        changed(slots=2**70),
        changed(occupancy=1.5),
        changed(occupancy=float("nan")),
        changed(occupancy=float("inf")),
        changed(breaker="broken"),
        changed(task="x" * (MAX_TEXT_CHARS + 1)),
        changed(task=None),
        changed(task="\ud800"),
        changed(topics=["t"] * 21),
        changed(records=[msgspec.to_builtins(TASK.records[0])] * 51),
        changed(records=[{"topic": "t"}]),
        changed(failures=[msgspec.to_builtins(TASK.failures[0])] * 11),
        changed(padding="x" * MAX_STATE_BYTES),
    ],
)
def test_what_is_no_state_is_left_out(value: bytes) -> None:
    assert decode(record(value)) is None


def test_nobody_writes_the_state_of_another_worker_under_a_key_of_his_own() -> None:
    assert decode(record(encode(STATE), b"host-2")) is None
    assert decode(record(encode(STATE), None)) is None


def test_texts_are_printable_and_short() -> None:
    assert shortened("a\x1b[31m\nb\u202e") == "a\\x1b[31m\\nb\\u202e"
    for text in ("x" * 10_000, "\n" * 10_000, "\U0001f600" * 400):
        assert len(shortened(text)) <= MAX_TEXT_CHARS


def test_sums_are_over_the_workers_that_are_not_gone() -> None:
    paused = replace(TASK, slots=30, occupancy=0.1, breaker="open", breaker_reason="ValueError")
    seen = [
        SeenWorker(replace(STATE, worker=name, tasks=(state,)), NOW_MS, 100, age_ms)
        for name, state, age_ms in (("a", TASK, 30_000), ("b", paused, 9), ("c", paused, 60_001))
    ]
    ((key, states),) = by_task(seen).items()
    assert key == ("pack", "packers")
    count, old_ms, total = summed(states)
    assert old_ms is None
    assert (count, total.slots, total.done, total.breaker) == (2, 40, 200, "open")
    assert total.breaker_reason == "ValueError"
    assert total.occupancy == pytest.approx((0.5 * 10 + 0.1 * 30) / 40)
    count, _, total = summed(states[2:])
    assert (count, total.slots, total.occupancy, total.breaker) == (0, 0, 0, "closed")


def test_the_age_of_numbers_is_told_when_two_reports_have_not_come() -> None:
    """A worker that was killed counts until it is gone."""
    seen = [SeenWorker(STATE, NOW_MS, 100, age_ms) for age_ms in (2_000, 40_000, 61_000)]
    ((_, states),) = by_task(seen).items()
    count, old_ms, total = summed(states)
    assert (count, old_ms, total.done) == (2, 40_000, 200)


class Clock:
    """A clock that stands."""

    now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


def test_occupancy_counts_what_runs_still(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(meter_module, "time", clock)
    counts: defaultdict[str, int] = defaultdict(int)
    meter = Meter(4, counts)
    assert (meter.occupancy, meter.rate("done")) == (0, 0)
    meter.sample()
    meter.begin(clock.now_s)
    meter.begin(clock.now_s)
    clock.now_s += 10
    counts["done"] = 20
    meter.end(1000.0, clock.now_s)
    meter.sample()
    assert meter.occupancy == pytest.approx(2 / 4)
    assert meter.rate("done") == pytest.approx(2)
    for _ in range(10):
        clock.now_s += 5
        meter.sample()
    assert meter.occupancy == pytest.approx(1 / 4)  # one runs on, and the rest is longer ago
    assert meter.rate("done") == 0
    assert meter.busy_s == pytest.approx(10 + 60)
    assert len(meter._samples) <= WINDOW_S / 5 + 2
    assert sum(meter.durations.counts) == 1


def test_retries_wait_until_they_are_due(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(meter_module, "time", clock)
    meter = Meter(1, {})
    for delay_s in (1.0, 1.0, 60.0):
        meter.retry_in(delay_s)
    assert meter.waiting == 3
    clock.now_s += 30
    assert meter.waiting == 1


def tell(bootstrap_servers: str, *states: tuple[bytes | None, bytes | None]) -> None:
    """Write keys and values into the topic of workers."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "log_level": 2})
    for key, value in states:
        producer.produce(WORKERS_TOPIC, value, key)
    assert producer.flush(60) == 0


@story
async def test_a_watch_follows_the_topic_of_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = HeadraceProcess()
    broker.start()
    try:
        async with Cluster(broker.bootstrap_servers) as cluster:
            watch = WorkerWatch(cluster)
            assert await watch.look() == []
            other = replace(STATE, worker="host-2", is_stopping=True)
            tell(
                broker.bootstrap_servers,
                (b"host-1", encode(STATE)),
                (b"host-3", encode(STATE)),
                (None, b"x"),
                (b"host-2", encode(other)),
                (b"nobody", None),
            )
            assert [worker.state for worker in await watch.look()] == [STATE, other]
            assert [worker.state for worker in await WorkerWatch(cluster).look()] == [STATE, other]
            tell(broker.bootstrap_servers, (b"host-1", None))
            assert [worker.state for worker in await watch.look()] == [other]
            assert not (await watch.look())[0].is_gone
            later_ms = time.time_ns() // 1_000_000 + workers.GONE_MS + 1000
            monkeypatch.setattr(workers, "time", Later(later_ms))
            assert (await watch.look())[0].is_gone
            monkeypatch.setattr(workers, "time", Later(later_ms + 600_000))
            assert await watch.look() == []
            monkeypatch.undo()
            size = len(encode(STATE))
            monkeypatch.setattr(workers, "MAX_STATES_BYTES", 3 * size + 5)
            names = [f"many-{n}" for n in range(5)]
            tell(
                broker.bootstrap_servers,
                *((name.encode(), encode(replace(STATE, worker=name))) for name in names),
            )
            assert len(await watch.look()) == 3
            monkeypatch.setattr(workers, "MAX_WORKERS", 2)
            tell(broker.bootstrap_servers, (b"host-1", encode(STATE)))
            seen = [worker.state.worker for worker in await watch.look()]
            assert seen == ["host-1", "many-4"]
            for name in ("host-1", *names):
                tell(broker.bootstrap_servers, (name.encode(), None))
            assert await watch.look() == []
            monkeypatch.setattr(workers, "MAX_WORKERS", 2000)
            states = ((name.encode(), encode(replace(STATE, worker=name))) for name in names)
            tell(broker.bootstrap_servers, *states)
            assert len(await watch.look()) == 3
            tell(broker.bootstrap_servers, *((name.encode(), None) for name in names))
            monkeypatch.setattr(workers, "_LOOK_BYTES", 250)  # three records without values
            monkeypatch.setattr(workers, "_RECORDS_AT_ONCE", 1)
            assert [len(await watch.look()), len(await watch.look())] == [2, 0]
            assert watch._states_bytes == 0
    finally:
        broker.stop()


class Later:
    """A clock at another time."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def time_ns(self) -> int:
        return self._now_ms * 1_000_000


class Refusing(Sender):
    """A sender whose topic may not be written, until it may."""

    def __init__(self) -> None:
        super().__init__(dict)
        self.sent: list[NewRecord] = []
        self.is_refused = True
        self.attempts = 0

    async def ensure_topic(self, topic: NewTopic) -> None:
        self.attempts += 1
        if self.is_refused:
            raise ClientError("creating topic 'headrace-workers': it needs CREATE")

    async def send(self, records: Sequence[NewRecord]) -> list[Sent]:
        self.sent += records
        return []


@story
async def test_missing_rights_are_said_once_and_may_come_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reporter_module, "_EVERY_S", 0.01)
    monkeypatch.setattr(reporter_module, "_REFUSED_PAUSE_S", 0.01)
    monkeypatch.setattr(reporter_module, "_AT_LEAST_EVERY_S", 0.02)
    sender = Refusing()
    reporter = Reporter("host-1", [], sender)
    run = asyncio.create_task(reporter.run())
    while sender.attempts < 3:
        await asyncio.sleep(0.01)
    assert [record.getMessage() for record in caplog.records] == [
        "the page does not show this worker: creating topic 'headrace-workers': it needs CREATE"
    ]
    assert sender.sent == []
    await reporter.end()
    assert sender.sent == []
    sender.is_refused = False
    while not sender.sent:
        await asyncio.sleep(0.01)
    run.cancel()
    await reporter.end()
    assert (sender.sent[-1].key, sender.sent[-1].value) == (b"host-1", None)


@pytest.mark.broker
def test_a_user_without_permissions_on_the_topic_of_workers_works(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with SecureBroker() as broker:
        for kind, prefix in (("TOPIC", "pack"), ("TOPIC", "dlq.pack"), ("GROUP", "pack")):
            broker.allow("alice", "ALL", kind, prefix, prefixed=True)
        conf = broker.client_config("alice")
        app = App(conf)
        packed: list[int] = []

        @app.task()
        async def pack(number: int) -> None:
            packed.append(number)

        async def work() -> None:
            worker = app.worker()
            running = asyncio.create_task(worker.run())
            await pack.send(7)
            while not (packed and "does not show" in caplog.text):
                await asyncio.sleep(0.05)
            worker.stop()
            await running

        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(work())
        app.close()
        assert packed == [7]
        (line,) = (r.getMessage() for r in caplog.records if "does not show" in r.getMessage())
        assert f"DESCRIBE on topic '{WORKERS_TOPIC}'" in line
        config = write_properties(tmp_path / "client.properties", conf)
        words = ("--bootstrap-server", broker.bootstrap_servers, "--command-config", str(config))
        assert main(["top", *words, "--iterations", "1", "-o", "jsonl"]) == 0
        (seen,) = map(json.loads, capsys.readouterr().out.splitlines())
        assert [group["group_id"] for group in seen["groups"]] == ["pack"]
        assert seen["warnings"] == []
