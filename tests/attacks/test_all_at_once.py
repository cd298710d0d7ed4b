"""All attacks together, beside an honest producer.

The resident memory stays below the sum of docs/limits.md. Add an attack to :data:`ATTACKS`: it gets
the broker and the sockets of its crowd, which are closed at the end.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace.net.flow import MAX_UNSENT_BYTES
from headrace.protocol.compression import ZSTD
from headrace.protocol.limits import MAX_OPENED_RECORD_BYTES
from tests.attacks.harness import (
    MIB,
    claim,
    create_topics,
    crowd,
    drip,
    fetch,
    fill,
    metadata_of_all,
    produce,
    watching,
)
from tests.bombs import count_bomb, size_bomb
from tests.support import HeadraceProcess, unique
from tests.wire_client import batch, connection, request_frame

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.alone]

QUEUED_BYTES = 32 * MIB
LARGEST_REQUEST_BYTES = 100 * MIB
CONNECTION_BYTES = 64 * 1024
SMALL_RECEIVE_BUFFER = 4096
ATTACK_S = 8

Attack = Callable[[HeadraceProcess, Sequence[socket.socket], threading.Event], None]
"""Attack with some sockets until the event is set; what fails because the broker closes a
connection is as it should be.
"""

QUIET_P99_MS = 20
"""If a broker that is left alone has a larger p99 meanwhile, the machine has other work, and the
time says nothing.
"""

LIST_OFFSETS = 2


def pipelined_fetches(
    broker: HeadraceProcess, sockets: Sequence[socket.socket], stop: threading.Event
) -> None:
    for sock in sockets:
        sock.send(fetch(TOPIC) * 80)


def pipelined_metadata(
    broker: HeadraceProcess, sockets: Sequence[socket.socket], stop: threading.Event
) -> None:
    for sock in sockets:
        sock.send(metadata_of_all() * 1000)


def consumers_that_do_not_read(
    broker: HeadraceProcess, sockets: Sequence[socket.socket], stop: threading.Event
) -> None:
    for sock in sockets:
        sock.send(fetch(TOPIC))


def claims(
    broker: HeadraceProcess, sockets: Sequence[socket.socket], stop: threading.Event
) -> None:
    for sock in sockets:
        sock.send(claim(LARGEST_REQUEST_BYTES))


def halves_of_requests(
    broker: HeadraceProcess, sockets: Sequence[socket.socket], stop: threading.Event
) -> None:
    for sock in sockets:
        sock.send(claim(4 * MIB) + bytes(MIB))
    drip(sockets, 0.5, stop)


def large_requests(
    broker: HeadraceProcess, sockets: Sequence[socket.socket], stop: threading.Event
) -> None:
    """Batches that are too large, sent as fast as they are taken."""
    data = produce(TOPIC, batch([bytes(20 * MIB)]))
    for sock in sockets:
        sock.settimeout(ATTACK_S)
        sock.sendall(data)


def bombs(broker: HeadraceProcess, sockets: Sequence[socket.socket], stop: threading.Event) -> None:
    """Look-ups in stored batches that are much larger than their bytes."""
    now_ms = int(time.time() * 1000)
    times = {"base_timestamp": now_ms, "max_timestamp": now_ms}
    topic = unique("bombs")
    with connection(broker.bootstrap_servers) as client:
        client.create_topic(topic)
        client.produce(topic, size_bomb(ZSTD, 1 << 30, **times))
        client.produce(topic, count_bomb(ZSTD, 2_000_000, **times))
    look_up = request_frame(
        LIST_OFFSETS,
        7,
        replica_id=-1,
        topics=[
            {
                "name": topic,
                "partitions": [
                    {"partition_index": 0, "current_leader_epoch": -1, "timestamp": now_ms}
                ]
                * 10,
            }
        ],
    )
    for sock in sockets:
        sock.send(look_up * 10)


def garbage(
    broker: HeadraceProcess, sockets: Sequence[socket.socket], stop: threading.Event
) -> None:
    for sock in sockets:
        sock.send(b"\xff" * 1000)


def connections_that_come_and_go(
    broker: HeadraceProcess, sockets: Sequence[socket.socket], stop: threading.Event
) -> None:
    while not stop.wait(0.02):
        with crowd(broker.bootstrap_servers, 10) as some:
            for sock in some:
                sock.send(metadata_of_all()[:20])


TOPIC = unique("attacked")


@dataclass(frozen=True)
class Crowd:
    """An attack and the number of its connections."""

    attack: Attack
    connections: int


ATTACKS = (
    Crowd(pipelined_fetches, 10),
    Crowd(pipelined_metadata, 5),
    Crowd(consumers_that_do_not_read, 200),
    Crowd(claims, 100),
    Crowd(halves_of_requests, 50),
    Crowd(large_requests, 3),
    Crowd(bombs, 5),
    Crowd(garbage, 50),
    Crowd(connections_that_come_and_go, 10),
)

MEMORY_BOUND = (
    QUEUED_BYTES
    + LARGEST_REQUEST_BYTES
    + MAX_UNSENT_BYTES
    + 3 * MAX_OPENED_RECORD_BYTES
    + sum(one.connections for one in ATTACKS) * CONNECTION_BYTES
)
"""The growth of the resident memory that docs/limits.md allows, for these attacks."""


@contextlib.contextmanager
def attacking(broker: HeadraceProcess, one: Crowd) -> Iterator[None]:
    """Attack until the end of the block."""
    stop = threading.Event()

    def run(sockets: Sequence[socket.socket]) -> None:
        with contextlib.suppress(OSError):  # the broker defends itself
            one.attack(broker, sockets, stop)

    with crowd(broker.bootstrap_servers, one.connections, SMALL_RECEIVE_BUFFER) as sockets:
        for sock in sockets:
            sock.setblocking(False)
        thread = threading.Thread(target=run, args=(sockets,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(30)


def test_all_attacks_together(tmp_path: Path) -> None:
    configs = {
        "queued.max.request.bytes": str(QUEUED_BYTES),
        "socket.request.max.bytes": str(LARGEST_REQUEST_BYTES),
    }
    with (
        HeadraceProcess(tmp_path / "data", configs) as broker,
        HeadraceProcess(tmp_path / "left alone") as other,
    ):
        fill(broker, TOPIC, 50 * MIB)
        create_topics(broker.bootstrap_servers, 1000)
        with (
            watching(other) as control,
            watching(broker) as watch,
            contextlib.ExitStack() as attacks,
        ):
            for one in ATTACKS:
                attacks.enter_context(attacking(broker, one))
            time.sleep(ATTACK_S)
    assert watch.grown_bytes < MEMORY_BOUND
    assert not watch.honest.errors
    if control.honest.p99_ms < QUIET_P99_MS:
        assert watch.honest.p99_ms < 100
