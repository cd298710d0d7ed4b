"""The bytes of the coordinator records of ``__consumer_offsets``, exactly as Apache Kafka writes
them.

A key is ``int16 record type`` and the old, non-flexible encoding of its fields; a value begins with
``int16 version``. One version of each type is written; every version that Kafka brokers
have written is read.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

from headrace.protocol.primitives import (
    NO_TAGS,
    Reader,
    array,
    blob,
    compact_string,
    i8,
    i16,
    i32,
    i64,
    string,
    tagged_fields,
)
from headrace.protocol.structures import (
    I32,
    I32S,
    I64,
    ID,
    NULLABLE_STRING,
    STRING,
    STRINGS,
    Tagged,
    Type,
    fields,
    mapping,
    record_value,
    structure,
)

from .consumer.schemas import CONSUMER_ASSIGNMENT, CONSUMER_EPOCH, CONSUMER_MEMBER, REGEX
from .records import (
    NO_TIMESTAMP,
    Assignment,
    AssignmentEpoch,
    CommittedOffset,
    ConsumerGroupCurrentMemberAssignment,
    ConsumerGroupMemberMetadata,
    ConsumerGroupMetadata,
    ConsumerGroupRegularExpression,
    ConsumerGroupTargetAssignmentMember,
    ConsumerGroupTargetAssignmentMetadata,
    CurrentAssignment,
    Generation,
    GenerationMember,
    GroupEpoch,
    GroupMetadata,
    GroupRecord,
    OffsetCommit,
    SharedTopic,
    ShareGroupCurrentMemberAssignment,
    ShareGroupMemberMetadata,
    ShareGroupMetadata,
    ShareGroupStatePartitionMetadata,
    ShareGroupTargetAssignmentMember,
    ShareGroupTargetAssignmentMetadata,
    ShareMember,
    StatePartitions,
    StreamsGroupCurrentMemberAssignment,
    StreamsGroupMemberMetadata,
    StreamsGroupMetadata,
    StreamsGroupTargetAssignmentMember,
    StreamsGroupTargetAssignmentMetadata,
    StreamsGroupTopology,
)
from .streams.schemas import (
    STREAMS_ASSIGNMENT,
    STREAMS_EPOCH,
    STREAMS_MEMBER,
    STREAMS_TARGET,
    TOPOLOGY,
)

_NAMES_KEPT = 16_384
"""The limit of cached (group id, topic) pairs of 200 bytes: a start decodes them repeatedly."""

_KEYS_KEPT = 4096
"""The limit of cached offset keys, and of topic ids: commits repeat the same partitions."""


def encode(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """Return the key and value bytes of a record; the value of a tombstone is None."""
    if isinstance(record, OffsetCommit):  # most records
        group_id, topic, partition, committed = record
        key = offset_key(group_id, topic, partition)
        return key, None if committed is None else _write_offset(committed)
    schema = _BY_CLASS[type(record)]
    names = (string(getattr(record, name)) for name in schema.key_names)
    key = b"".join((i16(schema.record_type), *names))
    return key, None if record.value is None else schema.value.write(record.value)


@lru_cache(_KEYS_KEPT)
def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """Return the key of a committed offset."""
    return _OFFSET_TYPE + string(group_id) + string(topic) + i32(partition)


def decode(key: bytes, value: bytes | None) -> GroupRecord | None:
    """Decode a record; return None for a record type that is not used here.

    :raises ValueError: the bytes are not a valid record
    """
    try:
        if value is not None and len(value) == _PLAIN_OFFSET.size and key[:2] == _OFFSET_TYPE:
            plain = _decode_plain_offset(key, value)
            if plain is not None:
                return plain
        reader = Reader(key)
        record_type = reader.i16()
        schema = _BY_TYPE.get(record_type)
        if schema is None:
            return None
        if schema is _OFFSET_COMMIT:
            names: Sequence[Any] = reader.string(), reader.string(), reader.i32()
        else:
            names = [reader.string() for _ in schema.key_names]
        record: GroupRecord = schema.record_class(
            *names, None if value is None else schema.value.read(Reader(value))
        )
        return record
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ValueError(f"not a group coordinator record: {error}") from error


# --- values ---

_OFFSET_TYPE = i16(1)
_PLAIN_OFFSET = struct.Struct(">hqiBqBBB16s")
"""Version, offset, leader epoch, empty metadata, commit timestamp; one tagged field: tag, size,
topic id.
"""


def _write_offset(value: CommittedOffset) -> bytes:
    offset, leader_epoch, metadata, commit_ms, expire_ms, topic_id = value
    if expire_ms != NO_TIMESTAMP:  # only version 1 has this field
        return i16(1) + i64(offset) + string(metadata) + i64(commit_ms) + i64(expire_ms)
    if topic_id is not None and not metadata:  # most offsets: packed at once
        return _PLAIN_OFFSET.pack(
            4, offset, leader_epoch, 1, commit_ms, 1, 0, 16, topic_id.int.to_bytes(16)
        )
    head = struct.pack(">hqi", 4, offset, leader_epoch)
    tags = NO_TAGS if topic_id is None else tagged_fields((0, topic_id.bytes))
    return head + compact_string(metadata) + i64(commit_ms) + tags


def _decode_plain_offset(key: bytes, value: bytes) -> OffsetCommit | None:
    """Decode a value that :data:`_PLAIN_OFFSET` has packed, as most are; None for another one.

    A start decodes each commit: this takes 2 us, and the reader of all versions 9.
    """
    names = _names_of(key[:-4])
    version, offset, leader_epoch, metadata, commit_ms, tags, tag, size, id_bytes = (
        _PLAIN_OFFSET.unpack(value)
    )
    if names is None or (version, metadata, tags, tag, size) != (4, 1, 1, 0, 16):
        return None
    group_id, topic = names
    committed = CommittedOffset(
        offset, leader_epoch, "", commit_ms, NO_TIMESTAMP, _topic_id_of(id_bytes)
    )
    return OffsetCommit(group_id, topic, int.from_bytes(key[-4:], signed=True), committed)


@lru_cache(_NAMES_KEPT)
def _names_of(start_of_key: bytes) -> tuple[str, str] | None:
    """Return group id and topic in a key without its partition; None if bytes are left."""
    reader = Reader(start_of_key)
    reader.i16()
    group_id, topic = reader.string(), reader.string()
    whole = len(_OFFSET_TYPE + string(group_id) + string(topic)) == len(start_of_key)
    return (group_id, topic) if whole else None


@lru_cache(_KEYS_KEPT)
def _topic_id_of(id_bytes: bytes) -> UUID:
    return UUID(bytes=id_bytes)


def _read_offset(reader: Reader) -> CommittedOffset:
    version = reader.version(4)
    reader.flexible = version >= 4
    offset = reader.i64()
    leader_epoch = reader.i32() if version >= 3 else -1
    metadata = reader.string()
    commit_timestamp_ms = reader.i64()
    expire_timestamp_ms = reader.i64() if version == 1 else NO_TIMESTAMP
    topic_id = reader.tagged_fields().get(0)
    return CommittedOffset(
        offset,
        leader_epoch,
        metadata,
        commit_timestamp_ms,
        expire_timestamp_ms,
        None if topic_id is None else UUID(bytes=topic_id),
    )


def _write_generation(value: Generation) -> bytes:
    return b"".join(
        (
            i16(3),
            string(value.protocol_type),
            i32(value.generation_id),
            string(value.protocol),
            string(value.leader),
            i64(value.current_state_timestamp_ms),
            array(
                string(member.member_id)
                + string(member.group_instance_id)
                + string(member.client_id)
                + string(member.client_host)
                + i32(member.rebalance_timeout_ms)
                + i32(member.session_timeout_ms)
                + blob(member.subscription)
                + blob(member.assignment)
                for member in value.members
            ),
        )
    )


def _read_generation(reader: Reader) -> Generation:
    version = reader.version(4)
    reader.flexible = version >= 4

    def member(reader: Reader) -> GenerationMember:
        member_id = reader.string()
        group_instance_id = reader.nullable_string() if version >= 3 else None
        client_id, client_host = reader.string(), reader.string()
        rebalance_timeout_ms = reader.i32() if version >= 1 else None
        session_timeout_ms = reader.i32()
        read = GenerationMember(
            member_id,
            group_instance_id,
            client_id,
            client_host,
            session_timeout_ms if rebalance_timeout_ms is None else rebalance_timeout_ms,
            session_timeout_ms,
            reader.blob(),
            reader.blob(),
        )
        reader.tagged_fields()
        return read

    protocol_type, generation_id = reader.string(), reader.i32()
    protocol, leader = reader.nullable_string(), reader.nullable_string()
    timestamp_ms = reader.i64() if version >= 2 else NO_TIMESTAMP
    return Generation(
        protocol_type, generation_id, protocol, leader, timestamp_ms, reader.array(member)
    )


_SHARE_MEMBER = record_value(structure(ShareMember, NULLABLE_STRING, STRING, STRING, STRINGS))
_GROUP_EPOCH = record_value(structure(GroupEpoch, I32, I64))
_ASSIGNMENT_EPOCH = record_value(structure(AssignmentEpoch, I32, Tagged(0, I64, default=0)))
_PARTITIONS = mapping(ID, I32S)
_TARGET: Type[Assignment] = Type(
    lambda value: i16(0) + _PARTITIONS.write(value) + NO_TAGS,
    lambda reader: _PARTITIONS.read(reader.begin_flexible()),
)

_STABLE = 0  # the only state of a share group's member


def _write_current(value: CurrentAssignment) -> bytes:
    epochs = i32(value.member_epoch) + i32(value.previous_member_epoch)
    return i16(0) + epochs + i8(_STABLE) + _PARTITIONS.write(value.assigned) + NO_TAGS


def _read_current(reader: Reader) -> CurrentAssignment:
    reader.begin_flexible()
    member_epoch, previous_member_epoch, _state = reader.i32(), reader.i32(), reader.i8()
    return CurrentAssignment(member_epoch, previous_member_epoch, _PARTITIONS.read(reader))


_SHARED_TOPICS = mapping(ID, fields(SharedTopic, STRING, I32S))
_STATE_PARTITIONS = record_value(
    structure(StatePartitions, _SHARED_TOPICS, _SHARED_TOPICS, mapping(ID, STRING))
)


class _Schema(NamedTuple):
    """The schema of a record type."""

    record_type: int
    record_class: Any
    value: Type[Any]

    @property
    def key_names(self) -> Sequence[str]:
        """The attributes in the key."""
        names: tuple[str, ...] = self.record_class.__match_args__
        return names[:-1]


_OFFSET_COMMIT = _Schema(1, OffsetCommit, Type(_write_offset, _read_offset))
_SCHEMAS = (
    _OFFSET_COMMIT,
    _Schema(2, GroupMetadata, Type(_write_generation, _read_generation)),
    _Schema(3, ConsumerGroupMetadata, CONSUMER_EPOCH),
    _Schema(5, ConsumerGroupMemberMetadata, CONSUMER_MEMBER),
    _Schema(6, ConsumerGroupTargetAssignmentMetadata, _ASSIGNMENT_EPOCH),
    _Schema(7, ConsumerGroupTargetAssignmentMember, _TARGET),
    _Schema(8, ConsumerGroupCurrentMemberAssignment, CONSUMER_ASSIGNMENT),
    _Schema(16, ConsumerGroupRegularExpression, REGEX),
    _Schema(10, ShareGroupMemberMetadata, _SHARE_MEMBER),
    _Schema(11, ShareGroupMetadata, _GROUP_EPOCH),
    _Schema(12, ShareGroupTargetAssignmentMetadata, _ASSIGNMENT_EPOCH),
    _Schema(13, ShareGroupTargetAssignmentMember, _TARGET),
    _Schema(14, ShareGroupCurrentMemberAssignment, Type(_write_current, _read_current)),
    _Schema(15, ShareGroupStatePartitionMetadata, _STATE_PARTITIONS),
    _Schema(17, StreamsGroupMetadata, STREAMS_EPOCH),
    _Schema(19, StreamsGroupMemberMetadata, STREAMS_MEMBER),
    _Schema(20, StreamsGroupTargetAssignmentMetadata, _ASSIGNMENT_EPOCH),
    _Schema(21, StreamsGroupTargetAssignmentMember, STREAMS_TARGET),
    _Schema(22, StreamsGroupCurrentMemberAssignment, STREAMS_ASSIGNMENT),
    _Schema(23, StreamsGroupTopology, TOPOLOGY),
)
_BY_CLASS: Mapping[type, _Schema] = {schema.record_class: schema for schema in _SCHEMAS}
_BY_TYPE: Mapping[int, _Schema] = {0: _OFFSET_COMMIT} | {
    schema.record_type: schema for schema in _SCHEMAS
}
