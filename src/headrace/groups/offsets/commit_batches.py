"""Decoder for whole batches of offset commits.

A start reads every commit that compaction has left, and nearly all of them have the same layout but
for the length of the key: a topic id, no metadata, no timestamp of their own, no headers. So one
:class:`struct.Struct` reads frame, key and value of a record. This takes 40 % of the time of
reading the records first (:func:`headrace.protocol.record_batch.record_lists`) and decoding each
(:func:`headrace.groups.record_schemas.decode`), which is how all other batches are read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from headrace.groups.record_schemas import decode, offset_key
from headrace.groups.records import CommittedOffset, OffsetCommit
from headrace.outcome import make
from headrace.protocol.coordinator_records import NO_METADATA, TOPIC_ID_TAG
from headrace.protocol.primitives import UUID_BYTES, i16, read_varint, varint
from headrace.protocol.record_batch import (
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_BYTES,
    NO_TIMESTAMP,
    BatchHeader,
)

_NAMES_KEPT = 16_384
"""The limit of remembered (group id, topic) pairs of 200 bytes."""
_LAYOUTS_KEPT = _TOPIC_IDS_KEPT = 4096

_HEAD_BYTES = 4
"""Length of the record in two bytes, attributes, timestamp delta."""
_PARTITION_BYTES = 4
_VALUE_BYTES = 42
_VALUE_START = varint(_VALUE_BYTES) + i16(4)
"""Length of the value, version."""
_TAIL = struct.Struct(f">3s{UUID_BYTES}sB")
"""Tags up to the topic id, topic id, number of headers."""
V = TypeVar("V")
_Unpack = Callable[[bytes, int], tuple[Any, ...]]


class _Layout(NamedTuple):
    """The layout of records of one length.

    :param unpack: returns the offset delta of one byte, the key without its partition but with its
        length, the partition, the start of the value, offset, leader epoch, length of the metadata,
        commit timestamp, and tail
    :param unpack_wide: the same for an offset delta of two bytes
    """

    unpack: _Unpack
    unpack_wide: _Unpack
    size_bytes: int


class _Cache(dict[bytes, V]):
    """What bytes stand for, made of them when they come first; at most so many values.

    A dictionary, as a cached function takes twice as long for each record.
    """

    def __init__(self, make_value: Callable[[bytes], V], limit: int) -> None:
        self._make_value, self._limit = make_value, limit

    def __missing__(self, data: bytes) -> V:
        value = self._make_value(data)
        if len(self) >= self._limit:
            self.clear()
        self[data] = value
        return value


def _layout(head: bytes) -> _Layout:
    """Return the layout of records with this head."""
    length, length_bytes = read_varint(head, 0)
    if length_bytes != 2 or head[length_bytes:] != b"\0\0":
        raise ValueError("not a usual head")
    size_bytes = length_bytes + length
    rest = f"si{len(_VALUE_START)}sqiBq{_TAIL.size}s"
    key_bytes = size_bytes - struct.calcsize(f">{_HEAD_BYTES}xB0{rest}")
    if key_bytes < 2:
        raise ValueError("too short for a commit")
    return _Layout(
        struct.Struct(f">{_HEAD_BYTES}xB{key_bytes}{rest}").unpack_from,
        struct.Struct(f">{_HEAD_BYTES}xH{key_bytes - 1}{rest}").unpack_from,
        size_bytes,
    )


def _group_and_topic(start_of_key: bytes) -> tuple[str, str]:
    """Return the names in a key without its partition but with its length."""
    key_bytes, position = read_varint(start_of_key, 0)
    key = start_of_key[position:] + bytes(_PARTITION_BYTES)
    commit = decode(key, None)
    if not isinstance(commit, OffsetCommit) or len(key) != key_bytes:
        raise ValueError("not the key of a commit")
    names = commit.group_id, commit.topic
    if key != offset_key(*names, 0):  # there are bytes after the topic, or it is an old key
        raise ValueError("not the usual key of a commit")
    return names


def _topic_id(tail: bytes) -> UUID:
    """Return the topic id in the tail of a record."""
    tags, id_bytes, headers = _TAIL.unpack(tail)
    if tags != TOPIC_ID_TAG or headers:
        raise ValueError("not a usual tail")
    return UUID(bytes=id_bytes)


class CommitBatches:
    """Decodes batches of offset commits. It remembers layouts and names, so it should not outlive a
    start.
    """

    def __init__(self) -> None:
        self._layouts = _Cache(_layout, _LAYOUTS_KEPT)
        self._names = _Cache(_group_and_topic, _NAMES_KEPT)
        self._topic_ids = _Cache(_topic_id, _TOPIC_IDS_KEPT)

    def decode(
        self, batch: memoryview, header: BatchHeader
    ) -> list[tuple[int, OffsetCommit]] | None:
        """Return offset and record of each record of a batch; None if the batch is compressed or
        has a record of another layout.
        """
        if header.attributes & (CODEC_MASK | CONTROL_BIT):
            return None
        layouts, names, topic_ids = self._layouts, self._names, self._topic_ids
        data = bytes(batch[HEADER_BYTES : header.size_bytes])
        base_offset = header.base_offset
        commits: list[tuple[int, OffsetCommit]] = []
        position = 0
        try:
            for _ in range(header.record_count):
                unpack, unpack_wide, size_bytes = layouts[data[position : position + _HEAD_BYTES]]
                delta, key, partition, start, offset, epoch, metadata, commit_ms, tail = unpack(
                    data, position
                )
                if delta >= 0x80:
                    delta, key, *_ = unpack_wide(data, position)
                    if delta & 0x80:  # a third byte
                        return None
                    delta = delta >> 8 & 0x7F | (delta & 0x7F) << 7
                if delta & 1 or start != _VALUE_START or metadata != NO_METADATA:
                    return None
                group_id, topic = names[key]
                fields = offset, epoch, "", commit_ms, NO_TIMESTAMP, topic_ids[tail]
                commit = group_id, topic, partition, make(CommittedOffset, fields)
                commits.append((base_offset + (delta >> 1), make(OffsetCommit, commit)))
                position += size_bytes
        except (IndexError, ValueError, struct.error):
            return None
        return commits if position == len(data) else None
