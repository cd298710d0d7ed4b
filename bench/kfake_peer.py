"""franz-go's kfake, an in-memory Kafka in Go, as a third broker to measure."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from pathlib import Path

from tests.support import free_port_pair, wait_until
from tests.wire_client import answers

_SOURCE = Path(__file__).parent / "kfake"
_CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "headrace-bench"
_BUILD_TIMEOUT_S = 300


class KfakeMissing(RuntimeError):
    """kfake cannot be built here; the text says why."""


@functools.cache
def build() -> Path:
    """Build kfake with the Go toolchain, once.

    :returns: the path of the executable
    :raises KfakeMissing: without Go, or when Go cannot fetch or compile the module
    """
    if shutil.which("go") is None:
        raise KfakeMissing("there is no Go toolchain on this machine")
    executable = _CACHE / "kfake"
    executable.parent.mkdir(parents=True, exist_ok=True)
    built = subprocess.run(
        ["go", "build", "-o", executable, "."],
        cwd=_SOURCE,
        capture_output=True,
        text=True,
        timeout=_BUILD_TIMEOUT_S,
    )
    if built.returncode:
        raise KfakeMissing(f"go build failed: {built.stderr.strip().splitlines()[-1]}")
    return executable


class KfakePeer:
    """One kfake broker on a free loopback port. It keeps everything in memory."""

    name = "kfake"

    def __init__(self) -> None:
        self._executable = build()
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port_pair()

    @property
    def bootstrap_servers(self) -> str:
        """``host:port``."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process id of the running broker."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> KfakePeer:
        """Start the broker and wait until it answers requests."""
        self._process = subprocess.Popen(
            [self._executable, str(self.port)], stdout=subprocess.DEVNULL
        )
        wait_until(lambda: answers("127.0.0.1", self.port), 10, "kfake to answer ApiVersions")
        return self

    def stop(self, timeout_s: float = 10) -> None:
        """Stop the broker with SIGTERM, and after ``timeout_s`` with SIGKILL."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None
