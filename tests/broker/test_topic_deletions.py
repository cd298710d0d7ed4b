"""A deletion of topics that a crash has interrupted is completed by the next start."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from headrace.broker.broker import Broker
from headrace.broker.config.broker_config import Config
from headrace.log.removal import Removals
from headrace.protocol.record_batch import build


def directories(data_dir: Path) -> list[str]:
    return sorted(name for name in os.listdir(data_dir) if name.startswith("t-"))


@pytest.mark.parametrize("again", [False, True], ids=["gone", "created again"])
def test_a_crash_after_the_decision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    async def delete() -> None:
        broker = Broker(Config(), tmp_path)
        broker.start()
        topic = broker.create_topic("t", 3)
        for partition in range(3):
            log = broker.log(topic, partition)
            assert log is not None
            broker.append(log, build([(None, b"a")], timestamp_ms=broker.clock.wall_ms()))
        monkeypatch.setattr(Removals, "add", lambda *_: None)
        broker.delete_topic(topic)
        monkeypatch.undo()
        if again:
            broker.create_topic("t", 3)
        broker.close()

    async def start() -> None:
        broker = Broker(Config(), tmp_path)
        broker.start()
        assert len(broker.catalog.deleted_topics) == 1
        for _ in range(500):
            if not broker.catalog.deleted_topics:
                break
            await asyncio.sleep(0.01)
        assert not broker.catalog.deleted_topics
        assert not directories(tmp_path)
        broker.close()

    asyncio.run(delete())
    assert len(directories(tmp_path)) == 3
    asyncio.run(start())
