"""Client telemetry (KIP-714): subscriptions and pushes. A real Apache Kafka discards the metrics
unless it has a plugin for them, and does not advertise the requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from headrace.protocol.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress
from tests.conformance.test_config_resources import DELETE, METRICS, SET, alter
from tests.conformance.world import OK, World, outcome
from tests.machines.otlp import counter, gauge, point, pushed
from tests.support import unique, wait_until
from tests.wire_client import Connection

PATIENCE_S = 30
SOME = pushed(
    gauge("org.apache.kafka.producer.x", point(1.5)),
    counter("org.apache.kafka.producer.y", point(2)),
)


class Client:
    """A client of its own connection."""

    def __init__(self, world: World, software: tuple[str, str] | None = None) -> None:
        self.connection = Connection(world.bootstrap_servers, client_id=unique("client"))
        world._open.append(self.connection)
        self.instance_id: UUID | None = None
        self.subscription_id = 0
        self.last: Any = None
        if software is not None:
            name, version = software
            hello = self.connection.ask(
                18, 3, client_software_name=name, client_software_version=version
            )
            assert hello.error_code == 0

    def ask(self) -> str:
        """Send GetTelemetrySubscriptions; return the error."""
        self.last = self.connection.ask(71, 0, client_instance_id=self.instance_id)
        if not self.last.error_code:
            self.instance_id = self.last.client_instance_id
            self.subscription_id = self.last.subscription_id
        return outcome(self.last.error_code)

    def push(self, metrics: bytes = SOME, *, codec: int = NONE, terminating: bool = False) -> str:
        """Send PushTelemetry; return the error."""
        response = self.connection.ask(
            72,
            0,
            client_instance_id=self.instance_id,
            subscription_id=self.subscription_id,
            terminating=terminating,
            compression_type=codec,
            metrics=metrics,
        )
        return outcome(response.error_code)


@pytest.fixture
def subscribed(world: World) -> Iterator[Client]:
    """A client with a subscription to all metrics, ten times a second."""
    client, name = Client(world), unique("subscription")
    changes = (
        ("metrics", SET, "*"),
        ("interval.ms", SET, "100"),
        ("match", SET, f"client_id={client.connection.client_id}"),
    )
    assert alter(world, METRICS, name, *changes) == OK

    def is_subscribed() -> bool:
        client.instance_id = None
        assert client.ask() == OK
        return client.last.requested_metrics == ("*",)

    wait_until(is_subscribed, PATIENCE_S, "the subscription")
    yield client
    deleted = [(key, DELETE, None) for key in ("metrics", "interval.ms", "match")]
    assert alter(world, METRICS, name, *deleted) == OK


def test_a_client_without_a_subscription(world: World) -> None:
    client = Client(world)
    assert client.ask() == OK
    assert client.instance_id
    assert client.last.requested_metrics == ()
    assert client.last.push_interval == timedelta(minutes=5)
    assert client.last.accepted_compression_types == (ZSTD, LZ4, GZIP, SNAPPY)
    assert client.last.telemetry_max_bytes == 1048576
    assert client.last.delta_temporality
    assert client.ask() == "THROTTLING_QUOTA_EXCEEDED"
    assert (client.last.client_instance_id, client.last.push_interval) == (None, timedelta(0))


def test_metrics_are_taken_once_in_an_interval(subscribed: Client) -> None:
    assert subscribed.last.push_interval == timedelta(milliseconds=100)
    assert subscribed.push() == OK
    assert subscribed.push() == "THROTTLING_QUOTA_EXCEEDED"
    assert subscribed.push(terminating=True) == OK
    assert subscribed.push(terminating=True) == "INVALID_REQUEST"


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
def test_metrics_may_be_compressed(subscribed: Client, codec: int) -> None:
    assert subscribed.push(compress(codec, SOME), codec=codec) == OK


def test_a_wrong_subscription_id_lets_the_client_ask_again(subscribed: Client) -> None:
    subscribed.subscription_id += 1
    assert subscribed.push() == "UNKNOWN_SUBSCRIPTION_ID"
    assert subscribed.ask() == OK
    assert subscribed.push(codec=9, terminating=True) == "UNSUPPORTED_COMPRESSION_TYPE"


def test_too_many_metrics(subscribed: Client) -> None:
    assert subscribed.push(bytes(1048577)) == "TELEMETRY_TOO_LARGE"


def test_an_id_that_no_client_has(world: World) -> None:
    client = Client(world)
    for instance_id in (None, UUID(int=1)):
        client.instance_id = instance_id
        assert client.push() == "INVALID_REQUEST"
    client.instance_id = uuid4()
    assert client.push() == "UNKNOWN_SUBSCRIPTION_ID"


def test_subscriptions_match_the_client_library(world: World) -> None:
    name = unique("subscription")
    library = unique("library")
    changes = (
        ("metrics", SET, f"{name}."),
        ("match", SET, f"client_software_name={library},client_software_version=1\\..*"),
    )
    assert alter(world, METRICS, name, *changes) == OK
    mine = wait_until(
        lambda: _asked_for(Client(world, (library, "1.2"))), PATIENCE_S, "the subscription"
    )
    assert mine == (f"{name}.",)
    assert _asked_for(Client(world, (library, "2.1"))) == ()
    assert _asked_for(Client(world)) == ()
    assert alter(world, METRICS, name, ("metrics", DELETE, None), ("match", DELETE, None)) == OK


def _asked_for(client: Client) -> tuple[str, ...]:
    assert client.ask() == OK
    metrics: tuple[str, ...] = client.last.requested_metrics
    return metrics
