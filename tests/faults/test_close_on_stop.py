"""Java share consumers that hold records and are closed while, or after, their only broker stops.

A Java share consumer of 4.4 that has noticed that its only broker is gone closes at once, with
Apache Kafka too. Those of 4.3 wait for their whole timeout, 30 s by default: they forget the
addresses of the brokers, and wait for one to end their share session with. So the broker closes its
connections as the last thing before its process ends: a close right after the end is quick with
both.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from tests.conformance.world import OK, Group, Topic, World
from tests.peer import KafkaPeer, java_program
from tests.support import COMMON_CONFIGS, HeadraceProcess, unique

pytestmark = [pytest.mark.broker, pytest.mark.java, pytest.mark.slow, pytest.mark.measured]

CONSUMERS, RECORDS = 6, 5
QUICK_MS = 5_000
NOTICED_S = 2.0
"""The time after which every consumer has noticed that its broker is gone."""
CONFIGS = {name: value for name, value in COMMON_CONFIGS.items() if "heartbeat" not in name}


class Consumers:
    """Share consumers of a running Java program, each of which holds all records of a topic."""

    def __init__(self, topic: Topic, java: subprocess.Popen[str], ask: IO[str]) -> None:
        self.topic = topic
        self._java = java
        self._ask = ask

    def begin_to_close(self) -> None:
        """Close them all at once."""
        self._ask.write("\n")
        self._ask.flush()

    def took_ms(self) -> dict[str, int]:
        """Close them unless that has begun; return how long the quickest and the slowest took."""
        seen, _ = self._java.communicate("\n", timeout=120)
        assert self._java.returncode == 0
        return {word: int(took) for word, took in map(str.split, seen.splitlines())}


@contextmanager
def consumers(server: HeadraceProcess | KafkaPeer, kind: str, prefix: str) -> Iterator[Consumers]:
    """Start consumers of one topic with records, each in a group of its own."""
    world = World(server.bootstrap_servers, kind)
    world.warm_up()
    topic = world.topic(records=RECORDS)
    for number in range(CONSUMERS):
        group = Group(world, f"{prefix}{number}")
        assert group.configure("share.auto.offset.reset", "earliest") == OK
    with subprocess.Popen(
        java_program("CloseShare", server.bootstrap_servers, topic.name, prefix, str(CONSUMERS)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as java:
        assert java.stdin is not None
        assert java.stdout is not None
        assert java.stdout.readline() == f"held {[RECORDS] * CONSUMERS}\n"
        world.close()
        yield Consumers(topic, java, java.stdin)


@pytest.mark.parametrize("closes_first", [True, False])
def test_closing_while_the_broker_stops(
    kafka_libs: Path, tmp_path: Path, closes_first: bool
) -> None:
    server = HeadraceProcess(tmp_path / "data", CONFIGS).start()
    prefix = unique("group")
    with consumers(server, "headrace", prefix) as closing:
        if closes_first:
            closing.begin_to_close()
        assert server.stop(timeout_s=10) == 0
        assert closing.took_ms()["quickest"] < QUICK_MS
    server.start()
    try:
        world = World(server.bootstrap_servers, "headrace")
        member = Group(world, f"{prefix}0").join(closing.topic)
        assert member.fetch() == f"0-{RECORDS - 1} c2"
        world.close()
    finally:
        server.stop()


@pytest.mark.parametrize("kind", ["headrace", pytest.param("kafka", marks=pytest.mark.kafka)])
def test_closing_after_the_broker_has_gone(kafka_libs: Path, tmp_path: Path, kind: str) -> None:
    """Kafka's ShareConsumerTest.testConsumerCloseOnBrokerShutdown closes a consumer that has no
    share session yet.
    """
    broker = KafkaPeer if kind == "kafka" else HeadraceProcess
    with (
        broker(tmp_path / "data", CONFIGS) as server,
        consumers(server, kind, unique("group")) as closing,
    ):
        server.stop()
        time.sleep(NOTICED_S)
        assert closing.took_ms()["slowest"] < QUICK_MS
