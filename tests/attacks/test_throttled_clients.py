"""Clients that do not care that they are throttled, and many of them."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace.net.acceptor import MAX_HELD_CONNECTIONS
from headrace.net.client_quotas import Quotas
from tests.attacks.harness import MIB, watching
from tests.support import HeadraceProcess, set_quotas, unique, wait_until
from tests.wire_client import (
    Connection,
    batch,
    encode,
    frame,
    receive_frame,
    request_header,
    request_message,
)

pytestmark = [pytest.mark.broker]

PRODUCE, METADATA, API_VERSIONS, ALTER = 0, 3, 18, 49


def produce_frame(topic: str, size: int, client_id: str, *, acks: int = 1) -> bytes:
    partition = {"index": 0, "records": batch([b"x" * size])}
    topics = [{"name": topic, "partition_data": [partition]}]
    message = request_message(
        PRODUCE, 9, acks=acks, timeout=1000, transactional_id=None, topic_data=topics
    )
    return encode(message, 1, client_id)


def create(servers: str, topic: str) -> None:
    client = Connection(servers)
    wait_until(
        lambda: (
            client.ask(METADATA, 4, topics=[{"name": topic}], allow_auto_topic_creation=True)
            .topics[0]
            .error_code
            == 0
        ),
        20,
        "the topic",
    )
    client.close()


def connect(servers: str) -> socket.socket:
    host, port = servers.rsplit(":", 1)
    return socket.create_connection((host, int(port)), 30)


@contextlib.contextmanager
def embedded() -> Iterator[tuple[Any, str, str]]:
    """Yield a broker in this process, its address, and a topic."""
    topic = unique("throttled")
    with headrace.Broker() as broker:
        create(broker.bootstrap_servers, topic)
        yield broker, broker.bootstrap_servers, topic


def test_nothing_of_a_client_that_sends_on_is_stored() -> None:
    """Two megabytes that are sent while the client is muted stay in the sockets."""
    with embedded() as (_, servers, topic):
        set_quotas(servers, {"client-id": "rude"}, producer_byte_rate=1)
        sock = connect(servers)
        sock.sendall(produce_frame(topic, 1000, "rude"))
        assert receive_frame(sock) is not None
        sock.setblocking(False)
        request, sent = produce_frame(topic, 50_000, "rude"), 0
        while sent < 100 * MIB and select.select([], [sock], [], 0)[1]:
            sent += sock.send(request)
        assert sent < 100 * MIB  # the sockets are full
        assert not select.select([sock], [], [], 0.3)[0]
        client = Connection(servers)
        response = client.ask(
            2,
            4,
            replica_id=-1,
            isolation_level=0,
            topics=[
                {
                    "name": topic,
                    "partitions": [
                        {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
                    ],
                }
            ],
        )
        assert response.topics[0].partitions[0].offset == 1
        for one in (sock, client):
            one.close()


def test_requests_that_came_with_the_throttled_one_wait() -> None:
    with embedded() as (_, servers, topic):
        set_quotas(servers, {"client-id": "rude"}, producer_byte_rate=100)
        sock = connect(servers)
        sock.sendall(produce_frame(topic, 10, "rude") + produce_frame(topic, 1200, "rude") * 3)
        assert receive_frame(sock) is not None
        assert receive_frame(sock) is not None
        assert not select.select([sock], [], [], 0.3)[0]
        sock.close()


def test_clients_that_close_while_they_are_muted_leave_nothing() -> None:
    with embedded() as (_, servers, topic):
        set_quotas(servers, {"client-id": "rude"}, producer_byte_rate=1)
        socks = [connect(servers) for _ in range(20)]
        for sock in socks:
            sock.sendall(produce_frame(topic, 1000, "rude"))
            assert receive_frame(sock) is not None
        set_quotas(servers, {"client-id": "rude"}, producer_byte_rate=None)
        for sock in socks:
            sock.close()
        late = connect(servers)
        late.sendall(produce_frame(topic, 1000, "rude"))
        answer = receive_frame(late)
        assert answer is not None
        assert struct.unpack(">i", answer[-5:-1]) == (0,)
        late.close()


def test_muted_connections_are_idle_ones() -> None:
    with headrace.Broker(config={"connections.max.idle.ms": 500}) as broker:
        servers, topic = broker.bootstrap_servers, unique("throttled")
        create(servers, topic)
        set_quotas(servers, {"client-id": "rude"}, producer_byte_rate=1)
        sock = connect(servers)
        sock.sendall(produce_frame(topic, 1000, "rude"))
        assert receive_frame(sock) is not None
        assert receive_frame(sock) is None  # closed
        sock.close()


def test_large_requests_of_muted_clients_do_not_hold_the_memory_of_requests() -> None:
    """A throttled request is served: it does not count as one that waits."""
    with headrace.Broker(config={"queued.max.request.bytes": MIB}) as broker:
        servers, topic = broker.bootstrap_servers, unique("throttled")
        create(servers, topic)
        set_quotas(servers, {"client-id": "rude"}, producer_byte_rate=1)
        socks = [connect(servers) for _ in range(8)]
        for sock in socks:
            sock.sendall(produce_frame(topic, 500_000, "rude"))
            assert receive_frame(sock) is not None
        honest = connect(servers)
        honest.sendall(produce_frame(topic, 900_000, "honest"))
        assert receive_frame(honest) is not None
        for sock in (*socks, honest):
            sock.close()


def test_ten_thousand_client_ids_take_no_memory_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their sensors are deleted when their samples have no effect any more: with two samples of a
    second, after two seconds.
    """
    found: list[Quotas] = []
    make = Quotas.__init__

    def remember(self: Quotas, *arguments: Any) -> None:
        make(self, *arguments)
        found.append(self)

    monkeypatch.setattr(Quotas, "__init__", remember)
    with headrace.Broker(config={"quota.window.num": 2}) as broker:
        set_quotas(broker.bootstrap_servers, {"client-id": None}, request_percentage=1e9)
        (quotas,) = found
        sock = connect(broker.bootstrap_servers)
        for number in range(10_000):
            sock.sendall(frame(request_header(API_VERSIONS, 0, number, f"client-{number}")))
            assert receive_frame(sock) is not None

        def are_gone() -> bool:
            for _ in range(1000):
                sock.sendall(frame(request_header(API_VERSIONS, 0, 1, "last")))
                assert receive_frame(sock) is not None
            return len(quotas.machine) <= 2

        wait_until(are_gone, 30, "the sensors to be deleted")
        sock.close()


