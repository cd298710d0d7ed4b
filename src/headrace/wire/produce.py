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
from functools import lru_cache
from struct import Struct
from typing import Any, ClassVar

from kio.schema.produce.v13 import response as kio_response

from headrace import varint
from headrace.errors import ErrorCode

from .frames import BadFrame, skip_tagged_fields
from .writer import NO_TIME, writer

API_KEY, VERSION = 0, 13

TOPIC_IDS_KEPT = 1024
"""Topic ids that need not be made anew from their bytes."""


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
_ID_BYTES = 16


@lru_cache(TOPIC_IDS_KEPT)
def _topic_id(data: bytes) -> uuid.UUID:
    return uuid.UUID(bytes=data)


def read(frame: bytes | memoryview, offset: int) -> tuple[ProduceRequest, int]:
    """The request that starts at ``offset``, and the position behind it. Its records are views of ``frame``.

    :raises BadFrame: when the bytes are no such request; also IndexError, ValueError or struct.error, which mean that
    """
    frame = memoryview(frame)
    transactional_id, offset = _nullable_string(frame, offset)
    acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(frame, offset)
    offset += _ACKS_AND_TIMEOUT.size
    topics = []
    count, offset = _count(frame, offset)
    for _ in range(count):
        topic, offset = _topic(frame, offset)
        topics.append(topic)
    return ProduceRequest(transactional_id, acks, timeout_ms, tuple(topics)), skip_tagged_fields(frame, offset)


def _topic(frame: memoryview, offset: int) -> tuple[TopicProduceData, int]:
    end = offset + _ID_BYTES
    topic_id = _topic_id(bytes(frame[offset:end]))
    partitions = []
    count, offset = _count(frame, end)
    for _ in range(count):
        (index,) = _INDEX.unpack_from(frame, offset)
        records, offset = _nullable_data(frame, offset + _INDEX.size)
        partitions.append(PartitionProduceData(index, records))
        offset = skip_tagged_fields(frame, offset)
    return TopicProduceData(topic_id, tuple(partitions)), skip_tagged_fields(frame, offset)


def _count(frame: memoryview, offset: int) -> tuple[int, int]:
    """How many elements an array claims. Each is read before the next, so a false claim ends where the frame does."""
    count, offset = varint.decode(frame, offset)
    if not count:
        raise BadFrame("an array that must not be null is null")
    return count - 1, offset


def _nullable_data(frame: memoryview, offset: int) -> tuple[memoryview | None, int]:
    size, offset = varint.decode(frame, offset)
    if not size:
        return None, offset
    end = offset + size - 1
    if end > len(frame):
        raise BadFrame(f"a field claims {size - 1} bytes, {len(frame) - offset} are left")
    return frame[offset:end], end


def _nullable_string(frame: memoryview, offset: int) -> tuple[str | None, int]:
    data, offset = _nullable_data(frame, offset)
    return None if data is None else str(data, "utf-8"), offset


# Writing -------------------------------------------------------------------------------------------------------------

_write_any = writer(kio_response.ProduceResponse)
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
