"""`kafka-ordered` with bounds where there is no record: it fails with advice, or continues."""

from __future__ import annotations

import json
import sys

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from headrace.spark.errors import SourceError
from tests.spark.ordered_query import Query, batch
from tests.spark.ordered_topics import Topics
from tests.spark.test_ordered_losses import CONTINUES, warnings
from tests.support import unique, wait_until


@pytest.fixture(autouse=True)
def full_tracebacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo the traceback limit that the readers set for a process that ends."""
    monkeypatch.setattr(sys, "tracebacklimit", 1000, raising=False)


@pytest.fixture
def topics(bootstrap_servers: str) -> Topics:
    """Create two topics: four records, of which two have been deleted; and two records."""
    made = Topics.create(bootstrap_servers, 2)
    made.produce(0, [10, 20, 30, 40])
    made.produce(1, [15, 35])
    made.drop_records(0, 2)
    return made


def offsets(topics: Topics, first: object, second: object) -> str:
    return json.dumps(dict(zip(topics.names, ({"0": first}, {"0": second}), strict=True)))


def commit(topics: Topics, group: str, topic: int, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": topics.bootstrap_servers, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topics.names[topic], 0, offset)], asynchronous=False)
    consumer.close()


def test_beyond_the_end(topics: Topics, caplog: pytest.LogCaptureFixture) -> None:
    """A query does not wait for records that may never come."""
    first, second = topics.names
    says = f"option startingOffsets has 7 for {second}-0, but its log ends at 2"
    start = {"startingOffsets": offsets(topics, 2, 7)}
    for reading in (Query, batch):
        with pytest.raises(SourceError, match=f"{says}: use an offset up to that, or -1"):
            reading(topics, **start)
    everything = [(second, 0, 0), (first, 0, 2), (second, 0, 1), (first, 0, 3)]
    assert (
        batch(topics, **start, **CONTINUES)
        == Query(topics, **start, **CONTINUES).until_idle()
        == everything
    )
    end = {"endingOffsets": offsets(topics, -1, 9)}
    with pytest.raises(
        SourceError, match=f"option endingOffsets has 9 for {second}-0, but its log ends at 2"
    ):
        batch(topics, **end)
    assert batch(topics, **end, **CONTINUES) == everything
    assert [line.rpartition(" makes the query ")[2] for line in warnings(caplog)] == [
        *["begin at its start"] * 3,  # a batch looks when it is planned, and when it is read
        *["end at its end"] * 2,
    ]
    assert Query(topics, startingOffsets=offsets(topics, 4, 2)).until_idle() == [], (
        "the end is a valid offset"
    )


def test_committed_offsets_beyond_the_end(topics: Topics, caplog: pytest.LogCaptureFixture) -> None:
    group = unique("reader")
    commit(topics, group, 1, 7)
    options = {"startingOffsets": "committed", "kafka__group__id": group}
    says = (
        f"group '{group}' has committed 7 for {topics.names[1]}-0, but its log ends at 2: reset "
        f"the group's offsets"
    )
    with pytest.raises(SourceError, match=says):
        Query(topics, **options)
    assert len(Query(topics, **options, **CONTINUES).until_idle()) == 4
    assert len(warnings(caplog)) == 1


def test_below_the_start(topics: Topics) -> None:
    first = topics.names[0]
    with pytest.raises(
        SourceError,
        match=f"offset 1 of {first}-0 is not available: its log starts at 2; set failOnDataLoss",
    ):
        Query(topics, startingOffsets=offsets(topics, 1, 0)).step()
    assert len(Query(topics, startingOffsets=offsets(topics, 1, 0), **CONTINUES).step()) == 4


@pytest.mark.parametrize("wrong", [-3, True, 0.5, None, "2"])
def test_invalid_offsets(topics: Topics, wrong: object) -> None:
    says = (
        f"option startingOffsets has {json.dumps(wrong)} for {topics.names[1]}-0: use a number "
        f"from -2"
    )
    with pytest.raises(SourceError, match=says):
        Query(topics, startingOffsets=offsets(topics, 2, wrong), **CONTINUES)


def test_missing_and_unknown_partitions(topics: Topics) -> None:
    first, second = topics.names
    for option, read in (("startingOffsets", Query), ("endingOffsets", batch)):
        with pytest.raises(
            SourceError, match=f"option {option} lacks {second}-0: name every partition"
        ):
            read(topics, **{option: json.dumps({first: {"0": 2}})})
        for unknown in ({second: {"0": 0, "1": 0}}, {second: {"0": 0}, "other": {"1": 0}}):
            with pytest.raises(
                SourceError, match=rf"option {option} names .*-1, which does not exist"
            ):
                read(topics, **{option: json.dumps({first: {"0": 2}, **unknown})})


def test_a_restart_with_a_checkpoint_beyond_the_end(
    topics: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    """The topic lost records, or was created again while the query was down."""
    first, second = topics.names
    checkpoint = {first: {"0": 4}, second: {"0": 5}}
    with pytest.raises(
        SourceError,
        match=f"{second}-0 ends at 2, before this query's position 5: set failOnDataLoss",
    ):
        Query(topics, checkpoint).step()
    restarted = Query(topics, checkpoint, **CONTINUES)
    assert restarted.replay({first: {"0": 4}, second: {"0": 8}}) == [], (
        "the last micro-batch before the restart"
    )
    assert warnings(caplog) == [f"skipping offsets 5 to 7 of {second}-0: its log ends before it"]
    with pytest.raises(
        SourceError,
        match=f"offset 5 of {second}-0 is not available: its log ends before it; set fail",
    ):
        Query(topics, checkpoint).replay({first: {"0": 4}, second: {"0": 8}})
    assert restarted.until_idle() == [(second, 0, 0), (second, 0, 1)]
    assert len(warnings(caplog)) == 2


@pytest.mark.parametrize("more", [{}, CONTINUES])
def test_a_position_behind_an_open_transaction_is_no_loss(
    topics: Topics, caplog: pytest.LogCaptureFixture, more: dict[str, str]
) -> None:
    """A group that reads uncommitted records may have such a position."""
    first, second = topics.names
    group, servers = unique("reader"), topics.bootstrap_servers
    producer = Producer({"bootstrap.servers": servers, "transactional.id": unique("producer")})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(second, b"50", partition=0, timestamp=50)
    assert producer.flush(30) == 0
    commit(topics, group, 1, 3)
    options = {
        "startingOffsets": "committed",
        "kafka__group__id": group,
        "kafka__isolation__level": "read_committed",
    }
    query = Query(topics, **options, **more)
    assert query.until_idle() == [(first, 0, 2), (first, 0, 3)]
    producer.commit_transaction(30)
    wait_until(
        lambda: topics.end(TopicPartition(second, 0), committed=True) == 4,
        30,
        "the transaction's marker",
    )
    topics.produce(1, [60])
    assert query.until_idle() == [(second, 0, 4)]
    assert warnings(caplog) == []
