"""Kafka's primitive types: round trips, and refusals of data that is cut short."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.protocol import primitives
from headrace.protocol.consumer_protocol import (
    read_assignment,
    read_subscribed_topics,
    read_subscription,
    write_assignment,
)
from headrace.protocol.stored import ConsumerProtocolSubscription
from tests.subscriptions import subscription

names = st.text(max_size=200)
parts = st.dictionaries(names, st.lists(st.integers(-(2**31), 2**31 - 1), max_size=5).map(tuple))


@given(st.integers(0, 2**35 - 1))
def test_unsigned_varints(number: int) -> None:
    data = primitives.unsigned_varint(number)
    assert primitives.read_unsigned_varint(data + b"\xff", 0) == (number, len(data))
    assert primitives.read_compact_length(b"!" + data, 1) == (number - 1, 1 + len(data))
    if number:
        assert primitives.compact_length(number - 1) == data
    for end in range(len(data)):
        with pytest.raises(IndexError):
            primitives.read_unsigned_varint(data[:end], 0)


@given(st.integers(-(2**63), 2**63 - 1))
def test_zigzag_varints(number: int) -> None:
    data = primitives.varint(number)
    assert primitives.read_varint(data + b"\xff", 0) == (number, len(data))
    for end in range(len(data)):
        with pytest.raises(IndexError):
            primitives.read_varint(data[:end], 0)


@pytest.mark.parametrize(
    ("number", "data"), [(0, "00"), (-1, "01"), (63, "7e"), (-65, "8101"), (300, "d804")]
)
def test_zigzag_varints_are_written_as_kafka_does(number: int, data: str) -> None:
    assert primitives.varint(number) == bytes.fromhex(data)


def test_an_unsigned_varint_has_at_most_five_bytes() -> None:
    with pytest.raises(ValueError, match="five bytes"):
        primitives.read_unsigned_varint(b"\xff" * 6, 0)


@given(st.none() | st.binary(max_size=200))
def test_fields_of_records(data: bytes | None) -> None:
    field = b"".join(primitives.record_bytes(data))
    assert primitives.read_record_bytes(field + b"!", 0) == (data, len(field))


@given(st.dictionaries(st.integers(0, 300), st.binary(max_size=200), max_size=4))
def test_tagged_fields(fields: dict[int, bytes]) -> None:
    data = primitives.unsigned_varint(len(fields))
    for tag, content in sorted(fields.items()):
        data += primitives.unsigned_varint(tag) + primitives.unsigned_varint(len(content)) + content
    assert primitives.skip_tagged_fields(b"head" + data, 4) == 4 + len(data)


@pytest.mark.parametrize("tail", [b"", b"\1", b"\1\0\x7f", b"\xff\xff\xff\xff\xff\xff"])
def test_bad_tagged_fields_are_refused(tail: bytes) -> None:
    with pytest.raises((IndexError, ValueError)):
        primitives.skip_tagged_fields(b"head" + tail, 4)


@given(st.integers(0, 3), st.lists(names, max_size=3), parts, st.none() | names)
def test_subscriptions(
    version: int, topics: list[str], owned: dict[str, tuple[int, ...]], rack: str | None
) -> None:
    data = subscription(version, topics, owned, rack, b"own")
    entries = [ConsumerProtocolSubscription.TopicPartition(*item) for item in owned.items()]
    assert read_subscription(data + b"later") == ConsumerProtocolSubscription(
        topics,
        b"own",
        entries if version >= 1 else (),
        rack_id=rack if version >= 3 else None,
    )
    assert read_subscribed_topics(data) == topics
    for end in range(len(data)):
        with pytest.raises(ValueError, match="not the subscription of a consumer"):
            read_subscription(data[:end])


@given(parts)
def test_assignments(partitions: dict[str, tuple[int, ...]]) -> None:
    assert read_assignment(write_assignment(1, partitions)) == partitions


def test_a_topic_that_is_assigned_twice_has_all_its_partitions() -> None:
    once, twice = write_assignment(1, {"t": (1,)}), write_assignment(1, {"t": (2,)})
    both = once[:2] + primitives.i32(2) + once[6:-4] + twice[6:]
    assert read_assignment(both) == {"t": (1, 2)}
