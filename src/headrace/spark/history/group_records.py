"""Records of ``__consumer_offsets`` and ``__share_group_state``, decoded as columns of events.

The layouts are those of :mod:`headrace.groups.record_schemas` and :mod:`headrace.share.records`.
Here all records of a batch are decoded at once, and only the fields that tell of progress: commits,
share state, members, groups. Records of streams groups (KIP-1071) are laid out like those of
consumer groups in these fields: a group's value begins with its epoch, and a member's record needs
only its key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.internal_topics import CONSUMER_OFFSETS
from headrace.spark.reader.byte_fields import Column, Fields, Numbers, text
from headrace.spark.reader.columns import Records, arrow_schema

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
_EVENTS = (
    COMMIT,
    COMMIT_DELETED,
    SHARE_STATE,
    SHARE_STATE_DELETED,
    GROUP,
    GROUP_DELETED,
    MEMBER,
    MEMBER_LEFT,
    UNREADABLE,
)
_CODES: Mapping[str, int] = {event: code for code, event in enumerate(_EVENTS)}
_SKIPPED = -1

SCHEMA = (
    "event string, group_id string, group_type string, member_id string, topic string, "
    "topic_id binary, partition int, offset bigint, leader_epoch int, "
    "delivery_complete_count int, members int, epoch int, commit_timestamp timestamp, "
    "timestamp timestamp, record_type int, version int, log_topic string, log_partition int, "
    "log_offset bigint"
)
"""Columns of :func:`events`, as DDL.

``offset`` is the committed one, or the start offset of a share-partition (null where an update
leaves it unchanged); ``epoch`` the generation or epoch of a group; ``members`` the number of
members of a classic group; ``timestamp`` that of the record.
"""

_ARROW_SCHEMA = arrow_schema(SCHEMA)
_GROUP_TYPES = ("classic", "consumer", "share", "streams")
_COMMIT_TYPES = (0, 1)
_CLASSIC_GROUP = 2
_GROUP_TYPE_OF_GROUP = {_CLASSIC_GROUP: "classic", 3: "consumer", 11: "share", 17: "streams"}
_GROUP_TYPE_OF_MEMBER = {5: "consumer", 10: "share", 19: "streams"}
_SKIPPED_TYPES = (4, 6, 7, 8, 9, 12, 13, 14, 15, 16, 18, 20, 21, 22, 23)
"""Record types of assignments, subscriptions and topologies, which tell nothing of progress."""
_HIGHEST_TYPE = max(_SKIPPED_TYPES)
_LAST_COMMIT_VERSION = _LAST_CLASSIC_VERSION = 4
SHARE_SNAPSHOT, _SHARE_UPDATE = 0, 1
_STATE_BATCH_BYTES = 20
_UUID_BYTES = 16
_UNKNOWN = -1


class _Table:
    """Columns under construction: a place for each record, null where nothing was put.

    :ivar event: codes of events
    :ivar group_type: indexes in :data:`_GROUP_TYPES`
    :ivar columns: columns that are complete
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.event: Numbers = np.full(count, _CODES[UNREADABLE], np.int64)
        self.group_type: Numbers = np.full(count, _UNKNOWN, np.int64)
        self.columns: dict[str, Column] = {}
        self._numbers: dict[str, tuple[Numbers, Any]] = {}

    def put(self, name: str, rows: Numbers, values: Numbers, valid: Any = None) -> None:
        """Put numbers into some rows of a column.

        :param valid: a boolean for each; None for all
        """
        if name not in self._numbers:
            self._numbers[name] = np.zeros(self.count, np.int64), np.zeros(self.count, bool)
        column, is_set = self._numbers[name]
        column[rows] = values
        is_set[rows] = True if valid is None else valid

    def numbers(self, name: str, kind: Any) -> Column:
        """Return a column of numbers. Timestamps are put in milliseconds."""
        if name not in self._numbers:
            return pa.nulls(self.count, kind)
        column, is_set = self._numbers[name]
        if pa.types.is_timestamp(kind):
            return pa.array(column * 1000, mask=~is_set).cast(kind)
        return pa.array(column, mask=~is_set).cast(kind, safe=False)

    def strings(self, name: str) -> Column:
        """Return a column of strings."""
        if name not in self.columns:
            return pa.nulls(self.count, pa.string())
        return text(self.columns[name])


