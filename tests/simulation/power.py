"""The broker's machine: its disk, its clocks, and the ways in which it stops."""

from __future__ import annotations

import asyncio
import gc
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from headrace.broker.broker import Broker
from headrace.broker.config.broker_config import Config
from headrace.broker.server import Server
from headrace.log import cleaner, data_directory, log_directory
from headrace.net import call
from headrace.net.listeners import Listener

from .disk import Disk
from .loop import EPOCH_MS, VirtualLoop

__all__ = ["Machine"]


class _Inline:
    """An executor without threads, which would bring in chance."""

    def __init__(self, *arguments: Any, **options: Any) -> None: ...

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(work())
        return done

    def shutdown(self, *arguments: Any, **options: Any) -> None: ...


class Machine:
    """A broker and its disk, to be used inside of :meth:`running`.

    :param loses_power: a crash keeps only what is durable; otherwise everything that was written
    :ivar wall_ahead_ms: how much the wall clock is ahead of the steady one
    """

    loop: VirtualLoop
    broker: Broker
    server: Server

    def __init__(self, disk: Disk, configs: Mapping[str, str], *, loses_power: bool) -> None:
        self.disk, self.power, self.configs = disk, disk.power, configs
        self.loses_power = loses_power
        self.wall_ahead_ms = 0
        self._now_ms = EPOCH_MS
        self._dead: list[Any] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        """Use the disk, and no threads. No garbage is collected, as coroutines of dead brokers
        would end then: at a time that no seed decides, and on the disk of a broker that lives.
        """
        collects = gc.isenabled()
        with (
            self.disk.attached(),
            mock.patch.object(data_directory, "ThreadPoolExecutor", _Inline),
            mock.patch.object(log_directory, "ThreadPoolExecutor", _Inline),
            mock.patch.object(cleaner, "WORK_S", float("inf")),
            mock.patch.object(call, "SLICE_S", float("inf")),
        ):
            gc.disable()
            try:
                yield
            finally:
                self._bury()
                if collects:
                    gc.enable()

    def _bury(self) -> None:
        """Let go of dead brokers while the power is off: what they still do must not touch the
        disk, and does not count.
        """
        self.power.is_off = True
        ignore = mock.patch.object(sys, "unraisablehook")
        with ignore, warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # they never await some coroutines
            self._dead.clear()
            gc.collect()

    def wall_ms(self) -> int:
        """Return the time of the wall clock."""
        return self.loop.now_ms + self.wall_ahead_ms

    def start(self) -> None:
        """Start with the files on the disk.

        :raises Exception: when the broker does not start
        """
        self.disk.stamp((self._now_ms + self.wall_ahead_ms) / 1000)
        self.loop = loop = VirtualLoop(self._now_ms, lambda: not self.power.is_off)
        self.disk.on_slow = loop.pass_ms
        asyncio._set_running_loop(loop)
        self.broker = Broker(
            Config(self.configs),
            Path(self.disk.root),
            clock_ms=self.wall_ms,
            steady_ms=lambda: loop.now_ms,
        )
        self.server = Server(self.broker, [Listener("broker", 9092)])
        self.broker.start()
        loop.settle()

    def stop(self) -> None:
        """Stop the broker; its connections must be closed before."""
        self.loop.finish_work()
        self.broker.close()
        self._end()

    def double(self, disk: Disk) -> Machine:
        """Return a machine with the same clocks and settings, which has another disk."""
        double = Machine(disk, self.configs, loses_power=False)
        double._now_ms, double.wall_ahead_ms = self._now_ms, self.wall_ahead_ms
        return double

    def kill(self) -> None:
        """Kill the broker, or cut its power."""
        self.power.is_off = True
        parts = (self.__dict__.pop(name, None) for name in ("broker", "server"))
        self._dead.append((self.loop, *parts))
        self.disk.kill(loses_power=self.loses_power)
        self._end()

    def _end(self) -> None:
        self._now_ms = self.loop.now_ms
        self.loop.kill()
        asyncio._set_running_loop(None)
