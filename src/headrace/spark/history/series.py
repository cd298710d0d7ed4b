"""Series of the progress of a group in one partition, and what follows from them.

A series is a numpy array of floats, one for each point in time, NaN where unknown. The points are
``step_s`` seconds apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

Series = Any
"""A numpy array of float64."""

_RECENT_FRACTION = 0.25
"""Recent rates are those of the last quarter of the period."""
_BUSY_QUANTILE = 0.9
_ROUNDING = 1e-9


def positions(steps: Iterable[Mapping[str, Any]], points: int) -> tuple[Series, Series]:
    """Return positions, and numbers of commits since the point before.

    A position is kept until the next step. It is unknown after a deletion.

    :param steps: what changed, ascending: the point from which it counts (``step``), the start
        offset (``start``, None if it did not change), the number of records that are ``done`` from
        there on, ``deleted``, and the number of ``commits``
    """
    position: Series = np.full(points, np.nan)
    commits: Series = np.zeros(points)
    start = math.nan
    for step in steps:
        start = start if step["start"] is None else step["start"]
        is_unknown = step["deleted"] or step["done"] is None
        position[step["step"] :] = math.nan if is_unknown else start + step["done"]
        commits[step["step"]] = step["commits"]
    return position, commits


def rates(offsets: Series, step_s: float) -> Series:
    """Return records per second since the point before.

    NaN for the first point, and where an offset is unknown or went back.
    """
    per_s = np.diff(offsets, prepend=np.nan) / step_s
    return np.where(per_s >= 0, per_s, np.nan)


def time_lags(position: Series, end: Series, step_s: float) -> Series:
    """Return the age in seconds of the record at the position; 0 if there is none.

    The age follows from the movement of the end: records are assumed to have arrived evenly within
    a step. A record from before the first point counts as old as that point.

    :param end: known at every point, or at none
    """
    points = np.arange(len(end))
    arrived = np.interp(position, np.maximum.accumulate(end), points)
    lags_s = np.where(position >= end, 0.0, np.maximum(points - arrived, 0.0) * step_s)
    return np.where(np.isnan(position) | np.isnan(end), np.nan, lags_s)


def recent(rate: Series) -> float:
    """Return the mean of a series over the last quarter of the period; 0 if nothing is known."""
    values = rate[-max(1, math.ceil(len(rate) * _RECENT_FRACTION)) :]
    numbers = values[~np.isnan(values)]
    return float(numbers.mean()) if len(numbers) else 0.0


def busy(rate: Series, lag: Series) -> float:
    """Return the records per second that a group finishes while it has records to read.

    It is the 0.9 quantile of the rates of steps that began with a lag; 0 without such steps.

    :param rate: records per second since the point before
    :param lag: the lag at each point
    """
    lag_before = np.concatenate(([0.0], lag[:-1]))
    chosen = rate[(lag_before > 0) & (rate > 0)]
    return float(np.quantile(chosen, _BUSY_QUANTILE)) if len(chosen) else 0.0


def consumers_needed(
    lag: float, produced_per_s: float, busy_per_s: float, consumers: int, drain_s: float
) -> int | None:
    """Return the number of consumers that have finished the lag in ``drain_s`` seconds.

    Each is assumed to do an equal part of what the group does while it is busy.

    :param busy_per_s: from :func:`busy`
    :param consumers: the number that reached it
    :returns: at least 1; None if the rate of one consumer is unknown
    """
    needed_per_s = produced_per_s + lag / drain_s
    each_per_s = busy_per_s / max(1, consumers)
    if each_per_s <= 0:
        return None if needed_per_s > 0 else 1
    # Without it, a rounding error just above a whole number would add a consumer.
    return max(1, math.ceil(needed_per_s / each_per_s - _ROUNDING))
