"""Clients of all kinds work on while the broker is killed, stopped with SIGSTOP, or its disk is
full: nothing that was acknowledged is lost, and every client goes on.
"""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests.faults.rounds import rounds, seed
from tests.faults.small_disk import SmallDisk
from tests.faults.steady import SteadyClients, headrace_on
from tests.support import is_soak

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(3 * 3600)]

CHECK_EVERY = 20


def test_kills_with_all_clients(tmp_path: Path) -> None:
    rng = random.Random(seed())
    server = headrace_on(tmp_path / "data")
    with server, SteadyClients(server) as clients:
        clients.progress()
        for number in rounds("kills", 3, "HEADRACE_TEST_STEADY_KILLS", 200):
            time.sleep(rng.uniform(0, 0.3))
            server.kill()
            server.start()
            clients.progress()
            if number % CHECK_EVERY == CHECK_EVERY - 1:
                clients.check()
        clients.check()
        print(clients)


def test_a_broker_that_stands_still(tmp_path: Path) -> None:
    """SIGSTOP for longer than every session. The broker's clock goes on, the clients join again."""
    stands_s = 60 if is_soak() else 8
    server = headrace_on(tmp_path / "data")
    with server, SteadyClients(server) as clients:
        clients.progress()
        for _ in rounds("SIGSTOP", 1, "HEADRACE_TEST_STOPS", 3):
            os.kill(server.pid, signal.SIGSTOP)
            time.sleep(stands_s)
            os.kill(server.pid, signal.SIGCONT)
            clients.progress()
        clients.check()
        assert server.process is not None
        assert server.process.poll() is None
        print(clients)


def test_a_disk_that_is_full_for_a_while(tmp_path: Path) -> None:
    rng = random.Random(seed())
    with SmallDisk(tmp_path) as disk:
        server = headrace_on(disk.path / "data")
        with server, SteadyClients(server) as clients:
            clients.progress()
            for _ in rounds("full disk", 1, "HEADRACE_TEST_FULL_DISKS", 20):
                disk.fill()
                time.sleep(rng.uniform(0.5, 3))
                disk.make_room()
                clients.progress()
                clients.check()
            server.kill()
            server.start()
            clients.progress()
            clients.check()
            print(clients)
