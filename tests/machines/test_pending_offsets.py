"""Offsets within transactions: what counts is the newest record whose transaction is committed."""

from __future__ import annotations

import random
from itertools import count, permutations

import pytest

from headrace.groups.offsets.committed import CommittedOffsets
from headrace.groups.records import CommittedOffset, OffsetCommit
from headrace.outcome import Position
from tests.support import RUN_SEED


class Offsets:
    """The offset of one partition, written with one record after the other."""

    def __init__(self) -> None:
        self.store = CommittedOffsets()
        self.places = count()

    def write(self, offset: int, producer_id: int = -1) -> None:
        record = OffsetCommit("g", "t", 0, CommittedOffset(offset))
        self.store.replay(record, Position(3, next(self.places), producer_id))

    def end(self, producer_id: int, *, commit: bool = True) -> None:
        self.store.end_transaction(producer_id, 3, commit=commit)

    @property
    def committed(self) -> int | None:
        value = self.store.of_group("g").get("t", {}).get(0)
        return None if value is None else value.offset

    @property
    def is_stable(self) -> bool:
        return ("g", "t", 0) not in self.store.pending


def test_an_offset_counts_when_its_transaction_is_committed() -> None:
    offsets = Offsets()
    offsets.write(5, producer_id=1)
    assert (offsets.committed, offsets.is_stable) == (None, False)
    offsets.end(1)
    assert (offsets.committed, offsets.is_stable) == (5, True)


def test_an_aborted_offset_never_counts() -> None:
    offsets = Offsets()
    offsets.write(4)
    offsets.write(5, producer_id=1)
    offsets.end(1, commit=False)
    assert (offsets.committed, offsets.is_stable) == (4, True)


def test_what_was_committed_later_wins_over_a_transaction_that_ends_later_still() -> None:
    offsets = Offsets()
    offsets.write(5, producer_id=1)
    offsets.write(6)
    assert not offsets.is_stable
    offsets.end(1)
    assert (offsets.committed, offsets.is_stable) == (6, True)


@pytest.mark.parametrize("order", list(permutations((1, 2))))
def test_the_newer_of_two_transactions_wins_in_whatever_order_they_end(
    order: tuple[int, int],
) -> None:
    offsets = Offsets()
    offsets.write(5, producer_id=1)
    offsets.write(6, producer_id=2)
    for producer_id in order:
        offsets.end(producer_id)
    assert offsets.committed == 6


def test_any_history_ends_with_the_newest_that_counts() -> None:
    seed = RUN_SEED
    print(f"{seed=}")
    rng = random.Random(seed)
    for _ in range(500):
        offsets, history, open_producers = Offsets(), [], set()
        for place in range(rng.randint(1, 12)):
            producer_id = rng.choice((-1, 1, 2, 3))
            offsets.write(place, producer_id)
            history.append((place, producer_id))
            open_producers.add(producer_id)
            if rng.random() < 0.2:
                break
        open_producers.discard(-1)
        committed = {-1}
        for producer_id in rng.sample(sorted(open_producers), len(open_producers)):
            commit = rng.random() < 0.6
            offsets.end(producer_id, commit=commit)
            if commit:
                committed.add(producer_id)
        expected = [place for place, producer_id in history if producer_id in committed]
        assert offsets.committed == (expected[-1] if expected else None), history
