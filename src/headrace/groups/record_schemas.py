"""The bytes of the coordinator records of ``__consumer_offsets``, exactly as Apache Kafka writes
them.

A key is ``int16 record type`` and the old, non-flexible encoding of its fields; a value begins with
``int16 version``. One version of each type is written; every version that Kafka brokers
have written is read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

from headrace.protocol.primitives import (
    NO_TAGS,
    Reader,
    array,
    blob,
    compact_array,
    compact_i32s,
    compact_string,
    i8,
    i16,
    i32,
    i64,
    string,
    tagged_fields,
)

from .consumer.schemas import (
    read_consumer_assignment,
    read_consumer_epoch,
    read_consumer_member,
    read_regex,
    write_consumer_assignment,
    write_consumer_epoch,
    write_consumer_member,
    write_regex,
)
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
    read_streams_assignment,
    read_streams_epoch,
    read_streams_member,
    read_streams_target,
    read_topology,
    write_streams_assignment,
    write_streams_epoch,
    write_streams_member,
    write_streams_target,
    write_topology,
)

_NAMES_KEPT = 16_384
"""Cached pairs of group id and topic, about 200 bytes each: a start decodes them repeatedly."""

_KEYS_KEPT = 4096
"""Cached keys of committed offsets: consumers commit the same partitions repeatedly."""


def encode(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """Return the key and value bytes of a record; the value of a tombstone is None."""
    if isinstance(record, OffsetCommit):  # most records
        group_id, topic, partition, committed = record
        key = _offset_key(group_id, topic, partition)
        return key, None if committed is None else _write_offset(committed)
    schema = _BY_CLASS[type(record)]
    key = i16(schema.record_type) + string(record.group_id)
    if schema.second:
        key += string(getattr(record, schema.second))
    return key, None if record.value is None else schema.write(record.value)


@lru_cache(_KEYS_KEPT)
def _offset_key(group_id: str, topic: str, partition: int) -> bytes:
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
        group_id = reader.string()
        if schema is _OFFSET_COMMIT:
            topic, partition = reader.string(), reader.i32()
            return OffsetCommit(
                group_id, topic, partition, None if value is None else _read_offset(Reader(value))
            )
        fields = (group_id, reader.string()) if schema.second else (group_id,)
        record: GroupRecord = schema.record_class(
            *fields, None if value is None else schema.read(Reader(value))
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


def _write_share_member(value: ShareMember) -> bytes:
    strings = map(compact_string, (value.rack_id, value.client_id, value.client_host))
    return (
        i16(0)
        + b"".join(strings)
        + compact_array(map(compact_string, value.subscribed_topic_names))
        + NO_TAGS
    )


def _read_share_member(reader: Reader) -> ShareMember:
    reader.begin_flexible()
    return ShareMember(
        reader.nullable_string(), reader.string(), reader.string(), reader.array(Reader.string)
    )


def _write_group_epoch(value: GroupEpoch) -> bytes:
    return i16(0) + i32(value.epoch) + i64(value.metadata_hash) + NO_TAGS


def _read_group_epoch(reader: Reader) -> GroupEpoch:
    reader.begin_flexible()
    return GroupEpoch(reader.i32(), reader.i64())


def _write_assignment_epoch(value: AssignmentEpoch) -> bytes:
    return (
        i16(0)
        + i32(value.epoch)
        + (tagged_fields((0, i64(value.timestamp_ms))) if value.timestamp_ms else NO_TAGS)
    )


def _read_assignment_epoch(reader: Reader) -> AssignmentEpoch:
    reader.begin_flexible()
    epoch, tags = reader.i32(), reader.tagged_fields()
    return AssignmentEpoch(epoch, Reader(tags[0]).i64() if 0 in tags else 0)


def _assignment(value: Assignment) -> bytes:
    return compact_array(
        id_.bytes + compact_i32s(partitions) + NO_TAGS for id_, partitions in value.items()
    )


def _read_topic(reader: Reader) -> tuple[UUID, tuple[int, ...]]:
    topic = reader.uuid(), reader.array(Reader.i32)
    reader.tagged_fields()
    return topic


def _write_target(value: Assignment) -> bytes:
    return i16(0) + _assignment(value) + NO_TAGS


def _read_target(reader: Reader) -> Assignment:
    return dict(reader.begin_flexible().array(_read_topic))


_STABLE = 0  # the only state of a share group's member


def _write_current(value: CurrentAssignment) -> bytes:
    epochs = i32(value.member_epoch) + i32(value.previous_member_epoch)
    return i16(0) + epochs + i8(_STABLE) + _assignment(value.assigned) + NO_TAGS


def _read_current(reader: Reader) -> CurrentAssignment:
    reader.begin_flexible()
    member_epoch, previous_member_epoch, _state = reader.i32(), reader.i32(), reader.i8()
    return CurrentAssignment(member_epoch, previous_member_epoch, dict(reader.array(_read_topic)))


def _write_state_partitions(value: StatePartitions) -> bytes:
    def topics(shared: Mapping[UUID, SharedTopic]) -> bytes:
        return compact_array(
            id_.bytes + compact_string(topic.topic_name) + compact_i32s(topic.partitions) + NO_TAGS
            for id_, topic in shared.items()
        )

    deleting = compact_array(
        id_.bytes + compact_string(name) + NO_TAGS for id_, name in value.deleting.items()
    )
    return i16(0) + topics(value.initializing) + topics(value.initialized) + deleting + NO_TAGS


def _read_state_partitions(reader: Reader) -> StatePartitions:
    def topic(reader: Reader) -> tuple[UUID, SharedTopic]:
        read = reader.uuid(), SharedTopic(reader.string(), reader.array(Reader.i32))
        reader.tagged_fields()
        return read

    def named(reader: Reader) -> tuple[UUID, str]:
        read = reader.uuid(), reader.string()
        reader.tagged_fields()
        return read

    reader.begin_flexible()
    return StatePartitions(
        dict(reader.array(topic)), dict(reader.array(topic)), dict(reader.array(named))
    )


class _Schema(NamedTuple):
    """The schema of a record type; ``second`` is the second attribute in the key, if any."""

    record_type: int
    record_class: Any
    write: Callable[[Any], bytes]
    read: Callable[[Reader], Any]
    second: str = ""


_OFFSET_COMMIT = _Schema(1, OffsetCommit, _write_offset, _read_offset)
_SCHEMAS = (
    _OFFSET_COMMIT,
    _Schema(2, GroupMetadata, _write_generation, _read_generation),
    _Schema(3, ConsumerGroupMetadata, write_consumer_epoch, read_consumer_epoch),
    _Schema(
        5, ConsumerGroupMemberMetadata, write_consumer_member, read_consumer_member, "member_id"
    ),
    _Schema(
        6, ConsumerGroupTargetAssignmentMetadata, _write_assignment_epoch, _read_assignment_epoch
    ),
    _Schema(7, ConsumerGroupTargetAssignmentMember, _write_target, _read_target, "member_id"),
    _Schema(
        8,
        ConsumerGroupCurrentMemberAssignment,
        write_consumer_assignment,
        read_consumer_assignment,
        "member_id",
    ),
    _Schema(16, ConsumerGroupRegularExpression, write_regex, read_regex, "regex"),
    _Schema(10, ShareGroupMemberMetadata, _write_share_member, _read_share_member, "member_id"),
    _Schema(11, ShareGroupMetadata, _write_group_epoch, _read_group_epoch),
    _Schema(
        12, ShareGroupTargetAssignmentMetadata, _write_assignment_epoch, _read_assignment_epoch
    ),
    _Schema(13, ShareGroupTargetAssignmentMember, _write_target, _read_target, "member_id"),
    _Schema(14, ShareGroupCurrentMemberAssignment, _write_current, _read_current, "member_id"),
    _Schema(15, ShareGroupStatePartitionMetadata, _write_state_partitions, _read_state_partitions),
    _Schema(17, StreamsGroupMetadata, write_streams_epoch, read_streams_epoch),
    _Schema(19, StreamsGroupMemberMetadata, write_streams_member, read_streams_member, "member_id"),
    _Schema(
        20, StreamsGroupTargetAssignmentMetadata, _write_assignment_epoch, _read_assignment_epoch
    ),
    _Schema(
        21,
        StreamsGroupTargetAssignmentMember,
        write_streams_target,
        read_streams_target,
        "member_id",
    ),
    _Schema(
        22,
        StreamsGroupCurrentMemberAssignment,
        write_streams_assignment,
        read_streams_assignment,
        "member_id",
    ),
    _Schema(23, StreamsGroupTopology, write_topology, read_topology),
)
_BY_CLASS: Mapping[type, _Schema] = {schema.record_class: schema for schema in _SCHEMAS}
_BY_TYPE: Mapping[int, _Schema] = {0: _OFFSET_COMMIT} | {
    schema.record_type: schema for schema in _SCHEMAS
}
