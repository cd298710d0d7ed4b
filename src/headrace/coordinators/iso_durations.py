"""Durations of ISO 8601, as in ``by_duration:P7D``."""

from __future__ import annotations

import re

_DURATION = re.compile(
    r"P(?=.)(?:([0-9]+)D)?"
    r"(?:T(?=[0-9])(?:([0-9]+)H)?(?:([0-9]+)M)?(?:([0-9]+)(?:[.,]([0-9]{0,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)
_MAX_DURATION_MS = 2**63 - 1


def duration_ms(text: str) -> int:
    """Return the milliseconds of an ISO 8601 duration such as ``PT1H30M`` or ``P1DT0.5S``, without
    a sign.

    :raises ValueError: it is not such a duration, or does not fit into 64 bits
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"not a duration: {text}")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups()[:4])
    seconds_ms = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000
    milliseconds = seconds_ms + round(float(f"0.{match[5] or 0}") * 1000)
    if milliseconds > _MAX_DURATION_MS:
        raise ValueError(f"the duration is too long: {text}")
    return milliseconds
