"""Where functions run: on the event loop, in threads, or in processes."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, ClassVar, Literal

from .payload import Arguments

RunIn = Literal["loop", "thread", "process"]


@dataclass(eq=False, repr=False)
class Backend:
    """Runs the calls of one function.

    :param name: of the task
    :param concurrency: the largest number of calls at once
    :param conf: librdkafka's names and values, for what functions in processes send
    :cvar is_cancellable: whether to cancel :meth:`run` ends the function
    """

    is_cancellable: ClassVar[bool] = True

    function: Callable[..., Any]
    name: str
    concurrency: int
    conf: Mapping[str, Any]

    def __post_init__(self) -> None:
        """Make what the kind of place needs besides."""

    async def open(self) -> None:
        """Prepare it.

        :raises ClientError: the function cannot run there
        """

    async def ready(self) -> None:
        """Wait until a function can begin; its timeout begins then."""

    async def run(self, arguments: Arguments) -> Any:
        """Return what the function returns, or raise what it raises."""
        raise NotImplementedError

    async def close(self) -> None:
        """Free what it uses. No function runs any more, or will be waited for."""


class LoopBackend(Backend):
    """Runs coroutine functions on the event loop."""

    async def run(self, arguments: Arguments) -> Any:
        process_id = os.getpid()
        args, kwargs = arguments
        try:
            return await self.function(*args, **kwargs)
        finally:
            _end_fork(process_id)


_Call = tuple["asyncio.Future[Any]", Context, Arguments]


class ThreadBackend(Backend):
    """Runs functions in threads of its own. They end with the process, whatever they do: a pool of
    :mod:`concurrent.futures` would wait at its end for functions that hang.
    """

    is_cancellable = False

    def __post_init__(self) -> None:
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._threads = self._busy = 0
        self._results: deque[tuple[asyncio.Future[Any], object, BaseException | None]] = deque()
        self._is_told = False
        """Whether the event loop will look for results."""

    async def run(self, arguments: Arguments) -> Any:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._busy += 1
        if self._threads < min(self._busy, self.concurrency):
            self._threads += 1
            threading.Thread(
                target=self._work,
                args=(loop,),
                name=f"headrace-{self.name}-{self._threads}",
                daemon=True,
            ).start()
        self._calls.put((future, copy_context(), arguments))
        return await future

    async def close(self) -> None:
        for _ in range(self._threads):
            self._calls.put(None)

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        process_id = os.getpid()
        while (call := self._calls.get()) is not None:
            future, context, (args, kwargs) = call
            result: object = None
            error: BaseException | None = None
            try:
                result = context.run(self.function, *args, **kwargs)
            except (StopIteration, GeneratorExit) as end:  # means another thing in a coroutine
                error = RuntimeError(f"the function raised {type(end).__name__}")
                error.__cause__ = end
            except BaseException as failure:  # SystemExit ends the function, not the thread
                error = failure
            _end_fork(process_id)
            self._results.append((future, result, error))
            if not self._is_told:
                self._is_told = True
                with suppress(RuntimeError):  # the loop is closed: nobody waits
                    loop.call_soon_threadsafe(self._end_calls)
            del call, future, context, args, kwargs, result, error

    def _end_calls(self) -> None:
        self._is_told = False
        while self._results:
            future, result, error = self._results.popleft()
            self._busy -= 1
            if future.done():
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)


def _end_fork(process_id: int) -> None:
    """End a process that a function has forked: it must not go on with the worker's connections."""
    if os.getpid() != process_id:
        os._exit(0)
