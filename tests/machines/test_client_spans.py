"""Runs of offsets against plain sets."""

from __future__ import annotations

import itertools
from typing import Any, SupportsIndex

from hypothesis import given
from hypothesis import strategies as st

from headrace.client.share.spans import Span, count, intersect, normalize, subtract

SPANS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 6)).map(lambda s: (s[0], s[0] + s[1])), max_size=8
)


def offsets(spans: list[Span]) -> set[int]:
    return {offset for first, last in spans for offset in range(first, last + 1)}


def is_normal(spans: list[Span]) -> bool:
    return all(left[1] + 1 < right[0] for left, right in itertools.pairwise(spans))


@given(SPANS)
def test_normalizing_keeps_the_offsets_in_the_fewest_spans(spans: list[Span]) -> None:
    normal = normalize(spans)
    assert offsets(normal) == offsets(spans)
    assert is_normal(normal)
    assert count(normal) == len(offsets(spans))


@given(SPANS, SPANS)
def test_intersecting_and_subtracting_are_those_of_sets(
    left: list[Span], right: list[Span]
) -> None:
    left, right = normalize(left), normalize(right)
    assert offsets(intersect(left, right)) == offsets(left) & offsets(right)
    assert offsets(subtract(left, right)) == offsets(left) - offsets(right)
    assert is_normal(subtract(left, right))


def test_subtracting_many_runs_from_few_looks_at_few() -> None:
    """10,000 tasks that end a record each compare it with the outcomes of all."""

    class Counted(list[Span]):
        looks = 0

        def __getitem__(self, index: SupportsIndex | slice) -> Any:
            self.looks += 1
            return super().__getitem__(index)

    many = Counted((offset, offset) for offset in range(0, 20_000, 2))
    assert subtract([(15_000, 15_001)], many) == [(15_001, 15_001)]
    assert many.looks < 30
