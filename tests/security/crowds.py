"""Many logins or TLS handshakes at a time, in a process of their own: ``python -m
tests.security.crowds log-in|shake-hands ADDRESS TIMES``.
"""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import threading
import time
from typing import NamedTuple

from headrace.security.scram import MECHANISMS
from tests.machines.test_scram import Client as ScramClient
from tests.support import ROOT
from tests.wire_client import Connection

API_VERSIONS, HANDSHAKE, AUTHENTICATE = 18, 17, 36
USER, PASSWORD, MECHANISM = "user", "pencil", "SCRAM-SHA-256"
THREADS = 4
PAUSE_S = 0.002
"""The time between two requests of the client beside the crowd."""


def log_in(at: str) -> None:
    client = Connection(at)
    scram = ScramClient(MECHANISMS[MECHANISM], USER, PASSWORD)
    client.ask(HANDSHAKE, 1, mechanism=MECHANISM)
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


class Meanwhile(NamedTuple):
    """The time of a crowd, and the longest time that a client beside it waited for an answer."""

    seconds: float
    worst_s: float


def worst_meanwhile(bootstrap_servers: str, work: str, at: str, times: int) -> Meanwhile:
    """Have another process work often; have a client of this one ask meanwhile.

    :param at: where the crowd connects
    """
    honest = Connection(bootstrap_servers)
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.security.crowds", work, at, str(times)], cwd=ROOT
    )
    worst_s = 0.0
    while process.poll() is None:
        began = time.perf_counter()
        honest.ask(API_VERSIONS, 0)
        worst_s = max(worst_s, time.perf_counter() - began)
        time.sleep(PAUSE_S)
    seconds = time.perf_counter() - started
    honest.close()
    assert process.returncode == 0
    return Meanwhile(seconds, worst_s)


if __name__ == "__main__":
    crowd(sys.argv[1], sys.argv[2], int(sys.argv[3]))
