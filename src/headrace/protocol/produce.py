"""Readers of Produce, and the writer of version 13 (docs/decisions/0005).

kio copies the records out of a request. Here they are views of the receive buffer, so that nothing
is copied between socket and file. The classes have the names and fields of kio's.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from struct import Struct
from typing import Any, ClassVar

from kio.schema.produce.v13 import response as kio_response

from headrace.errors import ErrorCode

from .primitives import (
    INT32,
    UUID_BYTES,
    NullArray,
    compact_length,
    i32,
    read_compact_count,
    read_compact_length,
    read_compact_span,
    read_nullable_compact_string,
    skip_tagged_fields,
    topic_id_from,
)
from .writer import NO_TIME
from .writer import writer as general_writer

API_KEY, VERSION = 0, 13


@dataclass(slots=True)
class PartitionProduceData:
    """Records for a partition.

    :param records: a view of the receive buffer; valid until the request has been served
    """

    index: int
    records: memoryview | None


@dataclass(slots=True)
class TopicProduceData:
    """Records for the partitions of a topic."""

    topic_id: uuid.UUID
    partition_data: tuple[PartitionProduceData, ...]


@dataclass(slots=True)
class ProduceRequest:
    """A Produce request."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topic_data: tuple[TopicProduceData, ...]

    @property
    def timeout(self) -> timedelta:
        """The time to wait for replicas. Not used: there are no replicas."""
        return timedelta(milliseconds=self.timeout_ms)


@dataclass(slots=True)
class NamedTopicProduceData:
    """Records for the partitions of a topic, before version 13."""

    name: str
    partition_data: tuple[PartitionProduceData, ...]


