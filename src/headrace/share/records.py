"""The coordinator records of ``__share_group_state``, byte for byte as Apache Kafka writes them.

A key is ``int16 record type, string group id, uuid topic id, int32 partition`` in the old,
non-flexible encoding; a value is ``int16 version`` and then a flexible body (compact array, tagged
fields). A deleted key is a snapshot key with a null value. Source: KIP-932, schemas
ShareSnapshotKey / ShareSnapshotValue / ShareUpdateKey / ShareUpdateValue.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple, TypeAlias
from uuid import UUID

from headrace.protocol.primitives import (
    NO_TAGS,
    compact_length,
    i32,
    read_compact_length,
    read_tagged_fields,
    skip_tagged_fields,
    tagged_fields,
)
from headrace.uuid_text import uuid_text

SNAPSHOT_TYPE = 0
UPDATE_TYPE = 1
UNKNOWN = -1
"""A start offset that is not initialised, or a delivery-complete count that is not given."""

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVED = 0, 1, 2, 4
"""The delivery states of a record. ACQUIRED is never persisted."""

NO_BACKOFF: Mapping[int, int] = MappingProxyType({})

KEYS_KEPT = 20_000
"""The number of decoded keys that are cached: keys repeat when a log is replayed."""

_KEY_TAIL = struct.Struct(">16si")
_SNAPSHOT_HEAD = struct.Struct(">hiiiqqq")
_UPDATE_HEAD = struct.Struct(">hiiq")
_BATCH = struct.Struct(">qqbhB")


class StateBatch(NamedTuple):
    """The delivery state of a range of offsets, as it is persisted.

    :param last_offset: inclusive
    :param delivery_state: 0 available, 2 acknowledged, 4 archived
    :param delivery_count: how often the records were delivered
    """

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


class ArchiveReason(Enum):
    """The reason why records are archived without having been accepted."""

    REJECTED = "rejected"
    DELIVERY_LIMIT = "delivery limit reached"
    GAP = "gap"
    """The member found no record: it was compacted away, or is a control record."""
    GONE = "gone from the log"
    """The log no longer contains them."""


class Archived(NamedTuple):
    """A run of records that became ARCHIVED for one reason; ``last_offset`` inclusive."""

    first_offset: int
    last_offset: int
    delivery_count: int
    reason: ArchiveReason


Change: TypeAlias = tuple[int, int, int, int, ArchiveReason | None]
"""The change of a run of records: (first offset, last offset inclusive, delivery state,
delivery count, reason for ARCHIVED). A plain tuple, as a request may have thousands of them.
"""


class StateUpdate(NamedTuple):
    """A change of a share-partition.

    :param start_offset: the start offset after the change
    :param delivery_complete_count: the finished records from there on, after the change (KIP-1226);
        -1 when unknown
    :param state_batches: the changed records from the start offset on, ascending and disjoint
    :param archived: the records that become ARCHIVED, with reasons, including those that the start
        offset passes. Not persisted: used for dead letters, which are written before the change
    :param changes: of all records, also those that the start offset passes. Not persisted: decided
        again after dead letters
    :param not_before_ms: the end of the release backoff by delivery count, for records that become
        AVAILABLE. Not persisted: a restart ends backoffs
    """

    start_offset: int
    delivery_complete_count: int
    state_batches: tuple[StateBatch, ...]
    archived: tuple[Archived, ...] = ()
    changes: Sequence[Change] = ()
    not_before_ms: Mapping[int, int] = NO_BACKOFF


NO_TOPIC = UUID(int=0)
"""The topic id that no topic has: readers of messages leave it out."""


class SharePartitionKey(NamedTuple):
    """The key of all share state: a group and a topic-partition. ``str()`` is the
    coordinator key.
    """

    group_id: str
    topic_id: UUID
    partition: int

    def __str__(self) -> str:
        return f"{self.group_id}:{uuid_text(self.topic_id)}:{self.partition}"


@dataclass(frozen=True, slots=True)
class ShareSnapshot:
    """The whole state of a share-partition; updates with the same snapshot epoch follow it."""

    key: SharePartitionKey
    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    create_timestamp_ms: int
    write_timestamp_ms: int
    state_batches: tuple[StateBatch, ...] = ()
    delivery_complete_count: int = UNKNOWN


@dataclass(frozen=True, slots=True)
class ShareUpdate:
    """A change to a share-partition's state. A start offset of -1 does not change it."""

    key: SharePartitionKey
    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    state_batches: tuple[StateBatch, ...] = ()
    delivery_complete_count: int = UNKNOWN


