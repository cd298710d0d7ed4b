"""Rows of positions and ends to rows of series: the part of the history that runs in Spark tasks,
over Arrow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .advice import Series, lag_of, rates, stalls, time_lags

_NUMBERS = ("position", "end_offset", "lag", "time_lag_s", "consumed_per_s", "produced_per_s")
SCHEMA = (
    "group_id string, topic string, partition int, share boolean, "
    + ", ".join(f"{name} array<double>" for name in _NUMBERS)
    + ", commits array<int>, stalls array<struct<kind: string, first: int, last: int>>"
)
"""What :func:`series_of` makes, as DDL: arrays have an element per point in time, null where
unknown.
"""

_CELLS_AT_A_TIME = 1_000_000
_STALLS = pa.list_(pa.struct([("kind", pa.string()), ("first", pa.int32()), ("last", pa.int32())]))


def series_of(
    points: int, step_s: float, least_steps: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """For ``mapInArrow``: positions by step and ends by point in, :data:`SCHEMA` out.

    :param points: in time
    :param least_steps: that make a stall
    """
    rows = max(1, _CELLS_AT_A_TIME // points)
    for batch in batches:
        for start in range(0, batch.num_rows, rows):
            yield _series(batch.slice(start, rows), points, step_s, least_steps)


def _series(batch: pa.RecordBatch, points: int, step_s: float, least_steps: int) -> pa.RecordBatch:
    position, commits, deleted = _positions(batch.column("steps"), points)
    end = _ends(batch.column("end_offsets"), points)
    columns = {name: batch.column(name) for name in ("group_id", "topic", "partition", "share")}
    values = (
        position,
        end,
        lag_of(position, end),
        time_lags(position, end, step_s),
        rates(position, step_s),
        rates(end, step_s),
    )
    columns |= {name: _lists(value) for name, value in zip(_NUMBERS, values, strict=True)}
    found: list[list[dict[str, Any]]] = [[] for _ in range(batch.num_rows)]
    for stall in stalls(position, end, commits, deleted, least_steps):
        found[stall.row].append({"kind": stall.kind, "first": stall.first, "last": stall.last})
    columns["commits"] = _lists(commits.astype(np.int32))
    columns["stalls"] = pa.array(found, _STALLS)
    return pa.RecordBatch.from_pydict(columns)


def _lists(values: Any) -> pa.ListArray:
    rows, points = values.shape
    offsets: Any = np.arange(rows + 1, dtype=np.int32) * points
    flat = values.reshape(-1)
    missing = np.isnan(flat) if flat.dtype == np.float64 else None
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat, mask=missing))


def _ends(column: pa.ListArray, points: int) -> Series:
    end: Series = np.full((len(column), points), np.nan)
    known = ~np.asarray(column.is_null())
    end[known] = np.asarray(column.drop_null().flatten()).reshape(-1, points)
    return end


def _positions(column: pa.ListArray, points: int) -> tuple[Series, Series, Any]:
    """At each point: the position, kept until the next change; commits up to it; whether the
    position was deleted.
    """
    rows: Any = np.asarray(pc.list_parent_indices(column)).astype(np.int64)
    fields = column.flatten()
    step = np.asarray(fields.field("step")).astype(np.int64)
    commits: Series = np.zeros((len(column), points))
    commits[rows, step] = np.asarray(fields.field("commits"))
    # A step in which the start offset did not change, as share updates may say, keeps that of the
    # step before.
    start = _kept(rows, step, floats(fields.field("start")), commits.shape, fill_gaps=True)
    done = _kept(rows, step, floats(fields.field("done")), commits.shape)
    deleted = (
        _kept(rows, step, np.asarray(fields.field("deleted")).astype(np.float64), commits.shape)
        == 1
    )
    position = start + done
    position[deleted] = np.nan
    return position, commits, deleted


def floats(column: pa.Array) -> Series:
    """Numbers as floats, NaN where null."""
    return np.asarray(column.cast(pa.float64(), safe=False).fill_null(float("nan")))


def _kept(
    rows: Any, step: Any, values: Series, shape: tuple[int, int], *, fill_gaps: bool = False
) -> Series:
    """Values put at (row, step), and kept from there on until the next one of the row.

    :param fill_gaps: let an unknown value be the one before it
    """
    if fill_gaps:
        known = ~np.isnan(values)
        rows, step, values = rows[known], step[known], values[known]
    table: Series = np.full(shape, np.nan)
    table[rows, step] = values
    source: Any = np.zeros(shape, np.int64)
    source[rows, step] = step
    source = np.maximum.accumulate(source, axis=1)
    return np.take_along_axis(table, source, axis=1)
