"""A runner of our commands, a topic whose records have known times, and errors of futures."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from headrace.cli.main import main
from tests.clients.confluent import PATIENCE_S, create_topic
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


def code_of(future: Future[Any]) -> int:
    """Return the error code of a failed future."""
    with pytest.raises(KafkaException) as raised:
        future.result(PATIENCE_S)
    return raised.value.args[0].code()
