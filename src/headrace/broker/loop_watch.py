"""The watchdog of the event loop: it measures the loop's delay, and names the request or timer
that held it.

A timer on the loop measures how late it runs. When it is late, a thread looks at what the loop is
doing at that moment. Requests and timers are not touched: the watchdog costs them nothing. The
cycle collector stops the thread, too, so it is timed by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import threading
from time import perf_counter
from traceback import walk_stack
from types import FrameType
from typing import Any, NamedTuple

from headrace.handlers import APIS
from headrace.log_lines import LimitedLog
from headrace.net.metrics import LoopMetrics
from headrace.protocol.frames import RequestHeader

LOOP_WATCH_MS = 100
"""The time between two measurements of the event loop's delay."""

LOOP_HELD_MS = 100
"""A longer delay of the event loop is logged with the request or timer that held it."""

log = LimitedLog("headrace.loop")

_HANDLERS = "headrace.handlers.api_"
_OWN = "headrace."
_IMPORTER = "importlib._bootstrap"
_STARTERS = ("headrace.cli", "headrace.broker.embedded")
"""The modules that run the loop."""


class Holder(NamedTuple):
    """The code that the event loop runs.

    :ivar name: the API as Kafka writes it, or the function of a timer
    :ivar client_id: the client of the request; None for a timer
    """

    name: str
    client_id: str | None = None

    def __str__(self) -> str:
        return self.name if self.client_id is None else f"{self.name} of {self.client_id}"


UNKNOWN = Holder("unknown")
COLLECTOR = Holder("cycle collector")
IMPORTS = Holder("import of modules")


class LoopWatch:
    """Watches one event loop. Create, start and close it on the loop.

    :param metrics: counts the delays
    """

    def __init__(self, metrics: LoopMetrics) -> None:
        self._metrics = metrics
        self._loop_thread = 0
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._holder: Holder | None = None
        """The holder of the loop when it was last found late; None if it was not late."""
        self._collection_began = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._look_out, name="headrace-loop-watch", daemon=True
        )

    def start(self) -> None:
        """Watch from now on."""
        self._loop_thread = threading.get_ident()
        self._schedule(asyncio.get_running_loop())
        self._thread.start()
        gc.callbacks.append(self._collects)

    def close(self) -> None:
        """Stop watching."""
        self._stopping.set()
        with contextlib.suppress(ValueError):  # it was not started
            gc.callbacks.remove(self._collects)
        if self._timer is not None:
            self._timer.cancel()

    def _collects(self, phase: str, _: dict[str, Any]) -> None:
        """Time the cycle collector, which may run in any thread and stops all of them."""
        if phase == "start":
            self._collection_began = perf_counter()
        elif (perf_counter() - self._collection_began) * 1000 >= LOOP_HELD_MS / 2:
            self._holder = COLLECTOR

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due = perf_counter() + LOOP_WATCH_MS / 1000
        self._timer = loop.call_later(LOOP_WATCH_MS / 1000, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        delay_ms = max((perf_counter() - self._due) * 1000, 0.0)
        holder, self._holder = self._holder, None
        self._metrics.delayed(delay_ms)
        if delay_ms >= LOOP_HELD_MS:
            self._held(holder or UNKNOWN, delay_ms)
        self._schedule(loop)

    def _held(self, holder: Holder, delay_ms: float) -> None:
        self._metrics.held(holder.name, delay_ms)
        if holder in (UNKNOWN, COLLECTOR):
            log.info(
                "" if holder == UNKNOWN else holder.name,
                "the event loop stood still for %d ms while the broker did nothing: the cycle "
                "collector, another thread of the process, or the machine was busy",
                int(delay_ms),
            )
        elif holder == IMPORTS:  # the first use of a part of the broker; there is no second
            log.info(
                holder.name,
                "the event loop was held for %d ms by the import of modules",
                int(delay_ms),
            )
        else:
            log.warning(
                holder.name, "the event loop was held for %d ms by %s", int(delay_ms), holder
            )

    # In the thread --------------------------------------------------------------------------------

    def _look_out(self) -> None:
        while not self._stopping.wait(LOOP_WATCH_MS / 1000):
            late_ms = (perf_counter() - self._due) * 1000
            if late_ms >= LOOP_HELD_MS / 2 and self._holder is None:
                self._holder = holder_in(self._loop_thread)


def holder_in(thread_id: int) -> Holder | None:
    """Return the request or timer that a thread runs now; None if there is no such thread.

    It keeps no reference to the frames, whose variables may be requests of many megabytes.
    """
    frame = sys._current_frames().get(thread_id)
    return None if frame is None else holder_of(frame)


def holder_of(frame: FrameType) -> Holder:
    """Return the request or timer that has called the code of a frame."""
    api_name, client_id = None, None
    outermost = UNKNOWN.name
    for caller, _ in walk_stack(frame):
        module = caller.f_globals.get("__name__", "")
        if module == _IMPORTER:
            return IMPORTS
        if module.startswith(_HANDLERS):
            if api_name is None:
                words = module.removeprefix(_HANDLERS).split("_")[1:]
                api_name = "".join(map(str.capitalize, words))
        elif module.startswith(_OWN):
            for value in list(caller.f_locals.values()):
                if isinstance(value, RequestHeader):
                    api = APIS.get(value.api_key)
                    title = UNKNOWN.name if api is None else api.title
                    return Holder(api_name or title, value.client_id or "")
        if module.startswith(_OWN) and not module.startswith(_STARTERS):
            outermost = caller.f_code.co_qualname
        if client_id is None:
            call = caller.f_locals.get("call")  # of a handler, or of the road to it
            client_id = getattr(call, "client_id", None)
    return Holder(outermost) if api_name is None else Holder(api_name, client_id)
