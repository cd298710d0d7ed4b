"""Transactions as readers and administrators see them: Fetch, ListOffsets, DescribeProducers,
ListTransactions.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.fetching import Fetcher
from tests.conformance.producers import Transactional, describe_producers, fetch, list_transactions
from tests.conformance.world import EARLIEST, LATEST, OK, PATIENCE_S, Topic, World, outcome
from tests.support import unique, wait_until
from tests.wire_client import batch

MAX_TIMESTAMP = -3


@pytest.fixture
def topic(world: World) -> Topic:
    return world.topic()


@pytest.fixture
def producer(topic: Topic) -> Transactional:
    made = Transactional(topic.world)
    made.init()
    return made


def transact(producer: Transactional, topic: Topic, records: int, *, commit: bool) -> None:
    """Write one transaction from its beginning to its end."""
    producer.add(topic)
    producer.write(topic, records)
    producer.end(commit=commit)
    assert producer.state.startswith("Complete")
    wait_until(
        lambda: topic.end_offset(committed=True) == topic.end_offset(), PATIENCE_S, "the marker"
    )


def seen(topic: Topic, offset: int = 0, **how: Any) -> tuple[int, int, list[int] | None, list[str]]:
    """Fetch; return the high watermark, the last stable offset, the first offsets of aborted
    transactions, and the batches.

    A batch is its base offset, with a `t` if it belongs to a transaction, or an `m` for a marker.
    """
    one = fetch(topic, offset, **how)
    data, batches = bytes(one.records or b""), []
    while data:
        size = struct.unpack_from(">i", data, 8)[0] + 12
        attributes = struct.unpack_from(">h", data, 21)[0]
        kind = "m" if attributes & 0x20 else "t" if attributes & 0x10 else ""
        batches.append(f"{struct.unpack_from('>q', data)[0]}{kind}")
        data = data[size:]
    aborted = one.aborted_transactions
    began = None if aborted is None else [found.first_offset for found in aborted]
    return one.high_watermark, one.last_stable_offset, began, batches


@pytest.mark.parametrize("version", [4, 5, 7, 10, 11, 12])
def test_readers_of_committed_records_stop_at_an_open_transaction(
    topic: Topic, producer: Transactional, version: int
) -> None:
    topic.produce(2)
    producer.add(topic)
    producer.write(topic, 3)
    topic.produce(1)
    assert seen(topic, version=version) == (6, 2, [], ["0"])
    assert seen(topic, 2, version=version) == seen(topic, 5, version=version) == (6, 2, [], [])
    assert seen(topic, committed=False, version=version) == (6, 2, None, ["0", "2t", "5"])
    producer.end(commit=False)
    wait_until(lambda: topic.end_offset(committed=True) == 7, PATIENCE_S, "the marker")
    assert seen(topic, version=version) == (7, 7, [2], ["0", "2t", "5", "6m"])
    assert seen(topic, 6, version=version) == (7, 7, [2], ["6m"])
    assert seen(topic, 7, version=version) == (7, 7, [], [])
    assert seen(topic, committed=False, version=version) == (7, 7, None, ["0", "2t", "5", "6m"])


def test_which_transactions_are_told_as_aborted(topic: Topic, producer: Transactional) -> None:
    transact(producer, topic, 1, commit=False)
    transact(producer, topic, 1, commit=True)
    transact(producer, topic, 1, commit=False)
    assert seen(topic)[2:] == ([0, 4], ["0t", "1m", "2t", "3m", "4t", "5m"])
    assert seen(topic, 2)[2:] == ([4], ["2t", "3m", "4t", "5m"])


def test_transactions_side_by_side(topic: Topic, producer: Transactional) -> None:
    other = Transactional(topic.world)
    other.init()
    for one in (producer, other):
        one.add(topic)
        one.write(topic)
    other.end(commit=False)
    wait_until(lambda: topic.end_offset() == 3, PATIENCE_S, "the marker")
    assert seen(topic) == (3, 0, [], [])
    producer.end(commit=False)
    wait_until(lambda: topic.end_offset(committed=True) == 4, PATIENCE_S, "the marker")
    assert [sorted(seen(topic, offset)[2] or ()) for offset in range(4)] == [
        [0, 1],
        [0, 1],
        [0, 1],
        [0],
    ]


def test_offsets_of_what_is_committed(topic: Topic, producer: Transactional) -> None:
    topic.produce(2, age_ms=3_600_000)
    producer.add(topic)
    producer.write(topic, 3)
    topic.produce(1, age_ms=-60_000)
    asked = (EARLIEST, LATEST, MAX_TIMESTAMP, 0, 4_000_000_000_000)
    assert [topic.list_offset(one) for one in asked] == [0, 6, 5, 0, -1]
    assert [topic.list_offset(one, committed=True) for one in asked] == [0, 2, -1, 0, -1]


def test_a_version_that_does_not_know_a_time(topic: Topic) -> None:
    """Every special time beyond the version's is UNSUPPORTED_VERSION."""
    for version, timestamp in ((6, -3), (7, -4), (8, -5), (10, -6), (11, -7)):
        partitions = [
            {"partition_index": index, "current_leader_epoch": epoch, "timestamp": timestamp}
            for index, epoch in ((0, -1), (1, 1), (7, -1))
        ]
        asked = [{"name": topic.name, "partitions": partitions}]
        (told,) = topic.world.ask(2, version, replica_id=-1, topics=asked, timeout=1000).topics
        assert [outcome(one.error_code) for one in told.partitions] == ["UNSUPPORTED_VERSION"] * 3


