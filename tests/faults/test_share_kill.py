"""`kill -9` while share consumers accept, release and reject: confirmed acknowledgements stay, and
nothing is lost.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from headrace.admin import AdminClient
from tests.clients.confluent import PATIENCE_S, create_topic, produce, share_from_earliest
from tests.faults.queue_load import ANSWER_S
from tests.peer import KafkaPeer
from tests.support import COMMON_CONFIGS, ROOT, RUN_SEED, HeadraceProcess, unique, wait_until

pytestmark = pytest.mark.broker

Server = HeadraceProcess | KafkaPeer

ROUNDS = int(os.environ.get("HEADRACE_TEST_KILLS", "4"))
CONSUMERS, PARTITIONS, RECORDS_A_ROUND = 4, 3, 600
LIMIT = 10
ACCEPT, RELEASE, REJECT = "1", "2", "3"
CONFIGS = {
    **COMMON_CONFIGS,
    "group.share.heartbeat.interval.ms": "200",
    "group.share.min.heartbeat.interval.ms": "200",
    "group.share.session.timeout.ms": "5000",  # else the partitions of killed members wait for 45 s
    "group.share.min.session.timeout.ms": "5000",
    "group.share.delivery.count.limit": str(LIMIT),
    "share.coordinator.snapshot.update.records.per.snapshot": "20",
    "share.coordinator.state.topic.segment.bytes": "1048576",
}


class Workers:
    """A process with share consumers, and the lines that they have printed."""

    def __init__(
        self,
        witness: Witness,
        bootstrap_servers: str,
        topic: str,
        group: str,
        number: int,
        seed: str,
        script_name: str,
    ) -> None:
        script = ROOT / "tests" / "faults" / script_name
        self.process = subprocess.Popen(
            [sys.executable, str(script), bootstrap_servers, topic, group, str(number), seed],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=HeadraceProcess.environment(),
        )
        self._witness = witness
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith("\n"):
                self._witness.note(*line.split())

    def kill(self) -> None:
        """Kill it, and read its last line."""
        self.process.kill()
        self.process.wait()
        self._reader.join(PATIENCE_S)


class Witness:
    """Everything that consumers were told in all rounds."""

    def __init__(self, script_name: str = "share_load.py") -> None:
        self._script_name = script_name
        self.finished: set[tuple[str, str]] = set()
        self.in_doubt: set[tuple[str, str]] = set()
        self.delivered: dict[tuple[str, str], int] = {}
        self.counts: Counter[str] = Counter()
        self.broken: list[str] = []

    def note(self, kind: str, partition: str, offset: str, detail: str) -> None:
        where = partition, offset
        if kind == "D":
            self.counts["delivered"] += 1
            self.delivered[where] = int(detail)
            if where in self.finished:
                self.broken.append(
                    f"{offset} of partition {partition} is delivered after it was finished"
                )
            if int(detail) > LIMIT:
                self.broken.append(
                    f"{offset} of partition {partition} is delivered for the {detail}th time"
                )
        elif kind == "S" and detail in (ACCEPT, REJECT):
            self.in_doubt.add(where)
        elif kind == "A":
            if where not in self.delivered:
                self.broken.append(f"{offset} of partition {partition} was ended undelivered")
            self.counts[{ACCEPT: "accepted", RELEASE: "released", REJECT: "rejected"}[detail]] += 1
            if detail != RELEASE:
                self.finished.add(where)

    @contextmanager
    def working(
        self, server: Server, topic: str, group: str, number: int, seed: str
    ) -> Iterator[None]:
        """Have consumers work on `server` meanwhile."""
        workers = Workers(
            self, server.bootstrap_servers, topic, group, number, seed, self._script_name
        )
        try:
            yield
        finally:
            workers.kill()

    def all_kinds_since(self, before: Counter[str]) -> bool:
        """Return whether records were accepted, released and rejected since ``before``."""
        return all(
            self.counts[word] > before[word] for word in ("accepted", "released", "rejected")
        )

    def check(self, produced: dict[int, int]) -> None:
        """Check that nothing is lost, and nothing delivered that must not be."""
        assert not self.broken, self.broken[:5]
        for partition, end in produced.items():
            for offset in range(end):
                where = str(partition), str(offset)
                assert where in self.delivered, (
                    f"record {offset} of partition {partition} was never delivered"
                )
                ended = (
                    where in self.finished
                    or where in self.in_doubt
                    or self.delivered[where] == LIMIT
                )
                assert ended, (
                    f"record {offset} of partition {partition} was never finished, and is not there"
                )


def lags(server: Server, topic: str, group: str, partitions: int = PARTITIONS) -> list[int | None]:
    """Return the lag of each partition."""
    asked = [TopicPartition(topic, partition) for partition in range(partitions)]
    with AdminClient({"bootstrap.servers": server.bootstrap_servers}) as client:
        described = client.list_share_group_offsets([group])[group].result(PATIENCE_S)
        return [described[partition].lag for partition in asked]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_was_confirmed_stays_and_nothing_is_lost(tmp_path: Path) -> None:
    seed = RUN_SEED
    print(f"HEADRACE_TEST_SEED={seed}")
    rng = random.Random(seed)
    witness, topic, group = Witness(), unique("topic"), unique("group")
    produced = dict.fromkeys(range(PARTITIONS), 0)
    server = HeadraceProcess(tmp_path / "data", CONFIGS).start()
    try:
        create_topic(server.bootstrap_servers, topic, partitions=PARTITIONS)
        share_from_earliest(server.bootstrap_servers, group)
        for number in range(ROUNDS):
            for partition in produced:
                values = [b"record"] * (RECORDS_A_ROUND // PARTITIONS)
                produce(
                    server.bootstrap_servers,
                    topic,
                    values,
                    partition,
                    batch_size=rng.choice((200, 2000)),
                )
                produced[partition] += len(values)
            before = witness.counts.copy()
            with witness.working(server, topic, group, CONSUMERS, f"{seed}-{number}"):
                wait_until(
                    partial(witness.all_kinds_since, before), PATIENCE_S, "all kinds of work"
                )
                time.sleep(rng.uniform(0, 0.5))
                server.kill()
            for _ in range(rng.choice((0, 0, 1, 2))):  # the start is a bad moment too
                server.spawn()
                time.sleep(rng.uniform(0, 0.6))
                server.kill()
            server.start()
            assert not witness.broken, witness.broken[:5]
        with witness.working(server, topic, group, CONSUMERS, "-"):
            wait_until(
                lambda: lags(server, topic, group) == [0] * PARTITIONS,
                PATIENCE_S,
                "a lag of 0",
                0.2,
            )
        witness.check(produced)
        server.kill()
        server.start()
        assert lags(server, topic, group) == [0] * PARTITIONS
        print(
            f"{ROUNDS} kills: {dict(witness.counts)}, "
            f"{len(witness.in_doubt - witness.finished)} in doubt"
        )
    finally:
        server.kill()


def _produce_to_all(server: Server, topic: str, produced: dict[int, int]) -> None:
    """Produce half a round's records, and count them in `produced`."""
    values = [b"record"] * (RECORDS_A_ROUND // PARTITIONS // 2)
    for partition in produced:
        produce(server.bootstrap_servers, topic, values, partition, batch_size=2000)
        produced[partition] += len(values)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "kind", ["headrace", pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.java])]
)
def test_a_queue_of_records_at_a_broker_that_dies_and_stands_still(
    tmp_path: Path, kind: str
) -> None:
    """Two consumers of records go on through kills and stops of the broker, some longer than they
    wait for an answer: no record whose outcome was confirmed comes again, and none is lost.
    """
    seed = RUN_SEED
    print(f"HEADRACE_TEST_SEED={seed}")
    rng = random.Random(seed)
    witness, topic, group = Witness("queue_load.py"), unique("topic"), unique("group")
    produced = dict.fromkeys(range(PARTITIONS), 0)
    configs = {**CONFIGS, "group.share.record.lock.duration.ms": "1000"}
    broker = KafkaPeer if kind == "kafka" else HeadraceProcess
    server: Server = broker(tmp_path / "data", configs)
    server.start()
    try:
        create_topic(server.bootstrap_servers, topic, partitions=PARTITIONS)
        share_from_earliest(server.bootstrap_servers, group)
        for number in range(ROUNDS):
            with witness.working(server, topic, group, 2, f"{seed}-{number}"):
                before = witness.counts.copy()
                _produce_to_all(server, topic, produced)
                wait_until(
                    partial(witness.all_kinds_since, before), PATIENCE_S, "all kinds of work"
                )
                time.sleep(rng.uniform(0, 0.3))
                if number % 2:
                    assert server.pid is not None
                    os.kill(server.pid, signal.SIGSTOP)
                    time.sleep(rng.uniform(0.2, 2 * ANSWER_S))
                    os.kill(server.pid, signal.SIGCONT)
                else:
                    server.kill()
                    server.start()
                before = witness.counts.copy()
                _produce_to_all(server, topic, produced)
                wait_until(
                    lambda before=before: witness.counts["delivered"] > before["delivered"],
                    PATIENCE_S,
                    "records after the fault",
                )
            assert not witness.broken, witness.broken[:5]
        with witness.working(server, topic, group, 2, "-"):
            wait_until(
                lambda: lags(server, topic, group) == [0] * PARTITIONS,
                PATIENCE_S,
                "a lag of 0",
                0.2,
            )
        witness.check(produced)
        print(f"{ROUNDS} faults: {dict(witness.counts)}")
    finally:
        server.kill()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_what_a_dead_client_holds_comes_back(tmp_path: Path, how: signal.Signals) -> None:
    """Records of a killed client return at once, though their lock would last for hours; those of a
    frozen one when the lock ends.
    """
    lock_ms = 3_600_000 if how is signal.SIGKILL else 1000
    configs = {
        **CONFIGS,
        "group.share.record.lock.duration.ms": str(lock_ms),
        "group.share.min.record.lock.duration.ms": "1000",
        "group.share.max.record.lock.duration.ms": "3600000",
    }
    with HeadraceProcess(tmp_path / "data", configs) as server:
        topic = create_topic(server.bootstrap_servers, unique("topic"))
        group = share_from_earliest(server.bootstrap_servers, unique("group"))
        produce(server.bootstrap_servers, topic, [b"record"] * 20, 0)
        first = subprocess.Popen(
            [
                sys.executable,
                str(ROOT / "tests" / "faults" / "share_holder.py"),
                server.bootstrap_servers,
                topic,
                group,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=HeadraceProcess.environment(),
        )
        assert first.stdin is not None and first.stdout is not None
        try:
            assert first.stdout.readline() == "holds 20 delivered 1 times\n"
            first.send_signal(how)
            witness = Witness()
            with witness.working(server, topic, group, 1, "-"):
                wait_until(lambda: witness.counts["accepted"] == 20, PATIENCE_S, "20 acceptances")
            assert set(witness.delivered.values()) == {2}
            if how is signal.SIGSTOP:
                first.send_signal(signal.SIGCONT)
                first.stdin.write("accept\n")
                first.stdin.flush()
                # too late, of records that are finished
                assert first.stdout.readline().startswith("accepted ")
            assert lags(server, topic, group, 1) == [0]
        finally:
            first.kill()
            first.wait()
