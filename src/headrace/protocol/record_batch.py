"""Record batches of magic 2 (KIP-98): a header of 61 bytes, then the records.

The broker stores and sends batches as bytes, and reads only their header (:func:`headers`). It
opens a batch (:func:`records`, :func:`record_spans`) to look up a timestamp, to compact a log, and
for coordinators and tools. Records are read while the batch is decompressed, within the limits of
:mod:`headrace.protocol.limits`.
:func:`build` makes the batches that the broker writes.

The CRC-32C covers everything from ``attributes`` on, so setting base offset and leader epoch does
not change it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from headrace.protocol.checksum import crc32c
from headrace.protocol.compression import (
    NONE,
    BadCompression,
    TooLargeToDecompress,
    compress,
    decompressed,
)
from headrace.protocol.file_range import FileRange
from headrace.protocol.limits import (
    MAX_OPENED_BYTES,
    MAX_OPENED_RECORD_BYTES,
    MAX_OPENED_RECORDS,
    MAX_RECORD_HEADERS,
    OPENED_ON_LOOP_BYTES,
    OPENED_ON_LOOP_RECORDS,
)
from headrace.protocol.primitives import (
    MAX_VARINT_BYTES,
    NULL_RECORD_BYTES,
    read_record_bytes,
    read_varint,
    record_bytes,
    varint,
)

HEADER = struct.Struct(">qiibIhiqqqhii")
"""Base offset, batch length, leader epoch, magic, CRC, attributes, last offset delta, base and max
timestamp, producer id and epoch, base sequence, record count."""

HEADER_BYTES = HEADER.size
LENGTH_OVERHEAD = 12
"""Bytes up to the end of the length field: a batch has ``batch_length + LENGTH_OVERHEAD`` bytes."""
CRC_START = 21
"""Position of the first byte that the CRC covers."""
_CRC_AT = CRC_START - 4

ATTRIBUTES_LOW_BYTE = CRC_START + 1
"""Position of the byte with all attribute bits in use."""

EPOCH_START, EPOCH_AND_MAGIC = 12, b"\0\0\0\0\2"
"""Position of leader epoch and magic, and their value in every batch that this broker writes.
Recovery searches for them in damaged logs.
"""

CODEC_MASK, LOG_APPEND_TIME_BIT, TRANSACTIONAL_BIT, CONTROL_BIT = 0x07, 0x08, 0x10, 0x20
DELETE_HORIZON_BIT = 0x40
"""The base timestamp is the delete horizon of tombstones or the marker (KIP-534)."""

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1

HEADERS_CHUNK_BYTES = 1 << 16
_LISTED_RECORDS = 512
"""The most records that are decoded at a time."""
_RANGE = struct.Struct(">qi11xi")  # base offset, batch length, last offset delta
_PREFIX = struct.Struct(">qii")
PREFIX_BYTES = _PREFIX.size
"""The bytes at the beginning of a batch that :func:`place` changes in any case."""
_MARKER_KEY = struct.Struct(">hh")  # version, type
_MARKER_VALUE = struct.Struct(">hi")  # version, coordinator epoch
_ABORT, _COMMIT = 0, 1

Header = tuple[str, bytes | None]


class CorruptBatch(ValueError):
    """Bytes that are not a batch: the length, magic, checksum or records are wrong."""


class TooLargeToOpen(CorruptBatch):
    """A batch that exceeds the limits on opening."""

    def __init__(self, base_offset: int, message: str) -> None:
        super().__init__(f"the batch at offset {base_offset} is not opened: {message}")


class BatchHeader(NamedTuple):
    """The header of a batch, its fields in wire order."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def last_offset(self) -> int:
        """Offset of the last record, inclusive."""
        return self.base_offset + self.last_offset_delta

    @property
    def size_bytes(self) -> int:
        """The whole batch, header included."""
        return self.batch_length + LENGTH_OVERHEAD

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; wraps from 2**31 - 1 to 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def codec(self) -> int:
        """Compression codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd; 5 to 7 are invalid."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> str:
        """``CreateTime``, or ``LogAppendTime`` if every record's time is ``max_timestamp``."""
        return "LogAppendTime" if self.attributes & LOG_APPEND_TIME_BIT else "CreateTime"

    @property
    def is_transactional(self) -> bool:
        """True for a batch of a transaction (KIP-98)."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """True for a control batch (transaction marker)."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        """Epoch time from which compaction drops tombstones or the marker; None if not set."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None