@pytest.mark.parametrize("version", [12, 13])
def test_readers_of_what_was_cut_off_are_told_where(world: World, version: int) -> None:
    """KIP-320: the leader epoch of the last record that they read decides."""
    topic = world.topic(records=3)
    topic.delete_records_before(1)
    fetcher = Fetcher(world, version)

    def told(offset: int, epoch: int) -> tuple[str, int, int, int]:
        one = fetcher.partition(topic, offset, last_fetched_epoch=epoch)
        ends = one.diverging_epoch
        return outcome(one.error_code), len(one.records or b""), ends.epoch, ends.end_offset

    size = len(batch([b"v"] * 3))
    assert [told(offset, 0) for offset in (1, 3)] == [(OK, size, -1, -1), (OK, 0, -1, -1)]
    assert [told(offset, 0) for offset in (4, 9)] == [(OK, 0, 0, 3)] * 2
    assert told(0, 0) == told(2, 1) == told(9, -1) == ("OFFSET_OUT_OF_RANGE", 0, -1, -1)


def test_producers_of_a_partition(topic: Topic, producer: Transactional) -> None:
    def told() -> list[tuple[str, int, int, int]]:
        found = describe_producers(topic)
        assert (found.error_code, found.error_message) == (0, None)
        return [
            (
                producer.named(one.producer_id, one.producer_epoch),
                one.last_sequence,
                one.coordinator_epoch,
                one.current_txn_start_offset,
            )
            for one in found.active_producers
        ]

    assert told() == []
    producer.add(topic)
    assert told() == []
    producer.write(topic, 3)
    assert told() == [("p0 e0", 2, -1, 0)]
    producer.end(commit=True)
    wait_until(lambda: topic.end_offset(committed=True) == 4, PATIENCE_S, "the marker")
    assert told() == [("p0 e0", 2, 0, -1)]
    producer.write(topic, version=12)
    assert told() == [("p0 e0", 3, 0, 4)]
    producer.end(commit=False, version=5)
    wait_until(lambda: topic.end_offset(committed=True) == 6, PATIENCE_S, "the marker")
    assert told() == [("p0 e1", -1, 0, -1)]


def test_producers_of_what_does_not_exist(topic: Topic) -> None:
    found = describe_producers(topic, 7)
    assert (found.error_code, found.error_message) == (3, None)
    topics = [{"name": name, "partition_indexes": [0]} for name in (unique("missing"), "")]
    told = [one.partitions[0] for one in topic.world.ask(61, 0, topics=topics).topics]
    assert [(one.error_code, one.error_message) for one in told] == [
        (3, "This server does not host this topic-partition."),
        (17, "Topic name is invalid: the empty string is not allowed"),
    ]


