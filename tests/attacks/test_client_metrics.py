"""Clients that push metrics made to take memory or time."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID, uuid4

import pytest

from headrace.errors import ErrorCode
from headrace.protocol.compression import ZSTD, compress
from tests.attacks.harness import MIB, watching
from tests.conformance.test_config_resources import METRICS, SET, alter
from tests.conformance.world import OK, World
from tests.machines.otlp import field, gauge, point, pushed
from tests.support import HeadraceProcess
from tests.wire_client import Connection

pytestmark = [pytest.mark.broker]

REFUSED = {ErrorCode.INVALID_RECORD, ErrorCode.TELEMETRY_TOO_LARGE}


def push(connection: Connection, metrics: bytes, codec: int) -> int:
    """Push metrics as a new client instance; return the error code."""
    asked = connection.ask(71, 0, client_instance_id=None)
    assert asked.error_code == 0
    return int(
        connection.ask(
            72,
            0,
            client_instance_id=asked.client_instance_id,
            subscription_id=asked.subscription_id,
            terminating=False,
            compression_type=codec,
            metrics=metrics,
        ).error_code
    )


def test_hostile_pushes_take_no_memory(tmp_path: Path) -> None:
    empty_metrics = field(1, field(2, b"\x12\x00" * 500_000))
    bomb = compress(ZSTD, bytes(512 * MIB))
    garbage = b"\xff" * (MIB - 100)
    with HeadraceProcess(tmp_path / "data") as broker:
        connection = Connection(broker.bootstrap_servers, client_id="\N{GRINNING FACE}" * 8000)
        push(connection, pushed(gauge("org.apache.kafka.x", point(1))), 0)
        with watching(broker) as watch:
            for _ in range(5):
                for metrics, codec in ((empty_metrics, 0), (garbage, 0), (bomb, ZSTD)):
                    assert push(connection, metrics, codec) in REFUSED
        connection.close()
    assert watch.grown_bytes < 24 * MIB
    assert not watch.honest.errors


def test_series_and_instances_are_limited(tmp_path: Path) -> None:
    name = "org.apache.kafka." + "x" * 200
    with HeadraceProcess(tmp_path / "data") as broker:
        world = World(broker.bootstrap_servers, "headrace")
        assert (
            alter(world, METRICS, "all", ("metrics", SET, "*"), ("interval.ms", SET, "100")) == OK
        )
        connection = Connection(broker.bootstrap_servers, client_id="c")
        push(connection, pushed(gauge("org.apache.kafka.x", point(1))), 0)
        with watching(broker) as watch:
            for client in range(60):
                points = (
                    gauge(f"{name}{client}.{number}", point(1, a="\N{GRINNING FACE}" * 150))
                    for number in range(600)
                )
                assert push(connection, compress(ZSTD, pushed(*points)), ZSTD) == 0
            for _ in range(2000):
                unknown = connection.ask(71, 0, client_instance_id=uuid4())
                assert unknown.client_instance_id not in (None, UUID(int=0))
        connection.close()
        world.close()
    assert watch.grown_bytes < 70 * MIB
    assert not watch.honest.errors
