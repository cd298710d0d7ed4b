"""Rates between lag snapshots, with given times."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from headrace.client.lag.group_lines import GroupLine, group_lines
from headrace.client.lag.rates import LagRates, seconds_to_zero
from headrace.client.lag.rows import LagRow, records_left
from headrace.client.lag.summary import GroupLag, add_rows

EMPTY = LagRow(None, "g", "classic", "Empty", "t", 0, *(None,) * 12, 0)  # type: ignore[arg-type]


def observe(rates: LagRates, now_s: float, *rows: LagRow) -> None:
    rates.begin(int(now_s * 1000))
    for row in rows:
        rates.add([row])
    rates.end()


def committed(offset: int | None, end: int | None = 100, **fields: Any) -> LagRow:
    return EMPTY._replace(committed_offset=offset, end_offset=end, **fields)


def shared(start: int, end: int, lag: int, count: int | None = None) -> LagRow:
    return EMPTY._replace(
        group_type="share",
        start_offset=start,
        end_offset=end,
        lag=lag,
        delivery_complete_count=count,
    )


def test_rates_are_means_over_the_window() -> None:
    rates = LagRates(window_ms=10_000)
    for second in range(0, 60, 5):
        observe(rates, second, committed(second * (2 if second < 30 else 4), 1000 + second))
    assert rates.consumed("g", "t") == (220, 4.0)
    assert rates.produced("t") == (55, 1.0)


def test_two_snapshots_at_one_time_divide_by_nothing() -> None:
    rates = LagRates()
    observe(rates, 1, committed(0))
    observe(rates, 1, committed(5))
    assert rates.consumed("g", "t") == (5, None)


def test_a_position_that_is_unknown_for_a_while_loses_nothing() -> None:
    rates = LagRates()
    for second, offset in enumerate((1, None, 7)):
        observe(rates, second, committed(offset))
    assert rates.consumed("g", "t") == (6, 3.0)


def test_what_is_gone_is_forgotten() -> None:
    rates = LagRates()
    observe(rates, 0, committed(0), committed(0, topic="u"))
    observe(rates, 1, committed(4), committed(0, group_id="h"))
    assert rates.topics() == ["t"]
    observe(rates, 2, committed(8, topic="u"))
    assert rates.consumed("g", "u") == (0, None)


def test_the_finished_records_of_a_share_group_are_counted_once() -> None:
    rates = LagRates()
    # Without the count, the end is read later than the lag: 3 records too many seem finished.
    for second, row in enumerate(
        (
            shared(10, 20, 10, count=0),
            shared(10, 23, 8),  # 15, of which 12 are finished
            shared(10, 23, 10, count=3),  # 13
            shared(10, 30, 14, count=6),  # 16
        )
    ):
        observe(rates, second, row)
    assert rates.consumed("g", "t")[0] == 6
    observe(rates, 4, shared(0, 30, 30, count=0))  # reset
    observe(rates, 5, shared(0, 30, 25, count=5))
    assert rates.consumed("g", "t")[0] == 11


@pytest.mark.parametrize(
    ("lag", "unknown", "consumed", "produced", "left_s"),
    [
        (0, 0, None, None, 0),
        (0, 1, 5.0, 5.0, None),  # unknown is not zero
        (None, 2, 5.0, 5.0, None),
        (500, 0, 20.0, 10.0, 50),
        (500, 1, 20.0, 10.0, None),
        (500, 0, 10.0, 20.0, inf),
        (500, 1, 10.0, 20.0, inf),  # the unknown part cannot make it better
        (500, 0, 0.0, 0.0, inf),
        (1, 0, 0.0, 0.0, inf),
        (500, 0, None, 20.0, None),
        (9, 0, 11.0, 11.0, 9 / 11),  # it keeps up
        (9, 1, 11.0, 11.0, None),
    ],
)
def test_a_bad_trend_is_told_though_a_part_is_unknown(
    lag: int | None,
    unknown: int,
    consumed: float | None,
    produced: float | None,
    left_s: float | None,
) -> None:
    assert seconds_to_zero(lag, unknown, consumed, produced) == left_s


def line(*snapshots: list[LagRow]) -> GroupLine:
    """Return the line of the group after snapshots, one a second."""
    rates = LagRates()
    groups: dict[str, GroupLag] = {}
    for second, rows in enumerate(snapshots):
        groups = {}
        add_rows(groups, rows)
        observe(rates, second, *rows)
    (found,) = group_lines(groups, rates)
    return found


def test_a_group_that_falls_behind_where_its_lag_is_known() -> None:
    falling = line(
        [committed(0, 1000, lag=1000), committed(None, 50, lag=None, partition=1)],
        [committed(10, 1100, lag=1090), committed(None, 50, lag=None, partition=1)],
    )
    assert (falling.lag, falling.produced_per_s, falling.seconds_to_zero) == (1090, 100, -1)


def test_production_where_the_lag_is_unknown_is_no_bad_trend() -> None:
    rows = [
        [
            committed(11 * second, 120 + 11 * second, lag=120),
            committed(None, 1000 * second, lag=None, partition=1),
        ]
        for second in range(3)
    ]
    assert line(*rows)[6:] == (11, 11, -1)
    rows = [[one._replace(lag=9) if one.lag else one for one in of_one] for of_one in rows]
    assert line(*rows)[6:] == (11, 11, None)


@pytest.mark.parametrize(
    ("position", "log_start", "end", "complete_count", "left"),
    [
        (4, 0, 10, 0, 6),
        (4, 7, 10, 0, 3),
        (4, 10, 10, 0, 0),
        (4, 0, 10, 5, 1),
        (4, 7, 10, 5, 1),
        (12, 0, 10, 0, 0),
        (4, None, 10, 0, 6),
        (4, 0, None, 0, None),
        (None, 0, 10, 0, None),
        (None, 10, 10, 0, 0),
        (None, None, 0, 0, None),
    ],
)
def test_what_is_left_is_in_the_log(
    position: int | None,
    log_start: int | None,
    end: int | None,
    complete_count: int,
    left: int | None,
) -> None:
    assert records_left(position, log_start, end, complete_count) == left
