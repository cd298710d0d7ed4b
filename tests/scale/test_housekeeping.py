"""Retention, compaction and the scrape of metrics with many partitions, beside an honest client."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.scale.broker import FACTOR, Broker
from tests.wire_client import Connection, batch, connection

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(3600)]

PARTITIONS_PER_TOPIC = 100
KEPT_TOPICS = 18 * FACTOR
OLD_TOPICS = FACTOR
COMPACTED_TOPICS = FACTOR
CHECK_MS = 1_000 * min(FACTOR, 3)
"""The pause between two rounds of retention, and of compaction."""
TIMESTAMP_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    configs = {
        "log.retention.check.interval.ms": str(CHECK_MS),
        "log.cleaner.backoff.ms": str(CHECK_MS),
        "log.retention.ms": "-1",
    }
    running = Broker(tmp_path_factory.mktemp("scale"), configs)
    try:
        with running.honest:
            yield running
    finally:
        running.process.stop(timeout_s=300)


def produce_to_all(client: Connection, topic: str, number: int) -> None:
    """Append a record to each partition of a topic."""
    records = batch([b"value-%d" % number], key=b"key", timestamp_ms=TIMESTAMP_MS + 10 * number)
    produced = client.ask(
        0,
        9,
        acks=-1,
        timeout=60_000,
        topic_data=[
            {
                "name": topic,
                "partition_data": [
                    {"index": p, "records": records} for p in range(PARTITIONS_PER_TOPIC)
                ],
            }
        ],
    )
    answers = produced.responses[0].partition_responses
    assert {int(one.error_code) for one in answers} == {0}


def has_expired(client: Connection, topic: str) -> bool:
    """Return whether retention has deleted the one record of each partition."""
    listed = client.ask(
        2,
        7,
        replica_id=-1,
        topics=[
            {
                "name": topic,
                "partitions": [
                    {"partition_index": p, "timestamp": -2} for p in range(PARTITIONS_PER_TOPIC)
                ],
            }
        ],
    )
    return {int(one.offset) for one in listed.topics[0].partitions} == {1}


def rounds(broker: Broker) -> int:
    line = next(
        line
        for line in broker.page().splitlines()
        if line.startswith("headrace_cleaner_rounds_total ")
    )
    return int(line.split(" ")[1])


def test_housekeeping(broker: Broker) -> None:
    kept = [f"kept-{n}" for n in range(KEPT_TOPICS)]
    old = [f"old-{n}" for n in range(OLD_TOPICS)]
    compacted = [f"compacted-{n}" for n in range(COMPACTED_TOPICS)]
    partitions = (KEPT_TOPICS + OLD_TOPICS + COMPACTED_TOPICS) * PARTITIONS_PER_TOPIC
    with connection(broker.bootstrap_servers, timeout_s=900) as client:
        for topic in (*kept, *old):
            client.create_topic(topic, PARTITIONS_PER_TOPIC)
        for topic in compacted:
            client.create_topic(
                topic, PARTITIONS_PER_TOPIC, cleanup_policy="compact", segment_ms="1"
            )
        with broker.measured(f"first records of {partitions:,} partitions"):
            for topic in (*kept, *old):
                produce_to_all(client, topic, 0)
        with broker.measured(f"compaction of {COMPACTED_TOPICS * PARTITIONS_PER_TOPIC:,} logs"):
            for topic in compacted:
                for number in range(3):
                    produce_to_all(client, topic, number)
            deadline = time.monotonic() + 1_200
            while rounds(broker) < COMPACTED_TOPICS * PARTITIONS_PER_TOPIC:
                assert time.monotonic() < deadline, "the logs are not compacted"
                time.sleep(min(FACTOR, 5))  # each look is a scrape
        with broker.measured("retention and compaction, nothing to do"):
            time.sleep(3 * CHECK_MS / 1000)
        for again in ("", ", again"):
            with broker.measured(f"scrape of {partitions:,} partitions{again}"):
                page = broker.page()
        assert "kafka_log_log_logendoffset" in page
        change = {"name": "retention.ms", "config_operation": 0, "value": "1000"}
        with broker.measured(f"retention deletes {OLD_TOPICS * PARTITIONS_PER_TOPIC:,} records"):
            client.ask(
                44,
                1,
                resources=[
                    {"resource_type": 2, "resource_name": topic, "configs": [change]}
                    for topic in old
                ],
            )
            deadline = time.monotonic() + 1_200
            for topic in old:
                while not has_expired(client, topic):
                    assert time.monotonic() < deadline, "the records do not expire"
                    time.sleep(0.5)
