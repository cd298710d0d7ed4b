"""The bytes of the coordinator records of ``__consumer_offsets``, exactly as Apache Kafka writes
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from operator import attrgetter
from typing import Any

from headrace.outcome import make
from headrace.protocol.coordinator_records import (
    NO_METADATA,
    PLAIN_OFFSET,
    TOPIC_ID_TAG,
    RecordTypes,
)
from headrace.protocol.primitives import i16, topic_id_from
from headrace.protocol.record_batch import NO_TIMESTAMP
from headrace.protocol.schema import Message

from .records import (
    CONSUMER_RECORDS,
    SHARE_RECORDS,
    STREAMS_RECORDS,
    CommittedOffset,
    GroupMetadata,
    GroupRecord,
    OffsetCommit,
    SharedTopic,
    StreamsAssignment,
)

_KEYS_KEPT = 4096
"""The limit of cached offset keys: commits repeat the same partitions."""

_CLASSES = {
    record_class.__name__: record_class
    for record_class in (GroupMetadata, *CONSUMER_RECORDS, *SHARE_RECORDS, *STREAMS_RECORDS)
}
_TYPES = RecordTypes(
    "group coordinator record",
    dict.fromkeys(_CLASSES, 0) | {"OffsetCommit": 4, "GroupMetadata": 3},
)
_OFFSET_COMMIT = _TYPES["OffsetCommit"]
_OFFSET_TYPE = i16(1)
_TYPES.by_number[0] = _OFFSET_COMMIT  # of old brokers
_WITH_RETENTION = 1
"""The only version of a committed offset with an expire timestamp."""

_offset_fields = attrgetter(
    "offset", "leader_epoch", "metadata", "commit_timestamp", "expire_timestamp", "topic_id"
)


def encode(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """Return the key and value bytes of a record; the value of a tombstone is None."""
    if isinstance(record, OffsetCommit):  # most records
        group_id, topic, partition, committed = record
        key = offset_key(group_id, topic, partition)
        return key, None if committed is None else _encode_offset(committed)
    record_type = _TYPES[type(record).__name__]
    *names, value = attrgetter(*record.__match_args__)(record)
    key = record_type.encode_key(*names)
    if value is None:
        return key, None
    if not isinstance(value, Message):
        value = record_type.value.filled(_fields(value))
    return key, record_type.encode_value(value)


def _fields(value: Any) -> Iterable[Any]:
    """Return the fields of the definition of a value, in order."""
    if isinstance(value, StreamsAssignment):
        fields = value.fields()
    elif isinstance(value, Mapping):
        fields = (value,)
    else:
        fields = value if isinstance(value, tuple) else attrgetter(*value.__match_args__)(value)
    return map(_field, fields)


def _field(value: Any) -> Any:
    """Return a field of a definition, where mappings are arrays of structures."""
    if not isinstance(value, Mapping):
        return value
    return [(key, *_rest(item)) for key, item in value.items()]


def _rest(item: Any) -> Iterable[Any]:
    """Return the fields of a structure after its key."""
    if isinstance(item, dict):  # numbers with their epochs
        return item.keys(), item.values()
    return item if isinstance(item, SharedTopic) else (item,)


@lru_cache(_KEYS_KEPT)
def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """Return the key of a committed offset."""
    return _OFFSET_COMMIT.encode_key(group_id, topic, partition)


def _encode_offset(committed: CommittedOffset) -> bytes:
    offset, leader_epoch, metadata, commit_ms, expire_ms, topic_id = committed
    if topic_id is not None and not metadata and expire_ms == NO_TIMESTAMP:
        id_bytes = topic_id.int.to_bytes(16)
        return PLAIN_OFFSET.pack(
            4, offset, leader_epoch, NO_METADATA, commit_ms, TOPIC_ID_TAG, id_bytes
        )
    version = _OFFSET_COMMIT.version if expire_ms == NO_TIMESTAMP else _WITH_RETENTION
    return _OFFSET_COMMIT.encode_value(_OFFSET_COMMIT.value.message_type(*committed), version)


def _plain_offset(value: bytes) -> CommittedOffset | None:
    """Decode a value that :data:`PLAIN_OFFSET` has packed; return None for another one."""
    version, offset, leader_epoch, metadata, commit_ms, tag, id_bytes = PLAIN_OFFSET.unpack(value)
    if (version, metadata, tag) != (4, NO_METADATA, TOPIC_ID_TAG):
        return None
    fields = offset, leader_epoch, "", commit_ms, NO_TIMESTAMP, topic_id_from(id_bytes)
    return make(CommittedOffset, fields)


def decode(key: bytes, value: bytes | None) -> GroupRecord | None:
    """Decode a record; return None for a record type that is not used here.

    :raises ValueError: the bytes are not a valid record
    """
    committed = None
    if value is not None and len(value) == PLAIN_OFFSET.size and key.startswith(_OFFSET_TYPE):
        committed = _plain_offset(value)
    raw = _TYPES.decode(key, None if committed is not None else value)
    if raw is None:
        return None
    if raw.type is _OFFSET_COMMIT:
        if raw.value is not None:
            committed = make(CommittedOffset, _offset_fields(raw.value))
        return make(OffsetCommit, (*raw.key, committed))
    record_class: Any = _CLASSES[raw.type.name]
    decoded = raw.value
    if decoded is not None and record_class.read is not None:
        decoded = record_class.read(*decoded.as_tuple())
    record: GroupRecord = record_class(*raw.key, decoded)
    return record
