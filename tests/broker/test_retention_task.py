"""The task that applies retention goes on after an unexpected error."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.broker.broker import Broker
from headrace.broker.config.broker_config import Config
from headrace.log.log_directory import LogDirectory
from headrace.log.partition_log import PartitionLog
from headrace.protocol import record_batch
from tests.support import story

CONFIG = {"log.retention.check.interval.ms": "1"}


@pytest.mark.parametrize("error", [RuntimeError("unexpected"), OSError(5, "the disk fails")])
@pytest.mark.parametrize("is_found", [True, False], ids=["retention", "opening"])
@story
async def test_other_logs_keep_their_retention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, *, is_found: bool
) -> None:
    checked: list[str] = []
    existing = LogDirectory.existing_partitions

    def retention_steps(log: PartitionLog, now_ms: int) -> Iterator[Callable[[], None]]:
        checked.append(log.topic)
        if is_found and log.topic == "broken":
            raise error
        yield from ()

    def existing_partitions(logs: LogDirectory, topic: str, partitions: int) -> list[int]:
        if not is_found and topic == "broken":
            raise error
        return existing(logs, topic, partitions)

    broker = Broker(Config(CONFIG), tmp_path)
    for name in ("broken", "whole"):
        log = broker.topic_logs.log(broker.catalog.create_topic(name, 1), 0)
        assert log is not None
        broker.topic_logs.append(log, record_batch.build([(None, b"a")], timestamp_ms=0))
    monkeypatch.setattr(PartitionLog, "retention_steps", retention_steps)
    monkeypatch.setattr(LogDirectory, "existing_partitions", existing_partitions)
    broker.start()
    retaining = broker.topic_logs._tasks[0]
    while checked.count("whole") < 3 and not retaining.done():
        await asyncio.sleep(0)
    broker.close()
    assert checked.count("whole") == 3
