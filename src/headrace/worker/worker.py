"""A worker: all functions of an app, or some, until it is told to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.client.loop_thread import cancel_all
from headrace.client.workers import COUNTERS
from headrace.log_lines import get_logger

from .reporter import Reporter
from .runner import Runner
from .task import Task
from .watch import watched_loop

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
        drain_timeout_s: float,
    ) -> None:
        self.name = f"{socket.gethostname()}-{os.getpid()}"
        self._drain_timeout_s = drain_timeout_s
        self.runners = [
            Runner(task, conf, self.name, concurrency or task.concurrency) for task in tasks
        ]
        self._reporter = Reporter(self.name, self.runners, tasks[0].sender)
        self._stop = asyncio.Event()
        self._stop_now = asyncio.Event()
        self._is_overdue = False
        """Whether functions went on after the limit."""

    async def run(self) -> None:
        """Work until :meth:`stop`.

        :raises ClientError: a task cannot begin
        """
        with watched_loop():
            prepare = asyncio.create_task(self._prepare())
            try:
                await _first(self._stop, prepare)
                if prepare.done():
                    await prepare
                    await self._work()
            finally:
                await cancel_all([prepare])

    async def _prepare(self) -> None:
        for runner in self.runners:
            await runner.prepare()

    async def _work(self) -> None:
        runs = [asyncio.create_task(runner.run()) for runner in self.runners]
        report = asyncio.create_task(self._reporter.run())
        try:
            await _first(self._stop, *runs)
        finally:
            await self._drain(runs)
            report.cancel()
            await self._reporter.end()
            for runner in self.runners:
                counts = [
                    f"{runner.counts[name]} {name.replace('_', ' ')}"
                    for name in COUNTERS
                    if runner.counts[name]
                ]
                _log.info("%s has ended: %s", runner, ", ".join(counts) or "no records")
        for run in runs:
            if not run.cancelled():
                run.result()

    async def _drain(self, runs: list[asyncio.Task[None]]) -> None:
        """Have functions end, then cancel them."""
        for runner in self.runners:
            runner.stop()
        if running := self._running():
            _log.info(
                "stopping: %s %g s to end, and no more records are taken",
                running,
                self._drain_timeout_s,
            )
        ended = asyncio.gather(*runs, return_exceptions=True)
        await _first(self._stop_now, ended, timeout_s=self._drain_timeout_s)
        if not ended.done():
            self._is_overdue = True
            if running := self._running():
                _log.warning("%s not ended, so records are released", running)
            for runner in self.runners:
                runner.abandon()
            await asyncio.wait([ended], timeout=_CLOSE_GRACE_S)
        await cancel_all(runs)

    def _running(self) -> str:
        """Return the beginning of a sentence about the functions that run; nothing if none does."""
        count = sum(len(runner.running) for runner in self.runners)
        return "1 function has" if count == 1 else f"{count:,} functions have" if count else ""

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
        exits: list[threading.Timer] = []

        def exit_within(seconds: float) -> None:
            exits.append(threading.Timer(seconds, _exit))
            exits[-1].daemon = True
            exits[-1].start()

        def stop(*_: object) -> None:
            # Runs in the main thread also while a function blocks the loop.
            exit_within((0.0 if exits else self._drain_timeout_s) + 2 * _CLOSE_GRACE_S)
            loop.call_soon_threadsafe(self.stop)

        handlers = {number: signal.signal(number, stop) for number in _SIGNALS}
        try:
            await self.run()
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            if exits and self._is_overdue:
                exit_within(_CLOSE_GRACE_S)
            else:
                for timer in exits:
                    timer.cancel()


async def _first(
    event: asyncio.Event, *futures: asyncio.Future[Any], timeout_s: float | None = None
) -> None:
    """Wait until an event is set, or one of the futures is done."""
    is_set = asyncio.create_task(event.wait())
    try:
        await asyncio.wait(
            (is_set, *futures), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
        )
    finally:
        is_set.cancel()


def _exit() -> None:
    _log.warning("functions or connections have not ended: the process ends without them")
    os._exit(0)
