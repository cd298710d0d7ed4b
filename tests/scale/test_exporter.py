"""The exporter with 1,000 groups of 100 partitions each: time and memory of a scrape."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from headrace.client import Cluster
from headrace.client.offsets import commit_offsets
from tests.clients.confluent import PATIENCE_S, create_topic
from tests.clients.test_exporter import Running
from tests.support import HeadraceProcess

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(600)]

GROUPS, TOPICS, PARTITIONS, RECORDS = 1_000, 10, 100, 20
SCRAPE_S, SCRAPE_MB = 3.0, 200


def fill(bootstrap_servers: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for number in range(TOPICS):
        create_topic(bootstrap_servers, f"t{number}", PARTITIONS)
        for partition in range(PARTITIONS):
            for _ in range(RECORDS):
                producer.produce(f"t{number}", bytes(50), partition=partition)
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0

    async def commit() -> None:
        async with Cluster(bootstrap_servers) as cluster:
            for number in range(GROUPS):
                topic, offset = f"t{number % TOPICS}", number // TOPICS % RECORDS
                offsets = {(topic, partition): offset for partition in range(PARTITIONS)}
                await commit_offsets(cluster, f"g{number}", offsets)

    asyncio.run(commit())


def test_time_and_memory_of_a_scrape(tmp_path: Path) -> None:
    with (
        HeadraceProcess(tmp_path) as server,
        Running(servers=server.bootstrap_servers) as exporter,
    ):
        fill(server.bootstrap_servers)
        seconds = []
        for _ in range(4):
            started_s = time.monotonic()
            page = exporter.get()
            seconds.append(time.monotonic() - started_s)
        peak_mb = exporter.peak_bytes() / 1e6
    print(f"scrapes of {[f'{one:.2f}' for one in seconds]} s, peak {peak_mb:.0f} MB")
    lags = [value for (name, _), value in page.items() if name == "headrace_group_lag"]
    assert len(lags) == GROUPS
    assert sum(lags) == sum(
        PARTITIONS * (RECORDS - number // TOPICS % RECORDS) for number in range(GROUPS)
    )
    assert min(seconds) <= SCRAPE_S
    assert peak_mb <= SCRAPE_MB
