"""Functions in processes of their own, for work that keeps a processor busy.

Each process is a new interpreter, which imports the function by its path, and is connected by one
socket: calls go in, results come back in order (:mod:`headrace.worker.child`). It ends when the
socket does, so it never outlives its worker.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing import spawn
from typing import Any

from headrace.client.errors import ClientError
from headrace.client.loop_thread import cancel_all
from headrace.log_lines import get_logger

from . import child
from .backends import Backend
from .child import LENGTH, Decision, Failure, Start
from .outcomes import ProcessDied, growing
from .payload import Arguments

_log = get_logger(__name__)

_RESTART_PAUSES_S = (0.1, 30.0)
"""The first and the longest pause before a process in the place of one that has died."""
_EXIT_S = 1.0
"""The time from the end of the connection to the end of the process, before it is killed."""
_CODE = "import sys; sys.path[:] = {!r}; from headrace.worker.child import main; main({})"
_START_S = 60.0
"""The time in which a process must have imported the function."""


class ProcessBackend(Backend):
    """Runs functions in processes, one call at a time in each.

    :param function: of a module that a new interpreter can import
    :param concurrency: the number of processes
    :raises ClientError: no other process can import the function
    """

    def __post_init__(self) -> None:
        self._start = pickle.dumps(_start(self.function, self.name, self.conf))
        self._free: asyncio.LifoQueue[_Process] = asyncio.LifoQueue()
        self._keepers: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Start the processes.

        :raises ClientError: one cannot import the function
        """
        if child.is_child:
            raise ClientError(
                "a process of a worker is no worker: put what starts the worker below "
                "'if __name__ == \"__main__\":'"
            )
        began = [asyncio.get_running_loop().create_future() for _ in range(self.concurrency)]
        self._keepers = [asyncio.create_task(self._keep(future)) for future in began]
        await asyncio.gather(*began)

    async def run(self, arguments: Arguments) -> Any:
        """See :meth:`headrace.worker.backends.Backend.run`.

        :raises ProcessDied: the process has ended before the function
        """
        call = pickle.dumps(arguments, pickle.HIGHEST_PROTOCOL)
        process = await self._next_free()
        try:
            return await process.call(call)
        except asyncio.CancelledError:
            process.kill()  # nothing else ends the function
            raise
        finally:
            if process.is_alive():
                self._free.put_nowait(process)

    async def ready(self) -> None:
        """See :meth:`headrace.worker.backends.Backend.ready`."""
        self._free.put_nowait(await self._next_free())

    async def close(self) -> None:
        """Kill the processes."""
        await cancel_all(self._keepers)

    async def _next_free(self) -> _Process:
        while not (process := await self._free.get()).is_alive():
            pass
        return process

    async def _keep(self, began: asyncio.Future[None]) -> None:
        """Have one process, another when it dies, until cancelled.

        :param began: its result is set when the first one is ready
        """
        pauses_s = growing(*_RESTART_PAUSES_S)
        while True:
            process = _Process()
            try:
                problem = await process.start(self._start)
                if problem is None:
                    self._free.put_nowait(process)
                    if not began.done():
                        began.set_result(None)
                    await process.ended.wait()
                    problem = f"process {process.pid} has ended: {process.status}"
                elif not began.done():
                    began.set_exception(ClientError(f"task '{self.name}': {problem}"))
                    return
                is_timed_out = process.is_killed
            finally:
                process.kill()
                await process.ended.wait()
            if is_timed_out:
                continue
            if process.has_worked:
                pauses_s = growing(*_RESTART_PAUSES_S)
            pause_s = next(pauses_s)
            _log.error("task '%s': %s; another begins in %.1f s", self.name, problem, pause_s)
            await asyncio.sleep(pause_s)


