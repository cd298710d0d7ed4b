"""Clients that ask for a great deal and do not read the answers."""

from __future__ import annotations

import hashlib
import socket
import struct
import time
from pathlib import Path

import pytest

import headrace
from tests.attacks.harness import (
    MIB,
    create_topics,
    crowd,
    fetch,
    fill,
    metadata_of_all,
    open_files,
    watching,
)
from tests.support import HeadraceProcess, unique, wait_until
from tests.wire_client import connection, receive_exactly, receive_frame

pytestmark = [pytest.mark.broker, pytest.mark.slow]

SMALL_RECEIVE_BUFFER = 4096


def test_consumers_that_do_not_read_take_no_memory(tmp_path: Path) -> None:
    topic = unique("unread")
    with HeadraceProcess(tmp_path / "data") as broker:
        fill(broker, topic, 50 * MIB)
        with (
            watching(broker) as watch,
            crowd(broker.bootstrap_servers, 100, SMALL_RECEIVE_BUFFER) as sockets,
        ):
            for sock in sockets:
                sock.sendall(fetch(topic))
            time.sleep(3)
            files = open_files(broker.pid)
    assert watch.grown_bytes < 16 * MIB
    assert files < 100 + 50, "no file of its own for each consumer"
    assert not watch.honest.errors


def test_a_thousand_consumers_that_do_not_read_cost_little_each(tmp_path: Path) -> None:
    topic = unique("unread")
    with HeadraceProcess(tmp_path / "data") as broker:
        fill(broker, topic, 2 * MIB, partitions=10)
        with (
            watching(broker) as watch,
            crowd(broker.bootstrap_servers, 1000, SMALL_RECEIVE_BUFFER) as sockets,
        ):
            for sock in sockets:
                sock.sendall(fetch(topic, range(10)) * 10)
            time.sleep(3)
    assert watch.grown_bytes < 1000 * 48 * 1024


def test_a_consumer_that_begins_to_read_late_gets_everything(tmp_path: Path) -> None:
    """Also when the topic is deleted meanwhile."""
    topic = unique("late")
    with HeadraceProcess(tmp_path / "data") as broker:
        fill(broker, topic, 20 * MIB, partitions=2)
        with crowd(broker.bootstrap_servers, 2, SMALL_RECEIVE_BUFFER) as (first, second):
            first.sendall(fetch(topic, range(2)))
            expected = receive_frame(first)
            assert expected is not None and len(expected) > 40 * MIB
            second.sendall(fetch(topic, range(2)) + metadata_of_all(7))
            time.sleep(0.5)
            with connection(broker.bootstrap_servers) as client:
                client.ask(20, 4, topic_names=[topic], timeout=30_000)
            late = receive_frame(second)
            assert late is not None
            assert hashlib.sha256(late).digest() == hashlib.sha256(expected).digest()
            answered = receive_frame(second)
            assert answered is not None and struct.unpack_from(">i", answered)[0] == 7
        wait_until(
            lambda: not any("deleted" in name for name in _open_paths(broker.pid)),
            10,
            "the deleted files to be closed",
        )


def _open_paths(pid: int) -> list[str]:
    names = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            names.append(str(link.readlink()))
        except OSError:
            continue
    return [name for name in names if name.startswith("/") and ".log" in name]


def test_half_closed_clients_get_what_they_asked_for(tmp_path: Path) -> None:
    topic = unique("half")
    with HeadraceProcess(tmp_path / "data") as broker:
        fill(broker, topic, 20 * MIB)
        with crowd(broker.bootstrap_servers, 1, SMALL_RECEIVE_BUFFER) as (sock,):
            sock.sendall(fetch(topic) + metadata_of_all(2) * 100)
            sock.shutdown(socket.SHUT_WR)
            time.sleep(0.5)
            records = receive_frame(sock)
            assert records is not None and len(records) > 20 * MIB
            for _ in range(100):
                assert receive_frame(sock) is not None
            assert receive_exactly(sock, 1) == b"", "and then the connection is closed"


def test_unread_answers_have_one_bound_for_all_connections(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The connections that were stalled for longest are closed."""
    monkeypatch.setattr("headrace.net.connection.MAX_UNSENT_BYTES", MIB)
    with headrace.Broker() as broker:
        create_topics(broker.bootstrap_servers, 500, partitions=20)
        with connection(broker.bootstrap_servers) as client:
            client.send(metadata_of_all())
            size_bytes = len(client.receive() or b"")
        # The kernel takes more than half of some answers, so ten times the limit is asked for.
        count = 10 * MIB // size_bytes
        with crowd(broker.bootstrap_servers, count, SMALL_RECEIVE_BUFFER) as sockets:
            for sock in sockets:
                sock.sendall(metadata_of_all() * 30)
            wait_until(lambda: "do not read their responses" in caplog.text, 60, "the bound")
            with connection(broker.bootstrap_servers) as client:
                client.send(metadata_of_all())
                assert len(client.receive() or b"") == size_bytes, "who reads is served"
