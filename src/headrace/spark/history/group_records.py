"""Records of ``__consumer_offsets`` and ``__share_group_state`` as rows that tell of events.

Only the records that tell of progress are read: commits, share state, members, groups. A record of
a member needs only its key.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.patterns import matches
from headrace.protocol.coordinator_records import (
    NO_METADATA,
    TOPIC_ID_TAG,
    RecordType,
    RecordTypes,
)
from headrace.protocol.internal_topics import CONSUMER_OFFSETS, SHARE_GROUP_STATE
from headrace.protocol.primitives import INT16, UUID_BYTES
from headrace.spark.reader.columns import MOST_MICROSECONDS_AS_MS, arrow_schema

COMMIT, COMMIT_DELETED = "commit", "commit deleted"
"""A group committed an offset of a partition; the offset was deleted or expired."""
SHARE_STATE, SHARE_STATE_DELETED = "share state", "share state deleted"
"""The state of a share-partition changed; it was deleted."""
GROUP, GROUP_DELETED = "group", "group deleted"
"""A group was created, or got a new generation or epoch; it was deleted."""
MEMBER, MEMBER_LEFT = "member", "member left"
"""A member joined or changed; it left."""
UNREADABLE = "unreadable"
"""A record of an unknown type or version, or one that is too short."""

SCHEMA = (
    "event string, groupId string, groupType string, memberId string, topic string, "
    "topicId binary, partition int, offset bigint, leaderEpoch int, "
    "deliveryCompleteCount int, members int, epoch int, commitTimestamp timestamp, "
    "timestamp timestamp, recordType int, version int, logTopic string, logPartition int, "
    "logOffset bigint"
)
"""Columns of :func:`events`, as DDL.

