"""Decoding of record batches of magic 2 as columns, without a Python object per record.

The format is Kafka's (KIP-98), as in :mod:`headrace.protocol.record_batch`. A record begins with
its length, so the place of a record follows from the record before it. Places are found for all
batches at once where batches are many and short (the first record of each, then the second of each
…), and record by record where they are few and long. All other fields but headers are decoded for
all records at once. Arrow copies keys and values once, from the batches into their columns.

``docs/decisions/0007-columns-from-record-batches.md`` has the measurements.
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
    read_headers,
)

from .batches import Batches, WantedOffsets
from .byte_fields import Bytes, Numbers, gather, varints

SPARK_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int"
)
"""The columns of Spark's own Kafka source, as DDL."""
SPARK_HEADERS = "headers array<struct<key: string, value: binary>>"
"""The column that the option ``includeHeaders`` adds, as DDL."""

_ARROW_TYPES = {
    "string": pa.string(),
    "binary": pa.binary(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
}
HEADERS_TYPE = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

_OPENED_BYTES = 32 * 1024 * 1024
_MOST_BODY_BYTES = 2**31 - 1
_MANY_BATCHES = 100
"""Number of batches from which decoding all of them in step is faster than a loop over their
records (measured)."""
_LEAST_RECORD_BYTES = 7
"""The size of a record without anything: its length, and six fields."""
_MOST_LENGTH_BITS = 28
"""Bits before the last byte of the longest varint that is a length."""
_MOST_MICROSECONDS_AS_MS = (2**63 - 1) // 1000


def arrow_schema(columns: str) -> pa.Schema:
    """Return the Arrow schema of columns of simple types, given as DDL."""
    fields = (column.split() for column in columns.split(", "))
    return pa.schema([(name, _ARROW_TYPES[type_name]) for name, type_name in fields])


@dataclass(frozen=True, slots=True)
class Records:
    """Records as columns, in the order of their batches.

    :param offset: a numpy array of int64, as are ``timestamp_ms`` and ``timestamp_type``
    :param timestamp_ms: milliseconds since 1970
    :param timestamp_type: 0 for create time, 1 for log append time
    :param key: a ``pa.BinaryArray``, as is ``value``
    :param headers: an array of :data:`HEADERS_TYPE`, null for a record without headers; None if
        headers were not asked for
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
        """Return a ``pa.RecordBatch`` with the columns of Spark's Kafka source."""
        count = len(self)
        # Spark counts microseconds, which end in the year 294247. A producer may write any 64-bit
        # number of milliseconds.
        limited_ms = np.clip(self.timestamp_ms, -_MOST_MICROSECONDS_AS_MS, _MOST_MICROSECONDS_AS_MS)
        columns = {
            "key": self.key,
            "value": self.value,
            "topic": pa.repeat(topic, count),
            "partition": pa.repeat(pa.scalar(partition, pa.int32()), count),
            "offset": pa.array(self.offset),
            "timestamp": pa.array(limited_ms * 1000).cast(pa.timestamp("us", "UTC")),
            "timestampType": pa.array(self.timestamp_type.astype(np.int32)),
        }
        if self.headers is not None:
            columns["headers"] = self.headers
        return pa.RecordBatch.from_pydict(columns)


def decode(
    batches: Batches,
    chosen: Any = None,
    wanted: WantedOffsets | None = None,
    *,
    headers: bool = False,
    most_bytes: int = _OPENED_BYTES,
) -> Iterator[Records]:
    """Yield the records of batches in pieces.

    :param chosen: a boolean for each batch, as :meth:`Batches.with_data` returns; None for all
    :param wanted: offsets to keep; None for all
    :param headers: decode record headers
    :param most_bytes: size of a piece after decompression, approximately; one batch may be larger
    :raises CorruptBatch: records cannot be decoded
    """
    if chosen is None:
        chosen = np.ones(len(batches), bool)
    heads = batches.heads
    if wanted is not None:
        first_offsets = heads["base_offset"].astype(np.int64)
        chosen = chosen & wanted.overlap(first_offsets, first_offsets + heads["last_offset_delta"])
    indexes = np.flatnonzero(chosen & (heads["record_count"] > 0))
    try:
        for body in _bodies(batches, indexes, most_bytes):
            records = _decode(body, wanted, headers)
            if len(records):
                yield records
    except CorruptBatch:
        raise
    except (ValueError, IndexError, OverflowError) as error:
        raise CorruptBatch(f"records that cannot be decoded: {error}") from error


@dataclass(frozen=True, slots=True)
class _Body:
    """Decompressed records of several batches.

    :param starts: where in ``data`` the records of each batch start
    :param ends: where they end
    :param heads: the headers of these batches
    """

    data: Bytes
    starts: Numbers
    ends: Numbers
    heads: Any


def _bodies(batches: Batches, indexes: Any, most_bytes: int) -> Iterator[_Body]:
    heads = batches.heads
    if not (heads["attributes"][indexes] & CODEC_MASK).any():
        if len(indexes):
            starts = np.asarray(batches.positions, np.int64)[indexes]
            ends = starts + heads["batch_length"][indexes] + LENGTH_OVERHEAD
            yield _Body(batches.data, starts + HEADER_BYTES, ends, heads[indexes])
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
            data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            yield _Body(data, starts, ends, heads[indexes[begin:done]])
            pieces, size_bytes, begin = [], 0, done


@dataclass(slots=True)
class _Fields:
    """Fields of records, an array each.

    :param bounds: a row per record: start and end of its key, start and end of its value
    :param key_length: -1 for null, as is ``value_length``
    :param headers_start: place of the number of headers
    :param end: place behind the record
    """

    offset: Numbers
    timestamp_ms: Numbers
    timestamp_type: Numbers
    bounds: Numbers
    key_length: Numbers
    value_length: Numbers
    headers_start: Numbers
    end: Numbers

    def only(self, kept: Any) -> _Fields:
        """Return some of the records.

        :param kept: a boolean for each record
        """
        return _Fields(*(getattr(self, name)[kept] for name in self.__slots__))


def _decode(body: _Body, wanted: WantedOffsets | None, headers: bool) -> Records:
    if len(body.data) > _MOST_BODY_BYTES:
        raise CorruptBatch(f"{len(body.data)} bytes of records in one piece")
    data = np.frombuffer(body.data, np.uint8)
    fields = _fields(body, data)
    if wanted is not None:
        kept = wanted.overlap(fields.offset, fields.offset)
        if not kept.all():
            fields = fields.only(kept)
    key, value = gather(body.data, fields.bounds, fields.key_length, fields.value_length)
    return Records(
        fields.offset,
        fields.timestamp_ms,
        fields.timestamp_type,
        key,
        value,
        _headers(body.data, fields) if headers else None,
    )


def _fields(body: _Body, data: Any) -> _Fields:
    heads = body.heads
    counts = heads["record_count"].astype(np.int64)
    if (counts * _LEAST_RECORD_BYTES > body.ends - body.starts).any():
        raise CorruptBatch("a batch claims more records than fit into it")
    length, at = varints(data, _places(body, data, counts))
    end = at + length
    timestamp_delta, at = varints(data, at + 1)  # behind the attributes
    offset_delta, at = varints(data, at)
    key_length, key_start = varints(data, at)
    key_end = key_start + np.maximum(key_length, 0)
    value_length, value_start = varints(data, key_end)
    value_end = value_start + np.maximum(value_length, 0)
    header_count, after_count = varints(data, value_end)
    if (after_count > end).any() or (after_count != end)[header_count == 0].any():
        raise CorruptBatch("a record does not have the length that it states")

    base_offset: Numbers = np.repeat(heads["base_offset"].astype(np.int64), counts)
    base_timestamp_ms: Numbers = np.repeat(heads["base_timestamp"].astype(np.int64), counts)
    timestamp_ms = base_timestamp_ms + timestamp_delta
    is_log_append = (heads["attributes"] & LOG_APPEND_TIME_BIT) != 0
    timestamp_type: Numbers = np.repeat(is_log_append.astype(np.int64), counts)
    if is_log_append.any():
        append_time_ms: Numbers = np.repeat(heads["max_timestamp"].astype(np.int64), counts)
        timestamp_ms = np.where(timestamp_type == 1, append_time_ms, timestamp_ms)
    return _Fields(
        offset=base_offset + offset_delta,
        timestamp_ms=timestamp_ms,
        timestamp_type=timestamp_type,
        bounds=np.stack((key_start, key_end, value_start, value_end), axis=1),
        key_length=key_length,
        value_length=value_length,
        headers_start=value_end,
        end=end,
    )


def _places(body: _Body, data: Any, counts: Numbers) -> Numbers:
    """Return the place of each record; its length is its first field."""
    most = int(counts.max())
    if len(counts) >= _MANY_BATCHES and counts.sum() >= _MANY_BATCHES * most:
        return _places_in_step(data, body.starts, body.ends, counts)
    return _places_one_by_one(body.data, body.starts.tolist(), body.ends.tolist(), counts.tolist())


def _places_in_step(data: Any, starts: Numbers, ends: Numbers, counts: Numbers) -> Numbers:
    slots = np.cumsum(counts) - counts
    places: Numbers = np.empty(int(counts.sum()), np.int64)
    at = starts
    step = 0
    while len(at):
        places[slots + step] = at
        length, at = varints(data, at)
        at = at + length
        step += 1
        unfinished = counts > step
        runs_past_end = (length < 0).any() or (at > ends).any()
        if runs_past_end or (at != ends)[~unfinished].any():
            raise CorruptBatch("a record runs past the end of its batch")
        if not unfinished.all():
            at, slots = at[unfinished], slots[unfinished]
            ends, counts = ends[unfinished], counts[unfinished]
    return places


def _places_one_by_one(
    data: Bytes, starts: list[int], ends: list[int], counts: list[int]
) -> Numbers:
    places: list[int] = []
    add = places.append
    for start, end, count in zip(starts, ends, counts, strict=True):
        at = start
        for _ in range(count):
            add(at)
            # The varint is decoded here: a call for each record would double the time.
            length = data[at]
            at += 1
            if length > 0x7F:
                length, shift = length & 0x7F, 7
                while True:
                    byte = data[at]
                    at += 1
                    length |= (byte & 0x7F) << shift
                    if byte < 0x80:
                        break
                    shift += 7
                    if shift > _MOST_LENGTH_BITS:
                        raise CorruptBatch("a record has a length of more than five bytes")
            at += length >> 1  # lengths are zigzag varints, and not negative
        if at != end:
            raise CorruptBatch("records do not fill their batch")
    return np.array(places, np.int64)


def _headers(body: Bytes, fields: _Fields) -> Any:
    """Return the headers of each record, which are read one by one: mostly they are those of the
    record before.
    """
    data = bytes(body)
    headers = []
    starts, ends = fields.headers_start.tolist(), fields.end.tolist()
    of_record, header_bytes = None, b""
    for start, end in zip(starts, ends, strict=True):
        if header_bytes != data[start:end]:
            header_bytes = data[start:end]
            read, after = read_headers(header_bytes, 0)
            if after != len(header_bytes):
                raise CorruptBatch("the headers of a record do not have the length that it states")
            of_record = read or None
        headers.append(of_record)
    return pa.array(headers, HEADERS_TYPE)
