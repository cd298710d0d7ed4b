"""Fetch, versions 13-18: readers and writers of their own (docs/decisions/0005).

These versions have topic ids (KIP-516) and differ only in fields for replicas, which are not used.
The classes have the names and fields of kio's.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from struct import Struct, calcsize, unpack_from
from typing import Any, ClassVar, NamedTuple

from kio.index import load_response_schema
from kio.schema.fetch.v18 import response as kio_response

from headrace.errors import ErrorCode

from .file_range import FileRange
from .primitives import (
    INT32,
    NO_TAGS,
    UUID_BYTES,
    compact_length,
    read_compact_count,
    read_compact_string,
    skip_tagged_fields,
    tagged_fields,
    topic_id_from,
)
from .writer import NO_TIME
from .writer import writer as general_writer

API_KEY, FIRST_BY_HAND = 1, 13
_FIRST_WITHOUT_REPLICA_ID = 15


class FetchPartition(NamedTuple):
    """A partition to read."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    partition_max_bytes: int


@dataclass(slots=True)
class FetchTopic:
    """The partitions of a topic to read."""

    topic_id: uuid.UUID
    partitions: tuple[FetchPartition, ...]


@dataclass(slots=True)
class ForgottenTopic:
    """Partitions to remove from a session (KIP-227)."""

    topic_id: uuid.UUID
    partitions: tuple[int, ...]


@dataclass(slots=True)
class FetchRequest:
    """A Fetch request."""

    topics: tuple[FetchTopic, ...]
    forgotten_topics_data: tuple[ForgottenTopic, ...]
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int

    @property
    def max_wait(self) -> timedelta:
        """The longest time to wait for ``min_bytes``."""
        return timedelta(milliseconds=self.max_wait_ms)


class AbortedTransaction(NamedTuple):
    """An aborted transaction, whose records a read_committed reader skips."""

    producer_id: int
    first_offset: int


class EpochEndOffset(NamedTuple):
    """The end of the reader's epoch in a log that was truncated below its position (KIP-320)."""

    epoch: int
    end_offset: int


NOT_DIVERGING = EpochEndOffset(-1, -1)


@dataclass(slots=True)
class PartitionData:
    """The result for a partition.

    :param aborted_transactions: None for read_uncommitted
    """

    partition_index: int
    error_code: ErrorCode
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted_transactions: tuple[AbortedTransaction, ...] | None
    records: bytes | FileRange
    diverging_epoch: EpochEndOffset = NOT_DIVERGING
    preferred_read_replica: ClassVar[int] = -1
    current_leader: ClassVar[Any] = kio_response.LeaderIdAndEpoch()
    snapshot_id: ClassVar[Any] = kio_response.SnapshotId()


@dataclass(slots=True)
class FetchableTopicResponse:
    """The results for the partitions of a topic."""

    topic_id: uuid.UUID
    partitions: tuple[PartitionData, ...]


@dataclass(slots=True)
class FetchResponse:
    """A Fetch response."""

    error_code: ErrorCode
    session_id: int
    responses: tuple[FetchableTopicResponse, ...]
    throttle_time: ClassVar[timedelta] = NO_TIME
    node_endpoints: ClassVar[Any] = ()


# Reading ------------------------------------------------------------------------------------------

_LIMITS = Struct(">iiibii")
"""Milliseconds to wait, minimum and maximum bytes, isolation level, session id and epoch."""
_PARTITION = Struct(">iiqiqi")


