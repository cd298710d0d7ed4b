"""A Spark Connect server, and a client process of its own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyspark

from tests.spark.application import SHORT_LIVED, python_environment
from tests.support import ROOT, wait_until

_START_TIMEOUT_S = 180
_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
_STARTED = re.compile(r"Spark Connect server started at: \S+:(\d+)")


class ClientError(Exception):
    """An error that the client has seen. Its text is that of the exception."""


@dataclass(frozen=True)
class ConnectServer:
    """A server with a temporary directory of its own.

    :param url: for clients
    :param folder: its temporary directory, and its log
    """

    url: str
    folder: Path

    @contextmanager
    def client(self) -> Iterator[ConnectClient]:
        """Yield a client process."""
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.connect_client", self.url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**python_environment(), "TMPDIR": "/nonexistent"},
        )
        try:
            yield ConnectClient(process)
            process.communicate(timeout=60)
        finally:
            process.kill()
            process.wait()


@dataclass(frozen=True)
class ConnectClient:
    """A client process: see `tests/spark/connect_client.py`."""

    process: subprocess.Popen[str]

    def __call__(self, command: str, *arguments: Any, **keywords: Any) -> Any:
        """Return the result of a command.

        :raises ClientError: the command has failed
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([command, arguments, keywords]) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if "error" in answer:
            raise ClientError(answer["error"])
        return answer["result"]


@contextmanager
def connect_server(folder: Path, cores: int = 2, **environment: str) -> Iterator[ConnectServer]:
    """Run a Connect server.

    :param folder: an empty directory
    :param environment: variables of the server and its Python workers
    """
    log_path = folder / "server.log"
    temporary = folder / "tmp"
    temporary.mkdir()
    options = {
        **SHORT_LIVED,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.local.dir": str(temporary),
    }
    home = Path(pyspark.__file__).parent
    command = [
        str(home / "bin" / "spark-submit"),
        "--master",
        f"local[{cores}]",
        "--class",
        _SERVER,
    ]
    for name, value in options.items():
        command += ["--conf", f"{name}={value}"]
    with log_path.open("w") as log:
        server = subprocess.Popen(
            [*command, "spark-internal"],
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**python_environment(), "SPARK_HOME": str(home), "TMPDIR": str(temporary)}
            | environment,
        )
    try:

        def port() -> str | None:
            assert server.poll() is None, log_path.read_text()
            found = _STARTED.search(log_path.read_text())
            return found[1] if found else None

        wait_until(port, _START_TIMEOUT_S, "the Spark Connect server")
        yield ConnectServer(f"sc://127.0.0.1:{port()}", folder)
    finally:
        workers = psutil.Process(server.pid).children(recursive=True)
        server.terminate()
        server.wait(60)
        for worker in workers:
            if worker.is_running():
                worker.terminate()
