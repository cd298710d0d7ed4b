"""The one grammar of durations and points of time, for options."""

from __future__ import annotations

from headrace.times import duration_ms, time_ms

__all__ = ["duration_ms", "time_ms"]
