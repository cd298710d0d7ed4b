"""Backups of a broker under load, and `kill -9` of each process that takes part: a broker that
starts from a backup is consistent, and nothing that is incomplete looks whole.
"""

from __future__ import annotations

import copy
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import ShareConsumer, TopicPartition

from tests.cli.command import run, start
from tests.clients.confluent import (
    PATIENCE_S,
    consumer,
    create_topic,
    produce,
    share_from_earliest,
    take,
)
from tests.faults.test_kill import CONFIGS as LOAD_CONFIGS
from tests.faults.test_kill import PARTITIONS, Witness
from tests.support import ROOT, RUN_SEED, HeadraceProcess, unique, wait_until

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(900)]

BACKUPS = min(int(os.environ.get("HEADRACE_TEST_KILLS", "2")), 10)
KILLS = int(os.environ.get("HEADRACE_TEST_KILLS", "3"))
CONFIGS = {
    **LOAD_CONFIGS,
    # retention and compaction work during the backups
    "log.retention.check.interval.ms": "100",
    "log.cleaner.backoff.ms": "100",
    "offsets.topic.segment.bytes": "1048576",
    "share.coordinator.snapshot.update.records.per.snapshot": "20",
    "transaction.state.log.num.partitions": "3",
}

TRANSACTION_TIMEOUT_S = 60
"""An open transaction of the backup may hold up its readers so long: librdkafka's default."""

NOTING = threading.Lock()
"""Held while an acknowledgement is noted."""


def seeded() -> random.Random:
    seed = RUN_SEED
    print(f"HEADRACE_TEST_SEED={seed}")
    return random.Random(seed)


class Transactions:
    """The transactions that a process was told to be committed or aborted, by number."""

    def __init__(self) -> None:
        self.ended: dict[str, set[int]] = {"T": set(), "X": set()}

    def note(self, line: str) -> None:
        kind, number = line.split()
        self.ended[kind].add(int(number))

    def check(self, bootstrap_servers: str, topic: str, group: str) -> None:
        """Compare with a broker that has all of them, and perhaps later ones: each is whole or
        absent.
        """
        with consumer(bootstrap_servers, group, isolation_level="read_committed") as source:
            partitions = [TopicPartition(topic, partition, 0) for partition in PARTITIONS]
            ends = [source.get_watermark_offsets(p, timeout=PATIENCE_S)[1] for p in partitions]
            source.assign(partitions)
            found: dict[int, list[int]] = defaultdict(list)
            wait_until(
                lambda: (
                    [p.offset for p in source.position(partitions)] == ends
                    or self._read(source, found)
                ),
                TRANSACTION_TIMEOUT_S + PATIENCE_S,
                "the last stable offsets to reach the ends",
            )
            (committed,) = source.committed([TopicPartition(topic, 0)], timeout=PATIENCE_S)
        sets = [set(found[partition]) for partition in PARTITIONS]
        assert all(len(found[p]) == len(sets[p]) for p in PARTITIONS), "a record is there twice"
        assert sets[0] == sets[1] == sets[2], "a transaction is not whole"
        assert not self.ended["T"] - sets[0], "a committed transaction is lost"
        assert not self.ended["X"] & sets[0], "an aborted transaction is there"
        assert committed.offset == max(sets[0]), "an offset is not that of the last transaction"

    @staticmethod
    def _read(source: object, found: dict[int, list[int]]) -> bool:
        for message in source.consume(500, timeout=0.2):  # type: ignore[attr-defined]
            if message.error() is None:
                found[message.partition()].append(int(message.value()))
        return False


@contextmanager
def load(
    witness: Witness,
    transactions: Transactions,
    bootstrap_servers: str,
    names: tuple[str, str, str, str],
    tag: str,
) -> Iterator[None]:
    """Work on a broker meanwhile, with producers, consumers, share consumers and transactions."""
    topic, group, transactional_topic, transactional_group = names
    scripts = {
        "load.py": (topic, group, tag),
        "transaction_load.py": (transactional_topic, transactional_group, tag),
    }
    noted = {"load.py": witness.note, "transaction_load.py": transactions.note}
    processes, readers = [], []
    for script, arguments in scripts.items():
        process = subprocess.Popen(
            [
                sys.executable,
                str(ROOT / "tests" / "faults" / script),
                bootstrap_servers,
                *arguments,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

        def read(process: subprocess.Popen[str] = process, script: str = script) -> None:
            assert process.stdout is not None
            for line in process.stdout:
                if line.endswith("\n"):
                    with NOTING:
                        noted[script](line)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        processes.append(process)
        readers.append(reader)
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
        for reader in readers:
            reader.join(PATIENCE_S)


def delivered_to_share_group(
    bootstrap_servers: str, topic: str, group: str, expected: set[tuple[int, int]]
) -> set[tuple[int, int]]:
    """Accept records until all of `expected` were delivered; return all that were."""
    found: set[tuple[int, int]] = set()
    source = ShareConsumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "share.acknowledgement.mode": "explicit",
            "log_level": 0,
        }
    )
    source.subscribe([topic])

    def read() -> bool:
        messages = [message for message in source.poll(timeout=0.5) if message.error() is None]
        for message in messages:
            found.add((message.partition(), message.offset()))
            source.acknowledge(message)
        if messages:
            source.commit_sync(timeout=10.0)
        return expected <= found

    try:
        wait_until(read, 2 * PATIENCE_S, "the share group to go on")
    finally:
        source.close()
    return found


