"""The readers and writers of OffsetCommit 8-10 compared with kio's."""

from __future__ import annotations

import typing
import uuid
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema

from headrace.errors import ErrorCode
from headrace.protocol.frames import BadFrame
from headrace.protocol.messages import codec
from headrace.protocol.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from headrace.protocol.writer import nested_type
from tests.protocol.kio_bytes import written

API_KEY, VERSIONS = 8, (8, 9, 10)
TEXT = st.text(max_size=150)
INT32 = st.integers(-(2**31), 2**31 - 1)
OFFSET = st.integers(-(2**63), 2**63 - 1)
PARTITIONS = st.lists(st.tuples(INT32, OFFSET, INT32, st.none() | TEXT), max_size=3)
TOPICS = st.lists(st.tuples(TEXT, st.uuids().filter(lambda id: id.int), PARTITIONS), max_size=3)


def part(message_type: Any, name: str) -> Any:
    """Return the class of an array's elements."""
    return nested_type(typing.get_type_hints(message_type)[name])[0]


def topic_of(version: int, name: str, topic_id: uuid.UUID) -> dict[str, Any]:
    return {"topic_id": topic_id} if version == 10 else {"name": name}


@st.composite
def requests(draw: st.DrawFn) -> tuple[int, bytes, tuple[Any, ...]]:
    """Return a version, the body of a request, and the request as kio reads it."""
    version, group_id, member_id = draw(st.sampled_from(VERSIONS)), draw(TEXT), draw(TEXT)
    generation, instance_id, topics = draw(INT32), draw(st.none() | TEXT), draw(TOPICS)
    request_type = load_request_schema(API_KEY, version)
    topic_type = part(request_type, "topics")
    partition_type = part(topic_type, "partitions")
    sent = request_type(
        group_id=group_id,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=tuple(
            topic_type(
                **topic_of(version, name, topic_id),
                partitions=tuple(
                    partition_type(
                        partition_index=index,
                        committed_offset=offset,
                        committed_leader_epoch=epoch,
                        committed_metadata=metadata,
                    )
                    for index, offset, epoch, metadata in partitions
                ),
            )
            for name, topic_id, partitions in topics
        ),
    )
    said = [
        (topic_of(version, name, topic_id), partitions) for name, topic_id, partitions in topics
    ]
    return version, written(sent), (group_id, generation, member_id, instance_id, said)


@given(requests())
def test_a_request_is_read_as_kio_wrote_it(sent: tuple[int, bytes, tuple[Any, ...]]) -> None:
    version, body, said = sent
    read = codec(API_KEY, version).read_request(b"before\0" + body, 6)
    topics = [
        (
            {"topic_id": topic.topic_id} if topic.name is None else {"name": topic.name},
            [*map(tuple, topic.partitions)],
        )
        for topic in read.topics
    ]
    generation = read.generation_id_or_member_epoch
    assert (read.group_id, generation, read.member_id, read.group_instance_id, topics) == said


@given(requests(), st.data())
def test_a_cut_request_is_refused(
    sent: tuple[int, bytes, tuple[Any, ...]], data: st.DataObject
) -> None:
    version, body, _ = sent
    end = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(BadFrame):
        codec(API_KEY, version).read_request(b"\0" + body[:end], 0)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("count", [b"\xff\xff\xff\xff\x0f", b"\x80\x80\x04", b"\0", b"\xff" * 6])
def test_a_false_count_of_topics_is_refused(version: int, count: bytes) -> None:
    with pytest.raises(BadFrame):
        codec(API_KEY, version).read_request(
            b"\0" + b"\2g" + bytes(4) + b"\1\0" + count + bytes(40), 0
        )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("body", [b"\0" + bytes(4) + b"\1\0\1\0", b"\2g" + bytes(4) + b"\0\0\1\0"])
def test_a_null_group_or_member_id_is_refused(version: int, body: bytes) -> None:
    with pytest.raises(BadFrame, match="null"):
        codec(API_KEY, version).read_request(b"\0" + body, 0)


ANSWERS = st.lists(st.tuples(INT32, st.sampled_from(list(ErrorCode))), max_size=3)


@pytest.mark.parametrize("version", VERSIONS)
@given(topics=st.lists(st.tuples(TEXT, st.uuids() | st.just(None), ANSWERS), max_size=3))
def test_a_response_is_written_as_kio_writes_it(version: int, topics: list[Any]) -> None:
    response_type = load_response_schema(API_KEY, version)
    topic_type = part(response_type, "topics")
    partition_type = part(topic_type, "partitions")
    by_kio = response_type(
        throttle_time=timedelta(0),
        topics=tuple(
            topic_type(
                **topic_of(version, name, topic_id),
                partitions=tuple(
                    partition_type(partition_index=index, error_code=code)
                    for index, code in partitions
                ),
            )
            for name, topic_id, partitions in topics
        ),
    )
    by_hand = OffsetCommitResponse(
        tuple(
            OffsetCommitResponseTopic(
                tuple(OffsetCommitResponsePartition(index, code) for index, code in partitions),
                name,
                topic_id,
            )
            for name, topic_id, partitions in topics
        )
    )
    frame = b"".join(codec(API_KEY, version).write_response(77, by_hand))
    assert frame[9:] == written(by_kio)
