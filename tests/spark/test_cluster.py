"""A cluster whose executors, workers and drivers are killed loses no record.

The applications are submitted as docs/spark/running.md has it, with a packed environment. All
share a folder, with the checkpoints. `make test` kills a process of each kind once, and `make soak`
in every phase of a micro-batch, with two applications in one share group.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet
import pytest

from tests.spark.application import kill_session
from tests.spark.conftest import Queue
from tests.spark.standalone import StandaloneCluster, pack_environment
from tests.spark.test_worker_check import OLDER_PYARROW, WITHOUT_HEADRACE
from tests.support import ROOT, is_soak, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]

PHASES = ("acquired", "read", "sunk", "acknowledged")
VICTIMS = ("executor", "worker", "driver")
ROUNDS = range(len(PHASES)) if is_soak() else [0]
"""The phase in which the first victim dies. Each later victim dies in the phase after that."""
APPLICATIONS = 2 if is_soak() else 1
RECORDS = 300
TIMEOUT_S = 600


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with StandaloneCluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder in which applications are submitted: with the environment."""
    folder = tmp_path_factory.mktemp("home")
    pack_environment(folder)
    return folder


def documented_command() -> str:
    """Return the command of docs/spark/running.md that submits an application."""
    page = (ROOT / "docs/spark/running.md").read_text()
    found = re.search(r"^PYSPARK_PYTHON=\S+ spark-submit.*?(?=^```)", page, re.M | re.S)
    assert found is not None
    return found[0]


class Application:
    """An application that is submitted, and submitted again after it was killed.

    :param folder: shared with the executors
    """

    def __init__(self, cluster: StandaloneCluster, home: Path, queue: Queue, folder: Path) -> None:
        self.folder = folder
        self._cluster = cluster
        self._home = home
        self._queue = queue
        self._driver: subprocess.Popen[str] | None = None

    def submit(self) -> None:
        queue = self._queue
        program = [ROOT / "tests/spark/enrich.py", queue.bootstrap_servers, queue.topic]
        words = map(str, [*program, queue.group_id, self.folder])
        command = documented_command().replace("spark://HOST:7077", self._cluster.url)
        self._driver = self._cluster.submit(
            command.replace("enrich.py", " ".join(words)), self._home, self.folder / "driver.log"
        )

    def hold(self, phase: str) -> None:
        """Let the queries stay in a phase when they reach it."""
        (self.folder / f"hold-{phase}").touch()

    def release(self, phase: str) -> None:
        (self.folder / f"hold-{phase}").unlink()

    def wait_for(self, phase: str) -> int:
        """Wait until a query has reached a phase; return the process that is in it."""
        reached = self.folder / f"reached-{phase}"
        return int(wait_until(lambda: self._runs() and _text(reached), TIMEOUT_S, reached.name))

    def kill(self) -> None:
        """Kill all processes of the driver."""
        assert self._driver is not None
        kill_session(self._driver)

    def wait(self) -> None:
        """Wait until the application has ended by itself."""
        assert self._driver is not None
        assert self._driver.wait(TIMEOUT_S) == 0, self._log()

    def events(self, *names: str) -> list[dict[str, Any]]:
        """Return the lines of the journal with some events."""
        lines = map(json.loads, (self.folder / "journal").read_text().splitlines())
        return [line for line in lines if line["event"] in names]

    def merged(self) -> list[int]:
        """Return the values of the files that the ordered query has committed."""
        files = {
            json.loads(line)["path"].removeprefix("file://")
            for log in (self.folder / "merged/_spark_metadata").glob("[0-9]*")
            for line in log.read_text().splitlines()[1:]
        }
        tables = map(pyarrow.parquet.read_table, sorted(files))
        return sorted(int(value) for table in tables for value in table["value"].to_pylist())

    def _runs(self) -> bool:
        assert self._driver is not None
        assert self._driver.poll() is None, self._log()
        return True

    def _log(self) -> str:
        return (self.folder / "driver.log").read_text()[-4000:]


@pytest.mark.parametrize("first_phase", ROUNDS)
def test_kills(
    cluster: StandaloneCluster,
    home: Path,
    queue: Callable[..., Queue],
    tmp_path: Path,
    first_phase: int,
) -> None:
    """Records are delivered at least once, and never again when they have been accepted.

    The files of an ordered query have each record once.
    """
    flights = queue(RECORDS, partitions=2)
    applications = []
    for number in range(APPLICATIONS):
        folder = tmp_path / f"application-{number}"
        folder.mkdir()
        (tmp_path / "journal").touch()
        (folder / "journal").symlink_to(tmp_path / "journal")
        applications.append(Application(cluster, home, flights, folder))
    first = applications[0]
    plan = {victim: PHASES[(first_phase + n) % 4] for n, victim in enumerate(VICTIMS)}
    for phase in ("merged", *plan.values()):
        first.hold(phase)
    first.submit()
    first.wait_for("merged")

    for victim, phase in sorted(plan.items(), key=lambda item: PHASES.index(item[1])):
        process_id = first.wait_for(phase)
        if victim == "executor":
            executor_of(process_id, cluster).kill()
        elif victim == "worker":
            next(worker for worker in cluster.workers if worker.executors()).kill()
            cluster.add_worker()
        else:
            first.kill()
            first.release("merged")
        if victim == "driver":
            for application in applications:
                application.submit()
        first.release(phase)
    for application in applications:
        application.wait()

    for event in first.events("failed"):
        print(event["query"], event["error"].partition("=== Streaming Query ===")[0])
    assert len(first.events("ended")) == 2 * APPLICATIONS
    for application in applications:
        assert application.merged() == list(range(RECORDS))
    deliveries = first.events("delivered", "accepted")
    check_deliveries(deliveries)
    if plan["driver"] != "acknowledged":
        assert any(count > 1 for event in deliveries for *_, count in event["rows"])
    assert flights.is_drained()
    pythons = {line["python"] for line in first.events("task")}
    homes = {Path(line["headrace"]).resolve() for line in first.events("task")}
    assert all(python.endswith("environment/bin/python") for python in pythons)
    assert not [path for path in homes if path.is_relative_to(home) or path.is_relative_to(ROOT)]