def check_backup(
    server: HeadraceProcess,
    witness: Witness,
    transactions: Transactions,
    accepted_since: set[tuple[int, int]],
    names: tuple[str, str, str, str],
) -> None:
    """Compare a broker that was started from a backup with what was acknowledged before the backup
    began.

    :param accepted_since: also what was accepted until the backup had ended
    """
    topic, group, transactional_topic, transactional_group = names
    bootstrap = server.bootstrap_servers
    transactions.check(bootstrap, transactional_topic, transactional_group)
    witness.check(bootstrap, topic, group)
    partitions = [TopicPartition(topic, partition) for partition in PARTITIONS]
    with consumer(bootstrap, group) as source:
        committed = source.committed(partitions, timeout=PATIENCE_S)
        ends = {
            p.partition: source.get_watermark_offsets(p, timeout=PATIENCE_S)[1] for p in partitions
        }
    for position in committed:
        assert position.offset <= ends[position.partition], "an offset is ahead of the log"
    stored = {(partition, offset) for partition, end in ends.items() for offset in range(end)}
    found = delivered_to_share_group(bootstrap, topic, f"{group}-share", stored - accepted_since)
    assert not found & witness.accepted, "an accepted record is delivered again"
    assert not found - stored
    # and it goes on as a broker of its own
    produce(bootstrap, topic, [b"after"], partition=0)
    with consumer(bootstrap, unique("group")) as source:
        source.assign([TopicPartition(topic, 0, ends[0])])
        assert take(source, 1)[0].value() == b"after"


def test_a_backup_under_load_is_consistent(tmp_path: Path) -> None:
    rng = seeded()
    witness, transactions = Witness(), Transactions()
    server = HeadraceProcess(tmp_path / "data", CONFIGS).start()
    names = unique("topic"), unique("group"), unique("transactions"), unique("copier")
    backups = []
    try:
        for topic in (names[0], names[2]):
            create_topic(server.bootstrap_servers, topic, partitions=len(PARTITIONS))
        share_from_earliest(server.bootstrap_servers, f"{names[1]}-share")
        with load(witness, transactions, server.bootstrap_servers, names, "load"):
            wait_until(
                lambda: all(witness.counts[k] for k in "PCA") and transactions.ended["X"],
                PATIENCE_S,
                "all work to be under way",
            )
            for number in range(BACKUPS):
                time.sleep(rng.uniform(0, 2))
                with NOTING:
                    before = copy.deepcopy((witness, transactions))
                target = tmp_path / f"backup-{number}"
                status, _, errors = run(
                    "backup",
                    str(target),
                    "--data-dir",
                    str(tmp_path / "data"),
                    timeout_s=PATIENCE_S,
                )
                assert (status, errors) == (0, [])
                time.sleep(0.5)  # what is acknowledged by now may be noted later
                with NOTING:
                    backups.append((target, *before, set(witness.accepted)))
        assert server.stop() == 0
        print(f"{BACKUPS} backups; acknowledged: {dict(witness.counts)}")
        for target, *acknowledged in backups:
            with HeadraceProcess(target, CONFIGS) as restored:
                check_backup(restored, *acknowledged, names)
            assert not restored.problems()
    finally:
        server.kill()


def snapshots_of(data_dir: Path) -> list[Path]:
    return list(data_dir.glob("snapshot.*"))


def not_copied(data_dir: Path, partial: Path) -> list[Path]:
    """Return the segments of a snapshot that a backup does not have yet. One that has them all may
    be deleting the snapshot, and needs the broker no more.
    """
    return [
        segment
        for snapshot in snapshots_of(data_dir)
        for segment in snapshot.rglob("*.log")
        if not (partial / segment.relative_to(snapshot)).exists()
    ]


def check_unusable(directory: Path) -> None:
    """Check that a directory, if it exists, cannot be taken for a data directory or a backup."""
    if directory.exists():
        assert (directory / "incomplete").exists() or not any(directory.iterdir())
        refused, _, errors = run("serve", "--data-dir", str(directory), "--listen", "127.0.0.1:0")
        assert (refused, "was not finished" in errors[-1]) == (1, True)


