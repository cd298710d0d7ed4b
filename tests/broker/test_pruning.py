"""Pruning: parts of an internal log that are no longer needed are deleted."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from headrace.broker.broker import Broker
from headrace.broker.config.broker_config import Config
from headrace.coordinators.share_partitions import LoadedPartition
from headrace.share.records import SharePartitionKey
from headrace.share.settings import FetchLimits
from headrace.share.share_state import ShareCoordinator
from headrace.topics import internal_logs
from tests.support import nothing_is_written, story

CONFIG = {
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.prune.interval.ms": "20",
    "share.coordinator.snapshot.update.records.per.snapshot": "10",
    "log.retention.check.interval.ms": "20",
}


def test_a_pruned_log_begins_a_new_file_so_that_the_old_one_can_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(internal_logs, "PRUNED_LOG_BYTES", 5000)
    directory = tmp_path / f"{ShareCoordinator.topic}-0"

    async def work() -> int:
        broker = Broker(Config(CONFIG), tmp_path)
        broker.start()
        state, states = broker.coordinators.share_state, broker.coordinators.share_state_runtime
        key = SharePartitionKey("g", broker.catalog.create_topic("t", 1).topic_id, 0)
        states.write_now(str(key), state.initialize(key, 1, 0, broker.clock.wall_ms()))
        written = 0
        while written == 0 or (directory / f"{0:020}.log").exists():
            for _ in range(20):
                written += 1
                states.write_now(
                    str(key), state.write(key, 1, 0, written, 0, (), broker.clock.wall_ms())
                )
            await asyncio.sleep(0.01)
        log = broker.topic_logs.log(broker.catalog.topics[state.topic], 0)
        assert log is not None
        assert log.log_start_offset > 0
        broker.close()
        return written

    async def read() -> int:
        broker = Broker(Config(CONFIG), tmp_path)
        broker.start()
        (topic,) = (topic for topic in broker.catalog.topics.values() if topic.name == "t")
        summary = broker.coordinators.share_state.summary(SharePartitionKey("g", topic.topic_id, 0))
        broker.close()
        return summary.start_offset

    assert asyncio.run(asyncio.wait_for(work(), 60)) == asyncio.run(read())


def test_a_power_cut_leaves_the_state_for_which_the_log_was_pruned(tmp_path: Path) -> None:
    after = tmp_path / "after"

    async def cut() -> SharePartitionKey:
        broker = Broker(Config(CONFIG), tmp_path / "before")
        broker.start()
        state, states = broker.coordinators.share_state, broker.coordinators.share_state_runtime
        key = SharePartitionKey("g", broker.catalog.create_topic("t", 1).topic_id, 0)
        states.write_now(str(key), state.initialize(key, 1, 0, broker.clock.wall_ms()))
        log = broker.topic_logs.log(broker.catalog.topics[state.topic], 0)
        assert log is not None
        written = 0
        while not log.log_start_offset:
            for _ in range(20):
                written += 1
                outcome = state.write(key, 1, 0, written, 0, (), broker.clock.wall_ms())
                states.write_now(str(key), outcome)
            await asyncio.sleep(0.01)
        # The names of files may be on disk before what is written to them.
        shutil.copytree(broker.data_dir, after)
        (segment,) = log.segments
        forced_bytes = segment.locate(log.end_offset - log.unflushed_records)
        os.truncate(
            after / f"{state.topic}-0" / os.path.basename(segment.path(".log")), forced_bytes
        )
        broker.close()
        return key

    async def knows(key: SharePartitionKey) -> bool:
        (after / "lock").unlink()
        broker = Broker(Config(CONFIG), after)
        broker.start()
        is_known = key in broker.coordinators.share_state.known_keys()
        broker.close()
        return is_known

    assert asyncio.run(knows(asyncio.run(asyncio.wait_for(cut(), 60))))


@story
async def test_nothing_is_pruned_after_the_broker_has_closed(tmp_path: Path) -> None:
    """Acquired records are released at the stop, which writes share state once more."""
    broker = Broker(Config(CONFIG), tmp_path)
    broker.start()
    state, states, clock = (
        broker.coordinators.share_state,
        broker.coordinators.share_state_runtime,
        broker.clock,
    )
    topic = broker.catalog.create_topic("t", 1)
    key = SharePartitionKey("g", topic.topic_id, 0)
    states.write_now(str(key), state.initialize(key, 1, 0, clock.wall_ms()))
    for _ in range(25):
        outcome = state.write(key, 1, 0, 0, 0, (), clock.wall_ms())
        states.write_now(str(key), outcome)
    loaded = broker.coordinators.share.load(key)
    assert isinstance(loaded, LoadedPartition)
    settings = broker.coordinators.share.settings("g")
    limits = FetchLimits(1, 1, 1, record_limit=False)
    assert loaded.partition.acquire("m", [(0, 0)], limits, clock.now_ms(), settings)
    broker.close()
    await nothing_is_written(tmp_path)