EXECUTOR_MISTAKES: dict[str, tuple[str, str]] = {
    "no headrace": (WITHOUT_HEADRACE, "has no headrace[spark] (No module named 'headrace'): let"),
    "older pyarrow": (OLDER_PYARROW, "is older than 18: let this Python have headrace[spark]"),
    "unreachable brokers": (
        """
import socket

def refuse(self, address, connect=socket.socket.connect):
    if {is_executor} and address == {address}:
        raise ConnectionRefusedError(111, "Connection refused")
    return connect(self, address)

socket.socket.connect = refuse
""",
        "): executors connect to the brokers themselves, at the addresses that these advertise",
    ),
}
"""What the Python of executors runs first, and a part of the line that says what to change."""


@pytest.mark.skipif(not is_soak(), reason="test_worker_check.py is the short form")
def test_mistakes_that_executors_see(
    cluster: StandaloneCluster, home: Path, queue: Callable[..., Queue], tmp_path: Path
) -> None:
    flights = queue(4, partitions=1)
    pythons = {
        name: _python_with(code, tmp_path / name.replace(" ", "-"), flights.bootstrap_servers)
        for name, (code, _) in EXECUTOR_MISTAKES.items()
    }
    pythons["no Python"] = Path("environment/bin/python")  # there is no --archives
    journal = tmp_path / "journal"
    words = [flights.bootstrap_servers, flights.topic, str(journal)]
    words += [f"{name}={python}" for name, python in pythons.items()]
    confs = {
        "spark.pyspark.python": "./environment/bin/python",
        "spark.task.maxFailures": "1",
    }
    command = ["PYSPARK_PYTHON=./environment/bin/python", "spark-submit", "--master", cluster.url]
    command += [word for conf in confs.items() for word in ("--conf", "=".join(conf))]
    command += [str(ROOT / "tests/spark/executor_mistakes.py"), *words]
    driver = cluster.submit(shlex.join(command), home, tmp_path / "driver.log")
    assert driver.wait(TIMEOUT_S) == 0, (tmp_path / "driver.log").read_text()[-4000:]
    said = {line["name"]: line["text"] for line in map(json.loads, journal.open())}
    expected = {name: text for name, (_, text) in EXECUTOR_MISTAKES.items()}
    expected["no Python"] = 'Cannot run program "environment/bin/python"'
    for name, text in expected.items():
        before, found, _ = said[name].partition(text)
        assert found, said[name]
        assert "\tat " not in before, said[name]
    assert f"no broker answers at {flights.bootstrap_servers}" in said["unreachable brokers"]


def _python_with(code: str, folder: Path, bootstrap_servers: str) -> Path:
    """Return a Python that runs some code first, in executors."""
    host, port = bootstrap_servers.split(":")
    site = folder / "sitecustomize.py"
    folder.mkdir()
    is_executor = "'/worker-' in __import__('os').getcwd()"  # a folder of a StandaloneCluster
    for name, value in {"is_executor": is_executor, "address": repr((host, int(port)))}.items():
        code = code.replace(f"{{{name}}}", value)
    if is_executor not in code:
        code = f"import sys\nif {is_executor}:\n" + textwrap.indent(code, "    ")
    site.write_text(code)
    python = folder / "python"
    path = os.pathsep.join([str(folder), str(ROOT / "src")])
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{path}:$PYTHONPATH" exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return python


def check_deliveries(events: list[dict[str, Any]]) -> None:
    """Check that all records are delivered and accepted, and none after it has been accepted."""
    delivered: set[tuple[int, int]] = set()
    accepted: set[tuple[int, int]] = set()
    for event in events:
        records = {(partition, offset) for partition, offset, _ in event["rows"]}
        if event["event"] == "accepted":
            accepted |= records
        else:
            assert not records & accepted
            delivered |= records
    assert len(delivered) == RECORDS


def executor_of(process_id: int, cluster: StandaloneCluster) -> psutil.Process:
    """Return the executor that runs a Python process; any, if it is one of the driver."""
    executors = {one.pid: one for worker in cluster.workers for one in worker.executors()}
    parents = psutil.Process(process_id).parents()
    found = [executors[parent.pid] for parent in parents if parent.pid in executors]
    return (found or list(executors.values()))[0]


def _text(file: Path) -> str:
    return file.read_text() if file.exists() else ""
