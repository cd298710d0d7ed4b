"""The end of commands that serve."""

from __future__ import annotations

import asyncio
import signal

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
