"""The records of ``__consumer_offsets`` and ``__share_group_state`` as columns: what happened in
which group.

The layouts are those of :mod:`headrace.groups.record_schemas` and :mod:`headrace.share.records`;
here they are read for all records of a batch at once, and only what tells of progress is read:
commits, share state, members, groups. Those of streams groups (KIP-1071), which headrace does not
coordinate, are laid out like the ones of consumer groups as far as they are read: an epoch comes
first in a group's, and only the key of a member's counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.internal_topics import CONSUMER_OFFSETS, SHARE_GROUP_STATE
from headrace.spark.reader.byte_fields import Column, Fields, Numbers, text
from headrace.spark.reader.columns import Records

OFFSETS_TOPIC, SHARE_STATE_TOPIC = CONSUMER_OFFSETS, SHARE_GROUP_STATE

COMMIT, COMMIT_DELETED = "commit", "commit deleted"
"""A group committed an offset of a partition; the offset was deleted, or expired."""
SHARE_STATE, SHARE_STATE_DELETED = "share state", "share state deleted"
"""A share group got on with a partition; its state there was deleted."""
GROUP, GROUP_DELETED = "group", "group deleted"
"""A group, or a new generation or epoch of it; it has gone."""
MEMBER, MEMBER_LEFT = "member", "member left"
UNREADABLE = "unreadable"
"""A record of a type or version that this does not know, or too short."""
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
_PASSED_OVER = -1

SCHEMA = (
    "event string, group_id string, group_type string, member_id string, topic string, "
    "topic_id binary, "
    "partition int, offset bigint, leader_epoch int, delivery_complete_count int, members "
    "int, epoch int, "
    "commit_timestamp timestamp, timestamp timestamp, record_type int, version int, "
    "log_topic string, "
    "log_partition int, log_offset bigint"
)
"""The columns of what :func:`events` makes, as DDL.

``offset`` is the committed one, or the start offset of a share-partition (null where an update
leaves it as it was); ``epoch`` the generation or epoch of a group; ``members`` of a classic group;
``timestamp`` that of the record.
"""

_TYPES = ("classic", "consumer", "share", "streams")
_COMMITS = (0, 1)
_CLASSIC_GROUP = 2
_GROUP_TYPES = {_CLASSIC_GROUP: 0, 3: 1, 11: 2, 17: 3}
_MEMBER_TYPES = {5: 1, 10: 2, 19: 3}
_KNOWN_BESIDES = (4, 6, 7, 8, 9, 12, 13, 14, 15, 16, 18, 20, 21, 22, 23)
"""Assignments, subscriptions and topologies, which tell nothing of progress."""
_HIGHEST_TYPE = max(_KNOWN_BESIDES)
_LAST_COMMIT_VERSION = _LAST_CLASSIC_VERSION = 4
SHARE_SNAPSHOT, _UPDATE = 0, 1
_STATE_BATCH_BYTES = 20
_UUID_BYTES = 16
_UNKNOWN = -1


class _Table:
    """Columns under way: numbers with a place for each record, null where nothing was put."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.event: Numbers = np.full(count, _CODES[UNREADABLE], np.int64)
        self.group_type: Numbers = np.full(count, _UNKNOWN, np.int64)
        self._numbers: dict[str, tuple[Numbers, Any]] = {}
        self.columns: dict[str, Column] = {}

    def put(self, name: str, rows: Numbers, values: Numbers, valid: Any = None) -> None:
        """Numbers for some rows.

        :param valid: a boolean for each; None for all
        """
        if name not in self._numbers:
            self._numbers[name] = np.zeros(self.count, np.int64), np.zeros(self.count, bool)
        column, is_set = self._numbers[name]
        column[rows] = values
        is_set[rows] = True if valid is None else valid

    def number(self, name: str, kind: Any) -> Column:
        if name not in self._numbers:
            return pa.nulls(self.count, kind)
        column, is_set = self._numbers[name]
        if kind == pa.timestamp("us", "UTC"):
            return pa.array(column * 1000, mask=~is_set).cast(kind)
        return pa.array(column, mask=~is_set).cast(kind, safe=False)


