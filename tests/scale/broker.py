"""A broker of its own process, with an honest client and the measure of its event loop."""

from __future__ import annotations

import os
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.scale.harness import HonestClient
from tests.support import HeadraceProcess
from tests.wire_client import connection, decode, request_frame

FACTOR = int(os.environ.get("HEADRACE_TEST_SCALE", "1"))
WANTED_S = 0.2
"""The longest delay of the event loop that is wanted on a quiet machine."""
ALLOWED_S = 1.0
"""The longest delay that is allowed here, where other processes may take the machine's time."""

CONFIGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.share.max.size": "1000",
    # Members that join one after the other send no heartbeat.
    "group.share.max.session.timeout.ms": "1800000",
    "group.share.session.timeout.ms": "1800000",
    "group.consumer.max.session.timeout.ms": "1800000",
    "group.consumer.session.timeout.ms": "1800000",
}


class Broker:
    """A broker, its honest client, and the measure of its event loop."""

    def __init__(self, data_dir: Path, configs: Mapping[str, str] = MappingProxyType({})) -> None:
        self.process = HeadraceProcess(data_dir, {**CONFIGS, **configs})
        self.process.command = (*HeadraceProcess.command, "--metrics-port", "0")
        self.process.start()
        self.honest = HonestClient(self.process.bootstrap_servers)

    @property
    def bootstrap_servers(self) -> str:
        return self.process.bootstrap_servers

    def metrics_url(self) -> str:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            for line in self.process.output:
                if line.startswith("metrics are at "):
                    return line.removeprefix("metrics are at ")
            time.sleep(0.05)
        raise AssertionError(self.process.output)

    def page(self) -> str:
        """Return the metrics."""
        with urllib.request.urlopen(self.metrics_url(), timeout=300) as response:
            text: str = response.read().decode()
        return text

    def _loop(self) -> tuple[dict[float, int], dict[str, float]]:
        """Return the number of measured delays of the event loop up to each bound, in seconds; and
        the milliseconds of the long ones, by what held it.
        """
        counts, held = {}, {}
        for line in self.page().splitlines():
            if line.startswith('headrace_loop_delay_ms_bucket{le="'):
                bound = line.split('"')[1]
                counts[float(bound) / 1000] = int(line.rsplit(" ", 1)[1])
            elif line.startswith('headrace_loop_held_ms_total{by="'):
                held[line.split('"')[1]] = float(line.rsplit(" ", 1)[1])
        return counts, held

    @contextmanager
    def measured(self, what: str) -> Iterator[None]:
        """Watch the honest client and the event loop during a block: print both, and check the
        event loop's delay.
        """
        before, held_before = self._loop()
        with self.honest.watching() as watch:
            yield
        after, held_after = self._loop()
        whole = after[float("inf")] - before[float("inf")]
        worst = min(bound for bound in after if after[bound] - before[bound] == whole)
        print(
            f"{what:44} {watch.took_s:7.2f} s  honest worst {watch.worst_s * 1000:7.1f} ms  "
            f"loop delay up to {worst * 1000:6.0f} ms"
            + ("  (more than wanted)" if worst > WANTED_S + 0.05 else ""),
            flush=True,
        )
        for name, held_ms in held_after.items():
            if held_ms > held_before.get(name, 0):
                print(f"    {name}: {held_ms - held_before.get(name, 0):.0f} ms in long delays")
        assert worst <= ALLOWED_S, f"{what} held the event loop for up to {worst} s"

    def ask(self, what: str, api_key: int, version: int, **fields: Any) -> Any:
        """Send a request beside the honest client, check the event loop's delay, and return the
        response; None for a very large one.
        """
        frame = request_frame(api_key, version, **fields)
        with (
            connection(self.bootstrap_servers, timeout_s=900) as client,
            self.measured(what),
        ):
            client.send(frame)
            response = client.receive()
            assert response is not None, "the broker closed the connection"
        return decode(api_key, version, response) if len(response) < 20_000_000 else None
