"""Limits of the size of batches and requests, and of the distance of timestamps from the broker's
clock.
"""

from __future__ import annotations

import struct
import time

import pytest

from headrace.protocol.record_batch import build, header_at
from tests.conformance.world import OK, Topic, World, outcome
from tests.wire_client import batch

DAY_MS = 24 * 3_600_000
TOO_LARGE, BAD_TIME = "MESSAGE_TOO_LARGE", "INVALID_TIMESTAMP"


def now_ms() -> int:
    return int(time.time() * 1000)


def produce(topic: Topic, *, ahead_ms: int = 0, value: bytes = b"v") -> str:
    """Produce one record of a client whose clock is ahead; return the error."""
    records = batch([value], timestamp_ms=now_ms() + ahead_ms)
    return outcome(topic.world.connection.produce(topic.name, records)[0])


def stored(topic: Topic) -> list[tuple[str, int]]:
    """Return timestamp type and largest timestamp of each batch, after checking that nothing else
    has changed.
    """
    asked = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    response = topic.world.ask(
        1, 12, min_bytes=1, max_bytes=1 << 20, topics=[{"topic": topic.name, "partitions": [asked]}]
    )
    data, found = response.responses[0].partitions[0].records, []
    while data:
        header = header_at(data)
        found.append((header.timestamp_type, header.max_timestamp))
        data = data[12 + header.batch_length :]
    return found


def test_a_batch_may_have_max_message_bytes(world: World) -> None:
    records = batch([b"x" * 1000], timestamp_ms=now_ms())
    fits, too_small = (world.topic(max_message_bytes=str(len(records) - less)) for less in (0, 1))
    for _ in range(2):
        assert outcome(world.connection.produce(fits.name, records)[0]) == OK
        assert outcome(world.connection.produce(too_small.name, records)[0]) == TOO_LARGE
    assert (fits.end_offset(), too_small.end_offset()) == (2, 0)


@pytest.mark.parametrize("codec", range(4), ids=["none", "gzip", "snappy", "lz4"])
def test_a_record_may_have_max_decompressed_message_bytes(world: World, codec: int) -> None:
    """A record of 93 bytes has 100, without its length. Uncompressed batches are not checked."""
    topic = world.topic(max_decompressed_message_bytes="100")
    for sizes, fits in (((93,), True), ((1, 94, 1), False), ((1, 93), True), ((94,), False)) * 2:
        records = build([(None, b"x" * size) for size in sizes], timestamp_ms=now_ms(), codec=codec)
        expected = OK if fits or not codec else "INVALID_RECORD"
        assert outcome(world.connection.produce(topic.name, records)[0]) == expected


def test_the_broker_wide_limit_of_a_batch(world: World) -> None:
    """``message.max.bytes``: 1 MiB and the 12 bytes in front of it, by default."""
    # two lengths in front of it take three bytes each, not one
    topic, overhead = (world.topic(), len(batch([b""])) + 6)
    largest = (1 << 20) + 12 - overhead
    assert len(batch([b"x" * largest])) <= (1 << 20) + 12 < len(batch([b"x" * (largest + 3)]))
    assert produce(topic, value=b"x" * largest) == OK
    assert produce(topic, value=b"x" * (largest + 3)) == TOO_LARGE


def test_a_request_that_is_larger_than_the_broker_takes(world: World) -> None:
    """``socket.request.max.bytes``: the connection ends, with the size alone."""
    connection = world.connect()
    connection.send(struct.pack(">i", 100 * 1024 * 1024 + 1))
    assert connection.receive() in (None, b"")


@pytest.mark.parametrize(
    ("ahead_ms", "expected"), [(0, OK), (-30 * DAY_MS, OK), (3_000_000, OK), (DAY_MS, BAD_TIME)]
)
def test_a_clients_clock_may_be_an_hour_ahead(world: World, ahead_ms: int, expected: str) -> None:
    topic = world.topic()
    assert produce(topic, ahead_ms=ahead_ms) == expected
    assert topic.end_offset() == (expected == OK)


def test_limits_of_a_topic_to_timestamps(world: World) -> None:
    topic = world.topic(
        message_timestamp_before_max_ms="60000", message_timestamp_after_max_ms="120000"
    )
    assert produce(topic, ahead_ms=-90_000) == BAD_TIME
    assert produce(topic, ahead_ms=-30_000) == OK
    assert produce(topic, ahead_ms=90_000) == OK
    assert produce(topic, ahead_ms=150_000) == BAD_TIME
    assert [kind for kind, _ in stored(topic)] == ["CreateTime", "CreateTime"]


def wrong_records(topic: Topic, records: bytes) -> list[int]:
    """Produce a batch with wrong records (KIP-467); return which ones the broker names."""
    (told,) = topic.world.ask(
        0,
        9,
        acks=-1,
        timeout=30_000,
        topic_data=[{"name": topic.name, "partition_data": [{"index": 0, "records": records}]}],
    ).responses
    (one,) = told.partition_responses
    assert all(error.batch_index_error_message for error in one.record_errors)
    return [error.batch_index for error in one.record_errors]


def test_which_records_are_wrong_is_told(world: World) -> None:
    keyed, timed = (
        world.topic(cleanup_policy="compact"),
        world.topic(message_timestamp_before_max_ms="60000"),
    )
    assert wrong_records(keyed, batch([b"v"] * 3, timestamp_ms=now_ms())) == [0, 1, 2]
    assert wrong_records(keyed, batch([b"v"] * 3, timestamp_ms=now_ms(), key=b"k")) == []
    assert wrong_records(timed, batch([b"v"] * 2, timestamp_ms=now_ms() - 90_000)) == [0, 1]
    assert wrong_records(timed, batch([b"v"] * 2, timestamp_ms=now_ms())) == []
    both = batch([b"v"], timestamp_ms=now_ms() + DAY_MS)
    assert outcome(world.connection.produce(keyed.name, both)[0]) == "INVALID_RECORD"


def test_the_brokers_own_time_has_no_limits(world: World) -> None:
    topic = world.topic(
        message_timestamp_type="LogAppendTime",
        message_timestamp_before_max_ms="60000",
        message_timestamp_after_max_ms="60000",
    )
    before = now_ms()
    for ahead_ms in (-30 * DAY_MS, 0, 30 * DAY_MS):
        assert produce(topic, ahead_ms=ahead_ms) == OK
    batches = stored(topic)
    assert [kind for kind, _ in batches] == ["LogAppendTime"] * 3
    assert all(before <= timestamp <= now_ms() for _, timestamp in batches)
    assert topic.list_offset(before) == 0


def test_why_records_with_wrong_timestamps_are_refused(world: World) -> None:
    topic, timestamp_ms = world.topic(message_timestamp_before_max_ms="60000"), 1_000
    (told,) = world.ask(
        0,
        9,
        acks=-1,
        timeout=30_000,
        topic_data=[
            {
                "name": topic.name,
                "partition_data": [
                    {"index": 0, "records": batch([b"v"] * 2, timestamp_ms=timestamp_ms)}
                ],
            }
        ],
    ).responses
    (one,) = told.partition_responses
    assert outcome(one.error_code) == BAD_TIME
    assert one.error_message == "One or more records have been rejected due to invalid timestamp"
    assert [error.batch_index for error in one.record_errors] == [0, 1]
    for index, error in enumerate(one.record_errors):
        assert error.batch_index_error_message.startswith(
            f"Timestamp {timestamp_ms} of message with offset {index} is out of range. "
            "The timestamp should be within ["
        )
