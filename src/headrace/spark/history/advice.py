"""The arithmetic of progress: rates, lag, time lag, stalls, when a group is done, and how many
consumers it needs.

Pure. Series are numpy arrays of floats with a row per partition and a column per point in time, NaN
where unknown; the points are ``step_s`` apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

Series = Any
"""A numpy array of float64: rows × points in time."""

NO_PROGRESS = "commits without progress"
"""Commits went on, or share state was updated, also in the second half of that time; but the
position stood still although there was something to read."""
SILENT = "nothing committed"
"""Nothing was committed although there was something to read, and the lag did not shrink."""
GONE = "position gone"
"""The position was deleted or expired, or the group was deleted."""

RECENT_SHARE = 0.25
"""The rates that count for the future are those of the last quarter of the period."""
_BUSY_QUANTILE = 0.9


class Stall(NamedTuple):
    """From one point in time to another, inclusive, a partition did not get on.

    :param row: of the series
    :param kind: :data:`NO_PROGRESS`, :data:`SILENT` or :data:`GONE`
    """

    row: int
    kind: str
    first: int
    last: int


def lag_of(position: Series, end: Series) -> Series:
    """Records between the position and the end; never negative, since a position beyond the end is
    not a debt.
    """
    return np.maximum(end - position, 0.0)


def rates(offsets: Series, step_s: float) -> Series:
    """Records per second up to each point; NaN for the first, and where an offset is unknown or
    went back.
    """
    gone_on = np.diff(offsets, axis=-1) / step_s
    with np.errstate(invalid="ignore"):
        gone_on[gone_on < 0] = np.nan
    return np.concatenate((np.full((*offsets.shape[:-1], 1), np.nan), gone_on), axis=-1)


def time_lags(position: Series, end: Series, step_s: float) -> Series:
    """Seconds since the record at the position was written, from how the end moved; 0 where there
    is none.

    Within a step records are taken to have come evenly. What was written before the first point is
    as old as that.
    """
    out = np.full(position.shape, np.nan)
    places = np.arange(position.shape[-1])
    for row in range(len(position)):
        known = ~np.isnan(end[row])
        if not known.any():
            continue
        at, ends = places[known], np.maximum.accumulate(end[row][known])
        before = np.searchsorted(ends, position[row], side="right") - 1
        low, high = np.clip(before, 0, None), np.clip(before + 1, None, len(ends) - 1)
        width = np.where(ends[high] > ends[low], ends[high] - ends[low], 1.0)
        written = at[low] + np.clip((position[row] - ends[low]) / width, 0.0, 1.0) * (
            at[high] - at[low]
        )
        lag_s = np.maximum(places - written, 0.0) * step_s
        out[row] = np.where(position[row] >= end[row], 0.0, lag_s)
        out[row][np.isnan(position[row]) | ~known] = np.nan
    return out


def stalls(
    position: Series, end: Series, commits: Series, deleted: Any, least_steps: int
) -> Iterator[Stall]:
    """Where partitions did not get on for at least ``least_steps`` steps, or had lost their
    position.

    :param commits: how many commits came in the step up to each point
    :param deleted: whether the last that was heard of a position up to each point is that it was
        deleted
    """
    lag = lag_of(position, end)
    still = np.zeros(position.shape, bool)
    with np.errstate(invalid="ignore"):
        still[:, 1:] = (
            (position[:, 1:] == position[:, :-1]) & (lag[:, 1:] > 0) & (lag[:, 1:] >= lag[:, :-1])
        )
    for row, first, last in _runs(still, least_steps):
        late = commits[
            row, (first + last + 1) // 2 : last + 1
        ]  # one last commit, and then silence, is silence
        yield Stall(row, NO_PROGRESS if late.any() else SILENT, first - 1, last)
    for row, first, last in _runs(deleted, 1):
        yield Stall(row, GONE, first, last)


def _runs(marked: Any, least: int) -> Iterator[tuple[int, int, int]]:
    """Row, first and last column of each run of at least ``least`` marks."""
    edge: Series = np.zeros((len(marked), 1), np.int8)
    change = np.diff(np.concatenate((edge, marked.astype(np.int8), edge), axis=1), axis=1)
    rows, firsts = np.nonzero(change == 1)
    lasts: Series = np.nonzero(change == -1)[1] - 1
    for row, first, last in zip(rows.tolist(), firsts.tolist(), lasts.tolist(), strict=True):
        if last - first + 1 >= least:
            yield row, first, last


def recent(rate: Series) -> float:
    """The mean of one series of rates over the last quarter of the period; 0 when nothing is
    known."""
    return _mean(rate[..., -max(1, math.ceil(rate.shape[-1] * RECENT_SHARE)) :])


def busy(rate: Series, lag: Series) -> float:
    """What a group consumes per second when it is not waiting for records: the rate that nine steps
    in ten stay under.

    :param rate: one series of what was consumed up to each point
    :param lag: the records left at each point; only steps that began with some count
    """
    waiting = np.concatenate(([0.0], lag[:-1]))
    with np.errstate(invalid="ignore"):
        chosen = rate[(waiting > 0) & (rate > 0)]
    return float(np.quantile(chosen, _BUSY_QUANTILE)) if len(chosen) else 0.0


def _mean(values: Series) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else 0.0


def eta_s(lag: float, consumed_per_s: float, produced_per_s: float) -> float | None:
    """Seconds until the lag is zero at these rates: 0 when it is, None when it never will be."""
    if lag <= 0:
        return 0.0
    gain = consumed_per_s - produced_per_s
    return lag / gain if gain > 0 else None


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the number of consumers must keep to; ``most`` None for no limit."""

    least: int = 1
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Advice:
    """How many consumers a group should have.

    :param consumers: None when nothing tells how much one consumer does
    :param drain_s: how long they need until the lag is zero; None when they never will
    :param limited_by: what kept it from what the target needs: ``"max"``, ``"partitions"``; or
        ``"min"``
    :param wanted: what the target needs without limits
    """

    consumers: int | None
    drain_s: float | None = None
    limited_by: str | None = None
    wanted: int | None = None


def advise(
    *,
    lag: float,
    produced_per_s: float,
    busy_per_s: float,
    consumers: int,
    partitions: int,
    target_drain_s: float,
    bounds: Bounds,
    share: bool,
) -> Advice:
    """How many consumers clear ``lag`` in ``target_drain_s`` while ``produced_per_s`` more records
    come.

    Each consumer is taken to do its part of ``busy_per_s``, which ``consumers`` of them did.

    :param partitions: of a group other than a share group at most so many consumers have work
    """
    each_per_s = busy_per_s / max(1, consumers)
    if each_per_s <= 0:
        return Advice(bounds.least, 0.0) if lag <= 0 and produced_per_s <= 0 else Advice(None)
    # A whole number that is a rounding error short of the quotient is enough.
    wanted = math.ceil((produced_per_s + lag / target_drain_s) / each_per_s - 1e-9)
    limits = [(bounds.most, "max")] if bounds.most is not None else []
    if not share:
        limits.append((partitions, "partitions"))
    most, limit = min(limits, default=(wanted, None))
    chosen = max(bounds.least, min(wanted, most))
    limited_by = None if chosen == wanted else limit if chosen < wanted else "min"
    return Advice(chosen, eta_s(lag, chosen * each_per_s, produced_per_s), limited_by, wanted)
