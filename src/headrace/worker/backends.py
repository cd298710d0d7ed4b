"""Where functions run: on the event loop, or in threads."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, Literal, Protocol

from headrace.client.errors import ClientError

from .payload import Arguments

RunIn = Literal["loop", "thread", "process"]


class Backend(Protocol):
    """Runs the calls of one function."""

    is_cancellable: bool
    """Whether to cancel :meth:`run` ends the function."""

    async def run(self, arguments: Arguments) -> Any:
        """Return what the function returns, or raise what it raises."""

    async def close(self) -> None:
        """Free what it uses. No function runs any more, or will be waited for."""


class LoopBackend:
    """Runs coroutine functions on the event loop."""

    is_cancellable = True

    def __init__(self, function: Callable[..., Awaitable[Any]]) -> None:
        self._function = function

    async def run(self, arguments: Arguments) -> Any:
        args, kwargs = arguments
        return await self._function(*args, **kwargs)

    async def close(self) -> None:
        pass


class ThreadBackend:
    """Runs functions in threads of its own.

    :param concurrency: the number of threads
    """

    is_cancellable = False

    def __init__(self, function: Callable[..., Any], name: str, concurrency: int) -> None:
        self._function = function
        self._pool = ThreadPoolExecutor(concurrency, f"headrace-{name}")

    async def run(self, arguments: Arguments) -> Any:
        args, kwargs = arguments
        call = partial(copy_context().run, self._function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    async def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


def backend(function: Callable[..., Any], run_in: RunIn, name: str, concurrency: int) -> Backend:
    """Return what runs the calls of a function."""
    if run_in == "loop":
        return LoopBackend(function)
    if run_in == "thread":
        return ThreadBackend(function, name, concurrency)
    raise ClientError("functions do not run in processes")


def default_place(function: Callable[..., Any]) -> RunIn:
    """Return where a function runs unless said otherwise."""
    return "loop" if inspect.iscoroutinefunction(function) else "thread"
