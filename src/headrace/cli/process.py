"""The process of a command that serves: its log, its end, its file descriptors, and its garbage
collection.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any

from headrace.cli.errors import Failure, one_line_error
from headrace.cli.options import Address
from headrace.log_lines import log_unhandled, make_safe


def stopping_event() -> asyncio.Event:
    """Return an event of the running loop that SIGTERM and SIGINT set. The loop logs what nobody
    handles.
    """
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(log_unhandled)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    return stopping


async def run_until_stopped(
    at: Address, start: Callable[[], Awaitable[str]], *, with_stdin: bool = False
) -> None:
    """Run a server until SIGTERM or SIGINT.

    :param start: starts it; returns what to print
    :param with_stdin: stop at the end of the standard input, too
    :raises Failure: it cannot listen
    """
    stopping = stopping_event()
    if with_stdin:
        at_end_of_stdin(stopping.set)
    try:
        lines = await start()
    except (OSError, RuntimeError) as error:  # gRPC raises the latter
        raise Failure(f"cannot listen on {at}: {one_line_error(error)}") from error
    # In one piece, so that no line of the log is in the middle of an address.
    print(f"{lines}\n", end="", flush=True)
    await stopping.wait()


def at_end_of_stdin(stop: Callable[[], object]) -> None:
    """Have the running loop call ``stop`` when the program that has started this one has ended."""
    loop = asyncio.get_running_loop()

    def wait() -> None:
        while os.read(0, 1024):
            pass
        loop.call_soon_threadsafe(stop)

    threading.Thread(target=wait, name="stdin", daemon=True).start()


def log_to_stderr() -> None:
    """Write log lines to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handler.addFilter(make_safe)  # lines of other libraries, too
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def allow_all_descriptors() -> None:
    """Use as many file descriptors as the process may have, as the JVM does."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # macOS refuses its own limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


# Garbage collection -------------------------------------------------------------------------------
# The objects of partitions, groups and offsets live long and form no cycles, but each full
# collection visits all of them. Two million objects take about 0.3 s, in which the event loop is
# blocked.


GC_ALLOCATIONS = 20_000
"""Allocations between two collections. A broker creates few cycles, and Python's default of 700
takes 5 % of the time of offset commits.
"""

LONG_COLLECTION_S = 0.05
"""The objects that survive a longer full collection are exempt from later ones."""

EXEMPT_FOR_S = 3600.0
"""The interval of full collections that include exempt objects, to find cycles among these."""

_FULL = 2


def keep_collections_short() -> None:
    """Change the settings, and add a callback that keeps the full collections of this process
    short.
    """
    began_s, whole_s = 0.0, monotonic()  # the latter: of the last collection of all objects

    def on_collection(phase: str, info: dict[str, Any]) -> None:
        nonlocal began_s, whole_s
        if info["generation"] != _FULL:
            return
        now_s = monotonic()
        if phase == "start":
            began_s = now_s
            if now_s - whole_s >= EXEMPT_FOR_S:
                whole_s = now_s
                gc.unfreeze()
        elif now_s - began_s >= LONG_COLLECTION_S:
            gc.freeze()

    gc.set_threshold(GC_ALLOCATIONS)
    gc.callbacks.append(on_collection)
