"""The coordinator records of ``__share_group_state``, byte for byte as Apache Kafka writes them.

A key is ``int16 record type, string group id, uuid topic id, int32 partition`` in the old,
non-flexible encoding; a value is ``int16 version`` and then a flexible body (compact array, tagged
fields). A deleted key is a snapshot key with a null value. Source: KIP-932, schemas
ShareSnapshotKey / ShareSnapshotValue / ShareUpdateKey / ShareUpdateValue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from operator import attrgetter
from types import MappingProxyType
from typing import NamedTuple, TypeAlias
from uuid import UUID

from headrace.outcome import make
from headrace.protocol.coordinator_records import RecordTypes
from headrace.protocol.uuid_text import uuid_text

UNKNOWN = -1
"""A start offset that is not initialised, or a delivery-complete count that is not given."""

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVED = 0, 1, 2, 4
"""The delivery states of a record. ACQUIRED is never persisted."""

NO_BACKOFF: Mapping[int, int] = MappingProxyType({})


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


class ShareSnapshot(NamedTuple):
    """The whole state of a share-partition; updates with the same snapshot epoch follow it. Its
    fields, but for the key, are those of Kafka's definition; timestamps are epoch milliseconds.
    """

    key: SharePartitionKey
    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    create_timestamp: int
    write_timestamp: int
    state_batches: tuple[StateBatch, ...] = ()
    delivery_complete_count: int = UNKNOWN


class ShareUpdate(NamedTuple):
    """A change to a share-partition's state. A start offset of -1 does not change it. Its fields,
    but for the key, are those of Kafka's definition.
    """

    key: SharePartitionKey
    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    state_batches: tuple[StateBatch, ...] = ()
    delivery_complete_count: int = UNKNOWN


class ShareTombstone(NamedTuple):
    """The deletion of a share-partition's state."""

    key: SharePartitionKey


ShareRecord: TypeAlias = ShareSnapshot | ShareUpdate | ShareTombstone


_TYPES = RecordTypes("share state record", {"ShareSnapshot": 0, "ShareUpdate": 0})
_batch_fields = attrgetter(*StateBatch._fields)
_RECORDS = {
    record_class.__name__: (record_class, attrgetter(*record_class._fields[1:]))
    for record_class in (ShareSnapshot, ShareUpdate)
}
"""The records with a value by the name of their definition, and the fields after the key."""


def encode(record: ShareRecord) -> tuple[bytes, bytes | None]:
    """Return the key and value bytes of a coordinator record; the value of a tombstone is None."""
    if isinstance(record, ShareTombstone):
        return _TYPES["ShareSnapshot"].encode_key(*record.key), None
    record_type = _TYPES[type(record).__name__]
    return record_type.encode_key(*record.key), record_type.encode_value(record)


def decode(key: bytes, value: bytes | None) -> ShareRecord | None:
    """Return the record of these bytes; None for a key of another type.

    :raises ValueError: when the bytes are not such a record
    """
    raw = _TYPES.decode(key, value)
    if raw is None:
        return None
    share_partition = make(SharePartitionKey, raw.key)
    if share_partition.topic_id is None:
        raise ValueError("not a share state record: no topic id")
    message = raw.value
    if message is None:
        return ShareTombstone(share_partition)
    batches = tuple([make(StateBatch, _batch_fields(batch)) for batch in message.state_batches])
    for first, last, _, _ in batches:
        if first > last:
            raise ValueError(f"not a share state record: a batch from {first} to {last}")
    record_class, fields = _RECORDS[raw.type.name]
    return record_class(share_partition, *fields(message))._replace(state_batches=batches)