@dataclass(slots=True)
class NamedProduceRequest:
    """A Produce request before version 13."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topic_data: tuple[NamedTopicProduceData, ...]

    @property
    def timeout(self) -> timedelta:
        """The time to wait for replicas. Not used: there are no replicas."""
        return timedelta(milliseconds=self.timeout_ms)


@dataclass(slots=True)
class PartitionProduceResponse:
    """The result for a partition.

    :param log_append_time_ms: epoch milliseconds for LogAppendTime; -1 for CreateTime
    """

    index: int
    error_code: ErrorCode
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    error_message: str | None = None
    record_errors: tuple[kio_response.BatchIndexAndErrorMessage, ...] = ()
    current_leader: ClassVar[Any] = kio_response.LeaderIdAndEpoch()

    @property
    def log_append_time(self) -> datetime | None:
        """The log append time of the records; None for CreateTime."""
        return (
            None
            if self.log_append_time_ms < 0
            else datetime.fromtimestamp(self.log_append_time_ms / 1000, UTC)
        )


@dataclass(slots=True)
class TopicProduceResponse:
    """The results for the partitions of a topic."""

    topic_id: uuid.UUID
    partition_responses: tuple[PartitionProduceResponse, ...]


@dataclass(slots=True)
class ProduceResponse:
    """A Produce response."""

    responses: tuple[TopicProduceResponse, ...]
    throttle_time: ClassVar[timedelta] = NO_TIME
    node_endpoints: ClassVar[Any] = ()


# Reading ------------------------------------------------------------------------------------------

_ACKS_AND_TIMEOUT, _INT16 = Struct(">hi"), Struct(">h")


def read(frame: bytes | memoryview, offset: int) -> tuple[ProduceRequest, int]:
    """Read the request at ``offset``; return it and the position after it.

    Its records are views of ``frame``.

    :raises IndexError, ValueError, struct.error: the bytes are not a valid request
    """
    frame = memoryview(frame)
    transactional_id, offset = read_nullable_compact_string(frame, offset)
    acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(frame, offset)
    offset += _ACKS_AND_TIMEOUT.size
    topics = []
    count, offset = read_compact_count(frame, offset)
    for _ in range(count):
        topic, offset = _topic(frame, offset)
        topics.append(topic)
    return ProduceRequest(transactional_id, acks, timeout_ms, tuple(topics)), skip_tagged_fields(
        frame, offset
    )


def _topic(frame: memoryview, offset: int) -> tuple[TopicProduceData, int]:
    end = offset + UUID_BYTES
    topic_id = topic_id_from(bytes(frame[offset:end]))
    partitions = []
    count, offset = read_compact_count(frame, end)
    for _ in range(count):
        (index,) = INT32.unpack_from(frame, offset)
        start, end = read_compact_span(frame, offset + INT32.size)
        partitions.append(PartitionProduceData(index, None if end < start else frame[start:end]))
        offset = skip_tagged_fields(frame, max(start, end))
    return TopicProduceData(topic_id, tuple(partitions)), skip_tagged_fields(frame, offset)


# Requests for one partition -----------------------------------------------------------------------

FIRST_FLEXIBLE = 9
_EMPTY_TAGS = b"\0\0\0"
"""The empty tagged fields of partition, topic and request, after the records."""


def prefix_of_one_partition(
    frame: memoryview, version: int, records: bytes | memoryview
) -> int | None:
    """Return the number of bytes before the length of ``records`` in a request.

    Return None unless only empty tagged fields follow the records.
    """
    is_flexible = version >= FIRST_FLEXIBLE
    if is_flexible:
        length_bytes, tags_bytes = len(compact_length(len(records))), len(_EMPTY_TAGS)
    else:
        length_bytes, tags_bytes = INT32.size, 0
    position = len(frame) - tags_bytes - len(records) - length_bytes
    at = records_at(frame, position, is_flexible)
    # As bytes: Python compares views item by item.
    return position if at is not None and bytes(at) == bytes(records) else None


def records_at(frame: memoryview, position: int, is_flexible: bool) -> memoryview | None:
    """Return the records with their length at ``position``, as a view of ``frame``.

    Return None if they are null, or if more than empty tagged fields follows.
    """
    if not is_flexible:
        start = position + INT32.size
        return frame[start:] if frame[position:start] == i32(len(frame) - start) else None
    try:
        length, start = read_compact_length(frame, position)
    except (IndexError, ValueError):
        return None
    end = start + length
    return frame[start:end] if length >= 0 and frame[end:] == _EMPTY_TAGS else None


def reader(version: int) -> Callable[[bytes | memoryview, int], tuple[ProduceRequest, int]]:
    """Return :func:`read`, the reader of the latest version."""
    return read


def named_reader(version: int) -> Callable[[bytes | memoryview, int], tuple[Any, int]]:
    """Return the reader of a version before 13, whose topics have names."""
    return partial(_read_named, is_flexible=version >= FIRST_FLEXIBLE)


def _read_named(
    frame: bytes | memoryview, offset: int, *, is_flexible: bool
) -> tuple[NamedProduceRequest, int]:
    frame = memoryview(frame)
    transactional_id, offset = _nullable_string(frame, offset, is_flexible)
    acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(frame, offset)
    offset += _ACKS_AND_TIMEOUT.size
    topics = []
    count, offset = _count(frame, offset, is_flexible)
    for _ in range(count):
        topic, offset = _named_topic(frame, offset, is_flexible)
        topics.append(topic)
    request = NamedProduceRequest(transactional_id, acks, timeout_ms, tuple(topics))
    return request, _skip_tags(frame, offset, is_flexible)


def _named_topic(
    frame: memoryview, offset: int, is_flexible: bool
) -> tuple[NamedTopicProduceData, int]:
    name, offset = _nullable_string(frame, offset, is_flexible)
    if name is None:
        raise ValueError("a topic name is null")
    partitions = []
    count, offset = _count(frame, offset, is_flexible)
    for _ in range(count):
        (index,) = INT32.unpack_from(frame, offset)
        start, end = _span(frame, offset + INT32.size, is_flexible)
        partitions.append(PartitionProduceData(index, None if end < start else frame[start:end]))
        offset = _skip_tags(frame, max(start, end), is_flexible)
    topic = NamedTopicProduceData(name, tuple(partitions))
    return topic, _skip_tags(frame, offset, is_flexible)


def _nullable_string(frame: memoryview, offset: int, is_flexible: bool) -> tuple[str | None, int]:
    if is_flexible:
        return read_nullable_compact_string(frame, offset)
    (length,) = _INT16.unpack_from(frame, offset)
    start = offset + _INT16.size
    if length < 0:
        return None, start
    if start + length > len(frame):
        raise ValueError("a string runs past the end")
    return str(frame[start : start + length], "utf-8"), start + length


def _count(frame: memoryview, offset: int, is_flexible: bool) -> tuple[int, int]:
    if is_flexible:
        return read_compact_count(frame, offset)
    (count,) = INT32.unpack_from(frame, offset)
    if count < 0:
        raise NullArray("an array is null")
    return count, offset + INT32.size


def _span(frame: memoryview, offset: int, is_flexible: bool) -> tuple[int, int]:
    """Return start and end of bytes; for null the end is the start - 1."""
    if is_flexible:
        return read_compact_span(frame, offset)
    (length,) = INT32.unpack_from(frame, offset)
    start = offset + INT32.size
    if start + length > len(frame):
        raise ValueError("bytes run past the end")
    return start, start + max(length, -1)


def _skip_tags(frame: memoryview, offset: int, is_flexible: bool) -> int:
    return skip_tagged_fields(frame, offset) if is_flexible else offset


# Writing ------------------------------------------------------------------------------------------

REFUSAL_TYPE = kio_response.ProduceResponse
"""The class of responses with one error for everything; others are :class:`ProduceResponse`."""

_write_any = general_writer(kio_response.ProduceResponse)
_APPENDED = Struct(">ihqqqBBB")
"""Index, error code, base offset, append time, log start offset, and :data:`_NO_DETAILS`."""
_NO_DETAILS = (1, 0, 0)  # an empty array of record errors, no message, no tagged fields
_END = b"\0\0\0\0\0"
"""Throttle time 0, no tagged fields."""


def write(put: Callable[[Any], object], response: Any) -> None:
    """Write the response, with one ``struct`` call for each partition.

    The general writer writes responses with errors.
    """
    pieces = [compact_length(len(response.responses))]
    for topic in response.responses:
        if topic.topic_id is None:
            _write_any(put, response)
            return
        pieces += (topic.topic_id.bytes, compact_length(len(topic.partition_responses)))
        for one in topic.partition_responses:
            if one.error_code:
                _write_any(put, response)
                return
            offsets = (one.base_offset, one.log_append_time_ms, one.log_start_offset)
            pieces.append(_APPENDED.pack(one.index, 0, *offsets, *_NO_DETAILS))
        pieces.append(b"\0")
    pieces.append(_END)
    put(b"".join(pieces))


def writer(version: int) -> Callable[[Callable[[Any], object], Any], None]:
    """Return :func:`write`, the writer of the only version."""
    return write
