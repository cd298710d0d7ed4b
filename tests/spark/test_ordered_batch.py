"""A batch of `kafka-ordered` that is evaluated again, and bounds without records between them."""

from __future__ import annotations

import json
import sys

import pytest

from headrace.spark.errors import SourceError
from tests.spark.ordered_query import Batch, batch
from tests.spark.ordered_topics import Topics


@pytest.fixture(autouse=True)
def full_tracebacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo the traceback limit that the readers set for a process that ends."""
    monkeypatch.setattr(sys, "tracebacklimit", 1000, raising=False)


@pytest.fixture
def topics(bootstrap_servers: str) -> Topics:
    return Topics.create(bootstrap_servers, 2)


def offsets_of_first(topics: Topics, rows: list[tuple[str, int, int]]) -> list[int]:
    return [offset for topic, _, offset in rows if topic == topics.names[0]]


@pytest.mark.parametrize("min_partitions", [1, 3])
def test_an_evaluation_reads_what_there_is(topics: Topics, min_partitions: int) -> None:
    """What a frozen plan would leave out, or what it names and retention has deleted."""
    frame = Batch(topics, minPartitions=min_partitions)
    assert frame.rows() == []
    topics.produce(0, range(10, 20))
    assert offsets_of_first(topics, frame.rows()) == list(range(10))
    frame = Batch(topics, minPartitions=min_partitions)
    topics.produce(0, range(20, 30))
    topics.produce(1, [15])
    rows = frame.rows()
    assert offsets_of_first(topics, rows) == list(range(20))
    assert (topics.names[1], 0, 0) in rows
    topics.drop_records(0, 17)
    assert offsets_of_first(topics, frame.rows()) == [17, 18, 19]


def test_bounds_that_the_user_gave_stay(topics: Topics) -> None:
    def at(first: int, second: int) -> str:
        return json.dumps(dict(zip(topics.names, ({"0": first}, {"0": second}), strict=True)))

    topics.produce(0, range(10, 20))
    topics.produce(1, [15])
    frame = Batch(topics, startingOffsets=at(3, -2), endingOffsets=at(7, -1))
    for number_of_second in (1, 2):
        rows = frame.rows()
        assert offsets_of_first(topics, rows) == [3, 4, 5, 6]
        assert len(rows) == 4 + number_of_second
        topics.produce(1, [26])
    assert len(batch(topics, startingOffsets=None, startingTimestamp=12, endingTimestamp=14)) == 2


def test_new_partitions_are_refused(topics: Topics) -> None:
    topics.produce(0, [10])
    frame = Batch(topics)
    for name in topics.names:
        topics.widen(name, 2)
    with pytest.raises(SourceError, match=r"other partitions than .*: call load\(\) again"):
        frame.rows()


def test_a_batch_that_ends_before_it_begins(topics: Topics) -> None:
    topics.produce(0, range(10, 20))
    topics.produce(1, range(10, 20))

    def at(offset: int) -> str:
        return json.dumps({name: {"0": offset} for name in topics.names})

    crossed = f"begins at offset 8 of {topics.names[0]}-0 and ends before it, at 3"
    for bounds in (
        {"startingOffsets": at(8), "endingOffsets": at(3)},
        {"startingOffsets": None, "startingTimestamp": 18, "endingTimestamp": 13},
    ):
        with pytest.raises(SourceError, match=crossed):
            batch(topics, **bounds)
    for start in ("latest", at(-1)):
        with pytest.raises(SourceError, match="startingOffsets is the end, where a batch stops"):
            batch(topics, startingOffsets=start)
    assert batch(topics, startingOffsets=at(10)) == []
