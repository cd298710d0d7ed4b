"""OffsetCommit, versions 8-10: readers and writers of their own (docs/decisions/0005).

Reading a small commit field by field would take longer than executing it. All versions use these
classes: up to version 9 a topic has a name, in version 10 an id (KIP-848). The other fields have
kio's names.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from struct import Struct
from typing import Any, ClassVar, NamedTuple

from headrace.errors import ErrorCode

from .primitives import (
    INT32,
    NO_TAGS,
    UUID_BYTES,
    compact_length,
    compact_string,
    i32,
    read_compact_count,
    read_compact_string,
    read_nullable_compact_string,
    skip_tagged_fields,
    topic_id_from,
)
from .writer import NO_TIME

API_KEY, FIRST_BY_HAND, FIRST_WITH_TOPIC_IDS = 8, 8, 10

_NO_ID = uuid.UUID(int=0)


class OffsetCommitRequestPartition(NamedTuple):
    """The offset to commit in a partition."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


@dataclass(slots=True)
class OffsetCommitRequestTopic:
    """The offsets to commit in a topic; the topic has either a name or an id."""

    partitions: tuple[OffsetCommitRequestPartition, ...]
    name: str | None = None
    topic_id: uuid.UUID | None = None


@dataclass(slots=True)
class OffsetCommitRequest:
    """An OffsetCommit request of any version."""

    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str | None
    topics: tuple[OffsetCommitRequestTopic, ...]


@dataclass(slots=True)
class OffsetCommitResponsePartition:
    """The result for one offset."""

    partition_index: int
    error_code: ErrorCode


@dataclass(slots=True)
class OffsetCommitResponseTopic:
    """The results for a topic, with the name or id of the request."""

    partitions: tuple[OffsetCommitResponsePartition, ...]
    name: str | None = None
    topic_id: uuid.UUID | None = None


@dataclass(slots=True)
class OffsetCommitResponse:
    """An OffsetCommit response for any version."""

    topics: tuple[OffsetCommitResponseTopic, ...]
    throttle_time: ClassVar[timedelta] = NO_TIME


REFUSAL_TYPE = OffsetCommitResponse


def upgrade(request: Any) -> OffsetCommitRequest:
    """Convert kio's request of version 2-7 to this module's class."""
    topics = tuple(
        OffsetCommitRequestTopic(
            tuple(
                OffsetCommitRequestPartition(
                    one.partition_index,
                    one.committed_offset,
                    getattr(one, "committed_leader_epoch", -1),
                    one.committed_metadata,
                )
                for one in topic.partitions
            ),
            topic.name,
        )
        for topic in request.topics
    )
    instance_id = getattr(request, "group_instance_id", None)
    generation = request.generation_id_or_member_epoch
    return OffsetCommitRequest(request.group_id, generation, request.member_id, instance_id, topics)


# Reading ------------------------------------------------------------------------------------------

_OFFSET = Struct(">iqi")
"""Partition index, offset, leader epoch."""


def reader(version: int) -> Callable[[bytes | memoryview, int], tuple[OffsetCommitRequest, int]]:
    """Return the function that reads a request at an offset of its frame.

    It returns the request and the position after it. It raises IndexError, ValueError or
    struct.error if the bytes are not a valid request.
    """
    read_topic = _topic_with_id if version >= FIRST_WITH_TOPIC_IDS else _topic_with_name

    def read(frame: bytes | memoryview, offset: int) -> tuple[OffsetCommitRequest, int]:
        frame = bytes(frame)  # copying a small frame is faster than slicing a view
        group_id, offset = read_compact_string(frame, offset)
        (generation,) = INT32.unpack_from(frame, offset)
        member_id, offset = read_compact_string(frame, offset + INT32.size)
        instance_id, offset = read_nullable_compact_string(frame, offset)
        topics = []
        count, offset = read_compact_count(frame, offset)
        for _ in range(count):
            topic, offset = read_topic(frame, offset)
            topics.append(topic)
        request = OffsetCommitRequest(group_id, generation, member_id, instance_id, tuple(topics))
        return request, skip_tagged_fields(frame, offset)

    return read


def _topic_with_name(frame: bytes, offset: int) -> tuple[OffsetCommitRequestTopic, int]:
    name, offset = read_compact_string(frame, offset)
    partitions, offset = _partitions(frame, offset)
    return OffsetCommitRequestTopic(partitions, name), offset