class _Process(asyncio.Protocol):
    """One process, and the connection with it.

    :ivar has_worked: whether a function has ended in it
    :ivar is_killed: whether this side has killed it
    :ivar ended: set when the process has ended, and ``status`` says how
    """

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self.status = ""
        self.has_worked = self.is_killed = False
        self._popen: subprocess.Popen[bytes] | None = None
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._result: asyncio.Future[Any] | None = None
        self._reaping: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        return 0 if self._popen is None else self._popen.pid

    def is_alive(self) -> bool:
        """Return False when it has died, also if the end of its connection is not seen yet, or is
        about to.
        """
        is_ending = self._reaping is not None or self.is_killed
        return not is_ending and self._popen is not None and self._popen.poll() is None

    async def start(self, start: bytes) -> str | None:
        """Start it.

        :returns: why it cannot run the function; None if it can
        """
        here, there = socket.socketpair()
        try:
            with there:
                self._popen = subprocess.Popen(  # noqa: ASYNC220  # it takes a millisecond
                    [sys.executable, "-c", _CODE.format(sys.path, there.fileno())],
                    stdin=subprocess.DEVNULL,
                    pass_fds=[there.fileno()],
                    # Ctrl-C is for the worker, and a kill also reaches what functions have started.
                    process_group=0,
                )
            here.setblocking(False)
            await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=here)
        except OSError as error:
            here.close()
            if self._popen is None:
                self.ended.set()
            return f"no process can be started: {error}"
        try:
            async with asyncio.timeout(_START_S):
                problem: str | None = await self.call(start)
        except TimeoutError:
            return f"its process has not imported it in {_START_S:.0f} s"
        except ProcessDied as death:
            return str(death)
        self.has_worked = False
        return problem

    async def call(self, call: bytes) -> Any:
        """Return what the function returns, or raise what it raises.

        :raises ProcessDied: it has ended before
        """
        assert self._transport is not None
        self._result = asyncio.get_running_loop().create_future()
        self._transport.write(LENGTH.pack(len(call)) + call)
        try:
            message = await self._result
        finally:
            self._result = None
        self.has_worked = True
        result = pickle.loads(message)
        if isinstance(result, Failure):
            raise result.exception()
        if isinstance(result, Decision):
            if result.is_raised:
                raise result.decision
            return result.decision
        return result

    def kill(self) -> None:
        """Kill it, and the processes that its functions have started."""
        if self._popen is not None and not self.ended.is_set():
            self.is_killed = True
            self._kill_group()
            if self._transport is None:
                self.connection_lost(None)

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # of a socket

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) < LENGTH.size:
            return
        end = LENGTH.size + LENGTH.unpack_from(self._buffer)[0]
        if len(self._buffer) >= end:  # one call at a time has one result
            if self._result is not None and not self._result.done():
                self._result.set_result(bytes(self._buffer[LENGTH.size : end]))
            self._buffer.clear()

    def connection_lost(self, error: Exception | None) -> None:
        if self._reaping is None:
            self._reaping = asyncio.create_task(self._reap())

    async def _reap(self) -> None:
        assert self._popen is not None
        loop = asyncio.get_running_loop()
        deadline_s, pause_s = loop.time() + _EXIT_S, 0.001
        while (status := self._popen.poll()) is None:
            if loop.time() > deadline_s:
                self._kill_group()
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, 0.05)
        self.status = _status_text(status)
        if self._result is not None and not self._result.done():
            self._result.set_exception(ProcessDied(f"its process has ended: {self.status}"))
        self.ended.set()


def _start(function: Callable[..., Any], name: str, conf: Mapping[str, Any]) -> Start:
    """Return what a process needs to know to run a function.

    :raises ClientError: no other process can import the function
    """
    preparation = spawn.get_preparation_data(f"headrace-{name}")
    del preparation["authkey"], preparation["start_method"]
    main_module = {key: preparation.pop(key) for key in list(preparation) if "init_main" in key}
    hint = ""
    if function.__module__ == "__main__":
        preparation |= main_module
        if not main_module:
            hint = "write it into a file"
    if "<" in function.__qualname__:  # <locals>, <lambda>
        hint = "define it at the top of a module, or choose run_in='thread'"
    if hint:
        raise ClientError(
            f"task '{name}': no other process can import {function.__qualname__}: {hint}"
        )
    root = logging.root
    formatters = [handler.formatter for handler in root.handlers if handler.formatter]
    is_plain = all(isinstance(value, str | int | float) for value in conf.values())
    return Start(
        preparation,
        function.__module__,
        function.__qualname__,
        conf=dict(conf) if is_plain else None,  # a callback stays with the app that has it
        log_level=root.level if root.handlers else None,
        log_format=getattr(formatters[0], "_fmt", None) if formatters else None,
    )


def _status_text(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        text = f"killed by {signal.Signals(-status).name}"
    except ValueError:
        text = f"killed by signal {-status}"
    return f"{text}, as when memory runs out" if status == -signal.SIGKILL else text
