"""The arithmetic of progress, compared with loops over points."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.spark.history.advice import (
    GONE,
    NO_PROGRESS,
    SILENT,
    Advice,
    Bounds,
    Load,
    Stall,
    Target,
    advise,
    busy,
    eta_s,
    lag_of,
    rates,
    recent,
    stalls,
    time_lags,
)

NAN = math.nan
POINT = st.tuples(
    st.none() | st.integers(0, 6), st.integers(0, 8), st.integers(0, 2), st.booleans()
)


def row(*values: float) -> np.ndarray:
    return np.array([values], np.float64)


def test_rates_are_unknown_where_an_offset_is_or_went_back() -> None:
    found = rates(row(NAN, 10, 30, 5, 5), 10.0)[0].tolist()
    assert found[2] == 2.0
    assert found[4] == 0.0
    assert [math.isnan(found[i]) for i in (0, 1, 3)] == [True] * 3


def test_lag_is_never_negative() -> None:
    assert lag_of(row(3, 12), row(10, 10)).tolist() == [[7, 0]]


@given(st.integers(1, 1000), st.integers(2, 30), st.integers(0, 40))
def test_time_lag_of_even_production(per_step: int, points: int, position: int) -> None:
    end = row(*(per_step * i for i in range(points)))
    at = position % points
    held = np.full((1, points), float(at * per_step))
    expected = [max(0, i - at) * 5.0 for i in range(points)]
    assert time_lags(held, end, 5.0)[0].tolist() == pytest.approx(expected)


def test_time_lag_counts_from_the_last_moment_before_the_record_came() -> None:
    end = row(5, 5, 5, 6, 6)  # record 5 came between the third and the fourth point
    assert time_lags(row(5, 5, 5, 5, 5), end, 1.0)[0].tolist() == [0, 0, 0, 1, 2]
    assert np.isnan(time_lags(row(NAN, 1), row(NAN, NAN), 1.0)).all()


@given(st.lists(st.lists(POINT, min_size=6, max_size=6), min_size=1, max_size=4), st.integers(1, 4))
def test_stalls_are_what_a_loop_finds(
    rows: list[list[tuple[int | None, int, int, bool]]], least: int
) -> None:
    position = np.array([[NAN if p is None else float(p) for p, *_ in points] for points in rows])
    end = np.array([[float(e) for _, e, *_ in points] for points in rows])
    commits = np.array([[float(c) for *_, c, _ in points] for points in rows])
    deleted = np.array([[p is None and d for p, *_, d in points] for points in rows])
    expected = set()
    for index, points in enumerate(rows):
        stood = [False]
        for (p, e, *_), (q, f, *_) in pairwise(points):
            stood.append(p is not None and p == q and f > p and f - p >= max(0, e - p))
        lost = deleted[index].tolist()
        for first in range(6):
            for last in range(first, 6):
                if _is_run(stood, first, last) and last - first + 1 >= least:
                    committed = any(commits[index, (first + last + 1) // 2 : last + 1])
                    expected.add(
                        Stall(index, NO_PROGRESS if committed else SILENT, first - 1, last)
                    )
                if _is_run(lost, first, last):
                    expected.add(Stall(index, GONE, first, last))
    assert set(stalls(position, end, commits, deleted, least)) == expected


def _is_run(marks: list[bool], first: int, last: int) -> bool:
    """Return True if these are marked and their neighbours are not."""
    beside = [marks[at] for at in (first - 1, last + 1) if 0 <= at < len(marks)]
    return all(marks[first : last + 1]) and not any(beside)


def test_only_the_last_quarter_counts_as_recent() -> None:
    assert recent(np.array([100.0] * 6 + [2, NAN])) == 2
    assert recent(np.array([NAN])) == 0


def test_a_group_is_busy_while_there_is_something_to_read() -> None:
    rate = np.array([NAN, 50.0, 10.0, 60.0, 5.0])
    lag = np.array([0.0, 30.0, 0.0, 40.0, 0.0])
    assert busy(rate, lag) == pytest.approx(np.quantile([10.0, 5.0], 0.9))
    assert busy(rate, lag * 0) == 0


def test_eta() -> None:
    assert eta_s(0, 0, 10) == 0
    assert eta_s(100, 30, 10) == 5
    assert eta_s(100, 10, 10) is None


LOADS = st.builds(
    Load,
    lag=st.floats(0, 1e9),
    produced_per_s=st.floats(0, 1e5),
    busy_per_s=st.floats(0.1, 1e5),
    consumers=st.integers(0, 50),
    max_consumers=st.none() | st.integers(1, 100),
)


@st.composite
def targets(draw: st.DrawFn) -> Target:
    least = draw(st.integers(1, 10))
    most = draw(st.none() | st.integers(least, least + 50))
    return Target(draw(st.floats(1, 1e5)), Bounds(least, most))


@given(LOADS, targets())
def test_advice_is_the_smallest_number_that_reaches_the_target_within_limits(
    load: Load, target: Target
) -> None:
    bounds = target.bounds
    advice = advise(load, target)
    each = load.busy_per_s / max(1, load.consumers)
    assert advice.consumers is not None
    assert advice.wanted is not None
    assert advice.consumers >= bounds.least
    if bounds.most is not None:
        assert advice.consumers <= bounds.most
    if load.max_consumers is not None:
        assert advice.consumers <= max(load.max_consumers, bounds.least)
    needed = load.produced_per_s + load.lag / target.drain_s
    assert advice.wanted * each >= needed * (1 - 1e-6) - 1e-6 * each
    assert (advice.wanted - 1) * each < needed * (1 + 1e-6) + 1e-6 * each or advice.wanted <= 0
    if advice.limited_by is None:
        assert advice.consumers == advice.wanted
    elif advice.limited_by == "min":
        assert advice.wanted < advice.consumers == bounds.least
    else:
        assert advice.wanted > advice.consumers
    assert advice.drain_s == eta_s(load.lag, advice.consumers * each, load.produced_per_s)


def test_advice_without_rates_without_work_and_within_limits() -> None:
    target = Target(60.0, Bounds(2))
    idle = Load(lag=0, produced_per_s=0, busy_per_s=0, consumers=3, max_consumers=4)
    busy_group = replace(idle, produced_per_s=100, busy_per_s=30)
    assert advise(replace(idle, lag=10), target) == Advice(None)
    assert advise(idle, target) == Advice(2, 0.0)
    assert advise(busy_group, target) == Advice(4, 0.0, "partitions", 10)
    assert advise(replace(busy_group, max_consumers=None), target) == Advice(10, 0.0, None, 10)