def _topic_with_id(frame: bytes, offset: int) -> tuple[OffsetCommitRequestTopic, int]:
    end = offset + UUID_BYTES
    topic_id = topic_id_from(frame[offset:end])
    partitions, offset = _partitions(frame, end)
    return OffsetCommitRequestTopic(partitions, None, topic_id), offset


def _partitions(frame: bytes, offset: int) -> tuple[tuple[OffsetCommitRequestPartition, ...], int]:
    """Read the partitions of a topic and its tagged fields."""
    partitions = []
    count, offset = read_compact_count(frame, offset)
    for _ in range(count):
        index, committed, leader_epoch = _OFFSET.unpack_from(frame, offset)
        metadata, offset = read_nullable_compact_string(frame, offset + _OFFSET.size)
        partitions.append(OffsetCommitRequestPartition(index, committed, leader_epoch, metadata))
        offset = skip_tagged_fields(frame, offset)
    return tuple(partitions), skip_tagged_fields(frame, offset)


# Requests for one topic ---------------------------------------------------------------------------

_OFFSET_AND_EPOCH = "qi"
_BETWEEN, _AT_END = "6s", "4s"
"""After each partition's leader epoch: empty metadata, no tagged fields, and the next partition's
index or the tagged fields of topic and request."""
_MAX_PARTITIONS = 256


class OffsetsLayout(NamedTuple):
    """The positions of the offsets in a request for partitions of one topic.

    :ivar prefix_bytes: position of the first offset
    :ivar offsets: layout of the rest: offset, leader epoch and constant bytes of each partition
    :ivar constants: these constant bytes, every third value of the layout
    """

    prefix_bytes: int
    offsets: Struct
    constants: tuple[bytes, ...]


def offsets_layout(
    frame: bytes | memoryview, body_offset: int, version: int, request: OffsetCommitRequest
) -> OffsetsLayout | None:
    """Return the layout of a request that was read from ``frame``.

    Return None if it has several topics, metadata, tagged fields, or too many partitions.

    :param body_offset: the end of the fixed part of its header
    """
    if len(request.topics) != 1:
        return None
    (topic,) = request.topics
    partitions = topic.partitions
    if not 0 < len(partitions) <= _MAX_PARTITIONS:
        return None
    if any(one.committed_metadata for one in partitions):
        return None
    _, end = reader(version)(frame, skip_tagged_fields(frame, body_offset))
    if end != len(frame):
        return None
    layout = _layout_of(len(partitions))
    prefix_bytes = end - layout.size
    metadata = [b"\0" if one.committed_metadata is None else b"\1" for one in partitions]
    following = [*(i32(one.partition_index) for one in partitions[1:]), 2 * NO_TAGS]
    constants = tuple(
        text + NO_TAGS + next_ for text, next_ in zip(metadata, following, strict=True)
    )
    found = layout.unpack_from(frame, prefix_bytes) if prefix_bytes > 0 else ()
    return OffsetsLayout(prefix_bytes, layout, constants) if found[2::3] == constants else None


@cache
def _layout_of(partitions: int) -> Struct:
    return Struct(
        f">{(_OFFSET_AND_EPOCH + _BETWEEN) * (partitions - 1)}{_OFFSET_AND_EPOCH}{_AT_END}"
    )


# Writing ------------------------------------------------------------------------------------------

_NOT_THROTTLED = bytes(4)
_ANSWER = Struct(">ihB")
"""Partition index, error code, no tagged fields."""


def writer(version: int) -> Callable[[Callable[[bytes], object], OffsetCommitResponse], None]:
    """Return the function that writes a response."""
    has_ids = version >= FIRST_WITH_TOPIC_IDS

    def write(put: Callable[[bytes], object], response: OffsetCommitResponse) -> None:
        pieces = [_NOT_THROTTLED, compact_length(len(response.topics))]
        for topic in response.topics:
            pieces.append(
                (topic.topic_id or _NO_ID).bytes if has_ids else compact_string(topic.name or "")
            )
            pieces.append(compact_length(len(topic.partitions)))
            pieces += [
                _ANSWER.pack(one.partition_index, one.error_code, 0) for one in topic.partitions
            ]
            pieces.append(NO_TAGS)
        pieces.append(NO_TAGS)
        put(b"".join(pieces))

    return write
