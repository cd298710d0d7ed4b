"""A disk without room: writes are refused with a Kafka error, reads go on, and writes too once
there is room.
"""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from tests.clients.confluent import consumer, create_topic, produce, take
from tests.support import COMMON_CONFIGS, HeadraceProcess, unique
from tests.wire_client import batch, connection

pytestmark = pytest.mark.broker

KAFKA_STORAGE_ERROR = 56
MIB = 1 << 20
RECORDS = batch([bytes([i]) * 1000 for i in range(100)])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB in memory, most of it taken by a file `ballast`."""
    where = tmp_path / "disk"
    where.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(where)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a small file system: {mounted.stderr.strip()}")
    (where / "ballast").write_bytes(bytes(5 * MIB))
    yield where
    subprocess.run(["umount", "-l", str(where)], check=True)


def test_a_full_file_system(small_disk: Path) -> None:
    server = HeadraceProcess(small_disk / "data", COMMON_CONFIGS).start()
    try:
        refuse_then_recover(server, make_room=(small_disk / "ballast").unlink)
    finally:
        server.kill()


def test_a_limit_on_the_size_of_files(tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2 * MIB, resource.RLIM_INFINITY))

    server = HeadraceProcess(tmp_path / "data", COMMON_CONFIGS, preexec_fn=limit).start()
    everything = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    try:
        refuse_then_recover(
            server,
            make_room=lambda: resource.prlimit(server.pid, resource.RLIMIT_FSIZE, everything),
        )
    finally:
        server.kill()


def refuse_then_recover(server: HeadraceProcess, make_room: Callable[[], object]) -> None:
    where = server.bootstrap_servers
    topic = create_topic(where, unique("topic"))
    with connection(where) as client:
        stored = 0
        for _ in range(1000):
            code, base_offset = client.produce(topic, RECORDS)
            if code:
                break
            assert base_offset == stored
            stored += 100
        assert code == KAFKA_STORAGE_ERROR
        assert stored > 0
        for _ in range(5):  # and again, on and on
            assert client.produce(topic, RECORDS) == (KAFKA_STORAGE_ERROR, -1)
        with consumer(where, unique("group"), check_crcs=True) as source:
            source.assign([TopicPartition(topic, 0, 0)])
            assert len(take(source, stored)) == stored
        make_room()
        assert client.produce(topic, RECORDS) == (0, stored)
    produce(where, topic, [b"last"])
    with consumer(where, unique("group"), check_crcs=True) as source:
        source.assign([TopicPartition(topic, 0, 0)])
        messages = take(source, stored + 101)
    assert [m.offset() for m in messages] == list(range(stored + 101))
    assert messages[-1].value() == b"last"
    server.kill()
    server.start()
    with consumer(server.bootstrap_servers, unique("group"), check_crcs=True) as source:
        source.assign([TopicPartition(topic, 0, 0)])
        assert len(take(source, stored + 101)) == stored + 101
