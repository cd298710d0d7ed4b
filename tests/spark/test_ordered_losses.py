"""`kafka-ordered` after losses of topics and records: it fails with one line, or continues."""

from __future__ import annotations

import sys

import pytest

from headrace.spark.errors import SourceError
from headrace.spark.ordered.source import OrderedDataSource
from tests.spark.ordered_query import Query, batch
from tests.spark.ordered_topics import Topics
from tests.support import unique

CONTINUES = {"failOnDataLoss": "false"}
UNEQUAL = "must have equally many partitions"
GONE = "no longer exists or is not subscribed"


@pytest.fixture(autouse=True)
def full_tracebacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo the traceback limit that the readers set for a process that ends."""
    monkeypatch.setattr(sys, "tracebacklimit", 1000, raising=False)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings, without those of topics with different numbers of partitions."""
    texts = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    return [text for text in texts if UNEQUAL not in text]


def pattern_of(topics: Topics) -> dict[str, str]:
    return {"subscribe": "", "subscribePattern": topics.names[0].rsplit("-", 1)[0] + "-.*"}


@pytest.mark.parametrize("by_pattern", [False, True])
def test_a_deleted_topic(
    bootstrap_servers: str, caplog: pytest.LogCaptureFixture, by_pattern: bool
) -> None:
    topics = Topics.create(bootstrap_servers, 2)
    first, second = topics.names
    options = pattern_of(topics) if by_pattern else {}
    topics.produce(0, [10, 30])
    topics.produce(1, [20])
    strict, lenient = (
        Query(topics, **options),
        Query(topics, **options, **CONTINUES, maxTaskIdleMs=0),
    )
    assert strict.step() == lenient.step() == [(first, 0, 0), (second, 0, 0), (first, 0, 1)]

    topics.drop(second)
    topics.produce(0, [40])
    with pytest.raises(
        SourceError,
        match=f"topic '{second}' {GONE}: set failOnDataLoss=false to continue without it",
    ):
        strict.step()
    assert lenient.until_idle() == [(first, 0, 2)]
    assert len(warnings(caplog)) == 1
    assert second in warnings(caplog)[0]

    # A restart does not know the topic. When it is created again, it is a new one.
    restarted = Query(topics, lenient.offset, **options, **CONTINUES)
    assert restarted.until_idle() == []
    topics.add(second)
    topics.produce(1, [1, 2, 3])
    topics.produce(0, [50])
    assert restarted.until_idle() == [(second, 0, 0), (second, 0, 1), (second, 0, 2), (first, 0, 3)]
    assert list(restarted.offset) == [first, second], "the order that breaks ties does not change"
    assert len(warnings(caplog)) == 1


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_topic_that_was_created_again_is_read_from_its_start(
    bootstrap_servers: str, caplog: pytest.LogCaptureFixture, partitions: int
) -> None:
    """The new topic has more records than the old one, and fewer partitions, or more."""
    topics = Topics.create(bootstrap_servers, 2, partitions=2)
    first, second = topics.names
    for partition in topics.numbers:
        topics.produce(0, [10], partition)
        topics.produce(1, [20], partition)
    strict, lenient = Query(topics), Query(topics, **CONTINUES)
    assert len(strict.step()) == len(lenient.step()) == 4
    topics.drop(second)
    topics.partitions = partitions
    topics.add(second)
    topics.produce(1, [1, 2, 3])
    topics.produce(1, [4], partitions - 1)
    topics.produce(0, [30])
    with pytest.raises(
        SourceError,
        match=f"'{second}' was deleted and created again: set failOnDataLoss=false to read",
    ):
        strict.step()
    new, old = [(second, 0, 0), (second, 0, 1), (second, 0, 2)], (first, 0, 1)
    expected = {1: [*new, (second, 0, 3), old], 3: [*new, old, (second, 2, 0)]}
    assert lenient.until_idle() == expected[partitions]
    assert sorted(lenient.offset[second].values()) == {1: [4], 3: [0, 1, 3]}[partitions]
    assert len(warnings(caplog)) == 1


