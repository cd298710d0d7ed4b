"""The values of a consumer group's coordinator records as bytes.
:mod:`headrace.groups.record_schemas` has their keys. All have version 0 and the flexible encoding.
"""

from __future__ import annotations

from uuid import UUID

from headrace.groups.records import (
    ClassicMember,
    ConsumerAssignment,
    ConsumerMember,
    GroupEpoch,
    HeldPartitions,
    MemberState,
    ResolvedRegex,
)
from headrace.protocol.primitives import (
    NO_TAGS,
    Reader,
    compact_array,
    compact_blob,
    compact_i32s,
    compact_string,
    i8,
    i16,
    i32,
    i64,
    tagged_fields,
)

_ABSENT, _PRESENT = b"\0", b"\1"


def write_consumer_epoch(value: GroupEpoch) -> bytes:
    """Write the value of type 3."""
    return (
        i16(0)
        + i32(value.epoch)
        + (tagged_fields((0, i64(value.metadata_hash))) if value.metadata_hash else NO_TAGS)
    )


def read_consumer_epoch(reader: Reader) -> GroupEpoch:
    """Read the value of type 3."""
    epoch, tags = reader.begin_flexible().i32(), reader.tagged_fields()
    return GroupEpoch(epoch, Reader(tags[0]).i64() if 0 in tags else 0)


def write_consumer_member(value: ConsumerMember) -> bytes:
    """Write the value of type 5."""
    introduction = (value.group_instance_id, value.rack_id, value.client_id, value.client_host)
    return b"".join(
        (
            i16(0),
            *map(compact_string, introduction),
            compact_array(map(compact_string, value.subscribed_topic_names)),
            compact_string(value.subscribed_topic_regex),
            i32(value.rebalance_timeout_ms),
            compact_string(value.server_assignor),
            tagged_fields((0, _classic_member(value.classic))),
        )
    )


def _classic_member(value: ClassicMember | None) -> bytes:
    if value is None:
        return _ABSENT
    protocols = compact_array(
        compact_string(name) + compact_blob(data) + NO_TAGS for name, data in value.protocols
    )
    return _PRESENT + i32(value.session_timeout_ms) + protocols + NO_TAGS


def read_consumer_member(reader: Reader) -> ConsumerMember:
    """Read the value of type 5."""
    reader.begin_flexible()
    return ConsumerMember(
        reader.nullable_string(),
        reader.nullable_string(),
        reader.string(),
        reader.string(),
        reader.array(Reader.string),
        reader.string(),
        reader.i32(),
        reader.nullable_string(),
        _read_classic_member(reader.tagged_fields().get(0, _ABSENT)),
    )


def _read_classic_member(data: bytes) -> ClassicMember | None:
    def protocol(reader: Reader) -> tuple[str, bytes]:
        read = reader.string(), reader.blob()
        reader.tagged_fields()
        return read

    reader = Reader(data, flexible=True)
    return None if reader.i8() == 0 else ClassicMember(reader.i32(), reader.array(protocol))


def write_consumer_assignment(value: ConsumerAssignment) -> bytes:
    """Write the value of type 8."""
    epochs = i32(value.member_epoch) + i32(value.previous_member_epoch)
    partitions = _held(value.assigned) + _held(value.pending_revocation)
    return i16(0) + epochs + i8(value.state) + partitions + NO_TAGS


def _held(value: HeldPartitions) -> bytes:
    return compact_array(
        topic_id.bytes
        + compact_i32s(partitions)
        + tagged_fields((0, compact_i32s(partitions.values())))
        for topic_id, partitions in value.items()
    )


def read_consumer_assignment(reader: Reader) -> ConsumerAssignment:
    """Read the value of type 8. Brokers before 4.3 wrote no assignment epochs; the member epoch
    replaces them.
    """

    def topic(reader: Reader) -> tuple[UUID, dict[int, int]]:
        topic_id, partitions, tags = reader.uuid(), reader.array(Reader.i32), reader.tagged_fields()
        epochs = (
            Reader(tags[0], flexible=True).array(Reader.i32)
            if 0 in tags
            else (member_epoch,) * len(partitions)
        )
        return topic_id, dict(zip(partitions, epochs, strict=True))

    member_epoch, previous = reader.begin_flexible().i32(), reader.i32()
    state = MemberState(reader.i8())
    return ConsumerAssignment(
        member_epoch, previous, state, dict(reader.array(topic)), dict(reader.array(topic))
    )


def write_regex(value: ResolvedRegex) -> bytes:
    """Write the value of type 16."""
    topics = compact_array(map(compact_string, value.topics))
    return i16(0) + topics + i64(value.version) + i64(value.timestamp_ms) + NO_TAGS


def read_regex(reader: Reader) -> ResolvedRegex:
    """Read the value of type 16."""
    return ResolvedRegex(reader.begin_flexible().array(Reader.string), reader.i64(), reader.i64())
