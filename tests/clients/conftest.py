"""A runner of our commands, a secured broker, and a topic whose records have known times."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Producer

from headrace.cli.main import main
from headrace.secure_broker import SecureBroker
from tests.clients.confluent import PATIENCE_S, create_topic
from tests.secure_kafka import SecureKafka
from tests.support import unique

Run = Callable[..., list[str]]
"""``run(*arguments, status=0)`` runs the command of a module and returns its lines, stderr last."""


@pytest.fixture
def run(
    request: pytest.FixtureRequest, bootstrap_servers: str, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Run the command that the module names with COMMAND, such as "lag show", and check its exit
    status. A failure must print a line on stderr that begins with the command's name.
    """
    command: str = request.module.COMMAND

    def call(*arguments: str, status: int = 0) -> list[str]:
        capsys.readouterr()
        ended = main([*command.split(), *arguments, "--bootstrap-server", bootstrap_servers])
        printed = capsys.readouterr()
        assert ended == status, printed
        if status:
            assert printed.err.splitlines()[-1].startswith(f"headrace {command}: ")
        return [*printed.out.splitlines(), *printed.err.splitlines()]

    return call


def objects(lines: list[str]) -> list[dict[str, Any]]:
    """Return the printed JSON, which precedes the lines of stderr."""
    found, _ = json.JSONDecoder().raw_decode("\n".join(lines))
    assert isinstance(found, list)
    return found


@pytest.fixture(scope="module")
def secured(request: pytest.FixtureRequest, target: str) -> Iterator[dict[str, str]]:
    """The client configuration of a broker with SASL_SSL, in Kafka's names."""
    if target == "headrace":
        with SecureBroker() as broker:
            yield broker.client_config()
    else:
        secure: SecureKafka = request.getfixturevalue("secure_kafka")
        yield {
            "bootstrap.servers": secure.sasl_tls,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "ann",
            "sasl.password": "s3cret",
            "ssl.ca.location": str(secure.folder / "ca.pem"),
        }


@pytest.fixture
def topic(bootstrap_servers: str) -> str:
    """A topic with ten records in partition 0, one for each hour of a day, and an empty partition
    1.
    """
    name = create_topic(bootstrap_servers, unique("topic"), partitions=2)
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for hour in range(10):
        at_ms = int(datetime(2026, 6, 1, hour, tzinfo=UTC).timestamp() * 1000)
        producer.produce(name, b"x", partition=0, timestamp=at_ms)
    assert producer.flush(PATIENCE_S) == 0
    return name
