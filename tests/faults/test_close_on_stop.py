"""Java share consumers that hold records and are closed while their only broker stops.

A Java share consumer that has noticed for some 0.2 s that its only broker is gone waits for its
whole timeout when it is closed, with Apache Kafka too: 30 s, here 10 s. The broker closes its
connections as the last thing before its process ends, so that a close right after the end is quick.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.conformance.world import OK, Group, World
from tests.peer import java_program
from tests.support import COMMON_CONFIGS, HeadraceProcess, unique

pytestmark = [pytest.mark.broker, pytest.mark.java, pytest.mark.slow, pytest.mark.measured]

CONSUMERS, RECORDS = 6, 5
QUICK_MS = 5_000
CONFIGS = {name: value for name, value in COMMON_CONFIGS.items() if "heartbeat" not in name}


@pytest.mark.parametrize("closes_first", [True, False])
def test_closing_while_the_broker_stops(
    kafka_libs: Path, tmp_path: Path, closes_first: bool
) -> None:
    server = HeadraceProcess(tmp_path / "data", CONFIGS).start()
    world = World(server.bootstrap_servers, "headrace")
    topic, prefix = world.topic(records=RECORDS), unique("group")
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
        if closes_first:
            java.stdin.write("\n")
            java.stdin.flush()
        assert server.stop(timeout_s=10) == 0
        seen, _ = java.communicate("\n", timeout=120)
        took = dict(line.split() for line in seen.splitlines())
        assert java.returncode == 0
        assert int(took["quickest"]) < QUICK_MS
    server.start()
    try:
        world = World(server.bootstrap_servers, "headrace")
        member = Group(world, f"{prefix}0").join(topic)
        assert member.fetch() == f"0-{RECORDS - 1} c2"
        world.close()
    finally:
        server.stop()
