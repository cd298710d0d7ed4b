"""Clients of all kinds that work on one broker through its faults, and a witness of what they were
promised.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from tests.clients.confluent import PATIENCE_S, consumer, create_topic, share_from_earliest, take
from tests.peer import java_program
from tests.support import COMMON_CONFIGS, ROOT, HeadraceProcess, unique, wait_until

PARTITIONS = (0, 1)
PYTHON_KINDS = ("librdkafka", "librdkafka-848", "kafka-python", "aiokafka")
RECOVERY_S = 600.0
"""The time that a client may take to go on after a fault. Their own timeouts are up to two minutes,
and on a busy machine one may follow the other.
"""

CONFIGS = {
    **COMMON_CONFIGS,
    "log.segment.bytes": "1048576",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.heartbeat.interval.ms": "500",
}


class SteadyClient:
    """A client in a process of its own, which is started again when it ends.

    :ivar produced: values by partition and offset, as acknowledged
    :ivar committed: the last committed offset of each partition
    :ivar counts: lines by kind
    """

    def __init__(self, kind: str, bootstrap_servers: str) -> None:
        self.kind = kind
        self.topic = create_topic(bootstrap_servers, unique(f"of-{kind}"), len(PARTITIONS))
        self.group = unique("group")
        self.produced: dict[tuple[int, int], str] = {}
        self.committed: dict[int, int] = {}
        self.accepted: set[tuple[int, int]] = set()
        self.counts: Counter[str] = Counter()
        self.broken: list[str] = []
        self.starts = 0
        self._process: subprocess.Popen[str] | None = None
        self._command = [*self._program(), bootstrap_servers, self.topic, self.group]
        if kind == "java":
            share_from_earliest(bootstrap_servers, f"{self.group}-share")

    def _program(self) -> list[str]:
        if self.kind == "java":
            return java_program("SteadyClient")
        return [sys.executable, str(ROOT / "tests" / "faults" / "steady_client.py"), self.kind]

    @property
    def promises(self) -> str:
        """The kinds of lines that it prints: records and offsets, and acceptances of the Java
        client's share consumer.
        """
        return "PCA" if self.kind == "java" else "PC"

    def keep_running(self) -> None:
        """Start it if it is not running."""
        if self._process is not None and self._process.poll() is None:
            return
        self.starts += 1
        self._process = subprocess.Popen(
            self._command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=HeadraceProcess.environment(),
        )
        threading.Thread(target=self._read, args=(self._process,), daemon=True).start()

    def kill(self) -> None:
        """Kill it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            kind, *fields = line.split()
            if not line.endswith("\n") or kind not in "PCAD":
                continue
            where = int(fields[0]), int(fields[1])
            self.counts[kind] += 1
            if kind == "P" and self.produced.setdefault(where, fields[2]) != fields[2]:
                self.broken.append(f"offset {where} was given twice")
            elif kind == "C":
                self.committed[where[0]] = where[1]
            elif kind == "A":
                self.accepted.add(where)
            elif kind == "D" and where in self.accepted:
                self.broken.append(f"the accepted record {where} was delivered again")

    def check(self, bootstrap_servers: str, *, may_repeat: bool) -> None:
        """Compare what it was promised with what the broker has.

        :param may_repeat: librdkafka may have stored a record twice
        """
        produced, committed = dict(self.produced), dict(self.committed)
        partitions = [TopicPartition(self.topic, partition, 0) for partition in PARTITIONS]
        with consumer(bootstrap_servers, unique("reader"), check_crcs=True) as source:
            stored = _read(source, partitions)
        with consumer(bootstrap_servers, self.group) as source:
            found = {
                one.partition: one.offset
                for one in source.committed(partitions, timeout=PATIENCE_S)
            }
        lost = {where: value for where, value in produced.items() if stored.get(where) != value}
        assert not lost, f"{self.kind}: {len(lost)} of {len(produced)} are lost: {lost}"
        twice = [value for value, times in Counter(stored.values()).items() if times > 1]
        assert not twice or (may_repeat and self.kind.startswith("librdkafka")), (
            f"{self.kind}: {len(twice)} records are there twice: {twice[:5]}"
        )
        back = {one: found[one] for one, offset in committed.items() if found[one] < offset}
        assert not back, f"{self.kind}: committed offsets went back from {committed} to {back}"
        assert not self.broken, f"{self.kind}: {self.broken[:5]}"


def _read(source: Consumer, partitions: list[TopicPartition]) -> dict[tuple[int, int], str]:
    """Return the values up to the present ends; more are being produced."""
    stored: dict[tuple[int, int], str] = {}
    for partition in partitions:
        _, end = source.get_watermark_offsets(partition, timeout=PATIENCE_S)
        source.assign([partition])
        offset = 0
        while offset < end:
            for one in take(source, 1):
                offset = one.offset() + 1
                stored[one.partition(), one.offset()] = one.value().decode()
    return stored


class SteadyClients:
    """One client of each kind: `with SteadyClients(server) as clients`."""

    def __init__(self, server: HeadraceProcess) -> None:
        self.server = server
        kinds = [*PYTHON_KINDS, *(["java"] if shutil.which("java") else [])]
        self.each = [SteadyClient(kind, server.bootstrap_servers) for kind in kinds]

    def __enter__(self) -> SteadyClients:
        self.keep_running()
        return self

    def __exit__(self, *_: object) -> None:
        for client in self.each:
            client.kill()

    def keep_running(self) -> None:
        """Start those that have ended."""
        for client in self.each:
            client.keep_running()

    def progress(
        self, timeout_s: float = RECOVERY_S, meanwhile: Callable[[], object] = lambda: None
    ) -> None:
        """Wait until each client was promised something new of each kind.

        :param meanwhile: called again and again
        """
        before = {client.kind: client.counts.copy() for client in self.each}

        def behind() -> list[str]:
            self.keep_running()
            meanwhile()
            return [
                f"{client.kind} {promise}"
                for client in self.each
                for promise in client.promises
                if client.counts[promise] == before[client.kind][promise]
            ]

        try:
            wait_until(lambda: not behind(), timeout_s, "all clients to go on", 0.05)
        except AssertionError:
            raise AssertionError(f"no progress in {timeout_s:g} s: {behind()}; {self}") from None

    def check(self, *, may_repeat: bool = False) -> None:
        """Compare what all clients were promised with what the broker has.

        :param may_repeat: an fsync has failed. librdkafka begins a new epoch when the broker does
            not confirm a record, and sends it again; it may be stored already
        """
        for client in self.each:
            client.check(self.server.bootstrap_servers, may_repeat=may_repeat)

    def __str__(self) -> str:
        return "; ".join(
            f"{client.kind} {dict(client.counts)}, started {client.starts} times"
            for client in self.each
        )


def headrace_on(data_dir: Path, **configs: str) -> HeadraceProcess:
    """Return a broker on a directory, not started yet."""
    named = {name.replace("_", "."): value for name, value in configs.items()}
    return HeadraceProcess(data_dir, {**CONFIGS, **named})
