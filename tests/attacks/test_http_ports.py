"""The page, the exporter and the metrics port under attack, beside an honest visitor."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from headrace import Broker
from tests.attacks.harness import MIB, Honest, forget_peak, peak_bytes
from tests.cli.command import ENVIRONMENT, HEADRACE

pytestmark = [pytest.mark.broker, pytest.mark.alone]

ATTACK_S = 5.0
DESCRIPTORS = 1024
SILENT = 1100


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


def silent(port: Port) -> list[bytes]:
    return [b""]


def half_heads(port: Port) -> list[bytes]:
    return [b"GET /login HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 30_000]


def half_bodies(port: Port) -> list[bytes]:
    head = b"POST %s HTTP/1.1\r\nHost: localhost\r\n" % port.path.encode()
    return [
        head + b"Content-Length: 1000000\r\n\r\n" + b"x" * 999_999,
        head + b"Transfer-Encoding: chunked\r\n\r\nF0000\r\n" + b"x" * 900_000,
    ]


def unread_answers(port: Port) -> list[bytes]:
    return [b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % port.path.encode()]


def nonsense(port: Port) -> list[bytes]:
    return [
        b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: evil.com\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        os.urandom(5000),
    ]


def rushing(port: Port, sent: list[bytes], ended: threading.Event) -> None:
    """Open connections, send something, keep the newest open, and never read."""
    held: list[socket.socket] = []
    try:
        while not ended.is_set():
            for data in sent:
                sock = socket.socket()
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                sock.settimeout(0.2)
                held.append(sock)
                with contextlib.suppress(OSError):
                    sock.connect(port.at)
                    sock.sendall(data)
            while len(held) > SILENT:
                held.pop(0).close()
            ended.wait(0.01)
    finally:
        for sock in held:
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
    [silent, half_heads, half_bodies, unread_answers, nonsense],
    ids=lambda attack: attack.__name__,
)
def test_an_honest_visitor_is_served(port: Port, attack: Callable[[Port], list[bytes]]) -> None:
    ended, seen = threading.Event(), Honest()
    threads = [
        threading.Thread(target=rushing, args=(port, attack(port), ended)),
        threading.Thread(target=visiting, args=(port, seen, ended)),
    ]
    forget_peak(port.pid)
    for thread in threads:
        thread.start()
    time.sleep(ATTACK_S)
    ended.set()
    for thread in threads:
        thread.join()
    memory, logged = peak_bytes(port.pid), port.log.stat().st_size
    print(f"\n{attack.__name__}: {seen}, {memory / MIB:.0f} MiB, {logged} bytes of log")
    assert seen.errors == []
    assert seen.p99_ms <= 500
    assert memory <= 200 * MIB
    assert logged <= 20_000
    assert "Traceback" not in port.log.read_text()
