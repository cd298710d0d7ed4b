"""Nothing is deleted on doubt: directories that contradict the catalog, a lost catalog, and a data
directory that is deleted under a running broker.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headrace.protocol.errors import ErrorCode
from tests.clients.confluent import PATIENCE_S, admin, create_topic
from tests.conformance.classic import ClassicGroup
from tests.conformance.world import OK, World
from tests.support import COMMON_CONFIGS, HeadraceProcess, wait_until
from tests.wire_client import batch, connection

pytestmark = pytest.mark.broker

EARLIEST, LATEST = -2, -1
RECORDS = 100
ALL_RECORDS = (0, 0, RECORDS)


class Ground:
    """A broker with records in ``orders-0`` and ``orders-1``, and a group with an offset."""

    def __init__(self, path: Path) -> None:
        self.server = HeadraceProcess(path / "data", COMMON_CONFIGS)
        self.data_dir = path / "data"

    def begin(self) -> None:
        self.server.start()
        create_topic(self.server.bootstrap_servers, "orders", partitions=2)
        with connection(self.server.bootstrap_servers) as client:
            for partition in (0, 1):
                for n in range(RECORDS // 10):
                    values = [b"%d" % value for value in range(10 * n, 10 * n + 10)]
                    assert client.produce("orders", batch(values), partition)[0] == 0

    def restart(self) -> None:
        self.server.output.clear()
        self.server.start()

    def refusal(self) -> str:
        """Return the broker's error when it does not start."""
        self.server.output.clear()
        process = self.server.spawn()
        assert process.wait(PATIENCE_S) == 1, self.server.output
        assert self.server.ready.wait(PATIENCE_S)  # all of its output has been read
        assert not self.told("Traceback"), self.server.output
        return self.server.output[-1]

    def told(self, text: str) -> list[str]:
        return [line for line in list(self.server.output) if text in line]

    def offsets(self, topic: str, partition: int) -> tuple[int, int, int]:
        """Return error code, log start offset and end offset."""
        found = []
        with connection(self.server.bootstrap_servers) as client:
            for timestamp in (EARLIEST, LATEST):
                asked = {"partition_index": partition, "timestamp": timestamp}
                topics = [{"name": topic, "partitions": [asked]}]
                response = client.ask(2, 3, replica_id=-1, topics=topics)
                found.append(response.topics[0].partitions[0])
        return found[0].error_code, found[0].offset, found[1].offset

    def strays(self) -> list[Path]:
        return sorted(self.data_dir.glob("*-stray"))


@pytest.fixture
def ground(tmp_path):
    made = Ground(tmp_path)
    made.begin()
    yield made
    made.server.kill()


