"""The parts of an attack: the broker's memory, an honest client beside it, and rude sockets.

::

    with HeadraceProcess(tmp_path) as broker, watching(broker) as watch:
        with pipelined(broker.bootstrap_servers, frames):
            time.sleep(3)
    assert watch.peak_bytes < 200 * MIB
    assert watch.honest.p99_ms < 100
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tests.support import ROOT, HeadraceProcess, unique, wait_until
from tests.wire_client import batch, connection, request_frame

MIB = 1 << 20
PRODUCE, FETCH, METADATA = 0, 1, 3
FETCH_VERSION, METADATA_VERSION = 4, 4


class Victim(Protocol):
    """A broker under attack: headrace, or a real Kafka to compare with."""

    @property
    def bootstrap_servers(self) -> str:
        """Host and port."""

    @property
    def pid(self) -> int:
        """Its process."""


# Memory -------------------------------------------------------------------------------------------


def _status_bytes(pid: int, name: str) -> int:
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        for line in file:
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    raise AssertionError(f"no {name} of process {pid}")


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    return _status_bytes(pid, "VmRSS")


def peak_bytes(pid: int) -> int:
    """Return the largest resident memory since the start, or since :func:`forget_peak`."""
    return _status_bytes(pid, "VmHWM")


def forget_peak(pid: int) -> None:
    """Measure the peak from now on."""
    with open(f"/proc/{pid}/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


def open_files(pid: int) -> int:
    """Return the number of open file descriptors of a process."""

    return len(os.listdir(f"/proc/{pid}/fd"))


# The honest client --------------------------------------------------------------------------------


@dataclass
class Honest:
    """An honest client's latencies in milliseconds, sorted, and the errors that it got."""

    latencies_ms: list[float] = field(default_factory=list, repr=False)
    errors: list[str] = field(default_factory=list)

    def _quantile(self, part: float) -> float:
        assert self.latencies_ms, f"the honest client got no answer: {self.errors}"
        last = len(self.latencies_ms) - 1
        return self.latencies_ms[min(last, int(part * len(self.latencies_ms)))]

    @property
    def median_ms(self) -> float:
        return self._quantile(0.5)

    @property
    def p99_ms(self) -> float:
        return self._quantile(0.99)

    @property
    def worst_ms(self) -> float:
        return self._quantile(1)

    def __str__(self) -> str:
        return (
            f"{len(self.latencies_ms)} produced, median {self.median_ms:.1f} ms, "
            f"p99 {self.p99_ms:.1f} ms, worst {self.worst_ms:.1f} ms, {len(self.errors)} errors"
        )


