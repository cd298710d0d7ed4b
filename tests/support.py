"""Parts that several suites share: a headrace process under test, free ports, unique names, and
waiting for a condition.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import itertools
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TypeVar

from tests.wire_client import answers

ROOT = Path(__file__).parent.parent
T = TypeVar("T")

RUN_SEED = int(os.environ.setdefault("HEADRACE_TEST_SEED", str(random.randrange(1 << 32))))
"""The seed of all random tests of this run, told in its header. Worker processes inherit it, so
that they collect the same tests.
"""

SOAK_MARK = "HEADRACE_SOAK"
"""The variable by which tests know that this is `make soak`. Its value is the step's own directory,
by which the processes of a step are found.
"""

HANG_S = 120
"""The seconds after which something that usually takes a moment is given up: more than a shared
machine stands still.
"""

SHORT_LIVED_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options for a JVM that lives too short for its best compiler: half the CPU time."""

SPARK_CLASSES = Path(sys.prefix, "spark.jsa")
"""The archive of Spark's classes, which :mod:`tests.spark.class_archive` writes."""

SHORT_LIVED_SPARK = SHORT_LIVED_JVM
"""Options for Spark's JVMs: with the archive of classes half of that CPU time again."""

if SPARK_CLASSES.exists() and " " not in str(SPARK_CLASSES):  # the options are split at spaces
    SHORT_LIVED_SPARK += f" -Xlog:disable -XX:SharedArchiveFile={SPARK_CLASSES}"

COMMON_CONFIGS = {
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "1000",
    # many records of tests are of 1970, and a check of what is too old may come at any time
    "log.retention.ms": "-1",
    # Kafka forgets empty groups then, whatever a test does
    "offsets.retention.check.interval.ms": "86400000",
    "offsets.topic.num.partitions": "5",
    "share.coordinator.state.topic.num.partitions": "5",
    "group.streams.heartbeat.interval.ms": "500",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.min.heartbeat.interval.ms": "500",
    "group.share.assignment.interval.ms": "0",
    "group.share.heartbeat.interval.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "1000",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.min.session.timeout.ms": "5000",
}
"""Configs of both targets of the client and conformance suites."""

_counter = itertools.count()


def is_soak() -> bool:
    """Return whether this is `make soak`."""
    return bool(os.environ.get(SOAK_MARK))


