"""Counts, durations and sizes as people read them. Pure."""

from __future__ import annotations


def count_of(count: int, noun: str) -> str:
    """Format a count and what is counted: ``1 record``, ``2,000 records``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def duration(seconds: float) -> str:
    """Format a duration in its two largest units: ``3.2 s``, ``5m 10s``, ``2h 03m``, ``4d 02h``."""
    if seconds < 60:
        return f"{seconds:.1f} s" if 0 < seconds < 10 else f"{int(seconds)} s"
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d {hours:02}h"
    return f"{hours}h {minutes:02}m" if hours else f"{minutes}m {seconds:02}s"


def size(size_bytes: float) -> str:
    """Format a number of bytes."""
    if size_bytes < 1024:
        return count_of(int(size_bytes), "byte")
    for unit in ("KiB", "MiB", "GiB"):
        size_bytes /= 1024
        if size_bytes < 1024:
            return f"{size_bytes:.1f} {unit}"
    return f"{size_bytes / 1024:.1f} TiB"