def test_an_address_cannot_hold_more_than_some_connections() -> None:
    with headrace.Broker() as broker:
        servers = broker.bootstrap_servers
        set_quotas(servers, {"ip": "127.0.0.9"}, connection_creation_rate=1)
        host, port = servers.rsplit(":", 1)
        socks = [
            socket.create_connection((host, int(port)), 30, source_address=("127.0.0.9", 0))
            for _ in range(MAX_HELD_CONNECTIONS + 50)
        ]
        others = connect(servers)
        others.sendall(frame(request_header(API_VERSIONS, 0, 7)))
        assert receive_frame(others) is not None
        for sock in (*socks, others):
            sock.close()


@pytest.mark.alone
def test_another_client_does_not_notice_throttled_ones(tmp_path: Path) -> None:
    topic = unique("throttled")
    with HeadraceProcess(tmp_path / "data") as broker:
        servers = broker.bootstrap_servers
        create(servers, topic)
        set_quotas(servers, {"client-id": "rude"}, producer_byte_rate=10_000)
        request = produce_frame(topic, 10_000, "rude")
        socks = [connect(servers) for _ in range(20)]
        with watching(broker) as watch:
            for _ in range(3):
                for sock in socks:
                    sock.setblocking(False)
                    with contextlib.suppress(BlockingIOError):
                        sock.send(request * 5)
                select.select([], [], [], 1)
        for sock in socks:
            sock.close()
    assert watch.grown_bytes < 32 * MIB
    assert not watch.honest.errors
    assert watch.honest.p99_ms < 300