def reader(version: int) -> Callable[[bytes | memoryview, int], tuple[FetchRequest, int]]:
    """Return the function that reads a request at an offset of its frame.

    It returns the request and the position after it. It raises IndexError, ValueError or
    struct.error if the bytes are not a valid request.
    """
    before = 0 if version >= _FIRST_WITHOUT_REPLICA_ID else INT32.size

    def read(frame: bytes | memoryview, offset: int) -> tuple[FetchRequest, int]:
        frame = bytes(frame)  # copying a small frame is faster than slicing a view
        limits = _LIMITS.unpack_from(frame, offset + before)
        topics, forgotten = [], []
        count, offset = read_compact_count(frame, offset + before + _LIMITS.size)
        for _ in range(count):
            topic, offset = _topic(frame, offset)
            topics.append(topic)
        count, offset = read_compact_count(frame, offset)
        for _ in range(count):
            one, offset = _forgotten(frame, offset)
            forgotten.append(one)
        _, offset = read_compact_string(frame, offset)  # rack id
        return FetchRequest(tuple(topics), tuple(forgotten), *limits), skip_tagged_fields(
            frame, offset
        )

    return read


def _topic(frame: bytes, offset: int) -> tuple[FetchTopic, int]:
    end = offset + UUID_BYTES
    topic_id = topic_id_from(frame[offset:end])
    partitions = []
    count, offset = read_compact_count(frame, end)
    for _ in range(count):
        partitions.append(FetchPartition._make(_PARTITION.unpack_from(frame, offset)))
        offset = skip_tagged_fields(frame, offset + _PARTITION.size)
    return FetchTopic(topic_id, tuple(partitions)), skip_tagged_fields(frame, offset)


def _forgotten(frame: bytes, offset: int) -> tuple[ForgottenTopic, int]:
    end = offset + UUID_BYTES
    topic_id = topic_id_from(frame[offset:end])
    count, offset = read_compact_count(frame, end)
    layout = f">{count}i"
    end = offset + calcsize(layout)
    if end > len(frame):
        raise ValueError(
            f"an array claims {count} partitions, {len(frame) - offset} bytes are left"
        )
    return ForgottenTopic(topic_id, unpack_from(layout, frame, offset)), skip_tagged_fields(
        frame, end
    )


# Writing ------------------------------------------------------------------------------------------

REFUSAL_TYPE = kio_response.FetchResponse
"""The class of responses with one error for everything; others are :class:`FetchResponse`."""

_HEAD = Struct(">ihi")
"""Throttle time 0, error code, session id."""
_READ = Struct(">ihqqq")
"""Index, error code, high watermark, last stable offset, log start offset."""
_READ_EVERYTHING = Struct(">ihqqqBi")
"""The same, null aborted transactions, and :data:`_NO_REPLICA`."""
_ABORTED = Struct(">qqB")
_DIVERGING_TAG, _DIVERGING = 0, Struct(">iqB")
_NO_REPLICA = -1


@cache
def writer(version: int) -> Callable[[Callable[[Any], object], Any], None]:
    """Return the function that writes a response; records are separate pieces."""
    write_any = general_writer(load_response_schema(API_KEY, version))

    def write(put: Callable[[Any], object], response: Any) -> None:
        if not isinstance(response, FetchResponse):
            write_any(put, response)
            return
        put(_HEAD.pack(0, response.error_code, response.session_id))
        put(compact_length(len(response.responses)))
        for topic in response.responses:
            put(topic.topic_id.bytes)
            put(compact_length(len(topic.partitions)))
            for one in topic.partitions:
                _write_partition(put, one)
            put(NO_TAGS)
        put(NO_TAGS)

    return write


def _write_partition(put: Callable[[Any], object], one: PartitionData) -> None:
    numbers = (
        one.partition_index,
        one.error_code,
        one.high_watermark,
        one.last_stable_offset,
        one.log_start_offset,
    )
    aborted = one.aborted_transactions
    if aborted is None:
        put(_READ_EVERYTHING.pack(*numbers, 0, _NO_REPLICA))
    else:
        put(_READ.pack(*numbers))
        put(compact_length(len(aborted)))
        for producer_id, first_offset in aborted:
            put(_ABORTED.pack(producer_id, first_offset, 0))
        put(INT32.pack(_NO_REPLICA))
    put(compact_length(len(one.records)))
    put(one.records)
    diverging = one.diverging_epoch
    put(
        NO_TAGS
        if diverging == NOT_DIVERGING
        else tagged_fields((_DIVERGING_TAG, _DIVERGING.pack(*diverging, 0)))
    )
