"""Compaction in a running broker: on its own, after changes of configs, and after a start."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from headrace.broker import cleaner
from headrace.broker.broker import Broker
from headrace.broker.config import changes as config_changes
from headrace.broker.config.broker_config import Config
from headrace.broker.metrics.page import metrics_page
from headrace.errors import ErrorCode
from headrace.groups.records import CommittedOffset, OffsetCommit
from headrace.log.cleaner import CleaningStopped, Pace, Round
from headrace.log.partition_log import PartitionLog
from headrace.outcome import Outcome
from headrace.protocol.record_batch import CorruptBatch, build, headers, records
from headrace.time_slices import run_now
from tests.support import HANG_S

T = TypeVar("T")
CONFIG = {"log.cleaner.backoff.ms": "10", "offsets.topic.num.partitions": "1"}
TOPIC = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "2000",
    "min.cleanable.dirty.ratio": "0.1",
}


def run(work: Callable[[Broker], Awaitable[T]], data_dir: Path | None, **config: str) -> T:
    """Run a coroutine in a broker's own event loop, and close the broker."""

    async def running() -> T:
        given = {name.replace("_", "."): value for name, value in config.items()}
        broker = Broker(Config({**CONFIG, **given}), data_dir)
        broker.start()
        try:
            return await asyncio.wait_for(work(broker), HANG_S)
        finally:
            broker.close()

    return asyncio.run(running())


def topic_log(broker: Broker, **configs: str) -> PartitionLog:
    topic = broker.catalog.topics.get("t") or broker.create_topic("t", 1, {**TOPIC, **configs})
    log = broker.log(topic, 0)
    assert log is not None
    return log


def fill(broker: Broker, log: PartitionLog, count: int = 200) -> None:
    for n in range(count):
        broker.append(
            log, build([(b"%d" % (n % 5), b"%d" % n)], timestamp_ms=broker.clock.wall_ms())
        )


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


def test_a_compacted_topic_is_cleaned_and_counted(tmp_path: Path) -> None:
    async def work(broker: Broker) -> list[int]:
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
        return left

    async def look(broker: Broker) -> list[int]:
        return offsets(topic_log(broker))

    assert run(work, tmp_path) == run(look, tmp_path)


def test_a_topic_that_becomes_compacted_is_cleaned(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        log = topic_log(broker, **{"cleanup.policy": "delete"})
        fill(broker, log)
        await asyncio.sleep(0.05)
        assert len(offsets(log)) == 200
        resource = config_changes.Resource(config_changes.TOPIC, "t")
        plan = [(resource, lambda *_: {"cleanup.policy": "compact"})]
        (refusal,) = run_now(config_changes.alter(broker, plan, validate_only=False))
        assert refusal.code == ErrorCode.NONE
        await cleaned(broker)
        assert len(offsets(log)) < 40

    run(work, tmp_path)


@pytest.mark.parametrize("config", [{"log_cleaner_enable": "false"}, {"log_cleaner_threads": "0"}])
def test_the_cleaner_can_be_switched_off(tmp_path: Path, config: dict[str, str]) -> None:
    async def work(broker: Broker) -> None:
        log = topic_log(broker)
        fill(broker, log)
        await asyncio.sleep(0.1)
        assert len(offsets(log)) == 200

    run(work, tmp_path, **config)


def test_several_threads(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        topic = broker.create_topic("many", 6, TOPIC)
        logs = [log for n in range(6) if (log := broker.log(topic, n)) is not None]
        for log in logs:
            fill(broker, log)
        await cleaned(broker, 6)
        assert all(len(offsets(log)) < 40 for log in logs)

    run(work, tmp_path, log_cleaner_threads="3")


def test_a_topic_deleted_meanwhile(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        for _ in range(20):
            fill(broker, topic_log(broker), 100)
            await asyncio.sleep(0.012)
            broker.delete_topic(broker.catalog.topics["t"])
        log = topic_log(broker)
        before = broker.metrics.cleaner.rounds
        fill(broker, log)
        await cleaned(broker, before + 1)
        assert offsets(log)[-5:] == list(range(195, 200))
        assert broker.metrics.cleaner.failures == 0

    run(work, tmp_path)


def test_what_a_round_reads_of_a_deleted_topic_says_nothing_about_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The new topic has the same directory."""
    reads, deleted = threading.Event(), threading.Event()

    def read(_: Round) -> None:
        reads.set()
        assert deleted.wait(HANG_S)
        raise CorruptBatch("damaged")

    async def work(broker: Broker) -> None:
        fill(broker, topic_log(broker))
        await asyncio.to_thread(reads.wait, HANG_S)
        broker.delete_topic(broker.catalog.topics["t"])
        log = topic_log(broker)
        fill(broker, log)
        monkeypatch.undo()
        deleted.set()
        await cleaned(broker)
        assert offsets(log)[-5:] == list(range(195, 200))
        assert broker.metrics.cleaner.failures == 0 and not caplog.records

    monkeypatch.setattr("headrace.log.cleaner.Round._note_keys", read)
    run(work, tmp_path)


def test_damage_stops_the_compaction_of_that_log_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(broker: Broker) -> None:
        broken = topic_log(broker)
        fill(broker, broken)
        path = broken.segments[2].path(".log")
        os.truncate(path, broken.segments[2].size_bytes - 1)
        topic = broker.create_topic("other", 1, TOPIC)
        other = broker.log(topic, 0)
        assert other is not None
        fill(broker, other)
        await cleaned(broker)
        while not broker.metrics.cleaner.failures:
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.1)
        assert broker.metrics.cleaner.failures == 1 and len(offsets(other)) < 40
        assert "is not compacted until the next start" in caplog.text and path in caplog.text

    run(work, tmp_path)


async def commit_often(broker: Broker, commits: int) -> PartitionLog:
    """Commit to three partitions of seven groups, while the cleaner runs many times."""
    for n in range(commits):
        record = OffsetCommit(f"g{n % 7}", "t", n % 3, CommittedOffset(n, commit_timestamp_ms=1))
        broker.group_runtime.write_now(record.group_id, Outcome(None, (record,)))
        if not n % 1000:
            await asyncio.sleep(0.03)
    log = broker.log(broker.catalog.topics["__consumer_offsets"], 0)
    assert log is not None
    return log


def test_recent_group_records_survive_compaction(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        log = await commit_often(broker, 5000)
        assert offsets(log) == list(range(5000))

    run(work, tmp_path)


def test_a_start_reads_few_outdated_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleaner, "INTERNAL_DIRTY_BYTES", 100_000)

    def state(broker: Broker) -> dict[str, Any]:
        offsets = broker.groups.offsets.committed
        return {
            f"g{n}": {t: dict(p) for t, p in offsets.of_group(f"g{n}").items()} for n in range(7)
        }

    async def work(broker: Broker) -> dict[str, Any]:
        log = await commit_often(broker, 5000)
        while log.size_bytes() > 100_000:
            await asyncio.sleep(0.005)
        assert log.end_offset == 5000
        return state(broker)

    async def look(broker: Broker) -> dict[str, Any]:
        return state(broker)

    before = run(work, tmp_path)
    assert before == run(look, tmp_path) and before["g0"]["t"]


def test_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 1000 bytes per second, more bytes cost a wait; after a stop they do not."""
    pace, waits = Pace(lambda: 1000.0), []
    monkeypatch.setattr(pace._stopped, "wait", waits.append)
    pace.spend(500)
    pace.spend(1500)
    assert waits[0] == pytest.approx(0.5) and 1.5 <= waits[1] <= 2.0
    pace.stop()
    with pytest.raises(CleaningStopped):
        pace.spend(0)
