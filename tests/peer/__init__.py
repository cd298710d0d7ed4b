"""A real Apache Kafka beside headrace, started by the script of the same folder."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

import psutil

from tests.support import free_port_pair, wait_until
from tests.wire_client import answers

SCRIPT = Path(__file__).parent / "kafka"
VERSION = os.environ.get("KAFKA_VERSION", "4.4.0")
OLDER_CLIENTS = "4.3.1"
"""Clients that know no newer version of an API; with Kafka Connect and MirrorMaker."""


@functools.cache
def jars(which: str = "jars") -> Path:
    """Return the folder of Kafka's jars, which are fetched on first use.

    :param which: ``spark-jars`` for those of Spark's own source and sink
    """
    out = subprocess.run([SCRIPT, which], check=True, stdout=subprocess.PIPE, text=True)
    return Path(out.stdout.strip())


def run_tool(
    tool_class: str, *args: str, stdin: str = "", check: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's command-line tools to its end.

    :raises CalledProcessError: it failed, with ``check``
    """
    return subprocess.run(
        [SCRIPT, "tool", tool_class, *args],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=check,
    )


def java_program(
    name: str, *args: str, options: Iterable[str] = (), version: str = VERSION
) -> list[str]:
    """Return the command that runs a class of ``tests/clients/java`` or of Kafka, in the process
    itself.

    :param options: of the Java virtual machine
    :param version: of Kafka's jars
    """
    jars_of = [] if version == VERSION else ["env", "-u", "KAFKA_LIBS", f"KAFKA_VERSION={version}"]
    return [*jars_of, str(SCRIPT), "program", *options, name, *args]


class KafkaPeer:
    """One single-node Apache Kafka with its files in `directory`, on a free loopback port."""

    name = f"Apache Kafka {VERSION}"

    def __init__(
        self, directory: Path, configs: Mapping[str, str] | None = None, heap: str = "1g"
    ) -> None:
        self.directory = directory
        self.configs = dict(configs or {})
        self.heap = heap
        self.port = free_port_pair()
        self.pid: int | None = None

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> KafkaPeer:
        """Start it and wait until it answers requests."""
        up = subprocess.Popen(
            [
                SCRIPT,
                "up",
                str(self.port),
                str(self.directory),
                *(f"{k}={v}" for k, v in self.configs.items()),
            ],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "KAFKA_HEAP": self.heap},
        )
        out, _ = up.communicate()
        if up.returncode:
            raise RuntimeError(f"Apache Kafka did not start; see {self.directory}/broker.log")
        self.pid = int(out.split()[-1])
        wait_until(lambda: answers("127.0.0.1", self.port), 60, "Kafka to answer ApiVersions")
        return self

    def stop(self, timeout_s: float = 30) -> None:
        """Stop it with SIGTERM, and after `timeout_s` with SIGKILL."""
        if self.pid is None:
            return
        try:
            process = psutil.Process(self.pid)
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout_s)
            except psutil.TimeoutExpired:
                process.kill()
                process.wait(10)
        except psutil.NoSuchProcess:
            pass
        self.pid = None

    def kill(self) -> None:
        """Kill it."""
        assert self.pid is not None
        process = psutil.Process(self.pid)
        process.kill()
        process.wait(10)
        self.pid = None

    def __enter__(self) -> KafkaPeer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
