"""Decoding of record batches of magic 2 as columns, without a Python object per record.

The format is Kafka's (KIP-98), as in :mod:`headrace.protocol.record_batch`. A record begins with
its length, so the place of a record follows from the record before it. All fields but this length
and headers are decoded for all records at once. Arrow copies keys and values once, from the batches
into their columns.

``docs/decisions/0007-columns-from-record-batches.md`` has the measurements.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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

from .batches import Batches, Bytes, Numbers, WantedOffsets

SPARK_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int"
)
"""The columns of Spark's own Kafka source, as DDL."""

_ARROW_TYPES = {
    "string": pa.string(),
    "binary": pa.binary(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
}
HEADERS_TYPE = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

_MOST_VARINT_BITS = 63
_OPENED_BYTES = 32 * 1024 * 1024
_MOST_BODY_BYTES = 2**31 - 1
_LEAST_RECORD_BYTES = 7
"""The size of a record without anything: its length, and six fields."""
_MOST_LENGTH_BITS = 28
"""Bits before the last byte of the longest varint that is a length."""
MOST_MICROSECONDS_AS_MS = (2**63 - 1) // 1000


def spark_schema(*own_columns: str, headers: bool) -> str:
    """Return the columns of a source, as DDL.

    :param headers: with the column that the option ``includeHeaders`` adds
    """
    added = ("headers array<struct<key: string, value: binary>>",) if headers else ()
    return ", ".join((SPARK_SCHEMA, *added, *own_columns))


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
        limited_ms = np.clip(self.timestamp_ms, -MOST_MICROSECONDS_AS_MS, MOST_MICROSECONDS_AS_MS)
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
    aborted: Sequence[tuple[int, int]] = (),
    kept_offsets: WantedOffsets | None = None,
    *,
    headers: bool = False,
    most_bytes: int = _OPENED_BYTES,
) -> Iterator[Records]:
    """Yield the records of batches in pieces.

    :param aborted: as :meth:`Batches.with_data` takes it, which chooses the batches
    :param kept_offsets: offsets to keep; None for all
    :param headers: decode record headers
    :param most_bytes: size of a piece after decompression, approximately; one batch may be larger
    :raises CorruptBatch: records cannot be decoded
    """
    chosen, heads = batches.with_data(aborted), batches.heads
    if kept_offsets is not None:
        first_offsets = heads["base_offset"].astype(np.int64)
        last_offsets = first_offsets + heads["last_offset_delta"]
        chosen &= kept_offsets.overlap(first_offsets, last_offsets)
    indexes = np.flatnonzero(chosen & (heads["record_count"] > 0))
    try:
        for body in _bodies(batches, indexes, most_bytes):
            records = _decode(body, kept_offsets, headers)
            del body  # the columns are copies
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
            # Nothing here holds the bytes while the caller works.
            yield _Body(_taken(pieces), starts, ends, heads[indexes[begin:done]])
            size_bytes, begin = 0, done


def _taken(pieces: list[bytes]) -> bytes:
    """Return the pieces as one, and empty the list."""
    data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    pieces.clear()
    return data


