"""A thread that notices a function which blocks the event loop: it delays all others, the renewal
of locks and the heartbeats of the group.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from traceback import walk_stack
from types import FrameType

from headrace.log_lines import get_logger

from .backends import LoopBackend

_log = get_logger(__name__)

_BEAT_S = 0.25
_BLOCKED_S = 1.0
"""The time for which the loop stands still before it is told."""
_MAX_TOLD = 1000


@contextmanager
def watched_loop(blocked_s: float = _BLOCKED_S) -> Iterator[None]:
    """Watch the running event loop while the block runs.

    :param blocked_s: the time for which the loop stands still before it is told
    """
    loop, loop_thread = asyncio.get_running_loop(), threading.get_ident()
    stopping = threading.Event()

    def look_out() -> None:
        told: set[str] = set()
        while not stopping.wait(_BEAT_S):
            has_run = threading.Event()
            asked_s = time.monotonic()
            try:
                loop.call_soon_threadsafe(has_run.set)
            except RuntimeError:  # it is closed
                return
            is_blocked = not has_run.wait(blocked_s)
            # A machine or a process that stood still has stopped this thread, too.
            if is_blocked and time.monotonic() - asked_s < 2 * blocked_s:
                frame = sys._current_frames().get(loop_thread)
                if frame is not None:
                    _tell(frame, told)
                del frame  # its variables may be large

    threading.Thread(target=look_out, name="headrace-watch", daemon=True).start()
    try:
        yield
    finally:
        stopping.set()


def _tell(frame: FrameType, told: set[str]) -> None:
    """Log what blocks the loop.

    :param told: the tasks that have blocked it, or lines of code that belong to none
    """
    task, place = blocker_in(frame)
    about = task or place
    if about not in told and len(told) < _MAX_TOLD:
        told.add(about)
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
