"""The clocks of a broker: wall time for what is stored, steady time for deadlines."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


def wall_clock_ms() -> int:
    """Return the wall time in epoch milliseconds. It may jump either way."""
    return time.time_ns() // 1_000_000


def steady_clock() -> Callable[[], int]:
    """Return a clock in milliseconds that starts at the current wall time and never jumps."""
    offset_ns = time.time_ns() - time.monotonic_ns()
    monotonic_ns = time.monotonic_ns
    return lambda: (monotonic_ns() + offset_ns) // 1_000_000


@dataclass(frozen=True, slots=True)
class Clock:
    """Two sources of time, each a function that returns milliseconds.

    :ivar wall_ms: epoch milliseconds, for what is stored and compared across restarts: record
        timestamps, retention
    :ivar now_ms: steady milliseconds, for deadlines in this process: sessions, locks, timers. Use
        only differences of two readings
    """

    wall_ms: Callable[[], int]
    now_ms: Callable[[], int]
