"""The arithmetic of progress, compared with loops over points."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.spark.history.groups import (
    busy,
    consumers_needed,
    positions,
    rates,
    recent,
    time_lags,
)

NAN = math.nan


def row(*values: float) -> np.ndarray:
    return np.array(values, np.float64)


def test_rates_are_unknown_where_an_offset_is_or_went_back() -> None:
    found = rates(row(NAN, 10, 30, 5, 5), 10.0).tolist()
    assert found[2] == 2.0
    assert found[4] == 0.0
    assert [math.isnan(found[i]) for i in (0, 1, 3)] == [True] * 3


def step(
    at: int, start: int | None, done: int | None = 0, *, deleted: bool = False
) -> dict[str, int | None]:
    return {"step": at, "start": start, "done": done, "deleted": deleted, "commits": 1}


def test_a_position_holds_until_the_next_step_or_a_deletion() -> None:
    steps = [step(1, 10), step(3, None, 5), step(4, None, deleted=True), step(6, None, 7)]
    position, commits = positions(steps, 8)
    assert position.tolist() == pytest.approx([NAN, 10, 10, 15, NAN, NAN, 17, 17], nan_ok=True)
    assert commits.tolist() == [0, 1, 0, 1, 1, 0, 1, 0]


def test_a_position_without_a_start_or_a_count_is_unknown() -> None:
    position, _ = positions([step(0, None, 3), step(1, 10, None), step(2, None, 1)], 3)
    assert position.tolist() == pytest.approx([NAN, NAN, 11], nan_ok=True)


@given(st.integers(1, 1000), st.integers(2, 30), st.integers(0, 40))
def test_time_lag_of_even_production(per_step: int, points: int, position: int) -> None:
    end = row(*(per_step * i for i in range(points)))
    at = position % points
    held = np.full(points, float(at * per_step))
    expected = [max(0, i - at) * 5.0 for i in range(points)]
    assert time_lags(held, end, 5.0).tolist() == pytest.approx(expected)


def test_time_lag_counts_from_the_last_moment_before_the_record_came() -> None:
    end = row(5, 5, 5, 6, 6)  # record 5 came between the third and the fourth point
    assert time_lags(row(5, 5, 5, 5, 5), end, 1.0).tolist() == [0, 0, 0, 1, 2]
    assert np.isnan(time_lags(row(NAN, 1), row(NAN, NAN), 1.0)).all()


def test_only_the_last_quarter_counts_as_recent() -> None:
    assert recent(np.array([100.0] * 6 + [2, NAN])) == 2
    assert recent(np.array([NAN])) == 0


def test_a_group_is_busy_while_there_is_something_to_read() -> None:
    rate = np.array([NAN, 50.0, 10.0, 60.0, 5.0])
    lag = np.array([0.0, 30.0, 0.0, 40.0, 0.0])
    assert busy(rate, lag) == pytest.approx(np.quantile([10.0, 5.0], 0.9))
    assert busy(rate, lag * 0) == 0


@given(
    st.floats(0, 1e9), st.floats(0, 1e5), st.floats(0.1, 1e5), st.integers(0, 50), st.floats(1, 1e5)
)
def test_the_consumers_needed_are_the_fewest_that_reach_the_target(
    lag: float, produced_per_s: float, busy_per_s: float, consumers: int, drain_s: float
) -> None:
    count = consumers_needed(lag, produced_per_s, busy_per_s, consumers, drain_s)
    assert count is not None and count >= 1
    each = busy_per_s / max(1, consumers)
    needed = produced_per_s + lag / drain_s
    assert count * each >= needed * (1 - 1e-6) - 1e-6 * each
    assert count == 1 or (count - 1) * each < needed * (1 + 1e-6) + 1e-6 * each


def test_consumers_needed_without_rates_or_work() -> None:
    assert consumers_needed(10, 0, 0, 3, 60) is None
    assert consumers_needed(0, 0, 0, 3, 60) == 1
    assert consumers_needed(0, 100, 30, 3, 60) == 10
