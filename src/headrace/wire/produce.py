"""Produce in its latest version, read and written by hand: the one message that is most of a broker's work.

kio copies the records out of a request and needs them skimmed first; here they stay where they were received, so
that between the socket and the file nothing copies them. What is said in the general classes of kio's is said with the
same names, so whoever serves a request need not know which of the two has read it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from struct import Struct
from typing import Any, ClassVar, NamedTuple

from kio.schema.produce.v13 import response as kio_response

from headrace import varint
from headrace.errors import ErrorCode

from .fields import ID_BYTES, array_length, nullable_string, span, topic_id_of
from .frames import SIZE, BadFrame, correlation_bytes, skip_tagged_fields
from .writer import NO_TIME
from .writer import writer as general_writer

API_KEY, VERSION = 0, 13


@dataclass(slots=True)
class PartitionProduceData:
    """What to append to a partition.

    :param records: where they were received: good until the request has been served, not longer
    """

    index: int
    records: memoryview | None


@dataclass(slots=True)
class TopicProduceData:
    """What to append to the partitions of a topic."""

    topic_id: uuid.UUID
    partition_data: tuple[PartitionProduceData, ...]


@dataclass(slots=True)
class ProduceRequest:
    """A Produce request, version 13."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topic_data: tuple[TopicProduceData, ...]

    @property
    def timeout(self) -> timedelta:
        """How long to wait for replicas, of which there are none."""
        return timedelta(milliseconds=self.timeout_ms)


@dataclass(slots=True)
class PartitionProduceResponse:
    """What became of the records for a partition.

    :param log_append_time_ms: -1 where records keep the time of their creation
    """

    index: int
    error_code: ErrorCode
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    error_message: str | None = None
    record_errors: ClassVar[Any] = ()
    current_leader: ClassVar[Any] = kio_response.LeaderIdAndEpoch()

    @property
    def log_append_time(self) -> datetime | None:
        """The time that the log gave the records, None for -1."""
        return None if self.log_append_time_ms < 0 else datetime.fromtimestamp(self.log_append_time_ms / 1000, UTC)


@dataclass(slots=True)
class TopicProduceResponse:
    """What became of the records for the partitions of a topic."""

    topic_id: uuid.UUID
    partition_responses: tuple[PartitionProduceResponse, ...]


@dataclass(slots=True)
class ProduceResponse:
    """A Produce response, version 13."""

    responses: tuple[TopicProduceResponse, ...]
    throttle_time: ClassVar[timedelta] = NO_TIME
    node_endpoints: ClassVar[Any] = ()


# Reading -------------------------------------------------------------------------------------------------------------

_ACKS_AND_TIMEOUT = Struct(">hi")
_INDEX = Struct(">i")


def read(frame: bytes | memoryview, offset: int) -> tuple[ProduceRequest, int]:
    """The request that starts at ``offset``, and the position behind it. Its records are views of ``frame``.

    :raises BadFrame: when the bytes are no such request; also IndexError, ValueError or struct.error, which mean that
    """
    frame = memoryview(frame)
    transactional_id, offset = nullable_string(frame, offset)
    acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(frame, offset)
    offset += _ACKS_AND_TIMEOUT.size
    topics = []
    count, offset = array_length(frame, offset)
    for _ in range(count):
        topic, offset = _topic(frame, offset)
        topics.append(topic)
    return ProduceRequest(transactional_id, acks, timeout_ms, tuple(topics)), skip_tagged_fields(frame, offset)


def _topic(frame: memoryview, offset: int) -> tuple[TopicProduceData, int]:
    end = offset + ID_BYTES
    topic_id = topic_id_of(bytes(frame[offset:end]))
    partitions = []
    count, offset = array_length(frame, end)
    for _ in range(count):
        (index,) = _INDEX.unpack_from(frame, offset)
        start, end = span(frame, offset + _INDEX.size)
        partitions.append(PartitionProduceData(index, None if end < start else frame[start:end]))
        offset = skip_tagged_fields(frame, max(start, end))
    return TopicProduceData(topic_id, tuple(partitions)), skip_tagged_fields(frame, offset)


