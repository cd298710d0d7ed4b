"""Clients that push their metrics (KIP-714), which is what they do by default."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

import headrace
from tests.clients.confluent import create_topic
from tests.clients.test_java_clients import run_java
from tests.conformance.test_config_resources import METRICS, SET, alter
from tests.conformance.world import OK, World
from tests.support import unique, wait_until

PATIENCE_S = 60
PREFIX = "org_apache_kafka_"


@pytest.fixture
def broker() -> Iterator[headrace.Broker]:
    with headrace.Broker(metrics_port=0) as broker:
        yield broker


def pushed(broker: headrace.Broker) -> list[Sample]:
    """Return the samples of clients on the metrics page."""
    with urllib.request.urlopen(broker.metrics_url) as response:
        page = response.read().decode()
    return [
        sample
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if family.name.startswith(PREFIX)
    ]


def names_of(samples: list[Sample], client_id: str) -> set[str]:
    return {one.name for one in samples if one.labels["client_id"] == client_id}


@pytest.mark.java
@pytest.mark.slow
def test_java_clients(broker: headrace.Broker, kafka_libs: Path) -> None:
    seen = run_java("ClientMetrics", broker.bootstrap_servers, unique("t"), unique("g"))
    assert seen["consumed"] == "true"
    samples = pushed(broker)
    by_client = {
        client_id: {
            one.labels["client_instance_id"]
            for one in samples
            if one.labels["client_id"] == client_id
        }
        for client_id in ("java-producer", "java-consumer")
    }
    assert by_client == {"java-producer": {seen["producer"]}, "java-consumer": {seen["consumer"]}}
    assert f"{PREFIX}producer_record_send_total" in names_of(samples, "java-producer")
    assert f"{PREFIX}consumer_fetch_manager_records_consumed_total" in names_of(
        samples, "java-consumer"
    )


def test_librdkafka(broker: headrace.Broker) -> None:
    world = World(broker.bootstrap_servers, "headrace")
    changes = (("metrics", SET, "*"), ("interval.ms", SET, "200"))
    assert alter(world, METRICS, "all", *changes) == OK
    world.close()
    topic = create_topic(broker.bootstrap_servers, unique("topic"))
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "client.id": "librdkafka-producer"}
    )

    def names() -> set[str]:
        producer.produce(topic, b"x")
        producer.flush()
        time.sleep(0.05)
        return names_of(pushed(broker), "librdkafka-producer")

    wait_until(names, PATIENCE_S, "metrics of the producer")
