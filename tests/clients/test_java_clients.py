"""The Java clients: programs of one file each, run by `java -cp`."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.peer import OLDER_CLIENTS, VERSION, java_program

pytestmark = [pytest.mark.java, pytest.mark.slow]

versions = pytest.mark.parametrize("version", [VERSION, OLDER_CLIENTS])


def run_java(version: str, program: str, *args: str) -> dict[str, str]:
    """Run a program; return its output by the first word of each line."""
    command = java_program(program, *args, version=version)
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)


@versions
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_producer_consumer_and_admin(
    kafka_libs: Path,
    bootstrap_servers: str,
    topic_name: str,
    group_id: str,
    protocol: str,
    version: str,
) -> None:
    seen = run_java(version, "ProduceConsume", bootstrap_servers, topic_name, group_id, protocol)
    assert seen == {
        "produced": "500",
        "consumed": "500 right true codecs {gzip=100, lz4=100, none=100, snappy=100, zstd=100}",
        "note": "note",
        "resumed": "200",
        "sought": "42",
        "range": "0..250",
        "at": "151",
        "beyond": "null",
        "lag": "0",
        "shared": "1+1",
        "revoked": "true taken over 2",
        "committed": "{0=200, 1=250}",
    }


@versions
def test_share_consumer_and_admin(
    kafka_libs: Path, bootstrap_servers: str, topic_name: str, group_id: str, version: str
) -> None:
    seen = run_java(version, "ShareQueue", bootstrap_servers, topic_name, group_id)
    assert seen == {
        "lock": "30000",
        "assigned": "2",
        "explicit": "30 right true acknowledged 30 failures 0",
        "implicit": "[30, 31, 32, 33, 34, 35, 36, 37, 38, 39] records 10",
        "state": "Empty members 0",
        "lags": "{0=0, 1=0}",
    }