def story(function: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test on its own loop."""
    limit_s = HANG_S * (20 if is_soak() else 1)

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(asyncio.wait_for(function(*args, **kwargs), limit_s))

    return run


async def nothing_is_written(data_dir: Path) -> None:
    """Check that the files of a closed broker stay as they are, whatever its event loop runs."""
    files = _files(data_dir)
    for _ in range(50):
        await asyncio.sleep(0.002)
    assert files == _files(data_dir)


def _files(directory: Path) -> Mapping[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def story_in(
    setting: Callable[[], AbstractAsyncContextManager[Any]],
) -> Callable[..., Callable[..., None]]:
    """Run an async test on its own loop. Its first argument is what ``setting()`` yields."""

    def decorate(play: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
        @story
        @functools.wraps(play)
        async def run(**fixtures: Any) -> None:
            async with setting() as found:
                await play(found, **fixtures)

        signature = inspect.signature(play)
        _, *fixtures = signature.parameters.values()
        run.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return run

    return decorate


def write_properties(file: Path, configs: Mapping[str, object]) -> Path:
    """Write client configs as ``--command-config`` and Kafka's tools read them; return the file."""
    file.write_text("".join(f"{name}={value}\n" for name, value in configs.items()))
    return file


def unique(prefix: str) -> str:
    """Return a topic or group name that no other test, in this run or another, has used."""
    return f"{prefix}-{os.getpid()}-{time.time_ns() % 10**10}-{next(_counter)}"


def wait_until(
    condition: Callable[[], T], timeout_s: float, what: str, interval_s: float = 0.02
) -> T:
    """Poll `condition` until it is true and return its value; AssertionError naming `what` after
    `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"waited {timeout_s:g} s in vain for {what}"
        time.sleep(interval_s)


SERVER_PORTS = range(15_000, 32_000)
"""Ports that the kernel gives to no client on its own, so that a free one is still free when a
server starts a moment later.
"""


def free_port_pair(*besides: int) -> int:
    """Return a free port whose successor is free too, and no pair that begins with one of
    `besides`.
    """
    chance = random.SystemRandom()
    while True:
        port = chance.choice(SERVER_PORTS)
        if any(abs(port - taken) < 2 for taken in besides):
            continue
        with socket.socket() as first, socket.socket() as second:
            try:
                first.bind(("127.0.0.1", port))
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port


class HeadraceProcess:
    """`headrace serve` in a process of its own.

    `data_dir` None means --ephemeral. `port` 0 picks a free port at each start; after `start`,
    `port` is the real one. `output` has the lines that the process has written.
    """

    name = "headrace"
    command = (sys.executable, "-m", "headrace", "serve")

    def __init__(
        self,
        data_dir: Path | None = None,
        configs: Mapping[str, str] | None = None,
        port: int = 0,
        preexec_fn: Callable[[], None] | None = None,
    ) -> None:
        self.data_dir = data_dir
        self.configs = dict(configs or {})
        self.port = port
        self.output: list[str] = []
        self.process: subprocess.Popen[str] | None = None
        self._preexec_fn = preexec_fn
        """Runs in the new process first: a limit under test."""
        self.ready = threading.Event()

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def address(self, listener: str) -> str:
        """Return host and port of a listener of its own name."""
        ready = [line for line in self.output if line.startswith("headrace is listening on ")]
        return ready[-1].partition(f"{listener}://")[2].partition(",")[0]

    @staticmethod
    def environment() -> dict[str, str]:
        """Return the environment in which `command` finds this checkout's source."""
        path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
        return {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}

    def spawn(self) -> subprocess.Popen[str]:
        """Start the process without waiting for anything."""
        where = ["--ephemeral"] if self.data_dir is None else ["--data-dir", str(self.data_dir)]
        options = [option for k, v in self.configs.items() for option in ("-c", f"{k}={v}")]
        # a new one: the reader of an earlier process may still set its own
        self.ready = threading.Event()
        self.process = subprocess.Popen(
            [*self.command, "--listen", f"127.0.0.1:{self.port}", *where, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.environment(),
            preexec_fn=self._preexec_fn,
        )
        threading.Thread(target=self._read, args=(self.process, self.ready), daemon=True).start()
        return self.process

    def _read(self, process: subprocess.Popen[str], ready: threading.Event) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.output.append(line.rstrip("\n"))
            if line.startswith("headrace is listening on "):
                self._take_addresses(line)
                ready.set()
        ready.set()

    def _take_addresses(self, line: str) -> None:
        """Note the port in the line that says where the process listens."""
        self.port = int(line.rsplit(":", 1)[1])

    def start(self, timeout_s: float = 90) -> HeadraceProcess:
        """Start it and wait for its readiness line."""
        process = self.spawn()
        deadline = time.monotonic() + timeout_s
        if self.ready.wait(timeout_s):
            while process.poll() is None and time.monotonic() < deadline:
                if answers("127.0.0.1", self.port):  # it may be busy with clients that come back
                    return self
        self.kill()
        raise RuntimeError("headrace did not start:\n" + "\n".join(self.output[-40:]))

    def problems(self) -> list[str]:
        """Return the warnings and errors that it has written, except those about a busy machine."""
        return [
            line
            for line in self.output
            if ("WARN" in line or "ERROR" in line) and "headrace.loop" not in line
        ]

    def kill(self) -> None:
        """Kill it."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    def stop(self, timeout_s: float = 10) -> int:
        """Stop it with SIGTERM and return its exit status; TimeoutExpired (after SIGKILL) when it
        does not stop.
        """
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
        return self.process.returncode

    def __enter__(self) -> HeadraceProcess:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.stop()


def set_quotas(servers: str, entity: Mapping[str, str | None], **values: float | None) -> None:
    """Set the quotas of an entity of a broker without logins."""
    from headrace.client import Cluster
    from headrace.client.security import alter_quotas
    from headrace.security.quota_entities import entity_of

    async def alter() -> None:
        async with Cluster(servers) as cluster:
            outcomes = await alter_quotas(cluster, {entity_of(dict(entity)): values})
            assert list(outcomes.values()) == [None]

    asyncio.run(alter())
