"""Workers in tests: in this process, or in one of their own."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import headrace
from headrace.worker.runner import Runner
from headrace.worker.worker import Worker
from tests.support import HANG_S, ROOT, HeadraceProcess, wait_until


@asynccontextmanager
async def working(app: headrace.App, *, drain_timeout: float = 5) -> AsyncIterator[Worker]:
    """Have a worker of all tasks of an app meanwhile; its failure is that of the block."""
    worker = app.worker(drain_timeout=drain_timeout)
    async with asyncio.TaskGroup() as group:
        group.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.stop()


async def until(condition: Callable[[], object]) -> None:
    """Wait for a condition; :func:`tests.support.story` limits the time."""
    while not condition():
        await asyncio.sleep(0.01)


def runner(worker: Worker, name: str) -> Runner:
    return next(runner for runner in worker.runners if runner.task.name == name)


class WorkerProcess:
    """A script in a process of its own.

    :ivar lines: what it has written
    """

    def __init__(self, script: Path, *arguments: object) -> None:
        environment = HeadraceProcess.environment()
        path = f"{environment['PYTHONPATH']}{os.pathsep}{ROOT}"
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, str(script), *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**environment, "PYTHONPATH": path},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith("\n"):
                self.lines.append(line.rstrip("\n"))

    def wait_for(self, text: str, count: int = 1) -> None:
        """Wait until it has written a text in so many lines."""
        wait_until(lambda: self.count(text) >= count, HANG_S, f"{count} lines with {text!r}")

    def count(self, text: str) -> int:
        return sum(text in line for line in self.lines)

    def wait(self) -> int:
        """Wait for its end, and return its exit status."""
        status = self.process.wait(HANG_S)
        self._reader.join(HANG_S)
        return status

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(HANG_S)