``offset`` is the committed one, or the start offset of a share-partition (null where an update
leaves it unchanged); ``epoch`` the generation or epoch of a group; ``members`` the number of
members of a classic group; ``timestamp`` that of the record.
"""

SHARE_SNAPSHOT = 0
_ARROW_SCHEMA = arrow_schema(SCHEMA)
_OF_COMMIT_KEYS = pa.schema(
    [_ARROW_SCHEMA.field(name) for name in ("groupId", "topic", "partition", "recordType")]
)
_PLAIN_OFFSET = np.dtype(
    [
        ("version", ">i2"),
        ("offset", ">i8"),
        ("leaderEpoch", ">i4"),
        ("metadata", "u1"),
        ("commitTimestamp", ">i8"),
    ]
)
"""The value of a commit of version 4 up to its tagged fields."""
_TAGS = {
    _PLAIN_OFFSET.itemsize + len(tags) + topic_id_bytes: np.frombuffer(tags, np.uint8)
    for tags, topic_id_bytes in ((b"\0", 0), (TOPIC_ID_TAG, UUID_BYTES))
}
"""The tagged fields after that, without a topic id, by the size of the value: none, or it alone."""
_ROWS_AT_ONCE = 2_000
_GROUP_TYPES = {
    "GroupMetadata": "classic",
    "ConsumerGroupMetadata": "consumer",
    "ShareGroupMetadata": "share",
    "StreamsGroupMetadata": "streams",
    "ConsumerGroupMemberMetadata": "consumer",
    "ShareGroupMemberMetadata": "share",
    "StreamsGroupMemberMetadata": "streams",
}
"""Type of a record of a group, or of a member → type of the group."""
_SKIPPED_TYPES = (4, 6, 7, 8, 9, 12, 13, 14, 15, 16, 18, 20, 21, 22, 23)
"""Record types of assignments, subscriptions and topologies, which tell nothing of progress."""

_OFFSETS_TYPES = RecordTypes(
    f"record of {CONSUMER_OFFSETS}",
    dict.fromkeys(("OffsetCommit", *_GROUP_TYPES), 0),
)
_OFFSETS_TYPES.by_number[0] = _OFFSETS_TYPES["OffsetCommit"]  # of old brokers
_SHARE_TYPES = RecordTypes(f"record of {SHARE_GROUP_STATE}", {"ShareSnapshot": 0, "ShareUpdate": 0})

Row = dict[str, Any]


def events(batch: pa.RecordBatch, groups: str | None = None) -> Iterator[pa.RecordBatch]:
    """Decode records of one partition of an internal topic, as batches of :data:`SCHEMA`.

    :param batch: with the columns of Spark's Kafka source
    :param groups: a regular expression that whole group ids must match; None for all records
    """
    topic, partition = batch.column("topic")[0].as_py(), batch.column("partition")[0].as_py()
    decode = _offsets_event if topic == CONSUMER_OFFSETS else _share_event
    for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
        piece = batch.slice(start, _ROWS_AT_ONCE)
        if topic == CONSUMER_OFFSETS and (commits := _plain_commits(piece, groups)) is not None:
            yield commits
            continue
        timestamps = piece.column("timestamp").cast(pa.int64())
        columns = (piece.column("key"), piece.column("value"), timestamps, piece.column("offset"))
        rows = []
        for key, value, timestamp, offset in zip(*(c.to_pylist() for c in columns), strict=True):
            row: Row = {"logTopic": topic, "logPartition": partition, "logOffset": offset}
            row["timestamp"] = timestamp
            try:
                (row["recordType"],) = INT16.unpack_from(key or b"")
                row["event"] = decode(row, key, value)
            except (LookupError, ValueError, struct.error):
                row["event"] = UNREADABLE
            if row["event"] is not None and _is_chosen(groups, row):
                rows.append(row)
        yield pa.RecordBatch.from_pylist(rows, _ARROW_SCHEMA)


def _plain_commits(piece: pa.RecordBatch, groups: str | None) -> pa.RecordBatch | None:
    """Decode records of ``__consumer_offsets`` at once, as :func:`events` decodes them one by one;
    return None if not all of them are commits without metadata, and of one size.
    """
    values, keys = piece.column("value"), piece.column("key").dictionary_encode()
    lengths = pc.binary_length(values).fill_null(0).to_numpy()
    tags = _TAGS.get(lengths[0])
    if keys.null_count or tags is None or (lengths != lengths[0]).any():
        return None
    plain_bytes = _PLAIN_OFFSET.itemsize
    data = np.frombuffer(b"".join(values.to_pylist()), np.uint8).reshape(-1, lengths[0])
    committed = np.ascontiguousarray(data[:, :plain_bytes]).view(_PLAIN_OFFSET)[:, 0]
    if (
        (data[:, plain_bytes : plain_bytes + len(tags)] != tags).any()
        or (committed["version"] != 4).any()
        or (committed["metadata"] != NO_METADATA).any()
    ):
        return None
    try:
        columns = [_columns_of(key) for key in keys.dictionary.to_pylist()]
    except (LookupError, ValueError, struct.error):
        return None
    if any(record_type.name != "OffsetCommit" for record_type, _ in columns):
        return None
    of_keys = pa.RecordBatch.from_pylist([row for _, row in columns], _OF_COMMIT_KEYS)
    epoch, commit_ms = committed["leaderEpoch"], committed["commitTimestamp"]
    has_no_time = (commit_ms < 0) | (commit_ms > MOST_MICROSECONDS_AS_MS)
    times_us = np.where(has_no_time, 0, commit_ms) * 1000
    count = piece.num_rows
    decoded = {
        "event": pa.repeat(COMMIT, count),
        **dict(zip(_OF_COMMIT_KEYS.names, of_keys.take(keys.indices).columns, strict=True)),
        "offset": pa.array(committed["offset"].astype(np.int64)),
        "leaderEpoch": pa.array(epoch.astype(np.int32), mask=epoch < 0),
        "commitTimestamp": pa.array(times_us.astype(np.int64), mask=has_no_time),
        "timestamp": piece.column("timestamp"),
        "version": pa.repeat(4, count),
        "logTopic": piece.column("topic"),
        "logPartition": piece.column("partition"),
        "logOffset": piece.column("offset"),
    }
    commits = pa.RecordBatch.from_arrays(
        [
            decoded[field.name].cast(field.type)
            if field.name in decoded
            else pa.nulls(count, field.type)
            for field in _ARROW_SCHEMA
        ],
        schema=_ARROW_SCHEMA,
    )
    chosen = [_is_chosen(groups, row) for _, row in columns]
    return commits if all(chosen) else commits.filter(pa.array(chosen).take(keys.indices))


def _is_chosen(groups: str | None, row: Row) -> bool:
    return groups is None or ("groupId" in row and matches(groups, row["groupId"].decode()))


def _offsets_event(row: Row, key: bytes, value: bytes | None) -> str | None:
    """Fill the row of a record of ``__consumer_offsets``.

    :returns: the event; None for a record that tells nothing of progress
    :raises ValueError, LookupError, struct.error: the record cannot be read
    """
    if row["recordType"] in _SKIPPED_TYPES:
        return None
    record_type, columns = _columns_of(key)
    row |= columns
    if "memberId" in row:
        return MEMBER_LEFT if value is None else MEMBER
    is_commit = record_type.name == "OffsetCommit"
    if value is None:
        return COMMIT_DELETED if is_commit else GROUP_DELETED
    state = _value(row, record_type, value)
    if is_commit:
        row["offset"] = state.offset
        if state.leader_epoch >= 0:
            row["leaderEpoch"] = state.leader_epoch
        if 0 <= state.commit_timestamp <= MOST_MICROSECONDS_AS_MS:
            row["commitTimestamp"] = state.commit_timestamp * 1000
        return COMMIT
    if record_type.name == "GroupMetadata":
        row |= {"epoch": state.generation, "members": len(state.members)}
    else:
        row["epoch"] = state.epoch
    return GROUP


def _columns_of(key: bytes) -> tuple[RecordType, Row]:
    """Return the type of a record of ``__consumer_offsets``, and what its key has for its row.

    :raises ValueError, LookupError, struct.error: the key cannot be read
    """
    record_type, (group_id, *names) = _key(_OFFSETS_TYPES, key)
    columns: Row = {"recordType": INT16.unpack_from(key)[0], "groupId": _utf8(group_id)}
    if record_type.name == "OffsetCommit":
        topic, partition = names
        return record_type, columns | {"topic": _utf8(topic), "partition": partition}
    columns["groupType"] = _GROUP_TYPES[record_type.name]
    if names:
        columns["memberId"] = _utf8(names[0])
    return record_type, columns


def _share_event(row: Row, key: bytes, value: bytes | None) -> str:
    """Fill the row of a record of ``__share_group_state``; return the event.

    :raises ValueError, LookupError, struct.error: the record cannot be read
    """
    record_type, (group_id, topic_id, partition) = _key(_SHARE_TYPES, key)
    if topic_id is None:
        raise ValueError("no topic id")
    row |= {"groupId": _utf8(group_id), "topicId": topic_id.bytes, "partition": partition}
    row["groupType"] = "share"
    if value is None:
        return SHARE_STATE_DELETED
    state = _value(row, record_type, value)
    row["leaderEpoch"] = state.leader_epoch
    if state.start_offset >= 0:
        row["offset"] = state.start_offset
    if state.delivery_complete_count >= 0:
        row["deliveryCompleteCount"] = state.delivery_complete_count
    return SHARE_STATE


def _key(types: RecordTypes, key: bytes) -> tuple[RecordType, tuple[Any, ...]]:
    """Return the type of a record and the fields of its key.

    :raises ValueError: the type is unknown, or the key cannot be read
    """
    record = types.decode(key, None)
    if record is None:
        raise ValueError("an unknown type")
    return record.type, record.key


def _value(row: Row, record_type: RecordType, value: bytes) -> Any:
    """Return a value, and put its version into the row.

    :raises ValueError, LookupError, struct.error: it cannot be read
    """
    (row["version"],) = INT16.unpack_from(value)
    return record_type.read_value(value)


def _utf8(text: str) -> bytes:
    """Return a text for Arrow. Half surrogate pairs, which it refuses, become ``?``."""
    return text.encode(errors="replace")