@dataclass(frozen=True, slots=True)
class ShareTombstone:
    """The deletion of a share-partition's state."""

    key: SharePartitionKey


ShareRecord: TypeAlias = ShareSnapshot | ShareUpdate | ShareTombstone


def encode(record: ShareRecord) -> tuple[bytes, bytes | None]:
    """Return the key and value bytes of a coordinator record; the value of a tombstone is None."""
    if isinstance(record, ShareUpdate):
        head = _UPDATE_HEAD.pack(0, record.snapshot_epoch, record.leader_epoch, record.start_offset)
        return _encode_key(UPDATE_TYPE, record.key), head + _encode_tail(record)
    key = _encode_key(SNAPSHOT_TYPE, record.key)
    if isinstance(record, ShareTombstone):
        return key, None
    head = _SNAPSHOT_HEAD.pack(
        0,
        record.snapshot_epoch,
        record.state_epoch,
        record.leader_epoch,
        record.start_offset,
        record.create_timestamp_ms,
        record.write_timestamp_ms,
    )
    return key, head + _encode_tail(record)


def decode(key: bytes, value: bytes | None) -> ShareRecord | None:
    """Return the record of these bytes; None for a key of another type.

    :raises ValueError: when the bytes are not such a record
    """
    try:
        record_type, share_partition = _decode_key(key)
        if share_partition is None:
            return None
        if value is None:
            return ShareTombstone(share_partition)
        if record_type == UPDATE_TYPE:
            version, snapshot_epoch, leader_epoch, start_offset = _UPDATE_HEAD.unpack_from(value)
            _check_version(version)
            batches, count = _decode_tail(value, _UPDATE_HEAD.size)
            return ShareUpdate(
                share_partition, snapshot_epoch, leader_epoch, start_offset, batches, count
            )
        version, snapshot_epoch, state_epoch, leader_epoch, *offset_and_times = (
            _SNAPSHOT_HEAD.unpack_from(value)
        )
        _check_version(version)
        start_offset, created_ms, written_ms = offset_and_times
        batches, count = _decode_tail(value, _SNAPSHOT_HEAD.size)
        return ShareSnapshot(
            share_partition,
            snapshot_epoch,
            state_epoch,
            leader_epoch,
            start_offset,
            created_ms,
            written_ms,
            batches,
            count,
        )
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ValueError(f"not a share state record: {error}") from error


@lru_cache(maxsize=KEYS_KEPT)
def _decode_key(key: bytes) -> tuple[int, SharePartitionKey | None]:
    record_type, length = struct.unpack_from(">hh", key)
    if record_type not in (SNAPSHOT_TYPE, UPDATE_TYPE):
        return record_type, None
    if length < 0:
        raise ValueError("not a share state record: no group id")
    topic_id, partition = _KEY_TAIL.unpack_from(key, 4 + length)
    return record_type, SharePartitionKey(
        key[4 : 4 + length].decode(), UUID(bytes=topic_id), partition
    )


def _check_version(version: int) -> None:
    if version != 0:
        raise ValueError(f"share state record of version {version}: only 0 is supported")


def _encode_key(record_type: int, key: SharePartitionKey) -> bytes:
    group_id = key.group_id.encode()
    return (
        struct.pack(">hh", record_type, len(group_id))
        + group_id
        + _KEY_TAIL.pack(key.topic_id.bytes, key.partition)
    )


def _encode_tail(record: ShareSnapshot | ShareUpdate) -> bytes:
    parts = [compact_length(len(record.state_batches))]
    parts += [_BATCH.pack(*batch, 0) for batch in record.state_batches]
    count = record.delivery_complete_count
    parts.append(NO_TAGS if count == UNKNOWN else tagged_fields((0, i32(count))))
    return b"".join(parts)


def _decode_tail(value: bytes, position: int) -> tuple[tuple[StateBatch, ...], int]:
    length, position = read_compact_length(value, position)
    batches: list[StateBatch] = []
    for _ in range(length):
        first, last, state, count, tags = _BATCH.unpack_from(value, position)
        position += _BATCH.size
        if tags:
            position = skip_tagged_fields(value, position - 1)
        if not first <= last:
            raise ValueError(f"not a share state record: a batch from {first} to {last}")
        batches.append(StateBatch(first, last, state, count))
    complete_count = UNKNOWN
    fields, _ = read_tagged_fields(value, position)
    if 0 in fields:
        (complete_count,) = struct.unpack(">i", fields[0])
    return tuple(batches), complete_count