def events(records: Records, topic: str, partition: int) -> Any:
    """Decode records of one partition of an internal topic.

    :param topic: ``__consumer_offsets`` or ``__share_group_state``
    :returns: a ``pa.RecordBatch`` of :data:`SCHEMA`
    """
    key = records.key
    if key.null_count:  # no coordinator writes these
        key = key.fill_null(b"")
    has_value = ~np.asarray(records.value.is_null())
    table = _Table(len(records))
    decode = _decode_offsets_topic if topic == CONSUMER_OFFSETS else _decode_share_state
    decode(table, key, records.value, has_value)
    batch = _to_batch(table, records, topic, partition)
    is_kept = table.event != _SKIPPED
    return batch if is_kept.all() else batch.filter(pa.array(is_kept))


def _to_batch(table: _Table, records: Records, topic: str, partition: int) -> Any:
    count = table.count
    table.put("timestamp", np.arange(count), records.timestamp_ms)
    group_types = pa.array(table.group_type, mask=table.group_type == _UNKNOWN)
    made = {
        "event": pa.array(_EVENTS).take(pa.array(np.maximum(table.event, 0))),
        "group_type": pa.array(_GROUP_TYPES).take(group_types),
        "topic_id": table.columns.get("topic_id", pa.nulls(count, pa.binary())),
        "log_topic": pa.repeat(topic, count),
        "log_partition": pa.repeat(partition, count),
        "log_offset": pa.array(records.offset),
    }
    for field in _ARROW_SCHEMA:
        if field.name not in made:
            is_text = field.type == pa.string()
            column = table.strings(field.name) if is_text else table.numbers(field.name, field.type)
            made[field.name] = column
    return pa.RecordBatch.from_pydict(made, _ARROW_SCHEMA)


def _decode_offsets_topic(table: _Table, key: Column, value: Column, has_value: Any) -> None:
    rows = np.arange(table.count)
    fields = Fields(key, rows)
    record_type = fields.number(2)
    is_known = fields.whole & (record_type >= 0) & (record_type <= _HIGHEST_TYPE)
    record_type = np.where(is_known, record_type, _UNKNOWN)
    table.put("record_type", rows, record_type, is_known)
    for code, group_type in (_GROUP_TYPE_OF_GROUP | _GROUP_TYPE_OF_MEMBER).items():
        table.group_type[record_type == code] = _GROUP_TYPES.index(group_type)
    table.event[np.isin(record_type, _SKIPPED_TYPES)] = _SKIPPED

    # The key of a commit is (type, group, topic, partition), of a member (type, group, member).
    is_commit = np.isin(record_type, _COMMIT_TYPES)
    is_member = np.isin(record_type, tuple(_GROUP_TYPE_OF_MEMBER))
    has_second = is_commit | is_member
    group_id = fields.string()
    second = fields.only(has_second)
    start: Numbers = np.zeros(table.count, np.int64)
    length: Numbers = np.full(table.count, -1)
    start[has_second], length[has_second] = second.string()
    topic = start, np.where(is_commit, length, -1)
    member_id = start, np.where(is_member, length, -1)
    columns = fields.gather(group_id, topic, member_id)
    table.columns |= zip(("group_id", "topic", "member_id"), columns, strict=True)

    commit_rows = rows[is_commit]
    commit_key = second.only(is_commit[has_second])
    table.put("partition", commit_rows, commit_key.number(4), commit_key.whole)
    commit_rows = commit_rows[commit_key.ended()]
    table.event[commit_rows] = _CODES[COMMIT_DELETED]
    _decode_commits(table, value, commit_rows[has_value[commit_rows]])

    member_rows = rows[is_member & fields.whole]
    member_codes = np.where(has_value[member_rows], _CODES[MEMBER], _CODES[MEMBER_LEFT])
    table.event[member_rows] = member_codes

    for code in _GROUP_TYPE_OF_GROUP:
        group_rows = rows[(record_type == code) & fields.ended()]
        table.event[group_rows] = _CODES[GROUP_DELETED]
        decode = _decode_classic_groups if code == _CLASSIC_GROUP else _decode_group_epochs
        decode(table, value, group_rows[has_value[group_rows]])


def _by_version(
    table: _Table, value: Column, rows: Numbers, highest: int
) -> list[tuple[int, Fields, Numbers]]:
    """Divide values by the version that they begin with.

    The rows count as unreadable until their event is set.

    :returns: versions up to ``highest``, the fields of their values, and their rows
    """
    table.event[rows] = _CODES[UNREADABLE]
    fields = Fields(value, rows)
    version = fields.number(2)
    table.put("version", rows, version, fields.whole)
    found = []
    for number in range(highest + 1):
        chosen = fields.whole & (version == number)
        if chosen.any():
            found.append((number, fields.only(chosen), rows[chosen]))
    return found


