"""Record batches of magic 2 opened into columns: numpy for numbers, Arrow for bytes, no Python
object per record.

The format is Kafka's (KIP-98), as in :mod:`headrace.protocol.record_batch`. A record says only how
long it is, so that the next one's place is known from this one's: places are found for all batches
at once where they are many (the first record of each, then the second of each …), and one after the
other where they are few and long. All other fields are decoded for all records at a time. Keys and
values are copied once, from the batches into their columns, by Arrow.

See ``docs/decisions/0007-columns-from-record-batches.md`` for what that is worth.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.protocol.record_batch import (
    CODEC_MASK,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    CorruptBatch,
    header_at,
    opened,
)

from .batches import Batches, Wanted
from .byte_fields import BadField, Bytes, Numbers, gather, text, varints

SPARK_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int"
)
"""The columns of Spark's own Kafka source, as DDL."""
SPARK_HEADERS = "headers array<struct<key: string, value: binary>>"
"""Its column that ``includeHeaders`` adds."""

_OPENED_BYTES = 32 * 1024 * 1024
_MOST_BODY_BYTES = 2**31 - 1
_MANY_BATCHES = 100
"""From so many batches on, taking a step in all of them at once is faster than a loop over their
records (measured).
"""
_MOST_MICROSECONDS_AS_MS = (2**63 - 1) // 1000

HEADERS_TYPE = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))


@dataclass(frozen=True, slots=True)
class Records:
    """Records as columns, in the order of their batches.

    :param offset: and ``timestamp_ms``, ``timestamp_type`` (0 create, 1 log append): numpy arrays
        of int64
    :param key: and ``value``: ``pa.BinaryArray``
    :param headers: of :data:`HEADERS_TYPE`, null for a record without any; None when they were not
        asked for
    """

    offset: Numbers
    timestamp_ms: Numbers
    timestamp_type: Numbers
    key: Any
    value: Any
    headers: Any = None

    def __len__(self) -> int:
        return len(self.offset)

    def spark_batch(self, topic: str, partition: int) -> Any:
        """A ``pa.RecordBatch`` with the columns of Spark's Kafka source, headers included if they
        were asked for.
        """
        count = len(self)
        # Spark has microseconds, which end in the year 294247; a producer may write any 64-bit
        # number of milliseconds.
        limited = np.clip(self.timestamp_ms, -_MOST_MICROSECONDS_AS_MS, _MOST_MICROSECONDS_AS_MS)
        columns = {
            "key": self.key,
            "value": self.value,
            "topic": pa.repeat(topic, count),
            "partition": pa.repeat(pa.scalar(partition, pa.int32()), count),
            "offset": pa.array(self.offset),
            "timestamp": pa.array(limited * 1000).cast(pa.timestamp("us", "UTC")),
            "timestampType": pa.array(self.timestamp_type.astype(np.int32)),
        }
        if self.headers is not None:
            columns["headers"] = self.headers
        return pa.RecordBatch.from_pydict(columns)


def decode(
    batches: Batches,
    chosen: Any = None,
    wanted: Wanted | None = None,
    *,
    headers: bool = False,
    most_bytes: int = _OPENED_BYTES,
) -> Iterator[Records]:
    """The records of batches, in pieces whose opened bytes stay near ``most_bytes`` (one batch may
    be larger).

    :param chosen: a boolean per batch, as of :meth:`Batches.with_data`; None for all of them
    :param wanted: records of other offsets are left out; None for all
    :raises CorruptBatch: their records cannot be read
    """
    if chosen is None:
        chosen = np.ones(len(batches), bool)
    heads = batches.heads
    if wanted is not None:
        first = heads["base_offset"].astype(np.int64)
        chosen = chosen & wanted.overlap(first, first + heads["last_offset_delta"])
    indexes = np.flatnonzero(chosen & (heads["record_count"] > 0))
    try:
        for body, starts, ends, at in _bodies(batches, indexes, most_bytes):
            records = _decode(body, starts, ends, heads[at], wanted, headers)
            if len(records):
                yield records
    except (BadField, IndexError, OverflowError, pa.ArrowInvalid) as error:
        raise CorruptBatch(f"records that cannot be read: {error}") from error


def _bodies(
    batches: Batches, indexes: Any, most_bytes: int
) -> Iterator[tuple[Bytes, Numbers, Numbers, Any]]:
    """Opened records: (bytes, where in them each batch starts and ends, which batches those
    are)."""
    heads = batches.heads
    if not (heads["attributes"][indexes] & CODEC_MASK).any():
        if len(indexes):
            starts = np.asarray(batches.positions, np.int64)[indexes]
            ends = starts + heads["batch_length"][indexes] + LENGTH_OVERHEAD
            yield batches.data, starts + HEADER_BYTES, ends, indexes
        return
    pieces: list[bytes] = []
    size_bytes = begin = 0
    for done, index in enumerate(indexes.tolist(), 1):
        batch = batches.batch(index)
        pieces.append(opened(batch, header_at(batch)))
        size_bytes += len(pieces[-1])
        if size_bytes >= most_bytes or done == len(indexes):
            ends = np.cumsum(np.fromiter(map(len, pieces), np.int64, len(pieces)))
            starts = np.concatenate((np.zeros(1, np.int64), ends[:-1]))
            yield (
                pieces[0] if len(pieces) == 1 else b"".join(pieces),
                starts,
                ends,
                indexes[begin:done],
            )
            pieces, size_bytes, begin = [], 0, done


