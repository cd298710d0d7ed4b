"""Produce in its latest version, read and written by hand: the one message that is most of a
broker's work.

kio copies the records out of a request and needs them skimmed first; here they stay where they were
received, so that between the socket and the file nothing copies them. What is said in the general
classes of kio's is said with the same names, so whoever serves a request need not know which of the
two has read it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from struct import Struct
from typing import Any, ClassVar, NamedTuple

from kio.schema.produce.v13 import response as kio_response

from headrace.errors import ErrorCode

from .primitives import (
    INT32,
    UUID_BYTES,
    compact_length,
    read_compact_count,
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
    record_errors: tuple[kio_response.BatchIndexAndErrorMessage, ...] = ()
    current_leader: ClassVar[Any] = kio_response.LeaderIdAndEpoch()

    @property
    def log_append_time(self) -> datetime | None:
        """The time that the log gave the records, None for -1."""
        return (
            None
            if self.log_append_time_ms < 0
            else datetime.fromtimestamp(self.log_append_time_ms / 1000, UTC)
        )


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


# Reading ------------------------------------------------------------------------------------------

_ACKS_AND_TIMEOUT = Struct(">hi")


def read(frame: bytes | memoryview, offset: int) -> tuple[ProduceRequest, int]:
    """The request that starts at ``offset``, and the position behind it. Its records are views of
    ``frame``.

    :raises IndexError, ValueError, struct.error: the bytes are no such request
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


# A request for one partition ----------------------------------------------------------------------

_FIRST_FLEXIBLE = 9
_TAGS_BEHIND, _NO_TAGS_BEHIND = b"\0\0\0", b""
"""What stands behind the only records of a request: the tagged fields of partition, topic and
request, which are empty, where its version has such fields."""


class Head(NamedTuple):
    """How a request for one partition begins.

    :ivar end: where the length of its records begins
    :ivar is_flexible: how that is written, and whether tagged fields follow
    """

    end: int
    is_flexible: bool


def head(frame: memoryview, version: int, records: bytes | memoryview) -> Head | None:
    """The head of a request that brings ``records`` for one partition, and nothing behind them;
    else None.
    """
    is_flexible = version >= _FIRST_FLEXIBLE
    length = compact_length(len(records)) if is_flexible else INT32.pack(len(records))
    behind = _TAGS_BEHIND if is_flexible else _NO_TAGS_BEHIND
    found = Head(len(frame) - len(behind) - len(records) - len(length), is_flexible)
    return found if records_behind(frame, found) == records else None


def records_behind(frame: memoryview, head: Head) -> memoryview | None:
    """The records of a request for one partition, a view of ``frame``; None when they are null, or
    more follows.
    """
    end_of_head, is_flexible = head
    if not is_flexible:
        start = end_of_head + INT32.size
        return frame[start:] if frame[end_of_head:start] == INT32.pack(len(frame) - start) else None
    try:
        start, end = read_compact_span(frame, end_of_head)
    except (IndexError, ValueError):
        return None
    return frame[start:end] if start <= end and frame[end:] == _TAGS_BEHIND else None


def reader(version: int) -> Callable[[bytes | memoryview, int], tuple[ProduceRequest, int]]:
    """:func:`read`, for the one version there is here."""
    return read


# Writing ------------------------------------------------------------------------------------------

REFUSAL_TYPE = kio_response.ProduceResponse
"""Of what says the same error everywhere; other answers are a :class:`ProduceResponse` of this
module.
"""

_write_any = general_writer(kio_response.ProduceResponse)
_APPENDED = Struct(">ihqqqBBB")
"""Index, error code, base offset, append time, log start offset, and :data:`_NOTHING_MORE`."""
_NOTHING_MORE = (1, 0, 0)  # an empty array of record errors, no message, no tagged fields
_END = b"\0\0\0\0\0"
"""Not throttled, no tagged fields."""


def write(put: Callable[[Any], object], response: Any) -> None:
    """Hand the response's bytes to ``put``: one ``struct`` call for each partition. Errors go the
    general way.
    """
    pieces = [compact_length(len(response.responses))]
    for topic in response.responses:
        pieces += (topic.topic_id.bytes, compact_length(len(topic.partition_responses)))
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
