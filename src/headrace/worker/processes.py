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
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from headrace.client.errors import ClientError
from headrace.log_lines import get_logger

from . import child
from .child import LENGTH, Failure, Start
from .outcomes import ProcessDied
from .payload import Arguments

_log = get_logger(__name__)

_RESTART_PAUSES_S = (0.1, 30.0)
"""The first and the longest pause before a process in the place of one that has died."""
_EXIT_S = 1.0
"""The time from the end of the connection to the end of the process, before it is killed."""
_CODE = "import sys; sys.path[:] = {!r}; from headrace.worker.child import main; main({})"
_START_S = 60.0
"""The time in which a process must have imported the function."""


class ProcessBackend:
    """Runs functions in processes, one call at a time in each.

    :param function: of a module that a new interpreter can import
    :param concurrency: the number of processes
    :param conf: librdkafka's names and values, for what the functions send
    :raises ClientError: no other process can import the function
    """

    is_cancellable = True

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        concurrency: int,
        conf: Mapping[str, Any],
    ) -> None:
        if "<" in function.__qualname__:  # <locals>, <lambda>
            raise ClientError(
                f"task '{name}': no other process can import {function.__qualname__}: define it at "
                "the top of a module, or choose run_in='thread'"
            )
        self._name = name
        self._concurrency = concurrency
        self._start = pickle.dumps(_start(function, name, conf))
        self._free: deque[_Process] = deque()
        self._given_back = asyncio.Event()
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
        began = [asyncio.get_running_loop().create_future() for _ in range(self._concurrency)]
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
            if process.is_ready:
                self._give_back(process)

    async def close(self) -> None:
        """Kill the processes."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)

    async def ready(self) -> None:
        """See :meth:`headrace.worker.backends.Backend.ready`."""
        self._free.append(await self._next_free())

    async def _next_free(self) -> _Process:
        while True:
            while not self._free:
                self._given_back.clear()
                await self._given_back.wait()
            process = self._free.pop()
            if process.is_ready and process.is_alive():
                return process

    def _give_back(self, process: _Process) -> None:
        self._free.append(process)
        self._given_back.set()

    async def _keep(self, began: asyncio.Future[None]) -> None:
        """Have one process, another when it dies, until cancelled.

        :param began: its result is set when the first one is ready
        """
        pause_s = _RESTART_PAUSES_S[0]
        while True:
            process = _Process(self._name)
            try:
                problem = await process.start(self._start)
                if problem is None:
                    self._give_back(process)
                    if not began.done():
                        began.set_result(None)
                    await process.ended.wait()
                    problem = f"process {process.pid} has ended: {process.status}"
                elif not began.done():
                    began.set_exception(ClientError(f"task '{self._name}': {problem}"))
                    return
                is_timed_out = process.is_killed
            finally:
                process.kill()
                await process.ended.wait()
            if is_timed_out:
                continue
            _log.error("task '%s': %s; another begins in %.1f s", self._name, problem, pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _RESTART_PAUSES_S[1])
            if process.has_worked:
                pause_s = _RESTART_PAUSES_S[0]


class _Process(asyncio.Protocol):
    """One process, and the connection with it.

    :ivar has_worked: whether a function has ended in it
    :ivar is_killed: whether this side has killed it
    :ivar ended: set when the process has ended, and ``status`` says how
    """

    def __init__(self, name: str) -> None:
        self.ended = asyncio.Event()
        self.status = ""
        self.has_worked = self.is_killed = False
        self._name = name
        self._popen: subprocess.Popen[bytes] | None = None
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._result: asyncio.Future[Any] | None = None
        self._reaping: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        return 0 if self._popen is None else self._popen.pid

    @property
    def is_ready(self) -> bool:
        """False when it has ended, or is about to."""
        return self._reaping is None and not self.is_killed

    def is_alive(self) -> bool:
        """Return False when it has died, though the end of its connection is not seen yet."""
        return self._popen is not None and self._popen.poll() is None

    async def start(self, start: bytes) -> str | None:
        """Start it.

        :returns: why it cannot run the function; None if it can
        """
        loop = asyncio.get_running_loop()
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
            await loop.create_unix_connection(lambda: self, sock=here)
        except OSError as error:
            here.close()
            if self._popen is None:
                self.ended.set()
            return f"no process can be started: {error}"
        try:
            async with asyncio.timeout(_START_S):
                result = await self.call(start)
        except TimeoutError:
            return f"its process has not imported it in {_START_S:.0f} s"
        except ProcessDied as death:
            return str(death)
        self.has_worked = False
        return result if isinstance(result, str) else None

    async def call(self, call: bytes) -> Any:
        """Return what the function returns, or raise what it raises.

        :raises ProcessDied: it has ended before
        """
        assert self._transport is not None
        self._result = asyncio.get_running_loop().create_future()
        self._transport.write(LENGTH.pack(len(call)) + call)
        try:
            return await self._result
        finally:
            self._result = None

    def kill(self) -> None:
        """Kill it, and the processes that its functions have started."""
        if self._popen is not None and not self.ended.is_set():
            self.is_killed = True
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._popen.pid, signal.SIGKILL)
            if self._transport is None:
                self.connection_lost(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # of a socket

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= LENGTH.size:
            end = LENGTH.size + LENGTH.unpack_from(self._buffer)[0]
            if len(self._buffer) < end:
                return
            message = bytes(self._buffer[LENGTH.size : end])
            del self._buffer[:end]
            self.has_worked = True
            self._end_call(message)

    def _end_call(self, message: bytes) -> None:
        future = self._result
        if future is None or future.done():
            return
        try:
            result = pickle.loads(message)
        except Exception as error:
            result = Failure.of(error)
        if not isinstance(result, Failure):
            future.set_result(result)
        else:
            future.set_exception(result.exception())

    def connection_lost(self, error: Exception | None) -> None:
        if self._reaping is None:
            self._reaping = asyncio.get_running_loop().create_task(self._reap())

    async def _reap(self) -> None:
        assert self._popen is not None
        deadline_s = asyncio.get_running_loop().time() + _EXIT_S
        pause_s = 0.001
        while (status := self._popen.poll()) is None:
            if asyncio.get_running_loop().time() > deadline_s:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._popen.pid, signal.SIGKILL)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, 0.05)
        self.status = _status_text(status)
        if self._result is not None and not self._result.done():
            self._result.set_exception(ProcessDied(f"its process has ended: {self.status}"))
        self.ended.set()


def _start(function: Callable[..., Any], name: str, conf: Mapping[str, Any]) -> Start:
    """Return what a process needs to know to run a function."""
    main_module = sys.modules["__main__"]
    spec = getattr(main_module, "__spec__", None)
    main_path: str | None = None
    if function.__module__ == "__main__":
        main_path = getattr(main_module, "__file__", None)
        if spec is None and main_path is None:
            raise ClientError(
                f"task '{name}': no other process can import {function.__qualname__}: write it "
                "into a file"
            )
    root = logging.getLogger()
    formatters = [handler.formatter for handler in root.handlers if handler.formatter]
    plain = all(isinstance(value, str | int | float) for value in conf.values())
    return Start(
        module=function.__module__,
        qualname=function.__qualname__,
        main_name=spec.name if spec is not None and function.__module__ == "__main__" else None,
        main_path=main_path and os.path.abspath(main_path),
        arguments=sys.argv,
        conf=dict(conf) if plain else None,  # a callback stays with the app that has it
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