class Record(NamedTuple):
    """A record of an opened batch."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


class Marker(NamedTuple):
    """A transaction marker in a control batch."""

    commit: bool
    coordinator_epoch: int


def header_at(data: bytes | memoryview, position: int = 0) -> BatchHeader:
    """Read the header at ``position``; at least :data:`HEADER_BYTES` must follow."""
    return BatchHeader._make(HEADER.unpack_from(data, position))


def headers(batches: bytes | memoryview | FileRange) -> Iterator[tuple[int, BatchHeader]]:
    """Yield ``(position, header)`` of each whole batch, skip an incomplete last one. The batches
    need not be in memory.

    :raises OSError: the file cannot be read
    :raises CorruptBatch: a batch has an invalid length
    """
    data = batches.data if isinstance(batches, FileRange) else batches
    start = position = 0
    end = len(batches)
    while position + HEADER_BYTES <= end:
        if data is None or position - start + HEADER_BYTES > len(data):
            assert isinstance(batches, FileRange)
            data, start = memoryview(bytearray(min(HEADERS_CHUNK_BYTES, end - position))), position
            batches.read_into(data, start)
        header = header_at(data, position - start)
        if header.batch_length < HEADER_BYTES - LENGTH_OVERHEAD:
            raise CorruptBatch(f"batch length {header.batch_length} at position {position}")
        following = position + header.size_bytes
        if following > end:
            return
        yield position, header
        position = following


def offset_ranges(data: bytes | memoryview) -> tuple[list[tuple[int, int]], list[int]]:
    """Return ``(base offset, last offset)`` of each whole batch, and the positions of the batches
    and of the end of the last one.

    Read only the fields that a share fetch needs.

    :raises CorruptBatch: a batch has an invalid length
    """
    ranges: list[tuple[int, int]] = []
    positions: list[int] = []
    position, end = 0, len(data)
    unpack = _RANGE.unpack_from
    while position + HEADER_BYTES <= end:
        base_offset, length, last_offset_delta = unpack(data, position)
        if length < HEADER_BYTES - LENGTH_OVERHEAD:
            raise CorruptBatch(f"batch length {length} at position {position}")
        following = position + length + LENGTH_OVERHEAD
        if following > end:
            break
        ranges.append((base_offset, base_offset + last_offset_delta))
        positions.append(position)
        position = following
    positions.append(position)
    return ranges, positions


def offset_after(batches: bytes | memoryview | FileRange, otherwise: int) -> int:
    """Return the offset after the last whole batch; ``otherwise`` if a batch has an invalid
    length.
    """
    if isinstance(batches, FileRange):
        return batches.end_offset
    try:
        ranges, _ = offset_ranges(batches)
    except CorruptBatch:
        return otherwise
    return ranges[-1][1] + 1 if ranges else otherwise


def build(
    records: Iterable[tuple[bytes | None, bytes | None]],
    *,
    timestamp_ms: int,
    timestamps_ms: Sequence[int] | None = None,
    headers: Sequence[Sequence[Header]] | None = None,
    codec: int = NONE,
    attributes: int = 0,
    base_offset: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
) -> bytes:
    """Return one batch of ``(key, value)`` pairs.

    :param timestamp_ms: CreateTime of every record, unless ``timestamps_ms`` has one per record
    :param headers: the headers of each record, in the order of ``records``
    :param codec: 0 none, 1 gzip, 2 snappy (xerial framing, as Java clients do), 3 lz4, 4 zstd
    :param attributes: bits to set besides the codec, such as :data:`TRANSACTIONAL_BIT`
    :raises ValueError: there are no records
    """
    pieces: list[bytes] = []
    base_timestamp = timestamps_ms[0] if timestamps_ms else timestamp_ms
    count = 0
    for key, value in records:
        delta = timestamps_ms[count] - base_timestamp if timestamps_ms else 0
        record = b"".join(
            (
                b"\0",
                varint(delta) if delta else b"\0",
                varint(count),
                NULL_RECORD_BYTES if key is None else varint(len(key)),
                key or b"",
                NULL_RECORD_BYTES if value is None else varint(len(value)),
                value or b"",
                _headers(headers[count]) if headers else b"\0",
            )
        )
        pieces += (varint(len(record)), record)
        count += 1
    if not count:
        raise ValueError("a batch holds at least one record")
    payload = compress(codec, b"".join(pieces))
    max_timestamp = max(timestamps_ms) if timestamps_ms else timestamp_ms
    length = HEADER_BYTES - LENGTH_OVERHEAD + len(payload)
    return (
        seal(
            BatchHeader(
                base_offset,
                length,
                0,
                2,
                0,
                attributes | codec,
                count - 1,
                base_timestamp,
                max_timestamp,
                producer_id,
                producer_epoch,
                base_sequence,
                count,
            ),
            payload,
        )
        + payload
    )


def _headers(headers: Sequence[Header]) -> bytes:
    pieces = [varint(len(headers))]
    for name, content in headers:
        pieces += (*record_bytes(name.encode()), *record_bytes(content))
    return b"".join(pieces)


def end_transaction_marker(
    producer_id: int, producer_epoch: int, marker: Marker, timestamp_ms: int
) -> bytes:
    """Return the control batch that ends a producer's transaction in a partition (KIP-98)."""
    return build(
        [(_MARKER_KEY.pack(0, marker.commit), _MARKER_VALUE.pack(0, marker.coordinator_epoch))],
        timestamp_ms=timestamp_ms,
        attributes=TRANSACTIONAL_BIT | CONTROL_BIT,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


def marker_in(batch: bytes | memoryview) -> Marker | None:
    """Return the transaction marker in a control batch; None for a control batch of another type.

    :raises CorruptBatch: the marker cannot be decoded
    """
    for record in records(batch):
        if record.key is not None and record.value is not None:
            try:
                _, kind = _MARKER_KEY.unpack_from(record.key)
                if kind in (_ABORT, _COMMIT):
                    return Marker(kind == _COMMIT, _MARKER_VALUE.unpack_from(record.value)[1])
            except struct.error as error:
                raise CorruptBatch(f"not a transaction marker: {error}") from error
    return None


def seal(header: BatchHeader, payload: bytes | memoryview) -> bytes:
    """Return the encoded header, with the CRC over ``payload``."""
    head = HEADER.pack(*header)
    summed = head[CRC_START:]
    crc = crc32c(payload, crc32c(summed))
    return head[:_CRC_AT] + crc.to_bytes(4) + summed


def place(
    batch: memoryview, header: BatchHeader, base_offset: int, log_append_time_ms: int
) -> tuple[BatchHeader, tuple[bytes, memoryview]]:
    """Set a batch's base offset and, for LogAppendTime, its time; return its header and the
    buffers to write.

    The CRC does not cover base offset and leader epoch (always 0), so usually only the first 16
    bytes change. The returned header then keeps its old base offset.

    :param log_append_time_ms: -1 for CreateTime, which also clears the LogAppendTime bit
    """
    if log_append_time_ms < 0 and not header.attributes & LOG_APPEND_TIME_BIT:
        return header, (
            _PREFIX.pack(base_offset, header.batch_length, 0),
            batch[_PREFIX.size : header.size_bytes],
        )
    attributes, max_timestamp = header.attributes & ~LOG_APPEND_TIME_BIT, header.max_timestamp
    if log_append_time_ms >= 0:
        attributes, max_timestamp = header.attributes | LOG_APPEND_TIME_BIT, log_append_time_ms
    header = header._replace(
        base_offset=base_offset,
        partition_leader_epoch=0,
        attributes=attributes,
        max_timestamp=max_timestamp,
    )
    payload = batch[HEADER_BYTES : header.size_bytes]
    return header, (seal(header, payload), payload)


def has_right_crc(batch: memoryview, header: BatchHeader) -> bool:
    """Return whether the checksum of a whole batch matches its header."""
    return bool(crc32c(batch[CRC_START : header.size_bytes]) == header.crc)


# Opening ------------------------------------------------------------------------------------------


class Opening(NamedTuple):
    """The limits on opening one batch.

    :ivar max_bytes: decompressed bytes of a compressed batch
    :ivar max_records: records
    :ivar pause: called after each piece that was read, so that a thread can let others run
    :ivar max_record_bytes: one record of a compressed batch
    """

    max_bytes: int = MAX_OPENED_BYTES
    max_records: int = MAX_OPENED_RECORDS
    pause: Callable[[], object] | None = None
    max_record_bytes: int = MAX_OPENED_RECORD_BYTES


OPEN_ANY = Opening()
"""The limits that apply to every batch."""

OPEN_ON_LOOP = Opening(OPENED_ON_LOOP_BYTES, OPENED_ON_LOOP_RECORDS)
"""The limits that apply to a batch that is opened on an event loop."""


def _pieces(
    batch: bytes | memoryview, header: BatchHeader, opening: Opening = OPEN_ANY
) -> Iterator[bytes | memoryview]:
    """Yield the decompressed records of a whole batch in small pieces, cut anywhere.

    :raises TooLargeToOpen: they exceed the limit on bytes
    :raises CorruptBatch: they cannot be decompressed
    """
    body = memoryview(batch)[HEADER_BYTES : header.size_bytes]
    codec = header.codec if header.record_count else NONE
    max_bytes = opening.max_bytes if codec else len(body)
    pause = opening.pause
    size_bytes = 0
    try:
        for piece in decompressed(codec, body):
            size_bytes += len(piece)
            if size_bytes > max_bytes:
                raise TooLargeToOpen(
                    header.base_offset, f"its records are larger than {max_bytes} bytes"
                )
            yield piece
            if pause is not None:
                pause()
    except TooLargeToDecompress as error:
        raise TooLargeToOpen(header.base_offset, str(error)) from error
    except BadCompression as error:
        raise CorruptBatch(
            f"cannot open the batch at offset {header.base_offset}: {error}"
        ) from error


def opened(batch: bytes | memoryview, header: BatchHeader) -> bytes:
    """Return the records of a whole batch, decompressed if needed, however many these are.

    :raises TooLargeToOpen: they exceed the limit on bytes
    :raises CorruptBatch: they cannot be decompressed
    """
    if not header.codec or not header.record_count:
        return bytes(memoryview(batch)[HEADER_BYTES : header.size_bytes])
    return b"".join(_pieces(batch, header))


def record_spans(
    batch: bytes | memoryview,
    header: BatchHeader,
    opening: Opening = OPEN_ANY,
    *,
    whole: bool = False,
) -> Iterator[tuple[bytes, int, int]]:
    """Yield ``(data, start, end)`` of each record of a whole batch: some of its decompressed bytes,
    and the record's place in them, without its length.

    :param whole: refuse bytes after the last record
    :raises TooLargeToOpen: the batch or a record exceeds the limits
    :raises CorruptBatch: the batch cannot be decompressed, or a record has an impossible length, or
        there are fewer records than the header says
    """
    _check_count(header, opening)
    source = _pieces(batch, header, opening)
    data, position, size = b"", 0, 0
    for index in range(header.record_count):
        if position < size and not (byte := data[position]) & 0x81:
            start = position + 1
            end = start + (byte >> 1)
        else:
            start = end = size
        if end >= size:
            data, start, end = _next_span(data, position, header, index, opening, source)
            size = len(data)
        yield data, start, end
        position = end
    if whole:
        _refuse_more(data, position, header, source)


def _check_count(header: BatchHeader, opening: Opening) -> None:
    if header.record_count > opening.max_records:
        raise TooLargeToOpen(
            header.base_offset,
            f"{header.record_count} records are more than {opening.max_records}",
        )


def _next_span(
    data: bytes,
    position: int,
    header: BatchHeader,
    index: int,
    opening: Opening,
    source: Iterator[bytes | memoryview],
) -> tuple[bytes, int, int]:
    """Return the place of record ``index``, which begins at ``position`` with its length, and data
    that have all of it.

    :raises TooLargeToOpen: it exceeds the limits
    :raises CorruptBatch: its length is impossible
    """
    if len(data) - position < MAX_VARINT_BYTES:
        data, position = _longer(data, position, MAX_VARINT_BYTES, source), 0
    try:
        length, start = read_varint(data, position)
    except (IndexError, ValueError) as error:
        raise _corrupt(header, index, str(error)) from error
    if length < 0:
        raise _corrupt(header, index, f"its length is {length}")
    if start + length > len(data):
        if length > opening.max_record_bytes and header.codec:
            raise TooLargeToOpen(header.base_offset, f"a record has {length} bytes")
        data, start = _longer(data, start, length, source), 0
        if length > len(data):
            raise _corrupt(header, index, f"{length - len(data)} bytes are missing")
    return data, start, start + length


def _refuse_more(
    data: bytes, position: int, header: BatchHeader, source: Iterator[bytes | memoryview]
) -> None:
    """Check that nothing follows the last record.

    :raises CorruptBatch: something does
    """
    if position < len(data) or _longer(b"", 0, 1, source):
        raise CorruptBatch(f"bytes follow the {header.record_count} records")


def _corrupt(header: BatchHeader, index: int, message: str) -> CorruptBatch:
    return CorruptBatch(f"record {index} of the batch at offset {header.base_offset}: {message}")


def _longer(data: bytes, position: int, size: int, source: Iterator[bytes | memoryview]) -> bytes:
    """Return the bytes from ``position`` on, with as many pieces as it takes to have ``size``
    bytes, if there are as many.
    """
    out = bytearray(memoryview(data)[position:])  # many pieces in a list would fragment the heap
    while len(out) < size:
        piece = next(source, b"")
        if not piece:
            break
        out += piece
    return bytes(out)


def outline(data: bytes, start: int, end: int) -> tuple[int, int, bool]:
    """Return a record's timestamp delta, its offset delta, and True if it has a key. Check that its
    fields fill it.

    :param start: position of its first byte after its length
    :raises CorruptBatch: they do not
    """
    try:
        timestamp_delta, position = read_varint(data, start + 1)
        offset_delta, position = read_varint(data, position)
        # Varints of one byte are decoded here: a call for each would take a third more time.
        key_length = data[position]
        if key_length < 0x80:
            key_length, position = (key_length >> 1) ^ -(key_length & 1), position + 1
        else:
            key_length, position = read_varint(data, position)
        if key_length > 0:
            position += key_length
        value_length = data[position]
        if value_length < 0x80:
            value_length, position = (value_length >> 1) ^ -(value_length & 1), position + 1
        else:
            value_length, position = read_varint(data, position)
        if value_length > 0:
            position += value_length
        if data[position]:
            position = _end_of_headers(data, position)
        else:
            position += 1
    except CorruptBatch:
        raise
    except (IndexError, ValueError) as error:
        raise CorruptBatch(f"a record cannot be read: {error}") from error
    if position != end:
        raise CorruptBatch("a record does not have the length that it states")
    return timestamp_delta, offset_delta, key_length >= 0


def _end_of_headers(data: bytes, position: int) -> int:
    count, position = read_varint(data, position)
    if not 0 <= count <= MAX_RECORD_HEADERS:
        raise CorruptBatch(f"a record claims {count} headers")
    for _ in range(count):
        name_length, position = read_varint(data, position)
        if name_length < 0:
            raise CorruptBatch("a record has a header without a name")
        value_length, position = read_varint(data, position + name_length)
        position += max(value_length, 0)
    return position


def records(batch: bytes | memoryview, opening: Opening = OPEN_ANY) -> Iterator[Record]:
    """Yield the records of the first batch in ``batch``, decompressed if needed.

    :raises TooLargeToOpen: the batch or a record exceeds the limits
    :raises CorruptBatch: they cannot be read
    """
    header = header_at(batch)
    if header.magic != 2:
        raise CorruptBatch(f"magic {header.magic}")
    for listed in record_lists(batch, header, opening):
        yield from listed


def record_lists(
    batch: bytes | memoryview,
    header: BatchHeader,
    opening: Opening = OPEN_ANY,
    *,
    skip: int = 0,
    whole: bool = False,
) -> Iterator[list[Record]]:
    """Yield the records of a whole batch, as many at a time as a decompressed piece has.

    This is the decoder of all readers: about 1 us for each record.

    :param skip: number of records to pass over at the beginning
    :param whole: refuse bytes after the last record
    :raises TooLargeToOpen: the batch or a record exceeds the limits
    :raises CorruptBatch: they cannot be read. The records before were yielded
    """
    _check_count(header, opening)
    source = _pieces(batch, header, opening)
    data, position, size = b"", 0, 0
    if not header.codec and opening.pause is None:
        data, source = bytes(memoryview(batch)[: header.size_bytes]), iter(())
        position, size = HEADER_BYTES, len(data)
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME_BIT else None
    new, record_type, read = tuple.__new__, Record, read_varint
    count, index = header.record_count, 0
    last_headers: tuple[Header, ...] = ()
    last_headers_bytes = b""
    listed: list[Record] = []
    for first in range(0, count, _LISTED_RECORDS):
        if listed:
            yield listed
        listed = []
        append = listed.append
        try:
            # Varints of one and of two bytes are read here: calls would double the time.
            for index in range(first, min(first + _LISTED_RECORDS, count)):
                start = size
                if position + 1 < size and not (byte := data[position]) & 1:
                    if byte < 0x80:
                        start = position + 1
                        end = start + (byte >> 1)
                    elif (high := data[position + 1]) < 0x80:
                        start = position + 2
                        end = start + ((byte & 0x7F | high << 7) >> 1)
                if start == size or end > size:
                    before = data
                    data, start, end = _next_span(data, position, header, index, opening, source)
                    size = len(data)
                    if listed and data is not before:
                        yield listed
                        listed = []
                        append = listed.append
                position = end
                if index < skip:
                    continue
                at = start + 1  # after the attributes
                if (byte := data[at]) < 0x80:
                    timestamp, at = (byte >> 1) ^ -(byte & 1), at + 1
                else:
                    timestamp, at = read(data, at)
                if (byte := data[at]) < 0x80:
                    offset, at = (byte >> 1) ^ -(byte & 1), at + 1
                elif (high := data[at + 1]) < 0x80:
                    offset, at = ((byte & 0x7F | high << 7) >> 1) ^ -(byte & 1), at + 2
                else:
                    offset, at = read(data, at)
                if (byte := data[at]) < 0x80:
                    length, at = (byte >> 1) ^ -(byte & 1), at + 1
                else:
                    length, at = read(data, at)
                key = None if length < 0 else data[at : (at := at + length)]
                if (byte := data[at]) < 0x80:
                    length, at = (byte >> 1) ^ -(byte & 1), at + 1
                elif (high := data[at + 1]) < 0x80:
                    length, at = ((byte & 0x7F | high << 7) >> 1) ^ -(byte & 1), at + 2
                else:
                    length, at = read(data, at)
                value = None if length < 0 else data[at : (at := at + length)]
                own_headers: tuple[Header, ...] = ()
                if not data[at]:
                    at += 1
                elif data[at:end] == last_headers_bytes:  # mostly those of the record before
                    own_headers, at = last_headers, end
                else:
                    header_bytes = data[at:end]
                    own_headers, at = read_headers(data, at)
                    last_headers, last_headers_bytes = own_headers, header_bytes
                if at != end:
                    raise ValueError("it does not have the length that it states")
                append(
                    new(
                        record_type,
                        (
                            base_offset + offset,
                            base_timestamp + timestamp if append_time is None else append_time,
                            key,
                            value,
                            own_headers,
                        ),
                    )
                )
        except (IndexError, ValueError) as error:
            if listed:
                yield listed
            if isinstance(error, CorruptBatch):
                raise
            message = "it is cut off" if isinstance(error, IndexError) else str(error)
            raise _corrupt(header, index, message) from error
    if whole:
        _refuse_more(data, position, header, source)
    if listed:
        yield listed


def read_headers(data: bytes, position: int) -> tuple[tuple[Header, ...], int]:
    """Read the headers of a record.

    :raises IndexError: the data end inside them
    :raises ValueError: there are too many, or one has no name
    """
    count, position = read_varint(data, position)
    if not 0 <= count <= MAX_RECORD_HEADERS:
        raise ValueError(f"it claims {count} headers")
    own_headers = []
    for _ in range(count):
        name, position = read_record_bytes(data, position)
        content, position = read_record_bytes(data, position)
        # Brokers accept any bytes. Kafka's clients replace those that are not UTF-8, too.
        own_headers.append(((name or b"").decode(errors="replace"), content))
    return tuple(own_headers), position


def decode_record(data: bytes, start: int, end: int, header: BatchHeader) -> Record:
    """Decode a record that :func:`record_spans` has found.

    :raises CorruptBatch: it cannot be read
    """
    try:
        timestamp_delta, position = read_varint(data, start + 1)
        offset_delta, position = read_varint(data, position)
        key, position = read_record_bytes(data, position)
        value, position = read_record_bytes(data, position)
        own_headers, position = read_headers(data, position)
        if position != end:
            raise ValueError("a record does not have the length that it states")
    except (IndexError, ValueError) as error:
        raise CorruptBatch(
            f"cannot open the batch at offset {header.base_offset}: {error!r}"
        ) from error
    timestamp = header.base_timestamp + timestamp_delta
    if header.attributes & LOG_APPEND_TIME_BIT:
        timestamp = header.max_timestamp
    return Record(header.base_offset + offset_delta, timestamp, key, value, own_headers)
