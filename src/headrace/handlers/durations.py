"""Conversion between durations in messages and milliseconds."""

from __future__ import annotations

from datetime import timedelta
from functools import lru_cache

_MILLISECOND = timedelta(milliseconds=1)


def to_ms(duration: timedelta) -> int:
    """Return a duration in whole milliseconds."""
    return duration // _MILLISECOND


@lru_cache(maxsize=64)
def to_timedelta(duration_ms: int) -> timedelta:
    """Return milliseconds as a duration."""
    return timedelta(milliseconds=duration_ms)
