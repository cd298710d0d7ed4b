"""Series of positions, ends, lags and rates: the part of a history that runs in Spark tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from .advice import Series, lag_of, rates, stalls, time_lags

_NUMBERS = ("position", "end_offset", "lag", "time_lag_s", "consumed_per_s", "produced_per_s")
SERIES = (
    "group_id string, topic string, partition int, share boolean, "
    + ", ".join(f"{name} array<double>" for name in _NUMBERS)
    + ", commits array<int>, stalls array<struct<kind: string, first: int, last: int>>"
)
"""Columns of :func:`series_of`, as DDL. Arrays have an element per point in time, null where
unknown."""

_CELLS_AT_ONCE = 1_000_000
_STALLS = pa.list_(pa.struct([("kind", pa.string()), ("first", pa.int32()), ("last", pa.int32())]))


def series_of(
    points: int, step_s: float, least_steps: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Turn positions by step and ends by point into :data:`SERIES`. For ``mapInArrow``.

    :param points: number of points in time, ``step_s`` seconds apart
    :param least_steps: number of steps without progress that make a stall
    """
    rows_at_once = max(1, _CELLS_AT_ONCE // points)
    for batch in batches:
        for start in range(0, batch.num_rows, rows_at_once):
            yield _series(batch.slice(start, rows_at_once), points, step_s, least_steps)


def _series(batch: pa.RecordBatch, points: int, step_s: float, least_steps: int) -> pa.RecordBatch:
    position, commits, is_deleted = _positions(batch.column("steps"), points)
    end = _ends(batch.column("end_offsets"), points)
    numbers = (
        position,
        end,
        lag_of(position, end),
        time_lags(position, end, step_s),
        rates(position, step_s),
        rates(end, step_s),
    )
    found: list[list[dict[str, Any]]] = [[] for _ in range(batch.num_rows)]
    for stall in stalls(position, end, commits, is_deleted, least_steps):
        found[stall.row].append({"kind": stall.kind, "first": stall.first, "last": stall.last})
    columns = {name: batch.column(name) for name in ("group_id", "topic", "partition", "share")}
    columns |= {name: _lists(values) for name, values in zip(_NUMBERS, numbers, strict=True)}
    columns["commits"] = _lists(commits.astype(np.int32))
    columns["stalls"] = pa.array(found, _STALLS)
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


def _positions(column: pa.ListArray, points: int) -> tuple[Series, Series, Any]:
    """Return positions, numbers of commits since the point before, and deletions, at each point.

    A position is kept until the next change. A deletion is a boolean.
    """
    rows: Any = np.asarray(column.value_parent_indices()).astype(np.int64)
    fields = column.flatten()
    steps = np.asarray(fields.field("step")).astype(np.int64)
    shape = (len(column), points)
    commits: Series = np.zeros(shape)
    commits[rows, steps] = np.asarray(fields.field("commits"))
    # The start offset is null in a step whose share updates did not change it.
    start = _floats(fields.field("start"))
    known = ~np.isnan(start)
    starts = _hold(rows[known], steps[known], start[known], shape)
    done = _hold(rows, steps, _floats(fields.field("done")), shape)
    deleted = np.asarray(fields.field("deleted")).astype(np.float64)
    is_deleted = _hold(rows, steps, deleted, shape) == 1
    position = starts + done
    position[is_deleted] = np.nan
    return position, commits, is_deleted


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