def _decode(body: _Body, kept_offsets: WantedOffsets | None, headers: bool) -> Records:
    if len(body.data) > _MOST_BODY_BYTES:
        raise CorruptBatch(f"{len(body.data)} bytes of records in one piece")
    heads = body.heads
    counts = heads["record_count"].astype(np.int64)
    if (counts * _LEAST_RECORD_BYTES > body.ends - body.starts).any():
        raise CorruptBatch("a batch claims more records than fit into it")
    data = np.frombuffer(body.data, np.uint8)
    length, at = _varints(data, _places(body, counts))
    end = at + length
    timestamp_delta, at = _varints(data, at + 1)  # behind the attributes
    offset_delta, at = _varints(data, at)
    key_length, key_start = _varints(data, at)
    key_end = key_start + np.maximum(key_length, 0)
    value_length, value_start = _varints(data, key_end)
    value_end = value_start + np.maximum(value_length, 0)
    header_count, after_count = _varints(data, value_end)
    if (after_count > end).any() or (after_count != end)[header_count == 0].any():
        raise CorruptBatch("a record does not have the length that it states")

    def of_batches(field: str) -> Numbers:
        return np.repeat(heads[field].astype(np.int64), counts)

    offset = of_batches("base_offset") + offset_delta
    timestamp_type = (of_batches("attributes") & LOG_APPEND_TIME_BIT != 0).astype(np.int64)
    timestamp_ms = of_batches("base_timestamp") + timestamp_delta
    if timestamp_type.any():
        timestamp_ms = np.where(timestamp_type, of_batches("max_timestamp"), timestamp_ms)
    bounds = np.stack((key_start, key_end, value_start, value_end), axis=1)
    visible: Any = slice(None)
    if kept_offsets is not None and not (is_wanted := kept_offsets.overlap(offset, offset)).all():
        visible = is_wanted
    key, value = _gather(body.data, bounds[visible], key_length[visible], value_length[visible])
    header_column = _headers(body.data, value_end[visible], end[visible]) if headers else None
    numbers = offset[visible], timestamp_ms[visible], timestamp_type[visible]
    return Records(*numbers, key, value, header_column)


def _places(body: _Body, counts: Numbers) -> Numbers:
    """Return the place of each record; its length is its first field."""
    data = body.data
    places: list[int] = []
    add = places.append
    bounds = zip(body.starts.tolist(), body.ends.tolist(), counts.tolist(), strict=True)
    for start, end, count in bounds:
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


def _varints(data: Any, places: Numbers) -> tuple[Numbers, Numbers]:
    """Return zigzag varints at ``places`` and the places behind them.

    :param data: a ``uint8`` array
    :raises ValueError: a varint is longer than ten bytes
    :raises IndexError: a varint runs past the end of ``data``
    """
    values = data.take(places).astype(np.int64)
    after = places + 1
    unfinished = np.flatnonzero(values > 0x7F)
    values[unfinished] &= 0x7F
    shift = 7
    while len(unfinished):
        if shift > _MOST_VARINT_BITS:
            raise ValueError("a varint is longer than ten bytes")
        following = data.take(after[unfinished]).astype(np.int64)
        after[unfinished] += 1
        values[unfinished] |= (following & 0x7F) << shift
        unfinished = unfinished[following > 0x7F]
        shift += 7
    # The shift must not extend the sign: bit 63 belongs to the number.
    return ((values >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(values & 1), after


def _gather(body: Bytes, bounds: Numbers, *lengths: Numbers) -> list[pa.Array]:
    """Copy pieces of ``body`` into binary Arrow columns, one for each of ``lengths``.

    :param bounds: a row per string: start and end of each of its pieces, ascending throughout
    :param lengths: the length of each piece, negative for null; only the sign matters
    """
    count, width = bounds.shape
    if not count:
        return [pa.array([], pa.binary()) for _ in lengths]
    flat = np.ascontiguousarray(bounds, np.int32).reshape(-1)
    # The bytes between the pieces become elements too, so that one array covers all of the body and
    # `take` copies the wanted elements.
    slices = pa.Array.from_buffers(
        pa.binary(), len(flat) - 1, [None, pa.py_buffer(flat), pa.py_buffer(body)]
    )
    columns = []
    for piece, length in enumerate(lengths):
        indexes = np.arange(2 * piece, len(flat), width, dtype=np.int32)
        is_null = length < 0
        columns.append(slices.take(pa.array(indexes, mask=is_null if is_null.any() else None)))
    return columns


def _headers(body: Bytes, starts: Numbers, ends: Numbers) -> Any:
    """Return the headers of each record, which are read one by one: mostly they are those of the
    record before.
    """
    data = bytes(body)
    headers = []
    of_record, header_bytes = None, b""
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        if header_bytes != data[start:end]:
            header_bytes = data[start:end]
            read, after = read_headers(header_bytes, 0)
            if after != len(header_bytes):
                raise CorruptBatch("the headers of a record do not have the length that it states")
            of_record = read or None
        headers.append(of_record)
    return pa.array(headers, HEADERS_TYPE)
