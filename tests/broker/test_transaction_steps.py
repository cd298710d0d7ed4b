"""The steps that end a transaction: each waits until the one before is on disk."""

from __future__ import annotations

import asyncio
from pathlib import Path

from headrace.broker.broker import Broker
from headrace.broker.config.broker_config import Config
from headrace.transactions.producer import NO_PRODUCER, Producer


def test_a_marker_follows_the_durable_decision_and_the_completion_the_durable_marker(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        broker = Broker(Config({"log.flush.interval.messages": "1"}), tmp_path)
        broker.start()
        transactions = broker.transactions
        topic = broker.create_topic("t", 1)
        log = broker.log(topic, 0)
        assert log is not None
        producer = transactions.init_producer_id("id", 60_000, NO_PRODUCER)
        assert isinstance(producer, Producer)
        await broker.durable()
        transactions.add_partitions("id", producer, [("t", 0)])
        await broker.durable()
        ended = transactions.end("id", producer, commit=True, client_version=0)
        assert isinstance(ended, Producer)
        assert log.end_offset == 0, "a marker whose decision a power cut may forget"
        while not log.end_offset:
            await broker.durable()
            await asyncio.sleep(0)
        assert log.unflushed_records
        assert "id" in transactions.coordinator.prepared, "a completion without a durable marker"
        while transactions.coordinator.prepared:
            await asyncio.sleep(0)
        assert not log.unflushed_records
        broker.close()

    asyncio.run(asyncio.wait_for(story(), 20))
