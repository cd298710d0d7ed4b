"""A backup beside an honest producer: many partitions, and many bytes."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from headrace.broker.catalog import CATALOG_FILE, Catalog
from headrace.log.data_directory import DataDirectory
from headrace.log.log_config import LogConfig
from headrace.log.log_directory import LogDirectory
from tests.attacks.harness import MIB, watching
from tests.cli.command import run
from tests.log.disk import batch, put
from tests.support import HeadraceProcess

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]

PARTITIONS = 5_000
BATCHES, BATCH_BYTES = 600, 1_000_000


def filled(data_dir: Path, partitions: int, data: bytes, batches: int) -> Path:
    """Create a data directory with a topic ``orders`` that has batches in each partition."""
    catalog = Catalog(data_dir_with(data_dir) / CATALOG_FILE)
    topic = catalog.create_topic("orders", partitions)
    catalog.close()
    home = LogDirectory(DataDirectory(data_dir, 64, sync=False))
    for partition in range(partitions):
        log = home.open("orders", topic.topic_id, partition, LogConfig())
        for _ in range(batches):
            put(log, data)
    home.close()
    return data_dir


def data_dir_with(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


def use_all(bootstrap_servers: str, partitions: int) -> None:
    """Have the broker load the logs of all partitions."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    asked = {
        TopicPartition("orders", partition): OffsetSpec.latest() for partition in range(partitions)
    }
    for future in admin.list_offsets(asked).values():
        assert future.result(120).offset == 1


def test_many_partitions(tmp_path: Path) -> None:
    data_dir = filled(tmp_path / "data", PARTITIONS, batch(b"x"), 1)
    with HeadraceProcess(data_dir) as broker:
        use_all(broker.bootstrap_servers, PARTITIONS)
        with watching(broker) as watch:
            status, output, errors = run(
                "backup", str(tmp_path / "backup"), "--data-dir", str(data_dir), timeout_s=300
            )
        assert (status, errors) == (0, [])
        print(output.decode())
    assert f"with {PARTITIONS + 1} used partitions" in output.decode()
    assert watch.honest.worst_ms < 200
    assert not watch.honest.errors


def test_many_bytes(tmp_path: Path) -> None:
    data_dir = filled(
        tmp_path / "data", 1, batch(uuid.uuid4().bytes * (BATCH_BYTES // 16)), BATCHES
    )
    with HeadraceProcess(data_dir) as broker:
        with watching(broker) as watch:
            status, output, errors = run(
                "backup", str(tmp_path / "backup"), "--data-dir", str(data_dir), timeout_s=300
            )
        assert (status, errors) == (0, [])
        print(output.decode())
    assert watch.honest.p99_ms < 100
    assert watch.grown_bytes < 20 * MIB
