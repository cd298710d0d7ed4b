"""OffsetCommit, versions 8 to 10, read and written by hand: most of what consumers have their
broker write.

A commit of one partition is so little work that reading it field by field would be most of it.
Versions up to 9 name their topics, version 10 has their ids (KIP-848): the classes here have room
for both, and whoever serves a request looks the topic up by the one that is there. What is common
has the names of kio's classes.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from struct import Struct, calcsize
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
    """How far a group has come in a partition."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


@dataclass(slots=True)
class OffsetCommitRequestTopic:
    """The offsets for the partitions of a topic, which has a name or an id."""

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
    """What became of one offset."""

    partition_index: int
    error_code: ErrorCode


@dataclass(slots=True)
class OffsetCommitResponseTopic:
    """What became of the offsets in a topic, which has the name or the id that it was asked about
    with.
    """

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
    """What kio has read of version 2 to 7."""
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
    """What reads the request that starts at an offset of a frame, and tells the position behind it.

    It raises IndexError, ValueError or struct.error when the bytes are no such request.
    """
    read_topic = _topic_with_id if version >= FIRST_WITH_TOPIC_IDS else _topic_with_name

    def read(frame: bytes | memoryview, offset: int) -> tuple[OffsetCommitRequest, int]:
        frame = bytes(
            frame
        )  # nothing of it is kept, and small as it is a copy costs less than views of it
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
    """The partitions of a topic, and the position behind its tagged fields."""
    partitions = []
    count, offset = read_compact_count(frame, offset)
    for _ in range(count):
        index, committed, leader_epoch = _OFFSET.unpack_from(frame, offset)
        metadata, offset = read_nullable_compact_string(frame, offset + _OFFSET.size)
        partitions.append(OffsetCommitRequestPartition(index, committed, leader_epoch, metadata))
        offset = skip_tagged_fields(frame, offset)
    return tuple(partitions), skip_tagged_fields(frame, offset)


# Requests for one topic ---------------------------------------------------------------------------

_START = "4s4s"
"""Api and version, correlation id."""
_OFFSET_AND_EPOCH = "qi"
_BEHIND_ONE, _AT_THE_END = "6s", "4s"
"""Behind a partition: no metadata, no tagged fields, and the next partition's index or no more
tagged fields.
"""
_MOST_OFFSETS = 256


class Head(NamedTuple):
    """How a request for partitions of one topic begins, and what varies behind that.

    :ivar shape: of the whole frame: :data:`_START`, the rest of the head with the index of the
        first partition, then offset, leader epoch and what stands behind them for each partition
    :ivar behind: every third of these, which does not vary
    """

    shape: Struct
    behind: list[bytes]


def head(
    frame: bytes | memoryview, body_offset: int, version: int, request: OffsetCommitRequest
) -> Head | None:
    """The head of a request whose header's fixed part ends at ``body_offset``, and which has been
    read.

    None when it is not for one topic, has metadata or tagged fields, or is for very many
    partitions.
    """
    if len(request.topics) != 1:
        return None
    (topic,) = request.topics
    count = len(topic.partitions)
    if not 0 < count <= _MOST_OFFSETS or any(one.committed_metadata for one in topic.partitions):
        return None
    _, end = reader(version)(frame, skip_tagged_fields(frame, body_offset))
    if end != len(frame):
        return None
    shape = _shape(end, count)
    _, _, _, *values = shape.unpack(frame)
    metadata = [b"\0" if one.committed_metadata is None else b"\1" for one in topic.partitions]
    following = [*(i32(one.partition_index) for one in topic.partitions[1:]), 2 * NO_TAGS]
    behind = [text + NO_TAGS + next_ for text, next_ in zip(metadata, following, strict=True)]
    return Head(shape, behind) if values[2::3] == behind else None


@lru_cache(1024)
def _shape(frame_bytes: int, count: int) -> Struct:
    varying = (_OFFSET_AND_EPOCH + _BEHIND_ONE) * (count - 1) + _OFFSET_AND_EPOCH + _AT_THE_END
    fixed_bytes = calcsize(f">{_START}{varying}")
    return Struct(f">{_START}{frame_bytes - fixed_bytes}s{varying}")


# Writing ------------------------------------------------------------------------------------------

_NOT_THROTTLED = bytes(4)
_ANSWER = Struct(">ihB")
"""Partition index, error code, no tagged fields."""


def writer(version: int) -> Callable[[Callable[[bytes], object], OffsetCommitResponse], None]:
    """What hands a response's bytes to the function that it is given."""
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
