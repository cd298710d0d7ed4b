"""The end of commands that serve."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable

from headrace.log_lines import log_unhandled


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


def at_end_of_stdin(stop: Callable[[], object]) -> None:
    """Have the running loop call ``stop`` when the program that has started this one has ended."""
    loop = asyncio.get_running_loop()

    def wait() -> None:
        while os.read(0, 1024):
            pass
        loop.call_soon_threadsafe(stop)

    threading.Thread(target=wait, name="stdin", daemon=True).start()
