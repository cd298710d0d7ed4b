"""The arithmetic of progress: rates, lag, stalls, and numbers of consumers.

Pure. Series are numpy arrays of floats with a row per partition and a column per point in time, NaN
where unknown. The points are ``step_s`` seconds apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from headrace.client.lag.model import eta_s

Series = Any
"""A numpy array of float64: rows × points in time."""

NO_PROGRESS = "commits without progress"
"""A stall during which commits or share state were still written in its second half, although there
was something to read."""
SILENT = "nothing committed"
"""A stall during which nothing was committed although there was something to read, and the lag did
not shrink."""
GONE = "position gone"
"""A time without a position: it was deleted or expired, or the group was deleted."""

RECENT_FRACTION = 0.25
"""Recent rates are those of the last quarter of the period."""
_BUSY_QUANTILE = 0.9
_ROUNDING = 1e-9


class Stall(NamedTuple):
    """A time without progress of one partition, from one point to another, inclusive.

    :param row: of the series
    :param kind: :data:`NO_PROGRESS`, :data:`SILENT` or :data:`GONE`
    """

    row: int
    kind: str
    first: int
    last: int


def lag_of(position: Series, end: Series) -> Series:
    """Return the number of records between position and end; 0 for a position beyond the end."""
    return np.maximum(end - position, 0.0)


def rates(offsets: Series, step_s: float) -> Series:
    """Return records per second since the point before.

    NaN for the first point, and where an offset is unknown or went back.
    """
    per_s = np.diff(offsets, axis=-1) / step_s
    with np.errstate(invalid="ignore"):
        per_s[per_s < 0] = np.nan
    unknown = np.full((*offsets.shape[:-1], 1), np.nan)
    return np.concatenate((unknown, per_s), axis=-1)


def time_lags(position: Series, end: Series, step_s: float) -> Series:
    """Return the age in seconds of the record at the position; 0 if there is none.

    The age follows from the movement of the end: records are assumed to have arrived evenly within
    a step. A record from before the first point counts as old as that point.
    """
    lags_s = np.full(position.shape, np.nan)
    points = np.arange(position.shape[-1])
    for row in range(len(position)):
        is_known = ~np.isnan(end[row])
        if not is_known.any():
            continue
        known_points = points[is_known]
        ends = np.maximum.accumulate(end[row][is_known])
        # The record at the position arrived between the points `low` and `high`.
        before = np.searchsorted(ends, position[row], side="right") - 1
        low = np.clip(before, 0, None)
        high = np.clip(before + 1, None, len(ends) - 1)
        width = np.where(ends[high] > ends[low], ends[high] - ends[low], 1.0)
        fraction = np.clip((position[row] - ends[low]) / width, 0.0, 1.0)
        arrived = known_points[low] + fraction * (known_points[high] - known_points[low])
        age_s = np.maximum(points - arrived, 0.0) * step_s
        lags_s[row] = np.where(position[row] >= end[row], 0.0, age_s)
        lags_s[row][np.isnan(position[row]) | ~is_known] = np.nan
    return lags_s


def stalls(
    position: Series, end: Series, commits: Series, is_deleted: Any, least_steps: int
) -> Iterator[Stall]:
    """Find times of at least ``least_steps`` steps without progress, and times without a position.

    :param commits: number of commits since the point before
    :param is_deleted: a boolean for each point: the last event of the position was its deletion
    """
    lag = lag_of(position, end)
    stands_still = np.zeros(position.shape, bool)
    with np.errstate(invalid="ignore"):
        is_same = position[:, 1:] == position[:, :-1]
        has_lag = lag[:, 1:] > 0
        has_not_shrunk = lag[:, 1:] >= lag[:, :-1]
        stands_still[:, 1:] = is_same & has_lag & has_not_shrunk
    for row, first, last in _runs(stands_still, least_steps):
        # Silence after a last commit is silence: only the second half counts.
        middle = (first + last + 1) // 2
        kind = NO_PROGRESS if commits[row, middle : last + 1].any() else SILENT
        yield Stall(row, kind, first - 1, last)
    for row, first, last in _runs(is_deleted, 1):
        yield Stall(row, GONE, first, last)


def _runs(marked: Any, least: int) -> Iterator[tuple[int, int, int]]:
    """Yield row, first and last column of each run of at least ``least`` marks."""
    edge: Series = np.zeros((len(marked), 1), np.int8)
    change = np.diff(np.concatenate((edge, marked.astype(np.int8), edge), axis=1), axis=1)
    rows, firsts = np.nonzero(change == 1)
    lasts: Series = np.nonzero(change == -1)[1] - 1
    for row, first, last in zip(rows.tolist(), firsts.tolist(), lasts.tolist(), strict=True):
        if last - first + 1 >= least:
            yield row, first, last


def recent(rate: Series) -> float:
    """Return the mean of one series over the last quarter of the period; 0 if nothing is known."""
    count = max(1, math.ceil(rate.shape[-1] * RECENT_FRACTION))
    values = rate[..., -count:]
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else 0.0


def busy(rate: Series, lag: Series) -> float:
    """Return the records per second that a group consumes while it has records to read.

    It is the 0.9 quantile of the rates of steps that began with a lag; 0 without such steps.

    :param rate: one series of records per second since the point before
    :param lag: one series of the lag at each point
    """
    lag_before = np.concatenate(([0.0], lag[:-1]))
    with np.errstate(invalid="ignore"):
        chosen = rate[(lag_before > 0) & (rate > 0)]
    return float(np.quantile(chosen, _BUSY_QUANTILE)) if len(chosen) else 0.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits on the number of consumers; ``most`` is None for no limit."""

    least: int = 1
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """The aim of advice: no lag after ``drain_s`` seconds, with consumers within ``bounds``."""

    drain_s: float
    bounds: Bounds


