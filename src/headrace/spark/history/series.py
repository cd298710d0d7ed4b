"""Series of the progress of groups at points in time, and what follows from them.

The part of a history that runs in Spark tasks. Series are numpy arrays of floats with a row per
partition and a column per point, NaN where unknown. The points are ``step_s`` seconds apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

Series = Any
"""A numpy array of float64: rows × points in time."""

_NUMBERS = ("position", "end_offset", "lag", "time_lag_s", "done_per_s", "produced_per_s")
SERIES = (
    "group_id string, topic string, partition int, "
    + ", ".join(f"{name} array<double>" for name in _NUMBERS)
    + ", commits array<int>"
)
"""Columns of :func:`series_of`, as DDL. Arrays have an element per point in time, null where
unknown."""

_RECENT_FRACTION = 0.25
"""Recent rates are those of the last quarter of the period."""
_BUSY_QUANTILE = 0.9
_ROUNDING = 1e-9
_CELLS_AT_ONCE = 1_000_000


def series_of(
    points: int, step_s: float, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Turn positions by step and ends by point into :data:`SERIES`. For ``mapInArrow``.

    :param points: number of points in time, ``step_s`` seconds apart
    """
    rows_at_once = max(1, _CELLS_AT_ONCE // points)
    for batch in batches:
        for start in range(0, batch.num_rows, rows_at_once):
            yield _series(batch.slice(start, rows_at_once), points, step_s)


def _series(batch: pa.RecordBatch, points: int, step_s: float) -> pa.RecordBatch:
    position, commits = _positions(batch.column("steps"), points)
    end = _ends(batch.column("end_offsets"), points)
    numbers = (
        position,
        end,
        lag_of(position, end),
        time_lags(position, end, step_s),
        rates(position, step_s),
        rates(end, step_s),
    )
    columns = {name: batch.column(name) for name in ("group_id", "topic", "partition")}
    columns |= {name: _lists(values) for name, values in zip(_NUMBERS, numbers, strict=True)}
    columns["commits"] = _lists(commits.astype(np.int32))
    return pa.RecordBatch.from_pydict(columns)


def _lists(values: Any) -> pa.ListArray:
    rows, points = values.shape
    starts: Any = np.arange(rows + 1, dtype=np.int32) * points
    flat = values.reshape(-1)
    is_unknown = np.isnan(flat) if flat.dtype == np.float64 else None
    return pa.ListArray.from_arrays(pa.array(starts), pa.array(flat, mask=is_unknown))


def _ends(column: pa.ListArray, points: int) -> Series:
    end: Series = np.full((len(column), points), np.nan)
    is_known = ~np.asarray(column.is_null())
    end[is_known] = np.asarray(column.drop_null().flatten()).reshape(-1, points)
    return end


def _positions(column: pa.ListArray, points: int) -> tuple[Series, Series]:
    """Return positions, and numbers of commits since the point before, at each point.

    A position is kept until the next change.
    """
    rows: Any = np.asarray(column.value_parent_indices()).astype(np.int64)
    fields = column.flatten()
    steps = np.asarray(fields.field("step")).astype(np.int64)
    shape = (len(column), points)
    commits: Series = np.zeros(shape)
    commits[rows, steps] = np.asarray(fields.field("commits"))
    # The start offset is null in a step whose share updates did not change it.
    start = _floats(fields.field("start"))
    is_known = ~np.isnan(start)
    starts = _hold(rows[is_known], steps[is_known], start[is_known], shape)
    done = _hold(rows, steps, _floats(fields.field("done")), shape)
    deleted = np.asarray(fields.field("deleted")).astype(np.float64)
    position = starts + done
    position[_hold(rows, steps, deleted, shape) == 1] = np.nan
    return position, commits


def _floats(column: pa.Array) -> Series:
    return np.asarray(column.cast(pa.float64(), safe=False).fill_null(float("nan")))


def _hold(rows: Any, steps: Any, values: Series, shape: tuple[int, int]) -> Series:
    """Put values at (row, step), and hold each until the next value of its row."""
    table: Series = np.full(shape, np.nan)
    table[rows, steps] = values
    source: Any = np.zeros(shape, np.int64)
    source[rows, steps] = steps
    source = np.maximum.accumulate(source, axis=1)
    return np.take_along_axis(table, source, axis=1)


# -- the arithmetic


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


def recent(rate: Series) -> float:
    """Return the mean of one series over the last quarter of the period; 0 if nothing is known."""
    count = max(1, math.ceil(rate.shape[-1] * _RECENT_FRACTION))
    values = rate[..., -count:]
    numbers = values[~np.isnan(values)]
    return float(numbers.mean()) if len(numbers) else 0.0


def busy(rate: Series, lag: Series) -> float:
    """Return the records per second that a group finishes while it has records to read.

    It is the 0.9 quantile of the rates of steps that began with a lag; 0 without such steps.

    :param rate: one series of records per second since the point before
    :param lag: one series of the lag at each point
    """
    lag_before = np.concatenate(([0.0], lag[:-1]))
    with np.errstate(invalid="ignore"):
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
