"""Connections: pipelined requests, requests without an answer, and back pressure."""

from __future__ import annotations

import contextlib
import logging
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

import headrace
from headrace.log_lines import LIMITER
from headrace.net.call import RECEIVE_BUFFER_BYTES
from headrace.net.connection import MAX_QUEUED_REQUESTS, Connection
from headrace.protocol.primitives import compact_length
from tests import wire_client
from tests.support import wait_until

pytestmark = pytest.mark.broker

API_VERSIONS = struct.pack(">hhih", 18, 0, 7, -1)


@pytest.fixture(scope="module")
def broker() -> Iterator[headrace.Broker]:
    with headrace.Broker() as broker:
        yield broker


@pytest.fixture
def client(broker: headrace.Broker) -> Iterator[socket.socket]:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    with socket.create_connection((host, int(port)), 10) as client:
        yield client


@pytest.fixture
def small_buffers(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A socket that is not connected; when it is, little fits into the buffers of both sides."""
    made = Connection.connection_made

    def connection_made(connection: Connection, transport: Any) -> None:
        server_side = transport.get_extra_info("socket")
        server_side.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        made(connection, transport)

    monkeypatch.setattr(Connection, "connection_made", connection_made)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(10)
        yield client


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def answer(client: socket.socket) -> bytes:
    size = struct.unpack(">i", exactly(client, 4))[0]
    return exactly(client, size)


def topic_id(broker: headrace.Broker, name: str) -> bytes:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    known = admin.describe_topics(TopicCollection([name]))[name].result().topic_id
    halves = known.get_most_significant_bits(), known.get_least_significant_bits()
    return struct.pack(">qq", *halves)


def produce_v13(topic_id: bytes, records: bytes) -> bytes:
    """Return a Produce request for partition 0 with correlation id 100."""
    head = struct.pack(">hhih", 0, 13, 100, -1) + b"\0" + b"\0" + struct.pack(">hi", -1, 1000)
    size = compact_length(len(records))
    return head + b"\2" + topic_id + b"\2" + struct.pack(">i", 0) + size + records + b"\0\0\0"


def exactly(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = client.recv(size - len(data))
        assert piece, f"closed after {len(data)} of {size} bytes"
        data += piece
    return data


def test_many_pipelined_requests_are_all_answered_in_order(client: socket.socket) -> None:
    count = MAX_QUEUED_REQUESTS * 5
    client.sendall(b"".join(framed(struct.pack(">hhih", 18, 0, i, -1)) for i in range(count)))
    assert [struct.unpack_from(">i", answer(client))[0] for _ in range(count)] == list(range(count))


def test_a_commit_behind_answers_that_nobody_reads_is_answered_after_them(
    broker: headrace.Broker, small_buffers: socket.socket
) -> None:
    """The socket is full when the commit, which is written later, gets its answer."""
    topic = {"name": "unread", "partitions": [{"partition_index": 0, "committed_metadata": ""}]}

    def commit(number: int) -> bytes:
        group = {"group_id": "unread", "generation_id_or_member_epoch": -1}
        return wire_client.request_frame(8, 8, number, **group, topics=[topic])

    def versions(number: int) -> bytes:
        return wire_client.request_frame(18, 0, number)

    with wire_client.connection(broker.bootstrap_servers) as other:
        other.create_topic("unread")
    requests = [commit, commit, *([versions] * 60 + [commit]) * 10]
    host, _, port = broker.bootstrap_servers.rpartition(":")
    small_buffers.connect((host, int(port)))
    small_buffers.sendall(b"".join(ask(number) for number, ask in enumerate(requests)))
    for number in range(len(requests)):
        assert struct.unpack_from(">i", answer(small_buffers))[0] == number


def test_requests_behind_a_long_poll_wait_for_it(
    broker: headrace.Broker, client: socket.socket
) -> None:
    """They are answered when it ends, however many there are."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("polled", b"x")
    assert producer.flush(10) == 0
    partition = struct.pack(">iqi", 0, 1, 1024)
    fetch = struct.pack(">hhihiiiibi", 1, 4, 99, -1, -1, 300, 1, 1024, 0, 1)
    fetch += struct.pack(">h", 6) + b"polled" + struct.pack(">i", 1) + partition
    count = MAX_QUEUED_REQUESTS * 3
    client.sendall(framed(fetch) + framed(API_VERSIONS) * count)
    assert struct.unpack_from(">i", answer(client))[0] == 99
    assert [struct.unpack_from(">i", answer(client))[0] for _ in range(count)] == [7] * count


def test_waiting_requests_are_not_overwritten_by_other_connections(
    broker: headrace.Broker, client: socket.socket
) -> None:
    """All connections receive into one buffer; a Produce behind a long poll must survive that."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("kept", b"first")
    assert producer.flush(10) == 0
    fetch = struct.pack(">hhihiiiibi", 1, 4, 99, -1, -1, 2000, 1, 1024, 0, 1)
    fetch += struct.pack(">h", 4) + b"kept" + struct.pack(">iiqi", 1, 0, 1, 1024)
    client.sendall(
        framed(fetch)
        + framed(produce_v13(topic_id(broker, "kept"), wire_client.batch([b"mine" * 100])))
    )
    with wire_client.connection(broker.bootstrap_servers) as other:
        for _ in range(50):
            other.call(18, 0, b"")
            other.send(framed(struct.pack(">hhih", 18, 0, 1, 8000) + b"z" * 8000))
            assert other.receive() is not None
        producer.produce("kept", b"second")  # ends the long poll
        assert producer.flush(10) == 0
    assert struct.unpack_from(">i", answer(client))[0] == 99
    assert struct.unpack_from(">i", answer(client))[0] == 100
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
    consumer.assign([TopicPartition("kept", 0, 0)])
    values = [message.value() for message in consumer.consume(3, 10)]
    consumer.close()
    assert values == [b"first", b"second", b"mine" * 100]


def test_a_failed_unacknowledged_produce_closes_the_connection(client: socket.socket) -> None:
    topic = struct.pack(">h", 4) + b"none" + struct.pack(">iii", 1, 0, 3) + b"abc"
    produce = struct.pack(">hhih", 0, 3, 1, -1) + struct.pack(">hhii", -1, 0, 1000, 1) + topic
    client.sendall(framed(produce))
    assert client.recv(1) == b""


def test_an_unacknowledged_produce_is_stored_and_not_answered(broker: headrace.Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": 0})
    for i in range(100):
        producer.produce("unacknowledged", b"%d" % i)
    assert producer.flush(10) == 0
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "reader"})
    consumer.assign([TopicPartition("unacknowledged", 0, 0)])
    assert [message.value() for message in consumer.consume(100, 10)] == [
        b"%d" % i for i in range(100)
    ]
    consumer.close()


def test_a_frame_larger_than_the_receive_buffer_arrives_whole(broker: headrace.Broker) -> None:
    """It is received into memory of its own, with the next request right behind it."""
    large = b"x" * (RECEIVE_BUFFER_BYTES * 3 + 17)
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "message.max.bytes": 5_000_000}
    )
    headed = [large[: len(large) // 4 + i] for i in range(4)]
    for value in headed:
        producer.produce("large", value)
    assert producer.flush(10) == 0
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "reader"})
    consumer.assign([TopicPartition("large", 0, 0)])
    assert [message.value() for message in consumer.consume(4, 10)] == headed
    consumer.close()


def test_max_connections() -> None:
    with headrace.Broker(config={"max.connections": 2}) as broker:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        with (
            socket.create_connection((host, int(port)), 10) as one,
            socket.create_connection((host, int(port)), 10),
        ):
            one.sendall(framed(API_VERSIONS))
            answer(one)
            with socket.create_connection((host, int(port)), 10) as third:
                assert third.recv(1) == b""
            one.sendall(framed(API_VERSIONS))
            answer(one)


def test_max_connections_of_a_listener() -> None:
    configs = {
        "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.2:0",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        "listener.name.outside.max.connections": "1",
    }
    with headrace.Broker(config=configs) as broker, contextlib.ExitStack() as stack:
        ports = {name: one.rpartition(":")[2] for name, one in broker.listeners.items()}

        def is_served(name: str, host: str) -> bool:
            sock = stack.enter_context(socket.create_connection((host, int(ports[name])), 10))
            try:
                sock.sendall(framed(API_VERSIONS))
                answer(sock)
            except (ConnectionError, AssertionError, struct.error):
                return False
            return True

        assert [is_served("OUTSIDE", "127.0.0.2") for _ in range(3)] == [True, False, False]
        assert [is_served("INSIDE", "127.0.0.1") for _ in range(3)] == [True] * 3


@pytest.mark.parametrize(
    "name", ["max.connection.creation.rate", "listener.name.plaintext.max.connection.creation.rate"]
)
def test_max_connection_creation_rate(name: str) -> None:
    """Two samples of a second: one connection at once, and then one in a second."""
    configs = {name: 1, "quota.window.num": 2}
    with headrace.Broker(config=configs) as broker:
        started = time.monotonic()
        assert [_is_served(broker, "127.0.0.1") for _ in range(4)] == [True] * 4
        assert time.monotonic() - started > 1  # they had to wait, and were not refused


@contextlib.contextmanager
def connected(broker: headrace.Broker, address: str) -> Iterator[bool]:
    """A connection from an address of this machine; True if it is served."""
    host, _, port = broker.bootstrap_servers.rpartition(":")
    with socket.create_connection((host, int(port)), 10, source_address=(address, 0)) as sock:
        try:
            sock.sendall(framed(API_VERSIONS))
            answer(sock)
        except (ConnectionError, AssertionError, struct.error):
            yield False
        else:
            yield True


def test_max_connections_per_ip() -> None:
    configs = {
        "max.connections.per.ip": 2,
        "max.connections.per.ip.overrides": "127.0.0.2:1,127.0.0.3:3,::1:7",
    }
    with headrace.Broker(config=configs) as broker, contextlib.ExitStack() as stack:
        for address, limit in (("127.0.0.1", 2), ("127.0.0.2", 1), ("127.0.0.3", 3)):
            for _ in range(limit):
                assert stack.enter_context(connected(broker, address))
            with connected(broker, address) as served:
                assert not served
        stack.close()
        wait_until(lambda: _is_served(broker, "127.0.0.2"), 10, "the old connection to be gone")


def _is_served(broker: headrace.Broker, address: str) -> bool:
    with connected(broker, address) as served:
        return served


def test_max_connections_per_ip_of_a_host_name() -> None:
    configs = {"max.connections.per.ip.overrides": "not..a.name:1,localhost:0"}
    with headrace.Broker(config=configs) as broker:
        assert _is_served(broker, "127.0.0.2")
        wait_until(lambda: not _is_served(broker, "127.0.0.1"), 10, "the name to be looked up")
        assert _is_served(broker, "127.0.0.2")


def test_max_connections_per_ip_at_run_time() -> None:
    with headrace.Broker() as broker:
        assert _is_served(broker, "127.0.0.2")
        resource = ConfigResource(ConfigResource.Type.BROKER, "1")
        for name, value in (
            ("max.connections.per.ip", "3"),
            ("max.connections.per.ip.overrides", "127.0.0.2:0,no-such-host.invalid:1"),
        ):
            resource.add_incremental_config(
                ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            )
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(10)
        assert not _is_served(broker, "127.0.0.2")
        with contextlib.ExitStack() as stack:
            assert [stack.enter_context(connected(broker, "127.0.0.3")) for _ in range(4)] == [
                *[True] * 3,
                False,
            ]


def test_idle_connections_are_closed() -> None:
    with headrace.Broker(config={"connections.max.idle.ms": 200}) as broker:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        with socket.create_connection((host, int(port)), 10) as idle:
            idle.sendall(framed(API_VERSIONS))
            answer(idle)
            assert idle.recv(1) == b""


def test_a_client_that_reads_a_long_answer_slowly_is_not_idle(
    small_buffers: socket.socket,
) -> None:
    with headrace.Broker(config={"connections.max.idle.ms": 1000}) as broker:
        with wire_client.connection(broker.bootstrap_servers) as other:
            other.create_topic("long")
            assert other.produce("long", wire_client.batch([bytes(900_000)])) == (0, 0)
        host, _, port = broker.bootstrap_servers.rpartition(":")
        small_buffers.connect((host, int(port)))
        fetch = struct.pack(">hhihiiiibi", 1, 4, 99, -1, -1, 0, 1, 1 << 20, 0, 1)
        fetch += struct.pack(">h", 4) + b"long" + struct.pack(">iiqi", 1, 0, 0, 1 << 20)
        small_buffers.sendall(framed(fetch))
        (size,) = struct.unpack(">i", exactly(small_buffers, 4))
        for _ in range(25):
            size -= len(exactly(small_buffers, 16_384))
            time.sleep(0.1)
        exactly(small_buffers, size)


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"GET /metrics HTTP/1.1\r\n\r\n", "it speaks HTTP, and this port Kafka's protocol"),
        (b"POST / HTTP/1.1\r\n\r\n", "it speaks HTTP, and this port Kafka's protocol"),
        (b"\x16\x03\x01\x02\x00\x01", "it speaks TLS, and this port Kafka's protocol"),
        (b"SSH-2.0-OpenSSH_9.2p1\r\n", "it speaks SSH, and this port Kafka's protocol"),
        (b"AMQP\0\0\x09\x01", "it speaks AMQP, and this port Kafka's protocol"),
        (b"\0" * 16, "a request of 0 bytes is too small"),
        (b"\xff" * 16, "a request of -1 bytes is too small"),
        (b"hello\r\n", "a request of 1751477356 bytes; socket.request.max.bytes is 104857600"),
    ],
)
def test_what_is_no_request_is_named_in_one_line(
    client: socket.socket, caplog: pytest.LogCaptureFixture, sent: bytes, reason: str
) -> None:
    LIMITER.clear()
    with caplog.at_level(logging.INFO, "headrace.server"):
        client.sendall(sent)
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""
    lines = [record.getMessage() for record in caplog.records if record.name == "headrace.server"]
    assert lines == [f"closing the connection from /127.0.0.1: {reason}"]
