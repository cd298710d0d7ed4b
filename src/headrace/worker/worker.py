"""A worker: all functions of an app, or some, until it is told to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.log_lines import get_logger

from .reporter import Reporter
from .runner import Runner
from .task import Task
from .watch import LoopWatch

_log = get_logger(__name__)

_CLOSE_GRACE_S = 3.0
"""The time that cancelled functions have to end, and the process after them."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


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
        self.reporter = Reporter(self.name, self.runners, tasks[0].sender)
        self._stop = asyncio.Event()
        self._stop_now = asyncio.Event()
        self._is_overdue = False
        """Whether functions went on after the limit."""

    async def run(self) -> None:
        """Work until :meth:`stop`.

        :raises ClientError: a task cannot begin
        """
        watch = LoopWatch()
        watch.start()
        try:
            await self._run()
        finally:
            watch.close()

    async def _run(self) -> None:
        if not await self._prepare():
            self._tell_totals()
            return
        runs = [asyncio.create_task(runner.run()) for runner in self.runners]
        stop = asyncio.create_task(self._stop.wait())
        report = asyncio.create_task(self.reporter.run())
        try:
            await asyncio.wait((stop, *runs), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.cancel()
            await self._drain(runs)
            report.cancel()
            await self.reporter.end()
            self._tell_totals()
        for run in runs:
            if not run.cancelled() and (error := run.exception()) is not None:
                raise error

    async def _prepare(self) -> bool:
        """Return True when all tasks can begin, False if it is told to stop before."""

        async def prepare() -> None:
            for runner in self.runners:
                await runner.prepare()

        preparing = asyncio.create_task(prepare())
        stop = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait((preparing, stop), return_when=asyncio.FIRST_COMPLETED)
            if preparing.done():
                await preparing
            return preparing.done()
        finally:
            preparing.cancel()
            stop.cancel()
            await asyncio.gather(preparing, stop, return_exceptions=True)

    async def _drain(self, runs: list[asyncio.Task[None]]) -> None:
        """Have functions end, then cancel them."""
        for runner in self.runners:
            runner.stop()
        if running := sum(len(runner.running) for runner in self.runners):
            _log.info(
                "stopping: %d functions have %g s to end, and no more records are taken",
                running,
                self._drain_timeout_s,
            )
        now = asyncio.create_task(self._stop_now.wait())
        ended = asyncio.gather(*runs, return_exceptions=True)
        futures: list[asyncio.Future[Any]] = [ended, now]
        await asyncio.wait(
            futures, timeout=self._drain_timeout_s, return_when=asyncio.FIRST_COMPLETED
        )
        now.cancel()
        if not ended.done():
            self._is_overdue = True
            if running := sum(len(runner.running) for runner in self.runners):
                _log.warning("%d functions have not ended: their records are released", running)
            for runner in self.runners:
                runner.abandon()
            await asyncio.wait([ended], timeout=_CLOSE_GRACE_S)
        for run in runs:
            run.cancel()
        await asyncio.gather(*runs, return_exceptions=True)

    def _tell_totals(self) -> None:
        for runner in self.runners:
            counts = (
                f"{count} {name.replace('_', ' ')}"
                for name in (
                    "done",
                    "failed",
                    "retried",
                    "dead_letters",
                    "rejected",
                    "expired",
                    "late",
                )
                if (count := runner.counts[name])
            )
            _log.info("%s has ended: %s", runner, ", ".join(counts) or "no records")

    def stop(self) -> None:
        """Take no more records, and end. The second call does not wait for functions that run."""
        if self._stop.is_set():
            self._stop_now.set()
        self._stop.set()

    async def run_until_signal(self) -> None:
        """Work until SIGTERM or SIGINT; a second one ends it at once.

        The process ends soon after the limit, whatever functions do that block the event loop, or
        threads that never end: its records go back with its connections.
        """
        loop = asyncio.get_running_loop()
        exit_timer = _ExitTimer()

        def stop(*_: object) -> None:
            # Runs in the main thread also while a function blocks the loop.
            is_second = exit_timer.is_running
            exit_timer.run((0.0 if is_second else self._drain_timeout_s) + 2 * _CLOSE_GRACE_S)
            loop.call_soon_threadsafe(self.stop)

        handlers = {number: signal.signal(number, stop) for number in _SIGNALS}
        try:
            await self.run()
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            if not self._is_overdue:
                exit_timer.cancel()
            elif exit_timer.is_running:
                exit_timer.run(_CLOSE_GRACE_S)


class _ExitTimer:
    """Ends the process after a while, unless it has ended itself."""

    def __init__(self) -> None:
        self._deadline_s = float("inf")
        self._is_cancelled = threading.Event()

    @property
    def is_running(self) -> bool:
        return self._deadline_s < float("inf")

    def run(self, seconds: float) -> None:
        """Leave the process no more than so many seconds."""
        begins = not self.is_running
        self._deadline_s = min(self._deadline_s, time.monotonic() + seconds)
        if begins:
            threading.Thread(target=self._wait, name="headrace-exit", daemon=True).start()

    def cancel(self) -> None:
        """Leave the process any time."""
        self._is_cancelled.set()

    def _wait(self) -> None:
        while time.monotonic() < self._deadline_s:
            if self._is_cancelled.wait(0.1):
                return
        _log.warning("functions have not ended: the process ends without them")
        os._exit(0)