class HonestProducer:
    """An honest producer in a process of its own, see ``honest.py``."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.attacks.honest", bootstrap_servers, topic],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=HeadraceProcess.environment(),
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line == "ready\n", f"the honest client did not start: {line!r}"

    def stop(self) -> Honest:
        """Stop it and return what it saw."""
        output, _ = self._process.communicate()
        seen = json.loads(output)
        return Honest(sorted(seen["latencies_ms"]), seen["errors"])


@dataclass
class Watch:
    """Measurements during an attack; complete when :func:`watching` has ended.

    :ivar before_bytes: resident memory before the attack
    :ivar peak_bytes: the largest resident memory
    :ivar after_bytes: resident memory at the end
    """

    before_bytes: int = 0
    peak_bytes: int = 0
    after_bytes: int = 0
    honest: Honest = field(default_factory=Honest)

    @property
    def grown_bytes(self) -> int:
        """The growth of the resident memory at its peak."""
        return self.peak_bytes - self.before_bytes

    def __str__(self) -> str:
        return (
            f"memory {self.before_bytes / MIB:.0f} MiB before, {self.peak_bytes / MIB:.0f} at the "
            f"peak, {self.after_bytes / MIB:.0f} after; honest: {self.honest}"
        )


@contextlib.contextmanager
def watching(broker: Victim, settle_s: float = 0.5) -> Iterator[Watch]:
    """Measure the broker's memory and an honest producer's latencies. Print them at the end, for
    ``pytest -s`` and failures.

    :param settle_s: the time before and after the attack
    """
    topic = unique("honest")
    with connection(broker.bootstrap_servers) as client:
        client.create_topic(topic)
    honest = HonestProducer(broker.bootstrap_servers, topic)
    watch = Watch()
    try:
        time.sleep(settle_s)
        watch.before_bytes = resident_bytes(broker.pid)
        forget_peak(broker.pid)
        yield watch
        time.sleep(settle_s)
        watch.peak_bytes = peak_bytes(broker.pid)
        watch.after_bytes = resident_bytes(broker.pid)
    finally:
        watch.honest = honest.stop()
        print(f"\n{watch}", flush=True)


# Rude sockets -------------------------------------------------------------------------------------


def connect(bootstrap_servers: str, receive_buffer_bytes: int | None = None) -> socket.socket:
    """Connect; a small receive buffer makes a client that does not read felt at once."""
    host, port = bootstrap_servers.rsplit(":", 1)
    sock = socket.socket()
    if receive_buffer_bytes is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    sock.settimeout(60)
    sock.connect((host, int(port)))
    return sock


@contextlib.contextmanager
def crowd(
    bootstrap_servers: str, count: int, receive_buffer_bytes: int | None = None
) -> Iterator[list[socket.socket]]:
    """Open ``count`` connections, and close them at the end."""
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(connect(bootstrap_servers, receive_buffer_bytes))
            for _ in range(count)
        ]


def metadata_of_all(correlation_id: int = 1) -> bytes:
    """Return the frame of a Metadata request for all topics."""
    return request_frame(
        METADATA, METADATA_VERSION, correlation_id, topics=None, allow_auto_topic_creation=False
    )


def fetch(
    topic: str,
    partitions: Iterable[int] = (0,),
    max_bytes: int = 50 * MIB,
    correlation_id: int = 1,
) -> bytes:
    """Return the frame of a Fetch from the beginning of partitions."""
    wanted = [
        {"partition": one, "fetch_offset": 0, "partition_max_bytes": max_bytes}
        for one in partitions
    ]
    return request_frame(
        FETCH,
        FETCH_VERSION,
        correlation_id,
        min_bytes=1,
        max_bytes=max_bytes,
        topics=[{"topic": topic, "partitions": wanted}],
    )


def produce(topic: str, records: bytes, correlation_id: int = 1, partition: int = 0) -> bytes:
    """Return the frame of a Produce request with one batch."""
    return request_frame(
        PRODUCE,
        3,
        correlation_id,
        acks=-1,
        timeout=30_000,
        topic_data=[{"name": topic, "partition_data": [{"index": partition, "records": records}]}],
    )


def claim(size_bytes: int) -> bytes:
    """Return the beginning of a Produce request that claims ``size_bytes``: 14 bytes."""
    return struct.pack(">ihhih", size_bytes, PRODUCE, 3, 1, -1)


def drip(sockets: Sequence[socket.socket], interval_s: float, stop: threading.Event) -> None:
    """Send one byte on each socket every ``interval_s`` until told to stop, or closed."""
    alive = list(sockets)
    while alive and not stop.wait(interval_s):
        for sock in list(alive):
            try:
                sock.send(b"\0")
            except OSError:
                alive.remove(sock)


@contextlib.contextmanager
def dripping(sockets: Sequence[socket.socket], interval_s: float) -> Iterator[None]:
    """Send one byte on each socket every ``interval_s`` meanwhile."""
    stop = threading.Event()
    thread = threading.Thread(target=drip, args=(sockets, interval_s, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def fill(
    broker: Victim, topic: str, size_bytes: int, partitions: int = 1, batch_bytes: int = MIB // 2
) -> None:
    """Create a topic and write about ``size_bytes`` into each of its partitions."""
    with connection(broker.bootstrap_servers) as client:
        client.create_topic(topic, partitions)
        records = batch([bytes(1000)] * (batch_bytes // 1000))
        for partition in range(partitions):

            def is_written(partition: int = partition) -> bool:
                code, _ = client.produce(topic, records, partition)
                return code == 0

            for _ in range(-(-size_bytes // len(records))):
                wait_until(is_written, 30, "the leader of a new partition")


def create_topics(bootstrap_servers: str, count: int, partitions: int = 1) -> list[str]:
    """Create topics with one request and return their names."""
    prefix = unique("many")
    names = [f"{prefix}-{number}" for number in range(count)]
    with connection(bootstrap_servers, timeout_s=120) as client:
        response = client.ask(
            19,
            4,
            topics=[
                {"name": name, "num_partitions": partitions, "replication_factor": 1}
                for name in names
            ],
            timeout=120_000,
        )
        assert not any(int(topic.error_code) for topic in response.topics)
    return names
