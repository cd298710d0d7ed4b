"""The progress of redrives in a committed offset."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.dead_letters.positions import (
    MAX_METADATA_CHARS,
    InvalidMetadata,
    QueuePosition,
)

SPANS = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 9)), max_size=30)


@given(start=st.integers(0, 300), parts=SPANS)
def test_a_position_is_what_was_added(start: int, parts: list[tuple[int, int]]) -> None:
    position = QueuePosition(start)
    done = set(range(start))
    for first, more in parts:
        position.add([(first, first + more)])
        done.update(range(first, first + more + 1))
    for offset in range(420):
        assert position.is_done(offset) == (offset in done), offset
    assert position.start not in done
    copy = QueuePosition.read(position.start, position.metadata())
    assert (copy.start, copy.done) == (position.start, position.done)


def test_a_change_leaves_the_original() -> None:
    position = QueuePosition(5)
    changed = position.with_done([(5, 7), (9, 9)])
    assert (position.start, position.done) == (5, [])
    assert (changed.start, changed.done) == (8, [(9, 9)])


def test_thousands_of_places_fit() -> None:
    every_other = QueuePosition(0, [(n, n) for n in range(1, 20_000, 2)])
    assert len(every_other.metadata()) < 200
    scattered = QueuePosition(0, [(n * n % 7 + 10 * n, n * n % 7 + 10 * n) for n in range(1, 3000)])
    assert len(scattered.metadata()) < MAX_METADATA_CHARS


@pytest.mark.parametrize(
    "metadata", ["other", "redrive1:", "redrive1:AAAA", "redrive1:" + "A" * 9000, "redrive1:é"]
)
def test_metadata_of_others_is_refused(metadata: str) -> None:
    with pytest.raises(InvalidMetadata):
        QueuePosition.read(0, metadata)
