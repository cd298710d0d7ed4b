"""A short run of every kind of fuzzing; `make soak` has the long ones."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.faults.rounds import seed
from tests.fuzz import sockets, tls
from tests.fuzz.guided import unguided
from tests.fuzz.run import run
from tests.fuzz.schema import served_versions
from tests.fuzz.targets import TARGETS

FRAMES, SECONDS = 4000, 8
SOCKET_FRAMES = 500
TLS_CONVERSATIONS = 60
INPUTS, TARGET_SECONDS = 500, 1


def test_requests_in_the_process() -> None:
    report = run(seed(), FRAMES, seconds=SECONDS)
    found = "\n".join(
        f"{finding}\nstream: {stream.hex()}" for finding, stream in report.findings.values()
    )
    assert not report.findings, f"{report}\n{found}\nrepeat: python -m tests.fuzz"
    assert len(report.versions) == len(served_versions())


@pytest.mark.broker
def test_requests_over_sockets(tmp_path: Path) -> None:
    assert sockets.run(tmp_path, seed(), SOCKET_FRAMES)["frames"] >= SOCKET_FRAMES


@pytest.mark.broker
@pytest.mark.skipif(sys.platform != "linux", reason="needs all of 127.0.0.0/8")
def test_tls(tmp_path: Path) -> None:
    for one in (*tls.KEPT, seed()):
        report = tls.fuzz(tmp_path, one, TLS_CONVERSATIONS)
        assert not report.findings, f"{report.findings}\nrepeat: python -m tests.fuzz --tls"
        assert report.complete
        assert report.lines


@pytest.mark.parametrize("target", TARGETS)
def test_inputs_of_a_target(target: str) -> None:
    assert unguided(target, TARGET_SECONDS, seed(), INPUTS)
