"""Records of ``__consumer_offsets`` and ``__share_group_state`` as rows that tell of events.

Only the fields that tell of progress are read: commits, share state, members, groups. Records of
streams groups (KIP-1071) are laid out like those of consumer groups in these fields: the value of
a group begins with its epoch, and a record of a member needs only its key.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from headrace.internal_topics import CONSUMER_OFFSETS
from headrace.patterns import matches
from headrace.protocol.primitives import Reader, check_items
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

SHARE_SNAPSHOT, _SHARE_UPDATE = 0, 1
_ARROW_SCHEMA = arrow_schema(SCHEMA)
_ROWS_AT_ONCE = 2_000
_COMMIT_TYPES = (0, 1)
_CLASSIC_GROUP = 2
_GROUP_TYPE_OF_GROUP = {_CLASSIC_GROUP: "classic", 3: "consumer", 11: "share", 17: "streams"}
_GROUP_TYPE_OF_MEMBER = {5: "consumer", 10: "share", 19: "streams"}
_SKIPPED_TYPES = (4, 6, 7, 8, 9, 12, 13, 14, 15, 16, 18, 20, 21, 22, 23)
"""Record types of assignments, subscriptions and topologies, which tell nothing of progress."""
_LAST_COMMIT_VERSION = _LAST_CLASSIC_VERSION = 4

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
        timestamps = piece.column("timestamp").cast(pa.int64())
        columns = (piece.column("key"), piece.column("value"), timestamps, piece.column("offset"))
        rows = []
        for key, value, timestamp, offset in zip(*(c.to_pylist() for c in columns), strict=True):
            row: Row = {"logTopic": topic, "logPartition": partition, "logOffset": offset}
            row["timestamp"] = timestamp
            try:
                row["event"] = decode(row, Reader(key or b""), value)
            except (IndexError, ValueError, struct.error):
                row["event"] = UNREADABLE
            if row["event"] is not None and _is_chosen(groups, row):
                rows.append(row)
        yield pa.RecordBatch.from_pylist(rows, _ARROW_SCHEMA)


def _is_chosen(groups: str | None, row: Row) -> bool:
    return groups is None or ("groupId" in row and matches(groups, row["groupId"].decode()))


def _offsets_event(row: Row, key: Reader, value: bytes | None) -> str | None:
    """Fill the row of a record of ``__consumer_offsets``.

    :returns: the event; None for a record that tells nothing of progress
    :raises ValueError, IndexError, struct.error: the record cannot be read
    """
    record_type = row["recordType"] = key.i16()
    if record_type in _SKIPPED_TYPES:
        return None
    group_id = _text(key)
    if record_type in _COMMIT_TYPES:
        row |= {"topic": _text(key), "partition": key.i32(), "groupId": group_id}
        return COMMIT_DELETED if value is None else _commit(row, value)
    row["groupId"] = group_id
    if record_type in _GROUP_TYPE_OF_MEMBER:
        row |= {"groupType": _GROUP_TYPE_OF_MEMBER[record_type], "memberId": _text(key)}
        return MEMBER_LEFT if value is None else MEMBER
    if record_type not in _GROUP_TYPE_OF_GROUP:
        raise ValueError(f"record type {record_type}")
    row["groupType"] = _GROUP_TYPE_OF_GROUP[record_type]
    if value is None:
        return GROUP_DELETED
    if record_type == _CLASSIC_GROUP:
        return _classic_group(row, value)
    row["epoch"] = _value_reader(row, value, 0).i32()
    return GROUP


def _commit(row: Row, value: bytes) -> str:
    reader = _value_reader(row, value, _LAST_COMMIT_VERSION)
    offset = reader.i64()
    leader_epoch = reader.i32() if row["version"] >= 3 else -1
    reader.string()  # metadata
    commit_timestamp_ms = reader.i64()
    row["offset"] = offset
    if leader_epoch >= 0:
        row["leaderEpoch"] = leader_epoch
    if 0 <= commit_timestamp_ms <= MOST_MICROSECONDS_AS_MS:
        row["commitTimestamp"] = commit_timestamp_ms * 1000
    return COMMIT


def _classic_group(row: Row, value: bytes) -> str:
    reader = _value_reader(row, value, _LAST_CLASSIC_VERSION)
    reader.string()  # protocol type
    generation = reader.i32()
    reader.string()  # protocol
    reader.string()  # leader
    if row["version"] >= 2:
        reader.i64()  # current state timestamp
    members = reader.unsigned_varint() - 1 if reader.flexible else reader.i32()
    row |= {"epoch": generation, "members": check_items(members)}
    return GROUP


def _share_event(row: Row, key: Reader, value: bytes | None) -> str:
    """Fill the row of a record of ``__share_group_state``; return the event.

    :raises ValueError, IndexError, struct.error: the record cannot be read
    """
    record_type = row["recordType"] = key.i16()
    row |= {"groupId": _text(key), "topicId": key.uuid().bytes, "partition": key.i32()}
    if record_type not in (SHARE_SNAPSHOT, _SHARE_UPDATE):
        raise ValueError(f"record type {record_type}")
    row["groupType"] = "share"
    if value is None:
        return SHARE_STATE_DELETED
    reader = _value_reader(row, value, 0)
    reader.flexible = True
    reader.i32()  # snapshot epoch
    if record_type == SHARE_SNAPSHOT:
        reader.i32()  # state epoch
    leader_epoch, start_offset = reader.i32(), reader.i64()
    if record_type == SHARE_SNAPSHOT:
        reader.i64()  # create timestamp
        reader.i64()  # write timestamp
    reader.array(_skip_state_batch)
    complete_count = reader.tagged_fields().get(0, b"\xff")
    row["leaderEpoch"] = leader_epoch
    if start_offset >= 0:
        row["offset"] = start_offset
    if (count := int.from_bytes(complete_count[:4], signed=True)) >= 0:
        row["deliveryCompleteCount"] = count
    return SHARE_STATE


def _skip_state_batch(reader: Reader) -> None:
    """Skip first and last offset, delivery state and count."""
    reader.i64()
    reader.i64()
    reader.i8()
    reader.i16()
    reader.tagged_fields()


def _value_reader(row: Row, value: bytes, highest: int) -> Reader:
    """Return the reader of a value behind its version, which is flexible from 4 on.

    :raises ValueError: the version is above ``highest``
    """
    row["version"] = Reader(value).i16()
    reader = Reader(value)
    reader.flexible = reader.version(highest) >= 4
    return reader


def _text(reader: Reader) -> bytes:
    """Read a string as UTF-8, for Arrow. Half surrogate pairs, which it refuses, become ``?``."""
    return reader.string().encode(errors="replace")
