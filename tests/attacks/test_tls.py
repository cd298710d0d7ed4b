"""TLS handshakes that do not go on, and connections that send messages without data: their memory
and time are bounded, and others are served.
"""

from __future__ import annotations

import contextlib
import resource
import socket
import ssl
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.broker.server import MAX_HANDSHAKES
from tests.attacks.harness import peak_bytes, resident_bytes
from tests.attacks.key_updates import APPLICATION_DATA, KeyUpdates
from tests.support import HeadraceProcess
from tests.throwaway_ca import ThrowawayCA

pytestmark = [pytest.mark.broker, pytest.mark.slow]

HANDSHAKE_BYTES = 192 * 1024
"""The most memory of a handshake: OpenSSL makes room for the ClientHello that a client claims, up
to 131,396 bytes, and for a record. One that claims nothing takes about 50 KiB.
"""
RECORD_BYTES = 16 * 1024
LONGEST_HELLO = b"\x01" + (131_396).to_bytes(3, "big")
"""The header of the longest ClientHello that OpenSSL takes."""
RECORD = b"\x16\x03\x01" + struct.pack(">H", RECORD_BYTES)
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 7, -1)


@contextlib.contextmanager
def broker(folder: Path) -> Iterator[tuple[int, int, ssl.SSLContext]]:
    """Run a broker with TLS; yield its process id, its port, and the context of its clients."""
    ca = ThrowawayCA(folder)
    store = ca.issue("broker").both
    configs = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(store)}
    options = [word for name, value in configs.items() for word in ("-c", f"{name}={value}")]
    with subprocess.Popen(
        [*HeadraceProcess.command, "--listen", "SSL://127.0.0.1:0", "--ephemeral", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=HeadraceProcess.environment(),
    ) as process:
        assert process.stdout is not None
        try:
            port = int(process.stdout.readline().rsplit(":", 1)[1])
            yield process.pid, port, ssl.create_default_context(cafile=ca.certificate)
        finally:
            process.terminate()


@pytest.fixture
def many_files() -> None:
    """Let this process open a file for each attacker."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * MAX_HANDSHAKES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            pytest.skip(f"needs {wanted} open files")
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def is_served(port: int, context: ssl.SSLContext) -> bool:
    with (
        socket.create_connection(("127.0.0.1", port), timeout=60) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as client,
    ):
        client.sendall(API_VERSIONS)
        return client.recv(8)[4:] == struct.pack(">i", 7)


@pytest.mark.usefixtures("many_files")
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_memory_of_half_handshakes_is_bounded(tmp_path: Path) -> None:
    """Each claims the longest message, sends a part of it, and holds a part of a record."""
    half = RECORD + LONGEST_HELLO + bytes(RECORD_BYTES - 4) + RECORD + bytes(RECORD_BYTES - 1)
    with broker(tmp_path) as (pid, port, context), contextlib.ExitStack() as stack:
        assert is_served(port, context)
        before = resident_bytes(pid)
        for number in range(MAX_HANDSHAKES + 100):
            attacker = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            attacker.sendall(half)
            if number % 200 == 0:
                assert is_served(port, context)
        assert is_served(port, context)
        assert peak_bytes(pid) - before <= MAX_HANDSHAKES * HANDSHAKE_BYTES


UPDATES = 30_000
"""They take a second of the processor."""
ANSWER_BYTES = 20 * 27 + 4
"""More than the answers to 20 updates."""


def attacker(port: int, folder: Path) -> KeyUpdates:
    context = ssl.create_default_context(cafile=folder / "ca.pem")
    return KeyUpdates(port, context, folder / "keys")


def flood(client: KeyUpdates) -> None:
    for _ in range(20):
        client.socket.sendall(client.updates(UPDATES, wants_answers=False))


def test_key_updates_do_not_hold_the_broker(tmp_path: Path) -> None:
    """OpenSSL does not return while they arrive. Before, others waited for as long as they came."""
    with broker(tmp_path) as (_, port, context):
        client = attacker(port, tmp_path)
        with pytest.raises(ConnectionError):
            flood(client)
        client.socket.close()
        assert is_served(port, context)


def test_a_few_key_updates_are_answered(tmp_path: Path) -> None:
    with broker(tmp_path) as (_, port, _context):
        client = attacker(port, tmp_path)
        client.socket.sendall(client.updates(20, wants_answers=True))
        client.socket.sendall(client.record(APPLICATION_DATA, API_VERSIONS))
        received = 0
        while received < ANSWER_BYTES:
            part = client.socket.recv(65536)
            assert part
            received += len(part)
        client.socket.close()
