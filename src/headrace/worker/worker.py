"""A worker: all functions of an app, or some, until it is told to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.log_lines import get_logger

from .runner import Runner
from .task import Task

_log = get_logger(__name__)

_CLOSE_GRACE_S = 5.0


class Worker:
    """Processes the records of tasks.

    :param conf: librdkafka's names and values
    :param concurrency: instead of each task's own
    :param drain_timeout_s: the time that running functions have to end after :meth:`stop`
    """

    def __init__(
        self,
        tasks: Sequence[Task[Any, Any]],
        conf: Mapping[str, Any],
        *,
        concurrency: int | None = None,
        drain_timeout_s: float = 30.0,
    ) -> None:
        self.name = f"{socket.gethostname()}-{os.getpid()}"
        self._drain_timeout_s = drain_timeout_s
        self.runners = [
            Runner(task, conf, self.name, concurrency or task.concurrency) for task in tasks
        ]
        self._stop = asyncio.Event()
        self._stop_now = asyncio.Event()

    async def run(self) -> None:
        """Work until :meth:`stop`.

        :raises ClientError: a task cannot begin
        """
        for runner in self.runners:
            await runner.prepare()
        runs = [asyncio.create_task(runner.run()) for runner in self.runners]
        stop = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait((stop, *runs), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.cancel()
            await self._drain(runs)
        for run in runs:
            if not run.cancelled() and (error := run.exception()) is not None:
                raise error

    async def _drain(self, runs: list[asyncio.Task[None]]) -> None:
        """Have functions end, then cancel them."""
        for runner in self.runners:
            runner.stop()
        now = asyncio.create_task(self._stop_now.wait())
        ended = asyncio.gather(*runs, return_exceptions=True)
        futures: list[asyncio.Future[Any]] = [ended, now]
        await asyncio.wait(
            futures, timeout=self._drain_timeout_s, return_when=asyncio.FIRST_COMPLETED
        )
        now.cancel()
        if not ended.done():
            running = sum(len(runner.running) for runner in self.runners)
            _log.warning("%d functions have not ended: their records are released", running)
            for runner in self.runners:
                runner.abandon()
            await asyncio.wait([ended], timeout=_CLOSE_GRACE_S)
        for run in runs:
            run.cancel()
        await asyncio.gather(*runs, return_exceptions=True)

    def stop(self) -> None:
        """Take no more records, and end. The second call does not wait for functions that run."""
        if self._stop.is_set():
            self._stop_now.set()
        self._stop.set()

    async def run_until_signal(self) -> None:
        """Work until SIGTERM or SIGINT; a second one ends it at once."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        try:
            await self.run()
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
