"""`kill -9` of broker and clients while topics are copied in transactions: each record arrives
exactly once.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, IsolationLevel, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.clients.confluent import PATIENCE_S, create_topic, produce
from tests.peer import java_program
from tests.support import COMMON_CONFIGS, ROOT, RUN_SEED, HeadraceProcess, unique, wait_until

ROUNDS = min(int(os.environ.get("HEADRACE_TEST_KILLS", "3")), 10)
PARTITIONS, RECORDS_A_ROUND = 3, 1500
CONFIGS = {
    **COMMON_CONFIGS,
    "group.min.session.timeout.ms": "1000",
    "transaction.state.log.num.partitions": "3",
    "log.segment.bytes": "1048576",
}

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(900)]


class Copier:
    """A process that copies, restarted whenever it has ended. `copied` counts the records of its
    transactions.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self.process: subprocess.Popen[str] | None = None
        self.copied = 0
        self.starts = 0
        self.said: list[str] = []

    def keep_running(self) -> None:
        if self.process is None or self.process.poll() is not None:
            self.starts += 1
            self.process = subprocess.Popen(
                self._command,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env=HeadraceProcess.environment(),
            )
            threading.Thread(target=self._read, args=(self.process,), daemon=True).start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("copied "):
                self.copied += int(line.split()[1])
            else:
                self.said.append(line.rstrip())

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


class HardStart:
    """Starts of a broker that are killed during recovery, and then one that is not.

    :ivar killed: starts that were killed before the broker listened
    """

    def __init__(self, server: HeadraceProcess, rng: random.Random) -> None:
        self.server, self.rng, self.killed = server, rng, 0
        before = time.monotonic()
        server.start()
        self._usual_s = time.monotonic() - before

    def __call__(self) -> None:
        server = self.server
        for _ in range(self.rng.randrange(3)):
            server.output.clear()
            server.spawn()
            time.sleep(self.rng.uniform(0.4, 1) * self._usual_s)  # less is before it does anything
            server.kill()
            self.killed += not any("is listening" in line for line in server.output)
        before = time.monotonic()
        server.start()
        self._usual_s = time.monotonic() - before


def committed_records(bootstrap_servers: str, topic: str) -> list[bytes]:
    """Return all values that a reader of committed records sees."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": unique("reader"),
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    reader.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    values, ended = [], set()
    while len(ended) < PARTITIONS:
        message = reader.poll(PATIENCE_S)
        assert message is not None, "the end of a partition did not come"
        if message.error():
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            ended.add(message.partition())
        else:
            values.append(message.value())
    reader.close()
    return values


def offsets_behind(admin: AdminClient, topic: str) -> int:
    """Return the distance of the last stable offsets from the ends of the logs."""
    asked = {
        TopicPartition(topic, partition): OffsetSpec.latest() for partition in range(PARTITIONS)
    }
    ends = [
        {
            where: future.result(PATIENCE_S).offset
            for where, future in admin.list_offsets(asked, isolation_level=level).items()
        }
        for level in (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED)
    ]
    return sum(ends[0].values()) - sum(ends[1].values())


def test_each_record_is_copied_exactly_once(tmp_path: Path, kafka_libs: Path) -> None:
    seed = RUN_SEED
    print(f"HEADRACE_TEST_SEED={seed}")
    rng = random.Random(seed)
    server = HeadraceProcess(tmp_path / "data", CONFIGS)
    start = HardStart(server, rng)
    copiers: dict[str, Copier] = {}
    victims: Counter[str] = Counter()
    try:
        source = create_topic(server.bootstrap_servers, unique("source"), PARTITIONS)
        programs = {
            "java": java_program("TransactionalCopy"),
            "librdkafka": [
                sys.executable,
                str(ROOT / "tests" / "faults" / "transactional_copy.py"),
            ],
        }
        for name, program in programs.items():
            copy = create_topic(server.bootstrap_servers, unique(name), PARTITIONS)
            arguments = [
                server.bootstrap_servers,
                source,
                copy,
                f"group-of-{copy}",
                f"copier-of-{copy}",
            ]
            copiers[copy] = Copier([*program, *arguments])
        expected: list[bytes] = []

        def progress(copied_before: dict[str, int]) -> bool:
            for copier in copiers.values():
                copier.keep_running()
            return all(copiers[name].copied > copied_before[name] for name in copiers)

        for number in range(ROUNDS):
            before = {name: copier.copied for name, copier in copiers.items()}
            values = [b"%d-%d" % (number, i) for i in range(RECORDS_A_ROUND)]
            produce(server.bootstrap_servers, source, values)
            expected += values
            wait_until(lambda: progress(before), PATIENCE_S, "copied records")  # noqa: B023
            time.sleep(rng.uniform(0, 0.15))
            victim = rng.choice(("broker", "client", "both"))
            victims[victim] += 1
            if victim != "client":
                server.kill()
            if victim != "broker":
                rng.choice(list(copiers.values())).kill()
            if victim != "client":
                start()

        def done() -> bool:
            progress(dict.fromkeys(copiers, 0))
            return all(
                len(committed_records(server.bootstrap_servers, name)) >= len(expected)
                for name in copiers
            )

        wait_until(done, PATIENCE_S, "all records to be copied", 0.5)
        for copier in copiers.values():
            copier.kill()
        for name in copiers:
            assert sorted(committed_records(server.bootstrap_servers, name)) == sorted(expected)
        print(f"{ROUNDS} kills: {dict(victims)}; {start.killed} of a starting broker")
        print(f"starts: {[copier.starts for copier in copiers.values()]}")
        admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
        assert [offsets_behind(admin, name) for name in copiers] == [0, 0]
    finally:
        for copier in copiers.values():
            copier.kill()
            print(copier.copied, copier.starts, copier.said[-5:])
        server.kill()
