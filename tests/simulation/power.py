"""The broker's machine: its disk, and a power switch that may go off in the middle of a write."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from headrace.broker.broker import Broker
from headrace.broker.catalog import Catalog
from headrace.broker.config.broker_config import Config
from headrace.broker.server import Listener, Server
from headrace.log.segment import Segment

from .loop import EPOCH_MS, VirtualLoop

BEFORE, TORN, AFTER = "before", "torn", "after"
"""The part of the last write that reaches the disk: nothing, half of it, all of it."""


class PowerCut(BaseException):
    """The power is off: this broker does nothing more."""


class Power:
    """A power switch that counts the writes of the broker to its logs and its catalog, and goes off
    at the chosen one.

    :ivar is_off: whether the broker is dead; nothing that it does counts then
    """

    def __init__(self) -> None:
        self.is_off = False
        self._writes = 0
        self._cut_at = -1
        self._how = AFTER

    @property
    def is_failing(self) -> bool:
        """True while a write is chosen."""
        return self._cut_at > self._writes

    def cut_at(self, writes_from_now: int, how: str) -> None:
        """Go off at the write with this number from now."""
        self._cut_at, self._how = self._writes + writes_from_now, how

    def restore(self) -> None:
        """Switch the power on."""
        self.is_off, self._cut_at = False, -1

    def _write(self) -> str | None:
        """Return the part that reaches the disk of the write that is due, or None if the power
        stays on.
        """
        if self.is_off:
            raise PowerCut
        self._writes += 1
        self.is_off = self._writes == self._cut_at
        return self._how if self.is_off else None

    @contextmanager
    def wired(self) -> Iterator[None]:
        """Route the writes of all logs and catalogs through this switch."""
        append, transaction, power = Segment.append, Catalog._transaction, self

        def switched_append(segment: Segment, buffers: list[bytes], size_bytes: int) -> None:
            how = power._write()
            if how == TORN:
                os.pwrite(segment.open(), b"".join(buffers)[: size_bytes // 2], segment.size_bytes)
            elif how != BEFORE:
                append(segment, buffers, size_bytes)
            if how:
                raise PowerCut

        @contextmanager
        def switched_transaction(catalog: Catalog, purpose: str) -> Iterator[None]:
            with transaction(catalog, purpose):
                yield
                how = power._write()
                if how in (BEFORE, TORN):
                    raise PowerCut  # what is not committed is not there
            if how:
                raise PowerCut

        with (
            mock.patch.object(Segment, "append", switched_append),
            mock.patch.object(Catalog, "_transaction", switched_transaction),
        ):
            yield


class Machine:
    """A broker and its disk, to be used inside of `power.wired()`."""

    loop: VirtualLoop
    broker: Broker
    server: Server

    def __init__(self, data_dir: Path, configs: Mapping[str, str], power: Power) -> None:
        self.data_dir, self.configs, self.power = data_dir, configs, power
        self._now_ms = EPOCH_MS

    def start(self) -> None:
        """Start with the files on the disk."""
        self.loop = loop = VirtualLoop(self._now_ms, lambda: not self.power.is_off)
        asyncio._set_running_loop(loop)
        self.broker = Broker(Config(self.configs), self.data_dir, clock_ms=lambda: loop.now_ms)
        # Only the simulated machine loses power; and threads would bring in chance.
        self.broker.logs.directory.sync = False
        self.server = Server(self.broker, [Listener("broker", 9092)])
        self.broker.start()
        loop.settle()

    def stop(self) -> None:
        """Stop the broker; its connections must be closed before."""
        self.broker.close()
        self._end()

    def kill(self) -> None:
        """Kill the broker; its files stay as the last write left them."""
        for segment in self.broker.logs.directory.files._ring:
            os.close(segment.fd)  # type: ignore[attr-defined]
        os.close(self.broker.logs.directory._lock)
        self.broker.catalog.close()
        self._end()

    def _end(self) -> None:
        self._now_ms = self.loop.now_ms
        self.loop.kill()
        asyncio._set_running_loop(None)