@pytest.mark.parametrize(("transactional_id", "code"), [("", 42), ("nobody-has-this", 105)])
def test_descriptions_of_nothing(world: World, transactional_id: str, code: int) -> None:
    asked = Transactional(world, "x")
    asked.id = transactional_id
    one = asked.described()
    assert (one.error_code, one.state, one.timeout_ms, one.start_ms) == (code, "", 0, 0)
    assert (one.producer_id, one.producer_epoch, one.topics) == (0, 0, {})


def test_a_description_from_beginning_to_end(topic: Topic, producer: Transactional) -> None:
    assert (producer.state, producer.described().start_ms) == ("Empty p0 e0", -1)
    producer.add(topic)
    begun = producer.described()
    assert (begun.state, begun.timeout_ms, begun.topics) == ("Ongoing", 60_000, {topic.name: [0]})
    assert begun.start_ms > 0
    producer.end(commit=True)
    ended = producer.described()
    assert (ended.state, ended.start_ms, ended.topics) == ("CompleteCommit", begun.start_ms, {})


def test_a_deleted_topic_in_a_description(
    world: World, topic: Topic, producer: Transactional, differs: Callable[..., Any]
) -> None:
    gone = world.topic()
    for one in (topic, gone):
        producer.add(one)
    gone.delete()
    left = differs(
        "DescribeTransactions after a topic was deleted",
        kafka={topic.name, gone.name},
        headrace={topic.name},
    )
    assert set(producer.described().topics) == left


class Listed:
    """Three transactional ids, a to c: open, committed, without a transaction."""

    def __init__(self, world: World, topic: Topic) -> None:
        self.world, self.prefix = world, unique("list")
        self.open, self.ended, self.empty = (
            Transactional(world, f"{self.prefix}-{name}") for name in "abc"
        )
        for one in (self.open, self.ended, self.empty):
            one.init()
        self.open.add(topic)
        transact(self.ended, topic, 1, commit=True)

    def told(self, **filters: Any) -> str:
        """Send ListTransactions; return the letters of the listed ids, and the states that it does
        not know.
        """
        response = list_transactions(self.world, **filters)
        if response.error_code:
            return str(int(response.error_code))
        found = sorted(
            one.transactional_id.removeprefix(f"{self.prefix}-")
            for one in response.transaction_states
            if one.transactional_id.startswith(self.prefix)
        )
        return "".join(found) + "".join(f" {name}?" for name in response.unknown_state_filters)


@pytest.fixture
def listed(world: World) -> Listed:
    return Listed(world, world.topic())


def test_lists_by_state_and_producer(listed: Listed) -> None:
    assert [listed.told(version=version) for version in range(3)] == ["abc"] * 3
    assert listed.told(states=["Ongoing"]) == "a"
    assert listed.told(states=["CompleteCommit", "Empty"]) == "bc"
    assert listed.told(states=["Dead", "PrepareEpochFence"]) == ""
    assert listed.told(states=["Bogus"]) == " Bogus?"
    assert listed.told(states=["ongoing", "Empty"]) == "c ongoing?"
    assert listed.told(producer_ids=[listed.open.who[0], listed.empty.who[0]]) == "ac"
    assert listed.told(producer_ids=[listed.open.who[0]], states=["Empty"]) == ""
    assert listed.told(producer_ids=[-1]) == ""


def test_lists_by_duration(listed: Listed) -> None:
    assert listed.told(duration_ms=-5) == "abc"
    wait_until(lambda: "a" in listed.told(duration_ms=0), PATIENCE_S, "a ms")
    assert listed.told(duration_ms=0) == "abc"
    assert listed.told(duration_ms=10_000_000) == "c"


def test_lists_by_pattern(listed: Listed) -> None:
    prefix = listed.prefix
    patterns = (f"{prefix}.*", prefix, f"{prefix}-[ab]", f"(?P<x>{prefix})-a", "", "a")
    assert [listed.told(pattern=one) for one in patterns] == ["abc", "", "ab", "a", "abc", ""]
    assert [listed.told(pattern=one) for one in ("[", "*", "(?=x)")] == ["128"] * 3
    refused = list_transactions(listed.world, states=["Bogus"], pattern="[")
    assert (refused.error_code, refused.unknown_state_filters) == (128, ())