def events(records: Records, topic: str, partition: int) -> Any:
    """What records of one partition of an internal topic say, as a ``pa.RecordBatch`` of
    :data:`SCHEMA`.

    :param topic: :data:`OFFSETS_TOPIC` or :data:`SHARE_STATE_TOPIC`
    """
    key = records.key
    if key.null_count:  # no coordinator writes such
        key = key.fill_null(b"")
    present = ~np.asarray(records.value.is_null())
    table = _Table(len(records))
    (_offsets_topic if topic == OFFSETS_TOPIC else _share_state)(table, key, records.value, present)
    whole = _finished(table, records, topic, partition)
    kept = table.event != _PASSED_OVER
    return whole if kept.all() else whole.filter(pa.array(kept))


def _finished(table: _Table, records: Records, topic: str, partition: int) -> Any:
    count, numbers, columns = table.count, table.number, table.columns
    micros = pa.timestamp("us", "UTC")
    table.put("timestamp", np.arange(count), records.timestamp_ms)
    group_types = pa.array(table.group_type, mask=table.group_type == _UNKNOWN)
    return pa.RecordBatch.from_pydict(
        {
            "event": pa.array(_EVENTS).take(pa.array(np.maximum(table.event, 0))),
            "group_id": text(columns["group_id"]),
            "group_type": pa.array(_TYPES).take(group_types),
            "member_id": text(columns["member_id"])
            if "member_id" in columns
            else pa.nulls(count, pa.string()),
            "topic": text(columns["topic"]) if "topic" in columns else pa.nulls(count, pa.string()),
            "topic_id": columns.get("topic_id", pa.nulls(count, pa.binary())),
            "partition": numbers("partition", pa.int32()),
            "offset": numbers("offset", pa.int64()),
            "leader_epoch": numbers("leader_epoch", pa.int32()),
            "delivery_complete_count": numbers("delivery_complete_count", pa.int32()),
            "members": numbers("members", pa.int32()),
            "epoch": numbers("epoch", pa.int32()),
            "commit_timestamp": numbers("commit_timestamp", micros),
            "timestamp": numbers("timestamp", micros),
            "record_type": numbers("record_type", pa.int32()),
            "version": numbers("version", pa.int32()),
            "log_topic": pa.repeat(topic, count),
            "log_partition": pa.repeat(pa.scalar(partition, pa.int32()), count),
            "log_offset": pa.array(records.offset),
        }
    )


def _offsets_topic(table: _Table, key: Column, value: Column, present: Any) -> None:
    everything = np.arange(table.count)
    fields = Fields(key, everything)
    kind = fields.number(2)
    kind = np.where(fields.whole & (kind >= 0) & (kind <= _HIGHEST_TYPE), kind, _UNKNOWN)
    group = fields.string()
    is_commit, is_member = np.isin(kind, _COMMITS), np.isin(kind, tuple(_MEMBER_TYPES))
    second = fields.only(is_commit | is_member).string()
    start: Numbers = np.zeros(table.count, np.int64)
    length: Numbers = np.full(table.count, -1)
    start[is_commit | is_member], length[is_commit | is_member] = second
    table.columns["group_id"], topic, member = fields.gather(
        group, (start, np.where(is_commit, length, -1)), (start, np.where(is_member, length, -1))
    )
    table.columns |= {"topic": topic, "member_id": member}
    table.put("record_type", everything, kind, kind != _UNKNOWN)
    for code, place in (*_GROUP_TYPES.items(), *_MEMBER_TYPES.items()):
        table.group_type[kind == code] = place
    table.event[np.isin(kind, _KNOWN_BESIDES)] = _PASSED_OVER

    after_topic = Fields(key, everything[is_commit])
    after_topic.skip(2)
    after_topic.string()
    after_topic.string()
    table.put("partition", everything[is_commit], after_topic.number(4), after_topic.whole)
    commits = everything[is_commit][after_topic.ended()]
    table.event[commits] = _CODES[COMMIT_DELETED]
    _commits(table, value, commits[present[commits]])

    rows = everything[is_member & fields.whole]
    table.event[rows] = np.where(present[rows], _CODES[MEMBER], _CODES[MEMBER_LEFT])
    for code in _GROUP_TYPES:
        rows = everything[(kind == code) & fields.ended()]
        table.event[rows] = _CODES[GROUP_DELETED]
        (_classic_groups if code == _CLASSIC_GROUP else _group_epochs)(
            table, value, rows[present[rows]]
        )