@dataclass(frozen=True, slots=True)
class Load:
    """The work of a group.

    :param lag: in records
    :param busy_per_s: records per second of all consumers together while they have records to read
    :param consumers: number of consumers that reached ``busy_per_s``
    :param max_consumers: number of consumers that can have work; None for no limit (a share group)
    """

    lag: float
    produced_per_s: float
    busy_per_s: float
    consumers: int
    max_consumers: int | None


@dataclass(frozen=True, slots=True)
class Advice:
    """The number of consumers that a group should have.

    :param consumers: None if the rate of one consumer is unknown
    :param drain_s: seconds until their lag is zero; None if it never will be
    :param limited_by: the limit that differs from what the target needs: ``"max"``,
        ``"partitions"`` or ``"min"``; None for none
    :param wanted: what the target needs without limits
    """

    consumers: int | None
    drain_s: float | None = None
    limited_by: str | None = None
    wanted: int | None = None


def advise(load: Load, target: Target) -> Advice:
    """Advise on the number of consumers that reach a target.

    Each consumer is assumed to do an equal part of ``load.busy_per_s``.
    """
    bounds = target.bounds
    each_per_s = load.busy_per_s / max(1, load.consumers)
    if each_per_s <= 0:
        is_idle = load.lag <= 0 and load.produced_per_s <= 0
        return Advice(bounds.least, 0.0) if is_idle else Advice(None)
    needed_per_s = load.produced_per_s + load.lag / target.drain_s
    # Without it, a rounding error just above a whole number would add a consumer.
    wanted = math.ceil(needed_per_s / each_per_s - _ROUNDING)
    limits = [(bounds.most, "max"), (load.max_consumers, "partitions")]
    upper_limits = [(most, name) for most, name in limits if most is not None]
    most, limit_name = min(upper_limits, default=(wanted, None))
    chosen = max(bounds.least, min(wanted, most))
    limited_by = None
    if chosen < wanted:
        limited_by = limit_name
    elif chosen > wanted:
        limited_by = "min"
    return Advice(
        chosen, eta_s(load.lag, chosen * each_per_s, load.produced_per_s), limited_by, wanted
    )