def flip(path: Path, position: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


@pytest.mark.parametrize("stop", ["cleanly", "by kill -9"])
def test_a_directory_with_another_topic_id_is_set_aside_with_its_records(ground, stop):
    path = ground.data_dir / "orders-0"
    log = (path / f"{0:020}.log").read_bytes()
    ground.server.stop() if stop == "cleanly" else ground.server.kill()
    text = (path / "partition.metadata").read_text()
    start = text.index("topic_id: ") + 10
    other = text[:start] + ("B" if text[start] != "B" else "C") + text[start + 1 :]
    (path / "partition.metadata").write_text(other)
    ground.restart()
    assert ground.offsets("orders", 0) == (0, 0, 0)
    assert ground.offsets("orders", 1) == ALL_RECORDS
    (stray,) = ground.strays()
    assert stray.name.startswith("orders-0.")
    assert (stray / f"{0:020}.log").read_bytes() == log
    wait_until(lambda: ground.told("Set aside"), PATIENCE_S, "the warning")
    (line,) = ground.told("Set aside")
    assert stray.name in line and "topic id" in line
    with connection(ground.server.bootstrap_servers) as client:
        assert client.produce("orders", batch([b"new"]), 0) == (0, 0)

    # The way back that docs/behaviour/disk-failures.md describes.
    ground.server.stop()
    (ground.data_dir / "orders-0").rename(ground.data_dir / "orders-0.new")
    stray.rename(path)
    (path / "partition.metadata").unlink()
    ground.restart()
    assert ground.offsets("orders", 0) == ALL_RECORDS


@pytest.mark.parametrize("damage", ["missing", "empty", "truncated", "garbage", "key", "version"])
def test_a_topic_id_that_cannot_be_read_is_written_again(ground, damage):
    path = ground.data_dir / "orders-0" / "partition.metadata"
    right = path.read_bytes()
    ground.server.stop()
    match damage:
        case "missing":
            path.unlink()
        case "empty":
            path.write_bytes(b"")
        case "truncated":
            path.write_bytes(right[:-5])
        case "garbage":
            path.write_bytes(os.urandom(40))
        case "key":
            flip(path, right.index(b"topic_id"))
        case "version":
            flip(path, right.index(b"0"))
    ground.restart()
    assert ground.offsets("orders", 0) == ALL_RECORDS
    assert path.read_bytes() == right
    wait_until(lambda: ground.told("partition.metadata"), PATIENCE_S, "the warning")
    assert not ground.strays()


def test_directories_that_the_catalog_does_not_know_are_set_aside(ground):
    ground.server.stop()
    for name in ("unknown-0", "orders-2"):
        (ground.data_dir / name).mkdir()
        (ground.data_dir / name / f"{0:020}.log").write_bytes(batch([b"x"]))
    (ground.data_dir / "notes-2026").mkdir()  # not a partition directory
    ground.restart()
    first, second = ground.strays()
    assert first.name.startswith("orders-2.") and second.name.startswith("unknown-0.")
    assert (second / f"{0:020}.log").read_bytes() == batch([b"x"])
    assert (ground.data_dir / "notes-2026").is_dir()
    wait_until(lambda: len(ground.told("Set aside")) == 2, PATIENCE_S, "both warnings")
    create_topic(ground.server.bootstrap_servers, "unknown")
    assert ground.offsets("unknown", 0) == (0, 0, 0)
    assert len(ground.strays()) == 2


def test_a_deleted_topic_does_not_take_the_directory_of_another_with_it(ground):
    path = ground.data_dir / "orders-1" / "partition.metadata"
    ground.server.stop()
    text = path.read_text()
    start = text.index("topic_id: ") + 10
    path.write_text(text[:start] + ("B" if text[start] != "B" else "C") + text[start + 1 :])
    ground.restart()
    client = admin(ground.server.bootstrap_servers)
    client.delete_topics(["orders"])["orders"].result(PATIENCE_S)
    wait_until(lambda: not (ground.data_dir / "orders-1").exists(), PATIENCE_S, "the deletion")
    (stray,) = ground.strays()
    assert (stray / f"{0:020}.log").stat().st_size > 1000


@pytest.mark.parametrize("damage", ["missing", "empty", "without topics"])
def test_a_lost_catalog_beside_records_stops_the_start(ground, damage):
    ground.server.stop()
    path = ground.data_dir / "headrace.db"
    path.unlink()
    if damage == "empty":
        path.touch()
    elif damage == "without topics":
        HeadraceProcess(ground.data_dir / "other").start().stop()
        (ground.data_dir / "other" / "headrace.db").rename(path)
    before = {one: one.read_bytes() for one in ground.data_dir.rglob("*") if one.is_file()}
    for _ in range(2):
        told = ground.refusal()
        assert "headrace recover --data-dir" in told and str(path) in told
    after = {one: one.read_bytes() for one in ground.data_dir.rglob("*") if one.is_file()}
    changed = {one.name for one in before if before[one] != after.get(one)}
    assert changed <= {"lock"}


@pytest.mark.parametrize("where", [0, 20, 105, 4096])
def test_a_damaged_catalog_stops_the_start(ground, where):
    ground.server.stop()
    path = ground.data_dir / "headrace.db"
    data = bytearray(path.read_bytes())
    data[where : where + 40] = os.urandom(40)
    path.write_bytes(data)
    assert "headrace recover --data-dir" in ground.refusal()


def recover(ground: Ground, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headrace", "recover", "--data-dir", str(ground.data_dir), *options],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=HeadraceProcess.environment(),
    )


@pytest.mark.parametrize("damage", ["missing", "empty", "garbage"])
def test_recover_rebuilds_the_catalog_from_the_directories(ground, damage):
    with connection(ground.server.bootstrap_servers) as client:
        topic_id = client.create_topic("empty", 3)
        with World(ground.server.bootstrap_servers, "headrace") as world:
            assert ClassicGroup(world, "billing").commit("orders", {0: 42}) == {0: OK}
    busy = recover(ground, "--yes")
    assert busy.returncode == 1 and "in use" in busy.stderr
    ground.server.stop()
    sound = recover(ground, "--yes")
    assert sound.returncode == 0 and "nothing to recover" in sound.stdout
    path = ground.data_dir / "headrace.db"
    old = path.read_bytes()
    path.unlink()
    if damage != "missing":
        path.write_bytes(b"" if damage == "empty" else os.urandom(len(old)))

    tried = recover(ground, "--dry-run", "-c", "offsets.topic.num.partitions=5")
    assert tried.returncode == 0, tried.stderr
    assert "orders" in tried.stdout and "Nothing was changed" in tried.stdout
    assert "headrace recover --data-dir" in ground.refusal()
    done = recover(ground, "--yes", "-o", "jsonl")
    assert done.returncode == 0, done.stderr
    found = {one["topic"]: one for one in json.loads(done.stdout)["topics"]}
    assert (found["orders"]["partition_count"], found["orders"]["partitions_known"]) == (2, True)
    assert found["orders"]["configs"]["retention.ms"] == "-1"
    assert found["__consumer_offsets"]["partition_count"] == 5
    assert found["__consumer_offsets"]["configs"]["cleanup.policy"] == "compact"

    ground.restart()
    assert not ground.strays()
    assert ground.offsets("orders", 0) == ground.offsets("orders", 1) == ALL_RECORDS
    with World(ground.server.bootstrap_servers, "headrace") as world:
        assert ClassicGroup(world, "billing").committed == {"orders": {0: 42}}
    with connection(ground.server.bootstrap_servers) as client:
        assert client.produce("orders", batch([b"next"]), 1) == (0, RECORDS)
        assert client.create_topic("empty", 3) != topic_id


def test_recover_keeps_what_a_damaged_catalog_still_says(ground):
    create_topic(ground.server.bootstrap_servers, "wide", partitions=7, retention_ms="123456789")
    ground.server.stop()
    path = ground.data_dir / "headrace.db"
    before = sqlite3.connect(path)
    (cluster_id,) = before.execute(
        "SELECT json_extract(value, '$') FROM entries WHERE kind = 'cluster' AND key = 'id'"
    ).fetchone()
    before.execute("UPDATE entries SET value = 'x' WHERE key = 'next_producer_id'")
    before.commit()
    before.close()
    assert "headrace recover" in ground.refusal()
    done = json.loads(recover(ground, "--yes", "-o", "jsonl").stdout)
    assert done["cluster_id"] == cluster_id
    (wide,) = [one for one in done["topics"] if one["topic"] == "wide"]
    assert (wide["partition_count"], wide["configs"]["retention.ms"]) == (7, "123456789")
    ground.restart()
    assert ground.offsets("orders", 0) == ALL_RECORDS


@pytest.mark.parametrize("stop", ["cleanly", "by kill -9"])
def test_a_partition_directory_lost_while_no_broker_ran_stops_the_start(ground, stop, tmp_path):
    create_topic(ground.server.bootstrap_servers, "lazy", partitions=3)
    file = ground.data_dir / "partitions"
    wait_until(lambda: file.exists() and b'"orders"' in file.read_bytes(), 5, "the file")
    ground.server.stop() if stop == "cleanly" else ground.server.kill()
    path = ground.data_dir / "orders-0"
    path.rename(tmp_path / "away")
    before = {one: one.read_bytes() for one in ground.data_dir.rglob("*") if one.is_file()}
    for _ in range(2):
        told = ground.refusal()
        assert str(path) in told and "headrace recover --data-dir" in told
        (line,) = ground.told("ERROR")
        assert "orders-0" in line and str(path) in line
    after = {one: one.read_bytes() for one in ground.data_dir.rglob("*") if one.is_file()}
    changed = {one.name for one in before if before[one] != after.get(one)}
    catalog = {f"headrace.db{suffix}" for suffix in ("", "-wal", "-shm")}  # SQLite's own recovery
    assert changed <= {"lock", *catalog}

    (tmp_path / "away").rename(path)  # put back
    ground.restart()
    assert ground.offsets("orders", 0) == ALL_RECORDS
    ground.server.stop()
    path.rename(f"{path}.old-stray")  # set aside, as an error about a topic id advises
    ground.restart()
    assert ground.offsets("orders", 0) == (0, 0, 0)
    ground.server.stop()
    Path(f"{path}.old-stray").rename(path)
    ground.restart()
    ground.server.stop()
    path.rename(tmp_path / "away")  # given up
    asked = recover(ground)
    assert asked.returncode == 2 and "no terminal to ask on: give --yes" in asked.stderr
    tried = recover(ground, "--dry-run")
    assert tried.returncode == 0, tried.stderr
    assert "orders-0" in tried.stdout and "Nothing was changed" in tried.stdout
    assert str(path) in ground.refusal()
    done = recover(ground, "--yes", "-o", "jsonl")
    assert json.loads(done.stdout)["missing_partitions"] == ["orders-0"]
    for _ in range(2):
        ground.restart()
        assert ground.offsets("orders", 0) == (0, 0, 0)
        assert ground.offsets("orders", 1) == ALL_RECORDS
        assert ground.offsets("lazy", 2) == (0, 0, 0)
        ground.server.stop()


def test_directories_that_were_deleted_or_set_aside_are_not_missed(ground):
    client = admin(ground.server.bootstrap_servers)
    create_topic(ground.server.bootstrap_servers, "brief")
    with connection(ground.server.bootstrap_servers) as writer:
        assert writer.produce("brief", batch([b"x"]), 0)[0] == 0
    client.delete_topics(["brief"])["brief"].result(PATIENCE_S)
    ground.server.stop()
    path = ground.data_dir / "orders-0" / "partition.metadata"
    text = path.read_text()
    start = text.index("topic_id: ") + 10
    path.write_text(text[:start] + ("B" if text[start] != "B" else "C") + text[start + 1 :])
    for stop in (ground.server.stop, ground.server.kill):
        ground.restart()
        assert ground.offsets("orders", 0) == (0, 0, 0)
        assert len(ground.strays()) == 1
        stop()


def test_a_partition_deleted_under_a_running_broker_stops_the_next_start(ground):
    shutil.rmtree(ground.data_dir / "orders-0")
    wait_until(lambda: ground.told("offline"), PATIENCE_S, "the check")
    assert ground.server.stop() == 0
    assert "orders-0" in ground.refusal()


@pytest.mark.parametrize("how", ["deleted", "moved", "replaced"])
def test_a_data_directory_lost_under_a_running_broker_ends_it(ground, how, tmp_path):
    process = ground.server.process
    with connection(ground.server.bootstrap_servers) as client:
        assert client.produce("orders", batch([b"a"]), 0) == (0, RECORDS)
        if how == "deleted":
            shutil.rmtree(ground.data_dir)
        else:
            ground.data_dir.rename(tmp_path / "moved")
        if how == "replaced":
            shutil.copytree(
                tmp_path / "moved", ground.data_dir, ignore=shutil.ignore_patterns("*.sock")
            )
        acknowledged, gone = 0, False
        deadline = time.monotonic() + 5
        while not gone and time.monotonic() < deadline:
            try:
                error, _ = client.produce("orders", batch([b"b"]), 0)
            except (OSError, AssertionError, EOFError):
                gone = True
            else:
                acknowledged += not error
                gone = bool(error)
            time.sleep(0.005)
    assert gone
    assert acknowledged <= 100  # a check is every 0.2 s
    assert process.wait(PATIENCE_S) == 1
    wait_until(lambda: ground.told("headrace serve: "), PATIENCE_S, "a reason")
    assert ground.told("was deleted, moved or replaced") and not ground.told("Traceback")
    if how == "deleted":
        assert not ground.data_dir.exists()
    elif how == "replaced":  # nothing was written into the directory of another broker
        assert (ground.data_dir / "lock").read_bytes() == (tmp_path / "moved/lock").read_bytes()
        assert not (ground.data_dir / "clean-shutdown").exists()


def test_a_directory_deleted_before_the_stop_is_a_failure(ground):
    while ground.data_dir.exists():  # the broker may write a file meanwhile
        shutil.rmtree(ground.data_dir, ignore_errors=True)
    assert ground.server.stop() == 1


def test_a_partition_deleted_under_a_running_broker_goes_offline(ground):
    with connection(ground.server.bootstrap_servers) as client:
        shutil.rmtree(ground.data_dir / "orders-0")
        wait_until(lambda: ground.told("offline"), PATIENCE_S, "the check")
        assert client.produce("orders", batch([b"b"]), 0)[0] == ErrorCode.KAFKA_STORAGE_ERROR
        assert client.produce("orders", batch([b"b"]), 1) == (0, RECORDS)
    assert ground.told("orders-0") and ground.server.stop() == 0