def test_a_restart_after_topics_were_deleted(
    bootstrap_servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    topics = Topics.create(bootstrap_servers, 2)
    first, second = topics.names
    group = unique("reader")
    for topic in range(2):
        topics.produce(topic, [10, 20])
    query = Query(topics, kafka__group__id=group)
    assert len(query.step()) == 4
    topics.drop(second)
    topics.produce(0, [30])

    with pytest.raises(
        SourceError, match=f"topic '{second}' does not exist: .* with failOnDataLoss=false a query"
    ):
        OrderedDataSource(topics.options()).schema()
    with pytest.raises(SourceError, match=f"topic '{second}' {GONE}"):
        Query(topics, query.offset).step()
    assert "offset bigint" in OrderedDataSource(topics.options(**CONTINUES)).schema()
    with pytest.raises(SourceError, match=f"topic '{second}' does not exist: create it first"):
        Query(topics, **CONTINUES)
    restarted = Query(topics, query.offset, **CONTINUES, kafka__group__id=group)
    restarted.reader.prepareForTriggerAvailableNow()
    assert restarted.until_idle() == [(first, 0, 2)]
    assert len(warnings(caplog)) == 1
    assert topics.committed(group)[first] == {"0": 3}

    topics.drop(first)
    nothing_left = Query(topics, restarted.offset, **pattern_of(topics), **CONTINUES)
    assert nothing_left.until_idle() == []
    topics.add(first)
    topics.produce(0, [1])
    assert nothing_left.until_idle() == [(first, 0, 0)]


def test_records_that_are_deleted_before_they_are_read(
    bootstrap_servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    topics = Topics.create(bootstrap_servers, 2)
    first, second = topics.names
    topics.produce(0, [10, 20, 30])
    topics.produce(1, [15])
    strict, lenient = Query(topics), Query(topics, **CONTINUES)
    with pytest.raises(
        SourceError, match=r"its log starts at 2; set failOnDataLoss=false to continue without it"
    ):
        strict.step(meanwhile=lambda: topics.drop_records(0, 2))
    assert lenient.step() == [(second, 0, 0), (first, 0, 2)]
    assert warnings(caplog) == [f"skipping offsets 0 to 1 of {first}-0: its log starts at 2"]
    assert lenient.until_idle() == []
    with pytest.raises(SourceError, match=r"set failOnDataLoss=false"):
        batch(topics, startingOffsets=f'{{"{first}": {{"0": 0}}, "{second}": {{"0": 0}}}}')


@pytest.mark.parametrize("options", [{}, {"maxOffsetsPerTrigger": 2}, {"maxTaskIdleMs": 3_600_000}])
def test_records_that_were_deleted_before_a_micro_batch_is_planned(
    bootstrap_servers: str, caplog: pytest.LogCaptureFixture, options: dict[str, object]
) -> None:
    topics = Topics.create(bootstrap_servers, 2)
    first, second = topics.names
    topics.produce(0, range(10, 110, 10))
    topics.produce(1, [75, 200])
    strict, lenient = Query(topics, **options), Query(topics, **options, **CONTINUES)
    topics.drop_records(0, 6)
    with pytest.raises(
        SourceError, match=r"its log starts at 6; set failOnDataLoss=false to continue without it"
    ):
        strict.until_idle()
    expected = [
        (first, 0, 6),
        (second, 0, 0),
        (first, 0, 7),
        (first, 0, 8),
        (first, 0, 9),
        (second, 0, 1),
    ]
    assert lenient.until_idle() == (expected[:-1] if "maxTaskIdleMs" in options else expected)
    assert warnings(caplog) == [f"skipping offsets 0 to 5 of {first}-0: its log starts at 6"]


def test_a_topic_that_is_deleted_before_it_is_read(
    bootstrap_servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    topics = Topics.create(bootstrap_servers, 2)
    first, second = topics.names
    topics.produce(0, [10, 20])
    topics.produce(1, [15])
    strict, lenient = Query(topics), Query(topics, **CONTINUES)
    with pytest.raises(
        SourceError, match=f"topic '{second}' does not exist; set failOnDataLoss=false to continue"
    ):
        strict.step(meanwhile=lambda: topics.drop(second))
    offset = lenient.offset
    assert lenient.until_idle() == [(first, 0, 0), (first, 0, 1)]
    assert [line for line in warnings(caplog) if second in line]
    # A restart replays a micro-batch that was planned with the topic.
    planned = {first: {"0": 2}, second: {"0": 1}}
    caplog.clear()
    assert Query(topics, offset, **CONTINUES).replay(planned) == [(first, 0, 0), (first, 0, 1)]
    assert warnings(caplog) == [
        f"skipping offsets 0 to 0 of {second}-0: topic '{second}' does not exist"
    ]


def test_one_topic_has_got_partitions_before_the_other(
    bootstrap_servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A query that has begun continues, also after a restart; a new one is refused."""
    topics = Topics.create(bootstrap_servers, 2)
    query = Query(topics)
    topics.widen(topics.names[0], 2)
    topics.produce(0, [10])
    topics.produce(0, [20], partition=1)
    for reading in (Query, batch):
        with pytest.raises(SourceError, match=UNEQUAL):
            reading(topics)
    assert OrderedDataSource(topics.options()).schema()
    assert len(query.until_idle()) == 2
    topics.produce(0, [30], partition=1)
    assert len(Query(topics, query.offset).until_idle()) == 1
    assert [UNEQUAL in record.getMessage() for record in caplog.records] == [True, True]
    topics.widen(topics.names[1], 2)
    topics.produce(1, [40], partition=1)
    assert len(query.until_idle()) == 2
