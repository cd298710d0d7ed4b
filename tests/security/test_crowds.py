"""Many logins and handshakes at a time: another client is served meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.security.crowds import MECHANISM, PASSWORD, USER, worst_meanwhile
from tests.support import HeadraceProcess
from tests.throwaway_ca import ThrowawayCA

pytestmark = [pytest.mark.alone, pytest.mark.broker, pytest.mark.slow]

LOGINS, HANDSHAKES = 1000, 600
WORST_S = 0.25
"""An answer takes longer only if the broker stands still. It is some 10 ms on a quiet machine."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[HeadraceProcess]:
    ca = ThrowawayCA(tmp_path)
    store = ca.issue("broker").both
    users = tmp_path / "users"
    users.write_text(f"{MECHANISM}=[name={USER},password={PASSWORD}]\n")
    process = HeadraceProcess(
        configs={
            "sasl.enabled.mechanisms": MECHANISM,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
        }
    )
    process.command = (
        *HeadraceProcess.command,
        *("--listen", "SASL_PLAINTEXT://127.0.0.1:0", "--listen", "SSL://127.0.0.1:0"),
        *("--add-scram-file", str(users)),
    )
    with process:
        yield process


def held_ms(server: HeadraceProcess) -> list[str]:
    """Return what the broker has logged about its event loop."""
    return [line for line in server.output if "event loop was held" in line]


@pytest.mark.parametrize(
    ("work", "listener", "times"),
    [("log-in", "SASL_PLAINTEXT", LOGINS), ("shake-hands", "SSL", HANDSHAKES)],
)
def test_a_crowd_stalls_nobody(
    server: HeadraceProcess, work: str, listener: str, times: int
) -> None:
    at = server.address(listener)
    meanwhile = worst_meanwhile(server.bootstrap_servers, work, at, times)
    print(f"worst answer {meanwhile.worst_s * 1000:.1f} ms")
    assert meanwhile.worst_s < WORST_S, held_ms(server)