def _decode_commits(table: _Table, value: Column, rows: Numbers) -> None:
    for version, fields, at in _by_version(table, value, rows, _LAST_COMMIT_VERSION):
        offset = fields.number(8)
        if version >= 3:
            leader_epoch = fields.number(4)
            table.put("leader_epoch", at, leader_epoch, leader_epoch >= 0)
        fields.string(compact=version >= 4)  # metadata
        commit_timestamp_ms = fields.number(8)
        if version == 1:
            fields.number(8)  # expire timestamp
        is_complete = fields.whole if version >= 4 else fields.ended()
        has_timestamp = is_complete & (commit_timestamp_ms >= 0)
        table.put("offset", at, offset, is_complete)
        table.put("commit_timestamp", at, commit_timestamp_ms, has_timestamp)
        table.event[at[is_complete]] = _CODES[COMMIT]


def _decode_classic_groups(table: _Table, value: Column, rows: Numbers) -> None:
    for version, fields, at in _by_version(table, value, rows, _LAST_CLASSIC_VERSION):
        compact = version >= 4
        fields.string(compact=compact)  # protocol type
        generation = fields.number(4)
        fields.string(compact=compact)  # protocol
        fields.string(compact=compact)  # leader
        if version >= 2:
            fields.number(8)  # current state timestamp
        members = fields.unsigned() - 1 if compact else fields.number(4)
        table.put("epoch", at, generation, fields.whole)
        table.put("members", at, members, fields.whole)
        table.event[at[fields.whole]] = _CODES[GROUP]


def _decode_group_epochs(table: _Table, value: Column, rows: Numbers) -> None:
    for _, fields, at in _by_version(table, value, rows, 0):
        table.put("epoch", at, fields.number(4), fields.whole)
        table.event[at[fields.whole]] = _CODES[GROUP]


def _decode_share_state(table: _Table, key: Column, value: Column, has_value: Any) -> None:
    rows = np.arange(table.count)
    fields = Fields(key, rows)
    record_type = fields.number(2)
    group_id = fields.string()
    topic_id_start = fields.skip(_UUID_BYTES)
    topic_id = topic_id_start, np.where(fields.whole, _UUID_BYTES, -1)
    partition = fields.number(4)
    is_known_type = (record_type == SHARE_SNAPSHOT) | (record_type == _SHARE_UPDATE)
    is_known = fields.ended() & is_known_type
    table.columns["group_id"], table.columns["topic_id"] = fields.gather(group_id, topic_id)
    table.put("record_type", rows, record_type, fields.whole)
    table.put("partition", rows, partition, is_known)
    table.group_type[is_known] = _GROUP_TYPES.index("share")
    table.event[is_known & ~has_value] = _CODES[SHARE_STATE_DELETED]
    for code in (SHARE_SNAPSHOT, _SHARE_UPDATE):
        with_value = rows[is_known & has_value & (record_type == code)]
        for _, values, at in _by_version(table, value, with_value, 0):
            _decode_share_values(table, values, at, is_snapshot=code == SHARE_SNAPSHOT)


def _decode_share_values(
    table: _Table, fields: Fields, rows: Numbers, *, is_snapshot: bool
) -> None:
    fields.number(4)  # snapshot epoch
    epoch = fields.number(4)  # the state epoch of a snapshot, the leader epoch of an update
    leader_epoch = fields.number(4) if is_snapshot else epoch
    start_offset = fields.number(8)
    if is_snapshot:
        fields.skip(16)  # create and write timestamp
    batch_count = fields.unsigned() - 1
    fields.skip(batch_count * _STATE_BATCH_BYTES)
    # The only tagged field is the delivery complete count, tag 0.
    count: Numbers = np.full(len(rows), _UNKNOWN)
    is_tagged = fields.unsigned() == 1
    tagged = fields.only(is_tagged)
    tag, size = tagged.unsigned(), tagged.unsigned()
    tagged_count = tagged.number(4)
    count[is_tagged] = np.where((tag == 0) & (size == 4), tagged_count, _UNKNOWN)
    is_complete = fields.ended()
    is_complete[is_tagged] = tagged.ended()
    table.put("leader_epoch", rows, leader_epoch, is_complete)
    table.put("offset", rows, start_offset, is_complete & (start_offset >= 0))
    table.put("delivery_complete_count", rows, count, is_complete & (count >= 0))
    table.event[rows[is_complete]] = _CODES[SHARE_STATE]
