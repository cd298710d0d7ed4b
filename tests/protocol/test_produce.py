"""The reader and writer of Produce 13 compared with kio's."""

from __future__ import annotations

import struct
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.produce.v13 import response as kio_response
from kio.schema.produce.v13.request import PartitionProduceData, ProduceRequest, TopicProduceData

from headrace.errors import ErrorCode
from headrace.protocol import produce
from headrace.protocol.frames import BadFrame
from headrace.protocol.messages import codec
from tests.protocol.kio_bytes import written

INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-1, 2**63 - 1)
EPOCH = datetime(1970, 1, 1)


def to_milliseconds(time: datetime) -> datetime:
    return time.replace(microsecond=time.microsecond // 1000 * 1000)


requests = st.builds(
    ProduceRequest,
    transactional_id=st.none() | st.text(max_size=200),
    acks=INT16,
    timeout=st.integers(0, 2**31 - 1).map(lambda ms: timedelta(milliseconds=ms)),
    topic_data=st.lists(
        st.builds(
            TopicProduceData,
            topic_id=st.uuids(),
            partition_data=st.lists(
                st.builds(
                    PartitionProduceData, index=INT32, records=st.none() | st.binary(max_size=300)
                ),
                max_size=3,
            ).map(tuple),
        ),
        max_size=3,
    ).map(tuple),
)


@st.composite
def partition_responses(draw: st.DrawFn) -> kio_response.PartitionProduceResponse:
    error_code = draw(st.sampled_from([ErrorCode.NONE] * 4 + [ErrorCode.CORRUPT_MESSAGE]))
    return kio_response.PartitionProduceResponse(
        index=draw(INT32),
        error_code=error_code,
        base_offset=draw(INT64),
        log_append_time=draw(
            st.none() | st.datetimes(EPOCH, timezones=st.just(UTC)).map(to_milliseconds)
        ),
        log_start_offset=draw(INT64),
        record_errors=(),
        error_message=draw(st.none() | st.text(max_size=5)) if error_code else None,
    )


@given(requests, st.binary(max_size=3))
def test_a_request_is_read_as_kio_wrote_it(sent: ProduceRequest, before: bytes) -> None:
    frame = before + written(sent)
    read, end = produce.read(frame, len(before))
    assert end == len(frame)
    assert (read.transactional_id, read.acks, read.timeout) == (
        sent.transactional_id,
        sent.acks,
        sent.timeout,
    )
    assert [topic.topic_id for topic in read.topic_data] == [
        topic.topic_id for topic in sent.topic_data
    ]
    assert [
        [
            (one.index, one.records if one.records is None else bytes(one.records))
            for one in topic.partition_data
        ]
        for topic in read.topic_data
    ] == [[(one.index, one.records) for one in topic.partition_data] for topic in sent.topic_data]


@given(requests, st.data())
def test_a_cut_request_is_refused(sent: ProduceRequest, data: st.DataObject) -> None:
    frame = b"\0" + written(sent)
    end = data.draw(st.integers(1, len(frame) - 1))
    with pytest.raises(BadFrame):
        codec(0, 13).read_request(frame[:end], 0)


@pytest.mark.parametrize("count", [b"\xff\xff\xff\xff\x0f", b"\x80\x80\x04", b"\0", b"\xff" * 6])
def test_a_false_count_of_topics_is_refused(count: bytes) -> None:
    with pytest.raises(BadFrame):
        codec(0, 13).read_request(
            b"\0" + b"\0" + struct.pack(">hi", -1, 1000) + count + bytes(40), 0
        )


@given(st.lists(st.tuples(st.uuids(), st.lists(partition_responses(), max_size=3)), max_size=3))
def test_a_response_is_written_as_kio_writes_it(
    topics: list[tuple[uuid.UUID, list[kio_response.PartitionProduceResponse]]],
) -> None:
    by_kio = kio_response.ProduceResponse(
        responses=tuple(
            kio_response.TopicProduceResponse(
                topic_id=topic_id, partition_responses=tuple(partitions)
            )
            for topic_id, partitions in topics
        )
    )
    by_hand = produce.ProduceResponse(
        tuple(
            produce.TopicProduceResponse(topic_id, tuple(ours(one) for one in partitions))
            for topic_id, partitions in topics
        )
    )
    pieces: list[bytes] = []
    produce.write(pieces.append, by_hand)
    assert b"".join(pieces) == written(by_kio)


def ours(one: kio_response.PartitionProduceResponse) -> produce.PartitionProduceResponse:
    time = one.log_append_time
    time_ms = -1 if time is None else round(time.timestamp() * 1000)
    code = ErrorCode(one.error_code)
    return produce.PartitionProduceResponse(
        one.index, code, one.base_offset, time_ms, one.log_start_offset, one.error_message
    )