@pytest.fixture
def full(tmp_path: Path) -> Iterator[HeadraceProcess]:
    """A broker with some 60 MB of records."""
    with HeadraceProcess(tmp_path / "data", CONFIGS) as server:
        create_topic(server.bootstrap_servers, "orders", partitions=3)
        value = bytes(100_000)
        produce(server.bootstrap_servers, "orders", [value] * 600, linger_ms=5)
        yield server


def records_in(data_dir: Path) -> int:
    with (
        HeadraceProcess(data_dir, CONFIGS) as server,
        consumer(server.bootstrap_servers, unique("group"), check_crcs=True) as source,
    ):
        source.subscribe(["orders"])
        return len(take(source, 600))


def test_a_killed_backup_leaves_nothing_whole(full: HeadraceProcess, tmp_path: Path) -> None:
    rng, target = seeded(), tmp_path / "backup"
    arguments = ("backup", str(target), "--data-dir", str(tmp_path / "data"))
    began = time.monotonic()
    assert run("backup", str(tmp_path / "whole"), *arguments[2:])[0] == 0
    usual_s = time.monotonic() - began
    killed = 0
    for number in range(KILLS):
        backup = start(*arguments)
        time.sleep(rng.uniform(0.2, 1) * usual_s)
        backup.kill()
        backup.communicate()
        if target.exists():  # it was done, if not at its end
            restored = tmp_path / f"restored-{number}"
            assert run("restore", str(target), "--data-dir", str(restored))[0] == 0
            subprocess.run(["rm", "-r", str(target)], check=True)
            continue
        killed += 1
        for partial in tmp_path.glob("backup.partial-*"):
            check_unusable(partial)
        wait_until(
            lambda: not snapshots_of(tmp_path / "data"), PATIENCE_S, "the snapshot to be deleted"
        )
    print(f"{killed} of {KILLS} backups were killed")
    assert run(*arguments)[0] == 0
    assert not list(tmp_path.glob("backup.partial-*/*"))
    assert records_in(target) == 600


def test_a_broker_that_is_killed_fails_its_backup(full: HeadraceProcess, tmp_path: Path) -> None:
    rng, target = seeded(), tmp_path / "backup"
    arguments = ("backup", str(target), "--data-dir", str(tmp_path / "data"))
    began = time.monotonic()
    assert run("backup", str(tmp_path / "whole"), *arguments[2:])[0] == 0
    usual_s = time.monotonic() - began
    failed = 0
    for number in range(KILLS + 10):
        if failed and number >= KILLS:
            break
        backup = start(*arguments)
        if number % 2:
            time.sleep(rng.uniform(0.2, 0.8) * usual_s)
        else:
            wait_until(
                lambda: list(tmp_path.glob("backup.partial-*/orders-*/*.log")),
                PATIENCE_S,
                "the copy",
                interval_s=0,
            )
        backup.send_signal(signal.SIGSTOP)
        partials = list(tmp_path.glob("backup.partial-*"))
        must_fail = not_copied(tmp_path / "data", partials[0] if partials else target)
        full.kill()
        backup.send_signal(signal.SIGCONT)
        _, errors = backup.communicate(timeout=PATIENCE_S)
        assert not list(tmp_path.glob("backup.partial-*"))
        if backup.returncode or must_fail:
            failed += 1
            (line,) = errors.decode().splitlines()
            assert line == "headrace backup: the broker has stopped during the backup"
            assert not target.exists()
        else:  # it had what it needed, or found no broker any more
            subprocess.run(["rm", "-r", str(target)], check=True)
        full.start()
        wait_until(
            lambda: not snapshots_of(tmp_path / "data"), PATIENCE_S, "the snapshot to be deleted"
        )
    print(f"{failed} backups failed")
    assert failed
    assert run(*arguments)[0] == 0
    assert records_in(target) == 600


def test_a_killed_restore_leaves_nothing_whole(full: HeadraceProcess, tmp_path: Path) -> None:
    rng, target = seeded(), tmp_path / "restored"
    made = str(tmp_path / "backup")
    assert run("backup", made, "--data-dir", str(tmp_path / "data"))[0] == 0
    arguments = ("restore", made, "--data-dir", str(target))
    began = time.monotonic()
    assert run("restore", made, "--data-dir", str(tmp_path / "whole"))[0] == 0
    usual_s = time.monotonic() - began
    killed = 0
    for _ in range(KILLS):
        restore = start(*arguments)
        time.sleep(rng.uniform(0.2, 1) * usual_s)
        restore.kill()
        restore.communicate()
        if target.exists():  # it was done, if not at its end
            assert records_in(target) == 600
            subprocess.run(["rm", "-r", str(target)], check=True)
            continue
        killed += 1
        for partial in tmp_path.glob("restored.partial-*"):
            check_unusable(partial)
    print(f"{killed} of {KILLS} restores were killed")
    assert run(*arguments)[0] == 0
    assert not list(tmp_path.glob("restored.partial-*/*"))
    assert records_in(target) == 600
