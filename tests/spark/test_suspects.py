"""The record that makes micro-batches fail is found by smaller ones, and then waits for others."""

from __future__ import annotations

from itertools import count as numbers

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client import AcquiredRange
from headrace.client.share.spans import normalize
from headrace.spark.share.suspects import AVAILABLE_AFTER_S, NO_LIMIT, Position, Suspects

pytestmark = pytest.mark.pure


def ranges(offsets: set[int]) -> list[AcquiredRange]:
    return [AcquiredRange("t", 0, *span, 1) for span in normalize((n, n) for n in offsets)]


def offsets(acquired: list[AcquiredRange]) -> set[int]:
    return {n for r in acquired for n in range(r.first_offset, r.last_offset + 1)}


class Restarts:
    """A query that is started again whenever it fails, over a group with one partition."""

    def __init__(self, records: int, poison: set[int], limit: int = NO_LIMIT) -> None:
        self.limit = limit
        self.left = set(range(records))
        self.poison = poison
        self.failed: set[int] = set()
        """The records of the micro-batch that failed last."""
        self.alone: list[Position] = []

    def run(self) -> bool:
        """Run until a micro-batch fails, or there are no records; return whether one failed."""
        suspects, held = Suspects(), set[int]()
        if self.failed:
            span = min(self.failed), max(self.failed)
            suspects.begin(len(self.failed), {("t", 0): span}, self.alone, 0.0)
        while self.left:
            room = max(0, suspects.most_to_hold(self.limit) - len(held))
            held |= set(sorted(self.left - held)[:room])
            now, later = suspects.choose(ranges(held), self.limit, 10.0)
            batch = offsets(now)
            assert batch
            assert offsets(later) == held - batch
            assert len(batch) <= min(self.limit, suspects.most_records)
            if batch & self.poison:
                self.failed, self.alone = batch, suspects.alone
                return True
            self.left -= batch
            held -= batch
            suspects.processed(now)
        return False


@pytest.mark.parametrize("poison", [0, 37, 99])
def test_one_record_is_left_after_a_few_failures(poison: int) -> None:
    query = Restarts(100, {poison})
    failures = next(n for n in numbers(1) if query.run() and len(query.failed) == 1)
    assert failures <= 8  # 100, 50, 25, 12, 6, 3, 1
    assert query.run()
    assert query.left == query.failed == {poison}
    query.poison = set()
    assert not query.run()


@given(
    st.integers(1, 40), st.sets(st.integers(0, 39), max_size=3), st.sampled_from([1, 7, NO_LIMIT])
)
def test_neighbours_are_processed(records: int, poison: set[int], limit: int) -> None:
    query = Restarts(records, poison & set(range(records)), limit)
    for _ in range(40):
        query.run()
    assert query.left == query.poison
    query.poison = set(sorted(query.poison)[:1])  # the sink takes the others by now
    for _ in range(4):
        query.run()
    assert query.left == query.poison


def test_records_that_are_finished_are_suspected_no_longer() -> None:
    for acquired in ([], ranges({100, 101})):
        suspects = Suspects()
        suspects.begin(10, {("t", 0): (0, 9)}, [], now_s=0.0)
        suspects.choose(acquired, NO_LIMIT, AVAILABLE_AFTER_S - 1)
        assert suspects
        assert suspects.choose(acquired, NO_LIMIT, AVAILABLE_AFTER_S) == (acquired, [])
        assert not suspects
    suspects.begin(10, {("t", 0): (0, 9), ("t", 1): (0, 9)}, [], now_s=0.0)
    assert suspects.choose(ranges({9, 100}), NO_LIMIT, AVAILABLE_AFTER_S)[1] == []
    assert suspects.most_records == 5
