"""A backup beside an honest producer: many partitions, and many bytes."""

from __future__ import annotations

import os
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from headrace.log.data_directory import DataDirectory
from headrace.log.log_directory import LogDirectory
from headrace.topics.catalog import CATALOG_FILE, Catalog
from tests.attacks.harness import MIB, Watch, watching
from tests.cli.command import run
from tests.log.disk import batch, put
from tests.log_configs import log_config
from tests.support import HeadraceProcess

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(600)]

PARTITIONS = 5_000
USUAL_S = 5
BATCHES, BATCH_BYTES = 600, 1_000_000


def filled(data_dir: Path, partitions: int, data: bytes, batches: int) -> Path:
    """Create a data directory with a topic ``orders`` that has batches in each partition."""
    data_dir.mkdir()
    catalog = Catalog(data_dir / CATALOG_FILE)
    topic = catalog.create_topic("orders", partitions)
    catalog.close()
    home = LogDirectory(DataDirectory(data_dir, 64, sync=False))
    for partition in range(partitions):
        log = home.open("orders", topic.topic_id, partition, log_config())
        for _ in range(batches):
            put(log, data)
    home.close()
    return data_dir


def use_all(bootstrap_servers: str, partitions: int) -> None:
    """Have the broker load the logs of all partitions."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    asked = {
        TopicPartition("orders", partition): OffsetSpec.latest() for partition in range(partitions)
    }
    for future in admin.list_offsets(asked).values():
        assert future.result(120).offset == 1


def check_stalls(watch: Watch, usual: Watch) -> None:
    """Compare an honest producer's latencies with those without a backup, as the machine may be
    busy.
    """
    assert not watch.honest.errors
    assert watch.honest.p99_ms < max(100, 3 * usual.honest.p99_ms)
    assert watch.honest.worst_ms < max(200, 3 * usual.honest.worst_ms)


@pytest.fixture
def memory_path() -> Iterator[Path]:
    """A directory in memory if there is one: a disk that many files are created on stalls writes by
    itself.
    """
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="headrace-backup-", dir=memory) as path:
        yield Path(path)


def test_many_partitions(memory_path: Path) -> None:
    data_dir = filled(memory_path / "data", PARTITIONS, batch(b"x"), 1)
    with HeadraceProcess(data_dir) as broker:
        use_all(broker.bootstrap_servers, PARTITIONS)
        with watching(broker) as usual:
            time.sleep(USUAL_S)
        with watching(broker) as watch:
            status, output, errors = run(
                "backup", str(memory_path / "backup"), "--data-dir", str(data_dir), timeout_s=300
            )
        assert (status, errors) == (0, [])
        print(output.decode())
    assert f"with {PARTITIONS + 2} used partitions" in output.decode()
    check_stalls(watch, usual)


def test_many_bytes(tmp_path: Path) -> None:
    data_dir = filled(
        tmp_path / "data", 1, batch(uuid.uuid4().bytes * (BATCH_BYTES // 16)), BATCHES
    )
    with HeadraceProcess(data_dir) as broker:
        with watching(broker) as usual:
            time.sleep(USUAL_S)
        with watching(broker) as watch:
            status, output, errors = run(
                "backup", str(tmp_path / "backup"), "--data-dir", str(data_dir), timeout_s=300
            )
        assert (status, errors) == (0, [])
        print(output.decode())
    check_stalls(watch, usual)
    assert watch.grown_bytes < 20 * MIB