def _versions(
    table: _Table, fields: Fields, rows: Numbers, highest: int
) -> list[tuple[int, Fields, Numbers]]:
    """Values by the version that they begin with: (version, their fields, their rows). Until read,
    they are not.
    """
    table.event[rows] = _CODES[UNREADABLE]
    version = fields.number(2)
    table.put("version", rows, version, fields.whole)
    chosen = [(number, fields.whole & (version == number)) for number in range(highest + 1)]
    return [(number, fields.only(which), rows[which]) for number, which in chosen if which.any()]


def _commits(table: _Table, value: Column, rows: Numbers) -> None:
    for version, fields, at in _versions(table, Fields(value, rows), rows, _LAST_COMMIT_VERSION):
        offset = fields.number(8)
        if version >= 3:
            epoch = fields.number(4)
            table.put("leader_epoch", at, epoch, epoch >= 0)
        fields.string(compact=version >= 4)
        committed_ms = fields.number(8)
        if version == 1:
            fields.number(8)  # when the offset expires
        complete = fields.whole if version >= 4 else fields.ended()
        table.put("offset", at, offset, complete)
        table.put("commit_timestamp", at, committed_ms, complete & (committed_ms >= 0))
        table.event[at[complete]] = _CODES[COMMIT]


def _classic_groups(table: _Table, value: Column, rows: Numbers) -> None:
    for version, fields, at in _versions(table, Fields(value, rows), rows, _LAST_CLASSIC_VERSION):
        compact = version >= 4
        fields.string(compact=compact)  # protocol type
        generation = fields.number(4)
        fields.string(compact=compact)  # protocol
        fields.string(compact=compact)  # leader
        if version >= 2:
            fields.number(8)
        members = fields.unsigned() - 1 if compact else fields.number(4)
        table.put("epoch", at, generation, fields.whole)
        table.put("members", at, members, fields.whole)
        table.event[at[fields.whole]] = _CODES[GROUP]


def _group_epochs(table: _Table, value: Column, rows: Numbers) -> None:
    for _, fields, at in _versions(table, Fields(value, rows), rows, 0):
        table.put("epoch", at, fields.number(4), fields.whole)
        table.event[at[fields.whole]] = _CODES[GROUP]


def _share_state(table: _Table, key: Column, value: Column, present: Any) -> None:
    everything = np.arange(table.count)
    fields = Fields(key, everything)
    kind = fields.number(2)
    group = fields.string()
    topic_id = fields.skip(_UUID_BYTES), np.where(fields.whole, _UUID_BYTES, -1)
    partition = fields.number(4)
    known = fields.ended() & ((kind == SHARE_SNAPSHOT) | (kind == _UPDATE))
    table.columns["group_id"], table.columns["topic_id"] = fields.gather(group, topic_id)
    table.put("record_type", everything, kind, fields.whole)
    table.put("partition", everything, partition, known)
    table.group_type[known] = _TYPES.index("share")
    table.event[known & ~present] = _CODES[SHARE_STATE_DELETED]
    for code in (SHARE_SNAPSHOT, _UPDATE):
        rows = everything[known & present & (kind == code)]
        for _, values, at in _versions(table, Fields(value, rows), rows, 0):
            _share_values(table, values, at, snapshot=code == SHARE_SNAPSHOT)


def _share_values(table: _Table, fields: Fields, rows: Numbers, *, snapshot: bool) -> None:
    fields.number(4)  # snapshot epoch
    epoch = fields.number(4)
    leader_epoch = fields.number(4) if snapshot else epoch
    start_offset = fields.number(8)
    if snapshot:
        fields.skip(16)  # when it was made and written
    fields.skip((fields.unsigned() - 1) * _STATE_BATCH_BYTES)
    count: Numbers = np.full(len(rows), _UNKNOWN)
    tagged = np.flatnonzero(fields.unsigned() == 1)  # the one tag that there is
    tail = fields.only(np.isin(np.arange(len(rows)), tagged))
    tag, size = tail.unsigned(), tail.unsigned()
    counted = tail.number(4)
    count[tagged] = np.where((tag == 0) & (size == 4), counted, _UNKNOWN)
    complete = fields.ended()
    complete[tagged] = tail.ended()
    table.put("leader_epoch", rows, leader_epoch, complete)
    table.put("offset", rows, start_offset, complete & (start_offset >= 0))
    table.put("delivery_complete_count", rows, count, complete & (count >= 0))
    table.event[rows[complete]] = _CODES[SHARE_STATE]
