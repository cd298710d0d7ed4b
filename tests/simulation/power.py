"""The broker's machine: its disk, and a power switch that goes off in the middle of a write."""

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
"""How much of the last write gets to the disk: nothing, half of it, all of it."""


class PowerCut(BaseException):
    """Nothing more happens in this broker's life."""


class Power:
    """Counts the writes of the broker, to its logs and to its catalog, and fails at the one that
    was chosen.

    :ivar is_off: whether the broker is dead; then nothing that it does counts
    """

    def __init__(self) -> None:
        self.is_off = False
        self._writes = 0
        self._cut_at = -1
        self._how = AFTER

    @property
    def is_failing(self) -> bool:
        """Whether the end is near."""
        return self._cut_at > self._writes

    def cut_at(self, writes_from_now: int, how: str) -> None:
        """Go off at the so-manieth write from now."""
        self._cut_at, self._how = self._writes + writes_from_now, how

    def restore(self) -> None:
        """Come back, and stay."""
        self.is_off, self._cut_at = False, -1

    def _write(self) -> str | None:
        """How the write that is due ends, None for well."""
        if self.is_off:
            raise PowerCut
        self._writes += 1
        self.is_off = self._writes == self._cut_at
        return self._how if self.is_off else None

    @contextmanager
    def wired(self) -> Iterator[None]:
        """Have the writes of all logs and catalogs go through this switch."""
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
    """A broker and its disk. To be used inside of `power.wired()`, and by nobody else who has an
    event loop.
    """

    loop: VirtualLoop
    broker: Broker
    server: Server

    def __init__(self, data_dir: Path, configs: Mapping[str, str], power: Power) -> None:
        self.data_dir, self.configs, self.power = data_dir, configs, power
        self._now_ms = EPOCH_MS

    def start(self) -> None:
        """Start on what is on the disk."""
        self.loop = loop = VirtualLoop(self._now_ms, lambda: not self.power.is_off)
        asyncio._set_running_loop(loop)
        self.broker = Broker(Config(self.configs), self.data_dir, clock_ms=lambda: loop.now_ms)
        # Only the simulated machine loses power; and threads would bring in chance.
        self.broker.logs.directory.sync = False
        self.server = Server(self.broker, [Listener("broker", 9092)])
        self.broker.start()
        loop.settle()

    def stop(self) -> None:
        """Stop in order. The connections are to be closed before."""
        self.broker.close()
        self._end()

    def kill(self) -> None:
        """What was in memory is gone. The files are as the last write left them."""
        for segment in self.broker.logs.directory.files._ring:
            os.close(segment.fd)  # type: ignore[attr-defined]
        os.close(self.broker.logs.directory._lock)
        self.broker.catalog.close()
        self._end()

    def _end(self) -> None:
        self._now_ms = self.loop.now_ms
        self.loop.kill()
        asyncio._set_running_loop(None)
