"""More connections than the process has file descriptors for."""

from __future__ import annotations

import resource
import socket
from pathlib import Path

import pytest

from headrace.broker.descriptors import descriptor_budget
from tests.attacks.harness import connect, metadata_of_all, open_files
from tests.support import HeadraceProcess, unique, wait_until
from tests.wire_client import batch, connection, receive_frame

pytestmark = pytest.mark.broker

DESCRIPTORS = 64
PARTITIONS = 30


def test_connections_are_refused_before_logs_are_starved(tmp_path: Path) -> None:
    configs = {"log.flush.interval.messages": "1"}
    with HeadraceProcess(
        tmp_path / "data",
        configs,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS)),
    ) as broker:
        topic, records = unique("starved"), batch([b"x" * 100])
        with connection(broker.bootstrap_servers) as honest:
            honest.create_topic(topic, PARTITIONS)
            crowd: list[socket.socket] = []
            for number in range(100):
                crowd.append(connect(broker.bootstrap_servers))
                code, _ = honest.produce(topic, records, number % PARTITIONS)
                assert code == 0
            for number in range(PARTITIONS * 3):
                code, _ = honest.produce(topic, records, number % PARTITIONS)
                assert code == 0
            assert open_files(broker.pid) <= DESCRIPTORS
            served = sum(map(_is_served, crowd))
            assert served == descriptor_budget(DESCRIPTORS).connections - 1
            refusals = [line for line in broker.output if "file descriptors" in line]
            assert 1 <= len(refusals) < 10, "one line a second"
            for sock in crowd:
                sock.close()
            wait_until(lambda: _is_served(connect(broker.bootstrap_servers)), 10, "room")


def _is_served(sock: socket.socket) -> bool:
    try:
        sock.sendall(metadata_of_all())
        return receive_frame(sock) is not None
    except OSError:
        return False


def test_a_burst_of_connections_does_not_starve_logs(tmp_path: Path) -> None:
    """They all arrive while the broker is busy, and are accepted in one turn of the event loop."""
    with HeadraceProcess(
        tmp_path / "data",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS)),
    ) as broker:
        topic, records = unique("burst"), batch([b"x" * 100])
        with connection(broker.bootstrap_servers) as honest:
            honest.create_topic(topic, PARTITIONS)
            for _ in range(10):
                crowd = [_begin_to_connect(broker.port) for _ in range(200)]
                for partition in range(PARTITIONS):
                    assert honest.produce(topic, records, partition)[0] == 0
                for sock in crowd:
                    sock.close()
        assert not any("No file handle" in line for line in broker.output)


def _begin_to_connect(port: int) -> socket.socket:
    sock = socket.socket()
    sock.setblocking(False)
    sock.connect_ex(("127.0.0.1", port))
    return sock


@pytest.mark.parametrize("limit", [64, 100, 256, 1024, 20_000, 1 << 20])
def test_descriptors_are_divided(limit: int) -> None:
    budget = descriptor_budget(limit)
    assert budget.files >= 16
    assert budget.connections >= 16
    assert budget.files + budget.connections + 32 <= limit
