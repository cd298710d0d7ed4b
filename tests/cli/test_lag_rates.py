"""Rates between lag snapshots, with given times."""

from __future__ import annotations

from typing import Any

from headrace.client.lag.rates import LagRates
from headrace.client.lag.rows import LagRow

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
