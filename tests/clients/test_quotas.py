"""Client quotas with real clients: Kafka's tools, librdkafka, and the Java producer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

import headrace
from headrace.client import Cluster
from headrace.client.security import describe_quotas
from headrace.security.quota_entities import Entity
from tests.peer import run_tool
from tests.support import set_quotas, unique, wait_until


@pytest.fixture
def servers() -> Iterator[str]:
    with headrace.Broker() as broker:
        yield broker.bootstrap_servers


async def described(servers: str) -> dict[Entity, dict[str, float]]:
    async with Cluster(servers) as cluster:
        return await describe_quotas(cluster)


@pytest.mark.broker
def test_librdkafka_reports_throttling(servers: str) -> None:
    set_quotas(servers, {"client-id": "slow"}, producer_byte_rate=10_000)
    events: list[float] = []
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "client.id": "slow",
            "linger.ms": 0,
            "throttle_cb": lambda event: events.append(event.throttle_time),
        }
    )
    delivered: list[object] = []
    for _ in range(3):
        producer.produce(
            "throttled", b"x" * 38_000, on_delivery=lambda error, _: delivered.append(error)
        )
        producer.flush(30)
    assert delivered == [None] * 3
    wait_until(lambda: producer.poll(0.1) is not None and bool(events), 20, "the event")
    assert 0 < max(events) < 3


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.broker
def test_kafka_configs(servers: str, kafka_libs: Path) -> None:
    """`kafka-configs` for users, client ids, addresses and their defaults, unmodified."""

    def configs(*words: str) -> tuple[int, str]:
        done = run_tool(
            "org.apache.kafka.tools.ConfigCommand", "--bootstrap-server", servers, *words
        )
        return done.returncode, done.stdout + done.stderr

    both = "--entity-type", "users", "--entity-name", "ann", "--entity-type", "clients"
    status, text = configs(
        *both,
        "--entity-default",
        "--alter",
        "--add-config",
        "producer_byte_rate=1024,request_percentage=50",
    )
    assert status == 0, text
    assert "Completed updating config for" in text
    set_quotas(servers, {"user": None}, consumer_byte_rate=2048)
    status, text = configs(
        "--entity-type",
        "ips",
        "--entity-name",
        "10.0.0.7",
        "--alter",
        "--add-config",
        "connection_creation_rate=5",
    )
    assert status == 0, text
    _, text = configs("--entity-type", "users", "--describe")  # asks 48 and 50
    assert "Quota configs for the default user-principal are consumer_byte_rate=2048.0" in text
    _, text = configs(*both, "--describe")
    assert "user-principal 'ann', the default client-id are" in text
    assert "producer_byte_rate=1024.0" in text
    status, text = configs(
        *both, "--entity-default", "--alter", "--delete-config", "producer_byte_rate"
    )
    assert status == 0, text
    assert asyncio.run(described(servers)) == {
        (("client-id", None), ("user", "ann")): {"request_percentage": 50.0},
        (("user", None),): {"consumer_byte_rate": 2048.0},
        (("ip", "10.0.0.7"),): {"connection_creation_rate": 5.0},
    }


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.broker
def test_the_java_producer_is_throttled(servers: str, kafka_libs: Path) -> None:
    """200 kB at 10 kB/s, of which ten seconds pass at once."""
    topic = unique("throttled")
    set_quotas(servers, {"client-id": "slow"}, producer_byte_rate=15_000)
    done = run_tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", "200", "--record-size", "1000"),
        *("--throughput", "-1", "--print-metrics"),
        *("--producer-props", f"bootstrap.servers={servers}", "client.id=slow"),
    )
    assert done.returncode == 0, done.stderr
    assert "200 records sent" in done.stdout
    (line,) = (one for one in done.stdout.splitlines() if "produce-throttle-time-max" in one)
    assert float(line.rpartition(":")[2]) > 100
