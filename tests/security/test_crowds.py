"""Many logins and handshakes at a time: another client is served meanwhile."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.security.scram import MECHANISMS
from headrace.throwaway_ca import ThrowawayCA
from tests.machines.test_scram import Client as ScramClient
from tests.support import ROOT, HeadraceProcess
from tests.wire_client import Connection

pytestmark = [pytest.mark.alone, pytest.mark.broker, pytest.mark.slow]

API_VERSIONS, HANDSHAKE, AUTHENTICATE = 18, 17, 36
LOGINS, HANDSHAKES, THREADS = 1000, 600, 4
WORST_S = 0.25
"""An answer takes longer only if the broker stands still. It is some 10 ms on a quiet machine."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[HeadraceProcess]:
    ca = ThrowawayCA(tmp_path)
    store = ca.issue("broker").both
    process = HeadraceProcess(
        configs={
            "sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
        }
    )
    process.command = (
        *HeadraceProcess.command,
        *("--listen", "SASL_PLAINTEXT://127.0.0.1:0", "--listen", "SSL://127.0.0.1:0"),
        *("--add-scram", "SCRAM-SHA-256=[name=user,password=pencil]"),
    )
    with process:
        yield process


def address(server: HeadraceProcess, listener: str) -> str:
    (ready,) = [line for line in server.output if "is listening on" in line]
    return ready.partition(f"{listener}://")[2].partition(",")[0]


def log_in(at: str) -> None:
    client = Connection(at)
    scram = ScramClient(MECHANISMS["SCRAM-SHA-256"], "user", "pencil")
    client.ask(HANDSHAKE, 1, mechanism="SCRAM-SHA-256")
    first = client.ask(AUTHENTICATE, 2, auth_bytes=scram.first())
    final = scram.final(bytes(first.auth_bytes).decode())
    last = client.ask(AUTHENTICATE, 2, auth_bytes=final)
    client.close()
    assert last.error_code == 0


def shake_hands(at: str) -> None:
    host, port = at.rsplit(":", 1)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with socket.create_connection((host, int(port)), 20) as plain:
        context.wrap_socket(plain).close()


WORK = {"log-in": log_in, "shake-hands": shake_hands}


def crowd(work: str, at: str, times: int) -> None:
    """Do some work often, in threads."""
    failures: list[Exception] = []

    def repeat() -> None:
        try:
            for _ in range(times // THREADS):
                WORK[work](at)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=repeat) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def worst_meanwhile(server: HeadraceProcess, *arguments: str) -> float:
    """Have another process work; return the longest time that a client of this one waits."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.security.test_crowds", *arguments], cwd=ROOT
    )
    honest = Connection(server.bootstrap_servers)
    worst_s = 0.0
    while process.poll() is None:
        began = time.perf_counter()
        honest.ask(API_VERSIONS, 0)
        worst_s = max(worst_s, time.perf_counter() - began)
        time.sleep(0.002)
    honest.close()
    assert process.returncode == 0
    return worst_s


def held_ms(server: HeadraceProcess) -> list[str]:
    """Return what the broker has logged about its event loop."""
    return [line for line in server.output if "event loop was held" in line]


def test_a_thousand_logins(server: HeadraceProcess) -> None:
    at = address(server, "SASL_PLAINTEXT")
    worst_s = worst_meanwhile(server, "log-in", at, str(LOGINS))
    print(f"worst answer {worst_s * 1000:.1f} ms")
    assert worst_s < WORST_S, held_ms(server)


def test_hundreds_of_handshakes(server: HeadraceProcess) -> None:
    at = address(server, "SSL")
    worst_s = worst_meanwhile(server, "shake-hands", at, str(HANDSHAKES))
    print(f"worst answer {worst_s * 1000:.1f} ms")
    assert worst_s < WORST_S, held_ms(server)


if __name__ == "__main__":
    crowd(sys.argv[1], sys.argv[2], int(sys.argv[3]))
