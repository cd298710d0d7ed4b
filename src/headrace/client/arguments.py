"""Checks of what programs pass: numbers and times."""

from __future__ import annotations

from datetime import timedelta

from .errors import ClientError

Seconds = float | timedelta
YEAR_S = 365 * 86_400.0


def seconds(value: object, name: str, longest_s: float = YEAR_S) -> float:
    """Return a time in seconds.

    :raises ClientError: it is something else, negative, or longer than ``longest_s``
    """
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise ClientError(f"{name} is {value!r}, not seconds or a timedelta")
    if not 0 <= number <= longest_s:
        raise ClientError(f"{name} is {value!r}, not from 0 to {longest_s:.0f} seconds")
    return float(number)


def whole_number(value: int, name: str, least: int = 1) -> int:
    """:raises ClientError: it is something else, or less than ``least``"""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ClientError(f"{name} is {value!r}, not a whole number from {least}")
    return value
