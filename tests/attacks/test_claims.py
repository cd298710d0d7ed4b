"""Requests that claim to be large and do not come."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.attacks.harness import (
    MIB,
    claim,
    crowd,
    dripping,
    peak_bytes,
    produce,
    resident_bytes,
    watching,
)
from tests.support import HeadraceProcess, unique, wait_until
from tests.wire_client import batch, connection, receive_exactly

pytestmark = [pytest.mark.broker, pytest.mark.slow]

LARGEST = 100 * MIB


def test_a_claim_takes_no_memory(tmp_path: Path) -> None:
    with (
        HeadraceProcess(tmp_path / "data") as broker,
        watching(broker) as watch,
        crowd(broker.bootstrap_servers, 100) as sockets,
    ):
        for sock in sockets:
            sock.sendall(claim(LARGEST))
        time.sleep(1)
    assert watch.grown_bytes < 4 * MIB


def test_unfinished_requests_have_one_bound_for_all_connections(tmp_path: Path) -> None:
    """Half of what is claimed arrives, on many connections."""
    limit = 16 * MIB
    configs = {"queued.max.request.bytes": str(limit)}
    with HeadraceProcess(tmp_path / "data", configs) as broker:
        with watching(broker) as watch, crowd(broker.bootstrap_servers, 50) as sockets:
            for sock in sockets:
                sock.setblocking(False)
                sock.send(claim(4 * MIB) + bytes(MIB))
            time.sleep(3)
        assert watch.grown_bytes < limit + 4 * MIB + 16 * MIB
        assert not watch.honest.errors


def test_drips_do_not_starve_a_large_request(tmp_path: Path) -> None:
    """Others hold the memory and send a byte now and then; they are closed, and the large request
    is served.
    """
    configs = {"queued.max.request.bytes": str(8 * MIB)}
    with HeadraceProcess(tmp_path / "data", configs) as broker:
        topic = unique("large")
        with connection(broker.bootstrap_servers) as client:
            client.create_topic(topic, max_message_bytes=str(40 * MIB))
        with crowd(broker.bootstrap_servers, 100) as sockets:
            for sock in sockets:
                sock.setblocking(False)
                sock.send(claim(LARGEST) + bytes(100_000))
            with (
                dripping(sockets, 0.2),
                watching(broker) as watch,
                crowd(broker.bootstrap_servers, 1) as (honest,),
            ):
                started = time.monotonic()
                honest.sendall(produce(topic, batch([bytes(20 * MIB)])))
                assert receive_exactly(honest, 8)[4:] == b"\0\0\0\1"
                took_s = time.monotonic() - started
        assert took_s < 15
        assert not watch.honest.errors
        assert any("others wait" in line for line in broker.output)


def test_slow_clients_are_not_closed_while_there_is_memory(tmp_path: Path) -> None:
    with HeadraceProcess(tmp_path / "data") as broker:
        topic = unique("slow")
        with connection(broker.bootstrap_servers) as client:
            client.create_topic(topic)
        data = produce(topic, batch([bytes(50_000)]))
        with crowd(broker.bootstrap_servers, 1) as (sock,):
            for start in range(0, len(data), 5000):
                sock.sendall(data[start : start + 5000])
                time.sleep(0.6)
            assert receive_exactly(sock, 8)[4:] == b"\0\0\0\1"


def test_the_memory_of_large_requests_is_given_back(tmp_path: Path) -> None:
    with HeadraceProcess(tmp_path / "data") as broker:
        topic = unique("large")
        with connection(broker.bootstrap_servers) as client:
            client.create_topic(topic, max_message_bytes=str(95 * MIB))
            records = batch([bytes(90 * MIB)])
            took_s = []
            for _ in range(3):
                started = time.monotonic()
                assert client.produce(topic, records)[0] == 0
                took_s.append(time.monotonic() - started)
        print(f"90 MiB in {took_s} s")
        assert min(took_s) < 3
        assert peak_bytes(broker.pid) < 400 * MIB
        wait_until(lambda: resident_bytes(broker.pid) < 100 * MIB, 10, "the memory to be free")
