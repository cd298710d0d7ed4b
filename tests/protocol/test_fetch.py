"""The readers and writers of Fetch 13-18 compared with kio's."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema

from headrace.errors import ErrorCode
from headrace.protocol import fetch
from headrace.protocol.frames import BadFrame
from headrace.protocol.messages import codec
from tests.protocol.kio_bytes import written
from tests.wire_client import message

VERSIONS = range(fetch.FIRST_BY_HAND, 19)
EXAMPLES = 40
"""For each version; they differ little."""
INT8, INT16, INT32, INT64 = (
    st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)
)
TAGGED: dict[str, Any] = {
    "replica_directory_id": st.uuids(),
    "high_watermark": INT64,
    "cluster_id": st.text(min_size=1, max_size=5),
    "replica_state": st.fixed_dictionaries({"replica_id": INT32, "replica_epoch": INT64}),
}
"""What only brokers send to each other, and has to be passed over."""

pytestmark = pytest.mark.parametrize("version", VERSIONS)


def request_class(version: int, name: str = "FetchRequest") -> Any:
    return getattr(sys.modules[load_request_schema(1, version).__module__], name)


def some(data: st.DataObject, fields: dict[str, Any], message_class: Any) -> dict[str, Any]:
    """Values of these fields, and of some of the tagged ones that the class has."""
    tagged = {name: values for name, values in TAGGED.items() if name in names(message_class)}
    return data.draw(st.fixed_dictionaries(fields, optional=tagged))


def names(message_class: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(message_class)]


def partition(data: st.DataObject, version: int) -> dict[str, Any]:
    offsets = dict.fromkeys(("fetch_offset", "log_start_offset"), INT64)
    numbers = dict.fromkeys(
        ("partition", "current_leader_epoch", "last_fetched_epoch", "partition_max_bytes"), INT32
    )
    return some(data, offsets | numbers, request_class(version, "FetchPartition"))


def drawn_request(data: st.DataObject, version: int) -> Any:
    count = st.integers(0, 3)
    topics = [
        {
            "topic_id": data.draw(st.uuids()),
            "partitions": [partition(data, version) for _ in range(data.draw(count))],
        }
        for _ in range(data.draw(count))
    ]
    forgotten = data.draw(
        st.lists(
            st.fixed_dictionaries(
                {"topic_id": st.uuids(), "partitions": st.lists(INT32, max_size=4)}
            ),
            max_size=3,
        )
    )
    numbers = dict.fromkeys(("min_bytes", "max_bytes", "session_id", "session_epoch"), INT32)
    others = {
        "isolation_level": INT8,
        "rack_id": st.text(max_size=5),
        "max_wait": st.integers(0, 2**31 - 1),
    }
    message_class = request_class(version)
    values = some(data, numbers | others, message_class)
    if "replica_id" in names(message_class):
        values["replica_id"] = data.draw(INT32)
    return message(message_class, topics=topics, forgotten_topics_data=forgotten, **values)


def said(one: Any) -> Any:
    """Return the fields of a request that the broker uses."""
    plain = (
        one.max_wait,
        one.min_bytes,
        one.max_bytes,
        one.isolation_level,
        one.session_id,
        one.session_epoch,
    )
    fields = fetch.FetchPartition._fields
    asked = [
        (
            topic.topic_id,
            [tuple(getattr(each, name) for name in fields) for each in topic.partitions],
        )
        for topic in one.topics
    ]
    return (
        plain,
        asked,
        [(topic.topic_id, list(topic.partitions)) for topic in one.forgotten_topics_data],
    )


@settings(max_examples=EXAMPLES)
@given(data=st.data(), before=st.binary(max_size=3))
def test_a_request_is_read_as_kio_wrote_it(
    version: int, data: st.DataObject, before: bytes
) -> None:
    sent = drawn_request(data, version)
    frame = before + written(sent)
    read, end = fetch.reader(version)(frame, len(before))
    assert end == len(frame)
    assert said(read) == said(sent)


@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_a_cut_request_is_refused(version: int, data: st.DataObject) -> None:
    frame = b"\0" + written(drawn_request(data, version))
    end = data.draw(st.integers(1, len(frame) - 1))
    with pytest.raises(BadFrame):
        codec(1, version).read_request(memoryview(frame)[:end], 0)


@pytest.mark.parametrize("count", [b"\xff\xff\xff\xff\x0f", b"\x80\x80\x04", b"\0", b"\xff" * 6])
@pytest.mark.parametrize("of", ["topics", "forgotten topics", "forgotten partitions"])
def test_a_false_count_is_refused(version: int, of: str, count: bytes) -> None:
    limits = bytes(25 if version >= 15 else 29)
    before = {
        "topics": b"",
        "forgotten topics": b"\1",
        "forgotten partitions": b"\1\2" + bytes(16),
    }[of]
    with pytest.raises(BadFrame):
        codec(1, version).read_request(b"\0" + limits + before + count + bytes(40), 0)


@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_a_response_is_written_as_kio_writes_it(version: int, data: st.DataObject) -> None:
    aborted = st.none() | st.lists(
        st.builds(fetch.AbortedTransaction, INT64, INT64), max_size=3
    ).map(tuple)
    codes = st.sampled_from(
        [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.OFFSET_OUT_OF_RANGE]
    )
    diverging = st.just(fetch.NOT_DIVERGING) | st.builds(fetch.EpochEndOffset, INT32, INT64)
    records = st.binary(max_size=300)
    partitions = st.lists(
        st.builds(
            fetch.PartitionData, INT32, codes, INT64, INT64, INT64, aborted, records, diverging
        ),
        max_size=3,
    )
    topics = st.lists(
        st.builds(fetch.FetchableTopicResponse, st.uuids(), partitions.map(tuple)), max_size=3
    )
    answer = fetch.FetchResponse(data.draw(codes), data.draw(INT32), tuple(data.draw(topics)))
    pieces: list[bytes] = []
    fetch.writer(version)(pieces.append, answer)
    assert b"".join(pieces) == written(as_kio(answer, version))


def as_kio(answer: fetch.FetchResponse, version: int) -> Any:
    return message(
        load_response_schema(1, version),
        throttle_time=0,
        error_code=answer.error_code,
        session_id=answer.session_id,
        responses=[
            {
                "topic_id": UUID(bytes=topic.topic_id.bytes),
                "partitions": [
                    {name: getattr(one, name) for name in PLAIN}
                    | {
                        "aborted_transactions": listed(one),
                        "diverging_epoch": one.diverging_epoch._asdict(),
                    }
                    for one in topic.partitions
                ],
            }
            for topic in answer.responses
        ],
    )


PLAIN = (
    "partition_index",
    "error_code",
    "high_watermark",
    "last_stable_offset",
    "log_start_offset",
    "records",
)


def listed(one: fetch.PartitionData) -> list[dict[str, int]] | None:
    aborted = one.aborted_transactions
    return None if aborted is None else [transaction._asdict() for transaction in aborted]
