"""The one grammar of durations and points of time, in options and on the page."""

from __future__ import annotations

import re
import time
from argparse import ArgumentTypeError
from datetime import UTC, datetime, timedelta

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_PART = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)(ms|[smhdw])")
_DAYS_AGO = {"today": 0, "yesterday": 1}


def duration_ms(text: str) -> int:
    """Parse a duration such as ``90s``, ``1h30m``, ``2d`` or ``500ms``; a number counts seconds.

    :raises ArgumentTypeError: it is not one
    """
    length = text if re.search("[a-z]", text) else f"{text}s"
    parts = _PART.findall(length)
    if not parts or "".join(number + unit for number, unit in parts) != length:
        raise ArgumentTypeError(f"{text!r} is not a duration, such as 90s, 1h30m or 2d")
    length_ms = int(sum(float(number) * _UNITS_MS[unit] for number, unit in parts))
    if not length_ms:
        raise ArgumentTypeError(f"{text!r} is not a duration of at least a millisecond")
    return length_ms


def time_ms(text: str) -> int:
    """Parse a point of time.

    ``-1h`` or ``1h`` is an hour ago; ``now``, ``today`` and ``yesterday`` begin in UTC, and an ISO
    8601 time without an offset is UTC; a number counts milliseconds since the epoch.

    :returns: milliseconds since the epoch
    :raises ArgumentTypeError: it is not one
    """
    now_ms = time.time_ns() // 1_000_000
    if text == "now":
        return now_ms
    if text in _DAYS_AGO:
        today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        return since_epoch_ms(today - timedelta(days=_DAYS_AGO[text]))
    if re.fullmatch(r"[0-9]{9,15}", text):
        return int(text)
    if _PART.match(text.removeprefix("-")):
        return now_ms - duration_ms(text.removeprefix("-"))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(
            f"{text!r} is not a time, such as -1h, yesterday, 2026-11-20 or "
            "2026-11-20T08:00:00+01:00"
        ) from None
    return since_epoch_ms(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC))


# Epoch --------------------------------------------------------------------------------------------


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def since_epoch_ms(when: datetime) -> int:
    """Return the milliseconds from the epoch to a time, rounded down.

    They are exact, unlike those of ``timestamp()``, whose float may lie below a millisecond.

    :param when: with a time zone
    """
    return (when - _EPOCH) // timedelta(milliseconds=1)
