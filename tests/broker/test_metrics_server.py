"""The metrics port: its answers, and its limits."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient
from prometheus_client.parser import text_string_to_metric_families

from headrace import Broker
from tests.support import wait_until
from tests.wire_client import answers

pytestmark = pytest.mark.broker


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(metrics_port=0) as running:
        yield running


def samples(broker: Broker) -> dict[tuple[str, str], float]:
    """Return values by name and request, of metrics with at most that one label."""
    with urllib.request.urlopen(broker.metrics_url, timeout=10) as page:
        assert page.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        families = text_string_to_metric_families(page.read().decode())
    return {
        (sample.name, sample.labels.get("request", "")): sample.value
        for family in families
        for sample in family.samples
        if set(sample.labels) <= {"request"}
    }


def at(broker: Broker) -> tuple[str, int]:
    host, _, port = (
        broker.metrics_url.removeprefix("http://").removesuffix("/metrics").rpartition(":")
    )
    return host, int(port)


def ask(broker: Broker, request: bytes) -> bytes:
    """Send the head of a request; return everything received until the server closes."""
    request = request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    with socket.create_connection(at(broker), timeout=10) as sock:
        sock.sendall(request)
        received = b""
        while chunk := sock.recv(65536):
            received += chunk
    return received


def test_requests_and_connections_are_counted(broker: Broker) -> None:
    before = samples(broker)
    host, port = broker.bootstrap_servers.split(":")
    assert answers(host, int(port))
    client = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    client.list_topics(timeout=10)
    now = samples(broker)
    requests = "kafka_network_requestmetrics_requests_total"
    assert before.get((requests, "ApiVersions"), 0) == 0
    assert now[requests, "ApiVersions"] >= 2
    assert now[requests, "Metadata"] >= 1
    times = "kafka_network_requestmetrics_totaltimems"
    assert now[f"{times}_count", "Metadata"] == now[requests, "Metadata"]
    assert now[f"{times}_sum", "Metadata"] > 0
    prefix = "kafka_server_socket_server_metrics_"
    assert now[f"{prefix}connection_creation_total", ""] >= 2
    assert now[f"{prefix}incoming_byte_total", ""] > 0
    assert now[f"{prefix}outgoing_byte_total", ""] > now[f"{prefix}incoming_byte_total", ""]
    assert now["process_resident_memory_bytes", ""] > 1_000_000


def test_open_connections_are_counted(broker: Broker) -> None:
    host, port = broker.bootstrap_servers.split(":")
    name = ("kafka_server_socket_server_metrics_connection_count", "")
    assert samples(broker)[name] == 0
    with socket.create_connection((host, int(port))):
        wait_until(lambda: samples(broker)[name] == 1, 10, "the connection to be counted")
    wait_until(lambda: samples(broker)[name] == 0, 10, "its end to be counted")


@pytest.mark.parametrize(
    ("request_", "status", "hint"),
    [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"404", b"/metrics"),
        (b"POST /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", b"405", b"allow: GET"),
        (b"hello\r\n\r\n", b"400", b"HTTP/1.1"),
        (b"\x00\x00\x00\x12\x00\x12\r\n\r\n", b"400", b"HTTP/1.1"),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 100_000, b"431", b"too long"),
        (b"GET /metrics?x=1 HTTP/1.0\r\n\r\n", b"200", b"headrace_build_info"),
    ],
)
def test_other_paths_and_methods(
    broker: Broker, request_: bytes, status: bytes, hint: bytes
) -> None:
    try:
        answer = ask(broker, request_)
    except ConnectionResetError:  # closed while the rest of an overlong request was under way
        assert status == b"431"
    else:
        assert answer.startswith(b"HTTP/1.1 " + status)
        assert hint in answer
    assert samples(broker)


def test_head_answers_without_the_page(broker: Broker) -> None:
    head, _, body = ask(broker, b"HEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").partition(
        b"\r\n\r\n"
    )
    assert b"content-length: " in head
    assert body == b""


def test_an_idle_connection_does_not_keep_the_broker_from_stopping() -> None:
    with Broker(metrics_port=0) as broker:
        idle = socket.create_connection(at(broker), timeout=10)
    assert broker._thread is None
    idle.close()


def test_a_port_in_use_is_an_error_and_without_a_port_there_is_no_url(broker: Broker) -> None:
    with pytest.raises(OSError):
        Broker(metrics_port=at(broker)[1]).start()
    with Broker() as plain, pytest.raises(RuntimeError):
        _ = plain.metrics_url


def test_the_url_of_an_ipv6_address() -> None:
    with Broker(host="::1", metrics_port=0) as broker:
        assert broker.metrics_url.startswith("http://[::1]:")
        with urllib.request.urlopen(broker.metrics_url, timeout=10) as page:
            assert page.status == 200


def test_an_unknown_path_is_told_where_the_metrics_are(broker: Broker) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(broker.metrics_url + "s", timeout=10)
    assert refused.value.code == 404
    assert b"/metrics" in refused.value.read()
