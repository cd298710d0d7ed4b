"""A disk whose reads, writes and fsyncs fail: the broker lives on, and nothing that was
acknowledged is lost.
"""

from __future__ import annotations

import errno
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.faults.failing_disk import NAMES, READS, SYNCS, WRITES, FailingHeadrace
from tests.faults.rounds import rounds, seed
from tests.faults.small_disk import FailingDevice
from tests.faults.steady import SteadyClients, headrace_on
from tests.support import HeadraceProcess

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(3 * 3600)]

FLUSHED = {"log.flush.interval.messages": "1"}
"""With it an acknowledged record has reached the device."""


def assert_alive(server: HeadraceProcess) -> None:
    """Check that the broker runs and has raised nothing that it did not expect."""
    assert server.process is not None
    assert server.process.poll() is None, "\n".join(server.output[-40:])
    raised = [line for line in server.output if line.startswith("Traceback")]
    assert not raised, "\n".join(server.output[-80:])


class RestartOfflineLogs:
    """Restarts a broker as its log lines ask for. After ``kill -9`` the first flush may be the one
    that the kernel tells of a write that failed before.
    """

    def __init__(self, server: HeadraceProcess) -> None:
        self._server = server
        self._seen = len(server.output)

    def __call__(self) -> None:
        new = self._server.output[self._seen :]
        self._seen += len(new)
        if any(" offline, as its last records may not be on disk" in line for line in new):
            self._server.kill()
            self._server.start()


def test_calls_that_fail(tmp_path: Path) -> None:
    rng = random.Random(seed())
    server = FailingHeadrace(tmp_path, FLUSHED)
    faults, happened = server.faults, Counter[str]()
    with server, SteadyClients(server) as clients:
        clients.progress()
        for number in rounds("failing disk", 3, "HEADRACE_TEST_FAILING_DISKS", 40):
            kind = (READS, WRITES, SYNCS)[number % 3]
            before = faults.failed(kind)
            permille, error = rng.choice((20, 300, 1000)), rng.choice((errno.EIO, errno.ENOSPC))
            faults.begin(kind, permille, error, rng.choice((-1, 0, 7)))
            time.sleep(rng.uniform(0.5, 3))
            faults.end()
            happened[NAMES[kind]] += faults.failed(kind) - before
            assert_alive(server)
            if kind != READS:  # logs may be offline until the next start
                server.kill()
                server.start()
            clients.progress()
            clients.check(may_repeat=True)
        print(f"failed calls: {dict(happened)}; {clients}")


def test_a_device_that_fails(tmp_path: Path) -> None:
    with FailingDevice(tmp_path) as device:
        server = headrace_on(device.path / "data", log_flush_interval_messages="1")
        with server, SteadyClients(server) as clients:
            clients.progress()
            for _ in rounds("failing device", 1, "HEADRACE_TEST_FAILING_DEVICES", 5):
                device.fail()
                time.sleep(5)
                assert_alive(server)
                device.work()
                server.kill()
                server.start()
                clients.progress(meanwhile=RestartOfflineLogs(server))
                clients.check(may_repeat=True)
            print(clients)
            server.stop()
