"""Clients print nothing that they do not print on Apache Kafka: no failures, no unknown answers, no
lines about the end of a broker that ends after them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients.confluent import PATIENCE_S, create_topic
from tests.peer import java_program
from tests.support import ROOT, unique

pytestmark = [pytest.mark.broker, pytest.mark.slow]

PROGRAMS = ("classic", "consumer", "kafka-python", "aiokafka", "headrace")
"""Clients of tests/clients/quiet_programs.py; the first two are librdkafka's group protocols."""


def stderr_of(*command: str) -> str:
    """Run a command, and return what it writes to stderr."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=2 * PATIENCE_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr


def stderr_of_program(program: str, servers: str, topic: str) -> str:
    script = str(Path(__file__).with_name("quiet_programs.py"))
    return stderr_of(sys.executable, "-W", "ignore", script, program, servers, topic, unique("g"))


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_client_in_python(bootstrap_servers: str, program: str) -> None:
    topic = create_topic(bootstrap_servers, unique("topic"))
    assert stderr_of_program(program, bootstrap_servers, topic) == ""


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_client_beside_a_broker_of_its_own_process(program: str) -> None:
    assert stderr_of_program(program, "embedded", unique("topic")) == ""


@pytest.mark.skipif(
    shutil.which("kcat") is None, reason="kcat is not installed (`scripts/need kcat` does)"
)
def test_kcat(bootstrap_servers: str) -> None:
    topic = create_topic(bootstrap_servers, unique("topic"))
    kcat = f"kcat -q -b {bootstrap_servers}"
    commands = (
        f"seq 100 | {kcat} -P -t {topic} && {kcat} -C -e -o beginning -t {topic} && {kcat} -L"
    )
    assert stderr_of("bash", "-o", "pipefail", "-c", commands) == ""


@pytest.mark.java
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_java(kafka_libs: Path, bootstrap_servers: str, protocol: str) -> None:
    words = (bootstrap_servers, unique("topic"), unique("group"), protocol)
    assert stderr_of(*java_program("ProduceConsume", *words)) == ""
