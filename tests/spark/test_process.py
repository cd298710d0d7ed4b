"""A handler that fails is called with parts of its rows, to find those that are to blame."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.spark.share.process import MOST_REJECTED, cause, isolate

pytestmark = pytest.mark.pure

ERROR = ValueError("of the whole micro-batch")


class Sink:
    """A handler that fails with some rows, and with all from one of its calls on.

    :ivar stored: the rows of calls that succeeded
    """

    def __init__(self, poison: Sequence[int] = (), calls: int = 1000) -> None:
        self.poison = set(poison)
        self.calls_left = calls
        self.stored: list[int] = []

    def __call__(self, rows: Sequence[int]) -> Exception | None:
        self.calls_left -= 1
        if self.poison & set(rows) or self.calls_left < 0:
            return ValueError(f"rows {rows}")
        self.stored += rows
        return None


def rejected(
    rows: Sequence[int], attempt: Callable[[Sequence[int]], Exception | None]
) -> list[int]:
    return sorted(row for row, _ in isolate(rows, ERROR, attempt))


@pytest.mark.parametrize("poison", [[37], [0], [99], [0, 1], [36, 37], list(range(40, 50))])
def test_poison_is_found_and_its_neighbours_are_processed_once(poison: list[int]) -> None:
    sink = Sink(poison)
    assert rejected(range(100), sink) == poison
    assert sorted(sink.stored) == [n for n in range(100) if n not in poison]


@pytest.mark.parametrize(("rows", "calls"), [(1, 0), (2, 2), (6000, 2)])
def test_a_sink_that_is_down_is_tried_twice(rows: int, calls: int) -> None:
    sink = Sink(calls=0)
    with pytest.raises(ValueError, match="of the whole"):
        isolate(range(rows), ERROR, sink)
    assert -sink.calls_left == calls


def test_nothing_is_rejected_when_too_many_rows_fail() -> None:
    sink = Sink(range(0, 4 * MOST_REJECTED, 2))
    with pytest.raises(ValueError, match="of the whole"):
        isolate(range(100), ERROR, sink)


@example(2, set(), 1)
@given(st.integers(2, 60), st.sets(st.integers(0, 59), max_size=3), st.integers(0, 40))
def test_a_sink_that_goes_down_meanwhile_costs_no_good_row(
    count: int, poison: set[int], calls: int
) -> None:
    sink = Sink(sorted(poison), calls)
    try:
        lost = set(rejected(range(count), sink))
    except ValueError:
        lost = set()
    assert lost <= poison
    assert len(sink.stored) == len(set(sink.stored))


def test_the_cause_is_one_line() -> None:
    assert cause(KeyError("x")) == "KeyError: 'x'"
    stack = (
        "Job aborted: Traceback (most recent call last):\n  File x\nValueError: no\n\n\tat org.x"
    )
    assert cause(RuntimeError(stack)) == "ValueError: no"
