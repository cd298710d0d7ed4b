"""The page, the exporter and the metrics port under attack, beside an honest visitor.

The attackers are a process of their own at another address, so that the visitor's latency is that
of the port. Half a second and 200 MiB are the goal; the bounds allow for a busy machine.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import selectors
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import NamedTuple

import pytest

from headrace import Broker
from tests.attacks.harness import MIB, Honest, forget_peak, peak_bytes
from tests.cli.command import ENVIRONMENT, HEADRACE

pytestmark = [pytest.mark.broker, pytest.mark.alone]

ATTACK_S = 2.0
DESCRIPTORS = 1024
SILENT = 1100
FLOOD = 256
PIPELINED = 100
ATTACKER = "127.0.0.2"
MAX_P99_MS = 2_000


class Port(NamedTuple):
    """A port that serves HTTP.

    :ivar path: a page on it
    """

    at: tuple[str, int]
    path: str
    pid: int
    log: Path


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture(params=["ui", "exporter", "serve"])
def port(request: pytest.FixtureRequest, broker: Broker, tmp_path: Path) -> Iterator[Port]:
    """A command that serves a page, with as many handles as processes usually have."""
    options, path = {
        "ui": (("--bootstrap-server", broker.bootstrap_servers), "/login"),
        "exporter": (("--bootstrap-server", broker.bootstrap_servers), "/metrics"),
        "serve": (("--ephemeral", "--metrics-port", "0"), "/metrics"),
    }[request.param]
    limit = f'ulimit -n {DESCRIPTORS}; exec "$@"'
    command = ["bash", "-c", limit, "bash", *HEADRACE, request.param, *options]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--listen", "127.0.0.1:0"],
            stdout=subprocess.PIPE,
            stderr=log,
            env=ENVIRONMENT,
        )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if b"http://" in line:
                host, _, number = line.decode().split("/")[2].rpartition(":")
                break
        else:
            raise AssertionError((tmp_path / "log").read_text())
        yield Port((host, int(number)), path, process.pid, tmp_path / "log")
    finally:
        process.terminate()
        process.communicate(timeout=30)


def get(port: Port) -> bytes:
    return b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % port.path.encode()


def attacker_socket(port: Port, receive_buffer_bytes: int) -> socket.socket:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    sock.settimeout(0.2)
    with contextlib.suppress(OSError):
        sock.bind((ATTACKER, 0))
        sock.connect(port.at)
    return sock


def silent(port: Port, ended: Event) -> None:
    rush(port, [b""], ended)


def half_heads(port: Port, ended: Event) -> None:
    rush(port, [b"GET /login HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 30_000], ended)


def half_bodies(port: Port, ended: Event) -> None:
    head = b"POST %s HTTP/1.1\r\nHost: localhost\r\n" % port.path.encode()
    by_length = head + b"Content-Length: 1000000\r\n\r\n" + b"x" * 999_999
    in_chunks = head + b"Transfer-Encoding: chunked\r\n\r\nF0000\r\n" + b"x" * 900_000
    rush(port, [by_length, in_chunks], ended)


def unread_answers(port: Port, ended: Event) -> None:
    rush(port, [get(port), get(port) * PIPELINED], ended)


def nonsense(port: Port, ended: Event) -> None:
    two_lengths = b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    sent = [
        b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: evil.com\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\n" + two_lengths,
        os.urandom(5000),
    ]
    rush(port, sent, ended)


def rush(port: Port, sent: list[bytes], ended: Event) -> None:
    """Open connections, as many as it may at once, send something, and never read. Close the
    oldest for new ones, in turns.
    """
    held: list[socket.socket] = []
    while not ended.is_set():
        for data in sent:
            sock = attacker_socket(port, 4096)
            held.append(sock)
            with contextlib.suppress(OSError):
                sock.sendall(data)
        if len(held) > SILENT:
            while len(held) > SILENT:
                held.pop(0).close()
            ended.wait(0.01)


def flood(port: Port, ended: Event) -> None:
    """Keep pages waiting on many connections: pipeline, and read the answers."""
    selector = selectors.DefaultSelector()
    requests = get(port) * PIPELINED
    while not ended.is_set():
        for _ in range(FLOOD - len(selector.get_map())):
            new = attacker_socket(port, 1 << 16)
            selector.register(new, selectors.EVENT_READ, [0])
            with contextlib.suppress(OSError):
                new.sendall(requests)
        for key, _ in selector.select(0.05):
            assert isinstance(key.fileobj, socket.socket)
            sock, answers = key.fileobj, key.data
            try:
                data = sock.recv(1 << 16)
                answers[0] += data.count(b"HTTP/1.1 ")
                if answers[0] >= PIPELINED:
                    answers[0] = 0
                    sock.sendall(requests)
            except OSError:
                data = b""
            if not data:
                selector.unregister(sock)
                sock.close()


def visiting(port: Port, seen: Honest, ended: threading.Event) -> None:
    """Ask for a page again and again, each time on a connection of its own."""
    host, number = port.at
    while not ended.is_set():
        began = time.perf_counter()
        try:
            with urllib.request.urlopen(f"http://{host}:{number}{port.path}", timeout=10) as page:
                page.read()
        except OSError as error:
            seen.errors.append(repr(error))
        seen.latencies_ms.append((time.perf_counter() - began) * 1000)
        ended.wait(0.02)
    seen.latencies_ms.sort()


@pytest.mark.parametrize(
    "attack",
    [silent, half_heads, half_bodies, unread_answers, nonsense, flood],
    ids=lambda attack: attack.__name__,
)
def test_an_honest_visitor_is_served(port: Port, attack: Callable[[Port, Event], None]) -> None:
    spawning = multiprocessing.get_context("spawn")
    attack_ended, visit_ended, seen = spawning.Event(), threading.Event(), Honest()
    attacker = spawning.Process(target=attack, args=(port, attack_ended), daemon=True)
    visitor = threading.Thread(target=visiting, args=(port, seen, visit_ended))
    forget_peak(port.pid)
    attacker.start()
    time.sleep(1)
    visitor.start()
    time.sleep(ATTACK_S)
    visit_ended.set()
    visitor.join()
    assert attacker.is_alive()
    attack_ended.set()
    attacker.join()
    memory, logged = peak_bytes(port.pid), port.log.stat().st_size
    print(f"\n{attack.__name__}: {seen}, {memory / MIB:.0f} MiB, {logged} bytes of log")
    assert seen.errors == []
    assert seen.p99_ms <= MAX_P99_MS
    assert memory <= 200 * MIB
    assert logged <= 20_000
    assert "Traceback" not in port.log.read_text()