def _decode(
    body: Bytes, starts: Numbers, ends: Numbers, heads: Any, wanted: Wanted | None, headers: bool
) -> Records:
    if len(body) > _MOST_BODY_BYTES:
        raise CorruptBatch(f"{len(body)} bytes of records in one piece")
    data = np.frombuffer(body, np.uint8)
    counts = heads["record_count"].astype(np.int64)
    places = _places(body, data, starts, ends, counts)
    length, at = varints(data, places)
    record_ends = at + length
    timestamp_delta, at = varints(data, at + 1)
    offset_delta, at = varints(data, at)
    key_length, key_starts = varints(data, at)
    key_ends = key_starts + np.maximum(key_length, 0)
    value_length, value_starts = varints(data, key_ends)
    value_ends = value_starts + np.maximum(value_length, 0)
    header_counts, header_starts = varints(data, value_ends)
    plain = header_counts == 0
    if (header_starts > record_ends).any() or (header_starts[plain] != record_ends[plain]).any():
        raise CorruptBatch("a record is not as long as it says")

    offset = np.repeat(heads["base_offset"].astype(np.int64), counts) + offset_delta
    log_append = (heads["attributes"] & LOG_APPEND_TIME_BIT) != 0
    timestamp_ms = np.repeat(heads["base_timestamp"].astype(np.int64), counts) + timestamp_delta
    timestamp_type: Numbers = np.repeat(log_append.astype(np.int64), counts)
    if log_append.any():
        appended: Numbers = np.repeat(heads["max_timestamp"].astype(np.int64), counts)
        timestamp_ms = np.where(timestamp_type == 1, appended, timestamp_ms)

    bounds = np.stack((key_starts, key_ends, value_starts, value_ends), axis=1)
    if wanted is not None:
        keep = wanted.overlap(offset, offset)
        if not keep.all():
            offset, timestamp_ms, timestamp_type = (
                offset[keep],
                timestamp_ms[keep],
                timestamp_type[keep],
            )
            bounds, key_length, value_length = bounds[keep], key_length[keep], value_length[keep]
            header_counts, header_starts, record_ends = (
                header_counts[keep],
                header_starts[keep],
                record_ends[keep],
            )
    key, value = gather(body, bounds, key_length, value_length)
    columns = _headers(body, data, header_counts, header_starts, record_ends) if headers else None
    return Records(offset, timestamp_ms, timestamp_type, key, value, columns)


def _places(body: Bytes, data: Any, starts: Numbers, ends: Numbers, counts: Numbers) -> Numbers:
    """Where each record begins, at its length."""
    most = int(counts.max())
    if len(counts) >= _MANY_BATCHES and counts.sum() >= _MANY_BATCHES * most:
        return _places_in_step(data, starts, ends, counts)
    return _places_one_by_one(body, starts.tolist(), ends.tolist(), counts.tolist())


def _places_in_step(data: Any, starts: Numbers, ends: Numbers, counts: Numbers) -> Numbers:
    slots = np.cumsum(counts) - counts
    places: Numbers = np.empty(int(counts.sum()), np.int64)
    at, step = starts, 0
    while len(at):
        places[slots + step] = at
        length, at = varints(data, at)
        at = at + length
        step += 1
        going = counts > step
        if (length < 0).any() or (at > ends).any() or (at[~going] != ends[~going]).any():
            raise CorruptBatch("a record runs past the end of its batch")
        if not going.all():
            at, slots, ends, counts = at[going], slots[going], ends[going], counts[going]
    return places


def _places_one_by_one(
    body: Bytes, starts: list[int], ends: list[int], counts: list[int]
) -> Numbers:
    places: list[int] = []
    add = places.append
    for start, end, count in zip(starts, ends, counts, strict=True):
        at = start
        for _ in range(count):
            add(at)
            length = body[at]
            at += 1
            if length > 0x7F:
                length, shift = length & 0x7F, 7
                while True:
                    byte = body[at]
                    at += 1
                    length |= (byte & 0x7F) << shift
                    if byte < 0x80:
                        break
                    shift += 7
            at += length >> 1
        if at != end:
            raise CorruptBatch("records do not fill their batch")
    return np.array(places, np.int64)


def _headers(body: Bytes, data: Any, counts: Numbers, starts: Numbers, ends: Numbers) -> Any:
    total = int(np.maximum(counts, 0).sum())
    if not total:
        return pa.nulls(len(counts), HEADERS_TYPE)
    if (counts < 0).any() or total > len(body):
        raise CorruptBatch("a record has an impossible number of headers")
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
    bounds: Numbers = np.empty((total, 4), np.int64)
    value_lengths: Numbers = np.empty(total, np.int64)
    rows, at, step = np.flatnonzero(counts > 0), starts[counts > 0], 0
    while len(rows):
        slots = offsets[rows] + step
        key_length, key_starts = varints(data, at)
        value_length, value_starts = varints(data, key_starts + np.maximum(key_length, 0))
        at = value_starts + np.maximum(value_length, 0)
        bounds[slots] = np.stack(
            (key_starts, key_starts + np.maximum(key_length, 0), value_starts, at), axis=1
        )
        value_lengths[slots] = value_length
        step += 1
        going = counts[rows] > step
        if (at > ends[rows]).any() or (at[~going] != ends[rows[~going]]).any():
            raise CorruptBatch("a record's headers are not as long as the record says")
        rows, at = rows[going], at[going]
    keys, values = gather(body, bounds, np.zeros(total, np.int64), value_lengths)
    items = pa.StructArray.from_arrays([text(keys), values], fields=list(HEADERS_TYPE.value_type))
    nulls = pa.array(counts == 0)
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), items, mask=nulls).cast(
        HEADERS_TYPE
    )
