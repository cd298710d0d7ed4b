"""`kill -9` during load at random moments: everything acknowledged is there after the restart."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from tests.clients.confluent import (
    PATIENCE_S,
    consumer,
    create_topic,
    produce,
    share_from_earliest,
    take,
)
from tests.support import COMMON_CONFIGS, ROOT, RUN_SEED, HeadraceProcess, unique, wait_until

pytestmark = [pytest.mark.broker, pytest.mark.slow]

ROUNDS = int(os.environ.get("HEADRACE_TEST_KILLS", "4"))
PARTITIONS = range(3)
CONFIGS = {
    **COMMON_CONFIGS,
    # a member of a share group learns its assignment with its second heartbeat
    "group.share.heartbeat.interval.ms": "200",
    "group.share.min.heartbeat.interval.ms": "200",
    "log.segment.bytes": "1048576",
}


class Witness:
    """Everything that the broker has acknowledged in all rounds, and the promises that it broke."""

    def __init__(self) -> None:
        self.produced: dict[tuple[int, int], str] = {}
        self.committed: dict[int, int] = {}
        self.accepted: set[tuple[int, int]] = set()
        self.counts: Counter[str] = Counter()
        self.broken: list[str] = []

    def note(self, line: str) -> None:
        kind, *fields = line.split()
        self.counts[kind] += 1
        partition, offset = int(fields[0]), int(fields[1])
        if kind == "P":
            if self.produced.setdefault((partition, offset), fields[2]) != fields[2]:
                self.broken.append(f"offset {offset} of partition {partition} was given twice")
        elif kind == "C":
            self.committed[partition] = offset
        elif kind == "A":
            self.accepted.add((partition, offset))
        elif (partition, offset) in self.accepted:
            self.broken.append(
                f"accepted record {offset} of partition {partition} was delivered again"
            )

    def load(
        self, server: HeadraceProcess, topic: str, group: str, tag: str, rng: random.Random
    ) -> None:
        """Work on `server` until it is killed at a random moment after each kind of work was
        acknowledged.
        """
        before = self.counts.copy()
        script = ROOT / "tests" / "faults" / "load.py"
        loader = subprocess.Popen(
            [sys.executable, str(script), server.bootstrap_servers, topic, group, tag],
            stdout=subprocess.PIPE,
            text=True,
        )

        def read() -> None:
            assert loader.stdout is not None
            for line in loader.stdout:
                if line.endswith("\n"):
                    self.note(line)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            wait_until(
                lambda: all(self.counts[k] > before[k] for k in "PCA"),
                PATIENCE_S,
                "all work to be under way",
            )
            time.sleep(rng.uniform(0, 1))
            server.kill()
        finally:
            loader.kill()
            loader.wait()
            reader.join(PATIENCE_S)

    def check(self, bootstrap_servers: str, topic: str, group: str) -> None:
        """Compare with the state of the restarted broker."""
        partitions = [TopicPartition(topic, p, 0) for p in PARTITIONS]
        with consumer(bootstrap_servers, group, check_crcs=True) as source:
            ends = {
                p.partition: source.get_watermark_offsets(p, timeout=PATIENCE_S)[1]
                for p in partitions
            }
            source.assign(partitions)
            messages = take(source, sum(ends.values()))
            stored = {(m.partition(), m.offset()): m.value().decode().rstrip(".") for m in messages}
            committed = {
                p.partition: p.offset for p in source.committed(partitions, timeout=PATIENCE_S)
            }
        lost = {
            where: value for where, value in self.produced.items() if stored.get(where) != value
        }
        assert not lost, (
            f"{len(lost)} acknowledged records are lost or changed: {sorted(lost.items())[:5]}"
        )
        twice = [value for value, times in Counter(stored.values()).items() if times > 1]
        assert not twice, (
            f"{len(twice)} records are there twice in spite of idempotence: {twice[:5]}"
        )
        for partition, offset in self.committed.items():
            assert committed[partition] >= offset, (
                f"a committed offset of partition {partition} is lost"
            )
        assert not self.broken, self.broken[:5]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    seed = RUN_SEED
    print(f"HEADRACE_TEST_SEED={seed}")
    rng = random.Random(seed)
    witness = Witness()
    server = HeadraceProcess(tmp_path / "data", CONFIGS)
    topic, group = unique("topic"), unique("group")
    server.start()
    create_topic(server.bootstrap_servers, topic, partitions=len(PARTITIONS))
    share_from_earliest(server.bootstrap_servers, f"{group}-share")
    try:
        for kill in range(ROUNDS):
            witness.load(server, topic, group, f"r{kill}", rng)
            server.start()
            witness.check(server.bootstrap_servers, topic, group)
        print(f"{ROUNDS} kills; acknowledged: {dict(witness.counts)}")
    finally:
        server.kill()


def test_a_torn_tail_is_cut_and_reported(tmp_path: Path) -> None:
    server = HeadraceProcess(tmp_path / "data", CONFIGS).start()
    try:
        topic = create_topic(server.bootstrap_servers, unique("topic"))
        produce(server.bootstrap_servers, topic, [b"a", b"b"])
        server.kill()
        (segment,) = (tmp_path / "data").glob(f"{topic}-0/*.log")
        whole = segment.read_bytes()
        segment.write_bytes(whole + whole[: len(whole) // 2])
        server.output.clear()
        server.start()
        produce(server.bootstrap_servers, topic, [b"c"])
        with consumer(server.bootstrap_servers, unique("group"), check_crcs=True) as source:
            source.subscribe([topic])
            assert [(m.offset(), m.value()) for m in take(source, 3)] == [
                (0, b"a"),
                (1, b"b"),
                (2, b"c"),
            ]
        told = [line for line in server.output if f"{topic}-0" in line]
        assert told, server.output
    finally:
        server.kill()
