"""Compaction in a running broker: on its own, after changes of configs, and after a start."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headrace.broker import cleaner
from headrace.broker.broker import Broker
from headrace.broker.config.administration import ConfigChange
from headrace.broker.config.broker_config import Config
from headrace.broker.metrics.page import metrics_page
from headrace.groups.records import CommittedOffset, OffsetCommit
from headrace.log import cleaner as log_cleaner
from headrace.log.cleaner import CleaningStopped, Pace, Round, expect_gaps
from headrace.log.partition_log import PartitionLog
from headrace.outcome import Outcome
from headrace.protocol.api import IncrementalAlterConfigsRequest
from headrace.protocol.configs import ConfigOperation, ConfigType
from headrace.protocol.record_batch import CorruptBatch, build, headers, records
from headrace.protocol.time_slices import run_now
from tests.support import HANG_S, story, story_in

CONFIG = {"log.cleaner.backoff.ms": "10", "offsets.topic.num.partitions": "1"}
TOPIC = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "2000",
    "min.cleanable.dirty.ratio": "0.1",
}


@asynccontextmanager
async def running(data_dir: Path | None = None, **config: str) -> AsyncIterator[Broker]:
    """A broker that cleans often."""
    given = {name.replace("_", "."): value for name, value in config.items()}
    broker = Broker(Config({**CONFIG, **given}), data_dir)
    broker.start()
    try:
        yield broker
    finally:
        broker.close()


def on_broker(**config: str) -> Callable[..., Callable[..., None]]:
    """Run an async test on its own loop with a broker, its first argument."""
    return story_in(partial(running, **config))


def topic_log(broker: Broker, **configs: str) -> PartitionLog:
    topic = broker.catalog.topics.get("t") or broker.catalog.create_topic(
        "t", 1, {**TOPIC, **configs}
    )
    log = broker.topic_logs.log(topic, 0)
    assert log is not None
    return log


def fill(broker: Broker, log: PartitionLog, count: int = 200, *, key: bytes | None = None) -> None:
    for n in range(count):
        record = (key or b"%d" % (n % 5), b"%d" % n)
        broker.topic_logs.append(log, build([record], timestamp_ms=broker.clock.wall_ms()))


def offsets(log: PartitionLog) -> list[int]:
    found: list[int] = []
    offset = 0
    while offset < log.end_offset:
        data = log.read(offset, 1 << 20)
        assert isinstance(data, bytes)
        for position, header in headers(data):
            found += [record.offset for record in records(memoryview(data)[position:])]
            offset = header.last_offset + 1
    return found


async def cleaned(broker: Broker, rounds: int = 1) -> None:
    while broker.metrics.cleaner.rounds < rounds:
        await asyncio.sleep(0.005)


@story
async def test_a_compacted_topic_is_cleaned_and_counted(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        log = topic_log(broker)
        fill(broker, log)
        await cleaned(broker)
        page = (await metrics_page(broker)).decode()
        assert (
            "headrace_cleaner_rounds_total 1\n" in page
            and "headrace_cleaner_keys_total 5\n" in page
        )
        assert "headrace_cleaner_failures_total 0\n" in page
        left = offsets(log)
        assert len(left) < 40 and left[-5:] == list(range(195, 200))
    async with running(tmp_path) as broker:
        assert offsets(topic_log(broker)) == left


@on_broker()
async def test_a_topic_that_becomes_compacted_is_cleaned(broker: Broker) -> None:
    log = topic_log(broker, **{"cleanup.policy": "delete"})
    fill(broker, log)
    await asyncio.sleep(0.05)
    assert len(offsets(log)) == 200
    change = ConfigChange("cleanup.policy", ConfigOperation.SET, "compact")
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(ConfigType.TOPIC, "t", [change])
    (refusal,) = run_now(broker.configs.alter([resource], replaces=False, validate_only=False))
    assert refusal is None
    await cleaned(broker)
    assert len(offsets(log)) < 40


@pytest.mark.parametrize("config", [{"log_cleaner_enable": "false"}, {"log_cleaner_threads": "0"}])
@story
async def test_the_cleaner_can_be_switched_off(config: dict[str, str]) -> None:
    async with running(**config) as broker:
        log = topic_log(broker)
        fill(broker, log)
        await asyncio.sleep(0.1)
        assert len(offsets(log)) == 200


@on_broker(log_cleaner_threads="3")
async def test_several_threads(broker: Broker) -> None:
    topic = broker.catalog.create_topic("many", 6, TOPIC)
    logs = [log for n in range(6) if (log := broker.topic_logs.log(topic, n)) is not None]
    for log in logs:
        fill(broker, log)
    await cleaned(broker, 6)
    assert all(len(offsets(log)) < 40 for log in logs)


@on_broker(log_cleaner_threads="2")
async def test_an_error_in_one_thread_begins_no_second_round_of_another(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both rounds would write the same files."""
    begun: list[str] = []
    may_go_on = threading.Event()
    begin, read = Round.__init__, Round._note_keys

    def fail(one: Round, log: PartitionLog, *rest: Any) -> None:
        begun.append(log.topic)
        if log.topic == "bad" and begun.count("bad") == 1:
            raise RuntimeError("a bug")
        begin(one, log, *rest)

    def wait(one: Round) -> None:
        assert may_go_on.wait(HANG_S)
        read(one)

    monkeypatch.setattr(Round, "__init__", fail)
    monkeypatch.setattr(Round, "_note_keys", wait)
    logs = [
        broker.topic_logs.log(broker.catalog.create_topic(name, 1, TOPIC), 0)
        for name in ("good", "bad")
    ]
    for log in logs:
        assert log is not None
        fill(broker, log)
    while "bad" not in begun or "good" not in begun:
        await asyncio.sleep(0.005)
    await asyncio.sleep(0.1)
    assert sorted(begun) == ["bad", "good"]
    may_go_on.set()
    await cleaned(broker, 2)
    assert all(log is not None and len(offsets(log)) < 40 for log in logs)