# A request for one partition ------------------------------------------------------------------------------------------

_THIS = Struct(">hh").pack(API_KEY, VERSION)
_TO_ONE = Struct(">BBhiB16sBi")
"""What stands between a request's header and the records when they are all for one partition: no tagged fields, no
transactional id, acks, timeout, one topic, its id, one partition, its index."""
_SHAPE_OF_ONE = (0, 0, 2, 2)
_TAIL = b"\0\0\0"
"""What stands behind the records then: the tagged fields of partition, topic and request, of which there are none."""
_ANSWER_TO_ONE = Struct(">i4sBB16sBihqqqBQ")
"""The whole frame of its answer: size, correlation id, no tagged fields, one topic, its id, one partition, its index,
no error, base offset, append time, log start offset, an empty array of record errors, and zeros to the end."""


class Head(NamedTuple):
    """How a request for one partition begins.

    :ivar end: where the length of the records begins
    """

    end: int
    acks: int
    topic_id: uuid.UUID
    partition: int


def head(frame: memoryview, body_offset: int) -> Head | None:
    """The head of a request whose header's fixed part ends at ``body_offset``; None when it is for more than one."""
    end = body_offset + _TO_ONE.size
    if frame[: len(_THIS)] != _THIS or len(frame) < end:
        return None
    tags, transactional_id, acks, _, topics, topic_id, partitions, index = _TO_ONE.unpack_from(frame, body_offset)
    if (tags, transactional_id, topics, partitions) != _SHAPE_OF_ONE:
        return None
    return Head(end, acks, topic_id_of(topic_id), index)


def records_behind(frame: memoryview, head_end: int) -> memoryview | None:
    """The records of a request for one partition, a view of ``frame``; None when they are null, or more follows."""
    try:
        start, end = span(frame, head_end)
    except (BadFrame, IndexError, ValueError):
        return None
    return frame[start:end] if start <= end and frame[end:] == _TAIL else None


def answer_to_one(
    frame: memoryview, topic_id: bytes, partition: int, base_offset: int, log_append_time_ms: int, log_start_offset: int
) -> bytes:
    """The whole frame that answers a request for one partition: its records are appended."""
    offsets = (base_offset, log_append_time_ms, log_start_offset)
    size = _ANSWER_TO_ONE.size - SIZE.size
    return _ANSWER_TO_ONE.pack(size, correlation_bytes(frame), 0, 2, topic_id, 2, partition, 0, *offsets, 1, 0)


def reader(version: int) -> Callable[[bytes | memoryview, int], tuple[ProduceRequest, int]]:
    """:func:`read`, for the one version there is here."""
    return read


# Writing -------------------------------------------------------------------------------------------------------------

ANSWER_TYPE = kio_response.ProduceResponse
"""Of what says the same error everywhere; other answers are a :class:`ProduceResponse` of this module."""

_write_any = general_writer(kio_response.ProduceResponse)
_APPENDED = Struct(">ihqqqBBB")
"""Index, error code, base offset, append time, log start offset, and :data:`_NOTHING_MORE`."""
_NOTHING_MORE = (1, 0, 0)  # an empty array of record errors, no message, no tagged fields
_END = b"\0\0\0\0\0"
"""Not throttled, no tagged fields."""


def write(put: Callable[[Any], object], response: Any) -> None:
    """Hand the response's bytes to ``put``: one ``struct`` call for each partition. Errors go the general way."""
    pieces = [varint.encode(len(response.responses) + 1)]
    for topic in response.responses:
        pieces += (topic.topic_id.bytes, varint.encode(len(topic.partition_responses) + 1))
        for one in topic.partition_responses:
            if one.error_code:
                _write_any(put, response)
                return
            offsets = (one.base_offset, one.log_append_time_ms, one.log_start_offset)
            pieces.append(_APPENDED.pack(one.index, 0, *offsets, *_NOTHING_MORE))
        pieces.append(b"\0")
    pieces.append(_END)
    put(b"".join(pieces))


def writer(version: int) -> Callable[[Callable[[Any], object], Any], None]:
    """:func:`write`, for the one version there is here."""
    return write
