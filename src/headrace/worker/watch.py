"""A thread that notices a function which blocks the event loop: it delays all others, the renewal
of locks and the heartbeats of the group.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from traceback import walk_stack
from types import FrameType

from headrace.log_lines import get_logger

from .backends import LoopBackend

_log = get_logger(__name__)

_BEAT_S = 0.25
_BLOCKED_S = 1.0
"""The time for which the loop stands still before it is told."""
_MAX_TOLD = 1000


class LoopWatch:
    """Watches the running event loop.

    :param blocked_s: the time for which the loop stands still before it is told
    """

    def __init__(self, blocked_s: float = _BLOCKED_S) -> None:
        self._blocked_s = blocked_s
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._told: set[str] = set()
        """The tasks that have blocked it, or lines of code that belong to none."""
        self._stopping = threading.Event()

    def start(self) -> None:
        """Watch from now on."""
        threading.Thread(target=self._look_out, name="headrace-watch", daemon=True).start()

    def close(self) -> None:
        """Stop watching."""
        self._stopping.set()

    # In the thread --------------------------------------------------------------------------------

    def _look_out(self) -> None:
        while not self._stopping.wait(_BEAT_S):
            has_run = threading.Event()
            asked_s = time.monotonic()
            try:
                self._loop.call_soon_threadsafe(has_run.set)
            except RuntimeError:  # it is closed
                return
            is_blocked = not has_run.wait(self._blocked_s)
            # A machine or a process that stood still has stopped this thread, too.
            if is_blocked and time.monotonic() - asked_s < 2 * self._blocked_s:
                frame = sys._current_frames().get(self._loop_thread)
                if frame is not None:
                    self._tell(frame)
                del frame  # its variables may be large

    def _tell(self, frame: FrameType) -> None:
        task, place = blocker_in(frame)
        about = task or place
        if about not in self._told and len(self._told) < _MAX_TOLD:
            self._told.add(about)
            _log.warning(
                "%s blocks the event loop at %s: the functions, locks and heartbeats of this "
                "worker wait for it; make the function one without async, or call what blocks with "
                "asyncio.to_thread",
                f"task '{task}'" if task else "code",
                place,
            )


def blocker_in(frame: FrameType) -> tuple[str | None, str]:
    """Return the task whose function runs in a frame, or None, and where in its code: the line of
    the function's own file that has called what blocks.
    """
    stack = [outer for outer, _ in walk_stack(frame)]
    for depth, outer in enumerate(stack):
        backend = outer.f_locals.get("self") if outer.f_code is LoopBackend.run.__code__ else None
        if isinstance(backend, LoopBackend) and depth:
            function_file = stack[depth - 1].f_code.co_filename
            own = (inner for inner in stack[:depth] if inner.f_code.co_filename == function_file)
            return backend.name, _place(next(own))
    return None, _place(frame)


def _place(frame: FrameType) -> str:
    code = frame.f_code
    return f"{os.path.basename(code.co_filename)}:{frame.f_lineno} in {code.co_qualname}"