@story
async def test_a_topic_deleted_meanwhile(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        for _ in range(20):
            fill(broker, topic_log(broker), 100)
            await asyncio.sleep(0.012)
            run_now(broker.topic_deletions.delete([broker.catalog.topics["t"]]))
        log = topic_log(broker)
        before = broker.metrics.cleaner.rounds
        fill(broker, log)
        await cleaned(broker, before + 1)
        assert offsets(log)[-5:] == list(range(195, 200))
        assert broker.metrics.cleaner.failures == 0


@on_broker()
async def test_what_a_round_reads_of_a_deleted_topic_says_nothing_about_a_new_one(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The new topic has the same directory."""
    reads, deleted = threading.Event(), threading.Event()

    def read(_: Round) -> None:
        reads.set()
        assert deleted.wait(HANG_S)
        raise CorruptBatch("damaged")

    monkeypatch.setattr("headrace.log.cleaner.Round._note_keys", read)
    fill(broker, topic_log(broker))
    await asyncio.to_thread(reads.wait, HANG_S)
    run_now(broker.topic_deletions.delete([broker.catalog.topics["t"]]))
    log = topic_log(broker)
    fill(broker, log)
    monkeypatch.undo()
    deleted.set()
    await cleaned(broker)
    assert offsets(log)[-5:] == list(range(195, 200))
    assert broker.metrics.cleaner.failures == 0 and not caplog.records


@on_broker()
async def test_how_far_a_deleted_topic_was_cleaned_says_nothing_about_a_new_one(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new topic has the same directory."""
    saves, deleted = threading.Event(), threading.Event()

    def save(log: PartitionLog) -> None:
        if log.first_dirty_offset:
            saves.set()
            assert deleted.wait(HANG_S)
        expect_gaps(log)

    monkeypatch.setattr("headrace.log.cleaner.expect_gaps", save)
    fill(broker, topic_log(broker))
    await cleaned(broker)
    fill(broker, topic_log(broker))
    await asyncio.to_thread(saves.wait, HANG_S)
    run_now(broker.topic_deletions.delete([broker.catalog.topics["t"]]))
    log = topic_log(broker)
    fill(broker, log, 100, key=b"first")
    fill(broker, log, 400)
    monkeypatch.undo()
    deleted.set()
    await cleaned(broker, 2)
    assert len(offsets(log)) < 40


@on_broker()
async def test_damage_stops_the_compaction_of_that_log_only(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    broken = topic_log(broker)
    fill(broker, broken)
    path = broken.segments[2].path(".log")
    os.truncate(path, broken.segments[2].size_bytes - 1)
    topic = broker.catalog.create_topic("other", 1, TOPIC)
    other = broker.topic_logs.log(topic, 0)
    assert other is not None
    fill(broker, other)
    await cleaned(broker)
    while not broker.metrics.cleaner.failures:
        await asyncio.sleep(0.005)
    await asyncio.sleep(0.1)
    assert broker.metrics.cleaner.failures == 1 and len(offsets(other)) < 40
    assert "is not compacted until the next start" in caplog.text and path in caplog.text


async def commit_often(broker: Broker, commits: int) -> PartitionLog:
    """Commit to three partitions of seven groups, while the cleaner runs many times."""
    for n in range(commits):
        record = OffsetCommit(f"g{n % 7}", "t", n % 3, CommittedOffset(n, commit_timestamp_ms=1))
        broker.coordinators.group_runtime.write_now(record.group_id, Outcome(None, (record,)))
        if not n % 1000:
            await asyncio.sleep(0.03)
    log = broker.topic_logs.log(broker.catalog.topics["__consumer_offsets"], 0)
    assert log is not None
    return log


@on_broker()
async def test_recent_group_records_survive_compaction(broker: Broker) -> None:
    log = await commit_often(broker, 5000)
    assert offsets(log) == list(range(5000))


@story
async def test_a_start_reads_few_outdated_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleaner, "INTERNAL_DIRTY_BYTES", 100_000)

    def state(broker: Broker) -> dict[str, Any]:
        offsets = broker.coordinators.groups.offsets.committed
        return {
            f"g{n}": {t: dict(p) for t, p in offsets.of_group(f"g{n}").items()} for n in range(7)
        }

    async with running(tmp_path) as broker:
        log = await commit_often(broker, 5000)
        while log.size_bytes() > 100_000:
            await asyncio.sleep(0.005)
        assert log.end_offset == 5000
        before = state(broker)
    async with running(tmp_path) as broker:
        assert before == state(broker) and before["g0"]["t"]


def test_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 1000 bytes per second, more bytes cost a wait; after a stop they do not."""
    pace, waits = Pace(lambda: 1000.0), []
    monkeypatch.setattr(pace.stopped, "wait", waits.append)
    pace.spend(500)
    pace.spend(1500)
    assert waits[0] == pytest.approx(0.5) and 1.5 <= waits[1] <= 2.0
    pace.stopped.set()
    with pytest.raises(CleaningStopped):
        pace.spend(0)


@pytest.mark.parametrize("limit", [0.0, 1e-300, -1.0])
def test_the_smallest_pace(limit: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The configuration may say so. A larger limit is in effect a minute later."""
    now_s, limits, waits = 0.0, [limit], []
    pace = Pace(lambda: limits[0])
    monkeypatch.setattr(log_cleaner.time, "monotonic", lambda: now_s)
    monkeypatch.setattr(pace.stopped, "wait", waits.append)
    pace.spend(1 << 30)
    now_s = 60.0
    limits[0] = 1000.0
    pace.spend(500)
    assert waits == [60.0, 0.5]
