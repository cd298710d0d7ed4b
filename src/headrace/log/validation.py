"""Checks of a producer's batch: Kafka's, in Kafka's order, with Kafka's error codes."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.log.log_config import ANY_RECORD_BYTES, FOREVER, LogConfig
from headrace.protocol.checksum import crc32c
from headrace.protocol.compression import ZSTD
from headrace.protocol.errors import ErrorCode, Refusal
from headrace.protocol.limits import LARGE_BATCH_BYTES, MAX_RECORD_ERRORS
from headrace.protocol.primitives import MAX_INT64, MIN_INT64
from headrace.protocol.record_batch import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_START,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    OPEN_ANY,
    OPEN_ON_LOOP,
    BatchHeader,
    CorruptBatch,
    Opening,
    TooLargeToOpen,
    header_at,
    outline,
    record_spans,
)

MAGIC_POSITION = 16
LEAST_LENGTH = 14
"""The smallest batch length of any magic. Kafka refuses a smaller one before all other checks."""

_WRONG_TIMESTAMPS = "One or more records have been rejected due to invalid timestamp"
_WITHOUT_KEY = "Compacted topic cannot accept message without key."


@dataclass(frozen=True, slots=True)
class RefusedRecords(Refusal):
    """A batch that is refused because of some of its records (KIP-467).

    :param records: the position in the batch, counted from 0, and the message for each of them; the
        first :data:`~headrace.protocol.limits.MAX_RECORD_ERRORS`
    """

    records: tuple[tuple[int, str], ...] = ()


class OpenElsewhere(Exception):
    """A batch whose records must be checked is too large to be opened on the event loop: call
    :func:`check_records` in a thread.
    """


def check_client_batch(
    data: memoryview,
    config: LogConfig,
    now_ms: int,
    header: BatchHeader | Refusal | None = None,
    opening: Opening | None = OPEN_ANY,
    checksum: int | None = None,
) -> BatchHeader | Refusal:
    """Check a producer's batch, and return its header or a refusal.

    :param header: the result of :func:`single_batch` for ``data``, if it is known
    :param now_ms: wall time, for the limits on timestamps
    :param opening: the limits on opening the batch; None if :func:`check_records` has accepted it
    :param checksum: the CRC-32C of its contents, if it is known
    :raises OpenElsewhere: with :data:`OPEN_ON_LOOP`, for a batch that exceeds these limits
    :return: the header; or INVALID_RECORD (no batch, several, magic 0 or 1, counts that do not fit,
        a control batch, a missing sequence), CORRUPT_MESSAGE (length, unknown magic, checksum),
        MESSAGE_TOO_LARGE (max.message.bytes), RECORD_LIST_TOO_LARGE (segment.bytes),
        INVALID_TIMESTAMP (message.timestamp.*.max.ms), UNSUPPORTED_COMPRESSION_TYPE
    """
    if header is None:
        header = single_batch(data)
    if isinstance(header, Refusal):
        return header
    size = header.size_bytes
    if header.base_offset:
        return _invalid(
            f"The baseOffset of the record batch should be 0, but it is {header.base_offset}"
        )
    if size > config.max_message_bytes:
        return Refusal(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch size in the append is {size} bytes which exceeds the maximum "
            f"configured value of {config.max_message_bytes}.",
        )
    if checksum is None:
        checksum = crc32c(data[CRC_START:size])
    if checksum != header.crc:
        return _corrupt(f"Record is corrupt (stored crc = {header.crc})")
    if size > config.segment_bytes:
        return Refusal(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"Message batch size is {size} bytes in append which exceeds the maximum "
            f"configured segment size of {config.segment_bytes}.",
        )
    refusal = _check_fields(header)
    if refusal is None and opening is not None:
        refusal = check_records(data, header, config, now_ms, opening)
    return refusal or header


def single_batch(data: memoryview) -> BatchHeader | Refusal:
    """Return the header of the one batch of magic 2 in ``data``.

    This is Kafka's first check, and refuses with INVALID_RECORD or CORRUPT_MESSAGE. Nothing but the
    length and the magic of the batch is checked.
    """
    if len(data) < HEADER_BYTES or data[MAGIC_POSITION] != 2:
        return _unreadable(data)
    header = header_at(data)
    if header.batch_length + LENGTH_OVERHEAD == len(data):
        return header
    return _wrong_length(header, data) or header


def _invalid(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_RECORD, message)


def _corrupt(message: str) -> Refusal:
    return Refusal(ErrorCode.CORRUPT_MESSAGE, message)


_NO_BATCH = "Produce requests must have at least one record batch per partition"


def _unreadable(data: memoryview) -> Refusal:
    """Return the refusal of data that is too short for a batch of magic 2, or not of magic 2."""
    is_batch = starts_with_batch(data)
    if isinstance(is_batch, Refusal):
        return is_batch
    if not is_batch:
        return _invalid(_NO_BATCH)
    if data[MAGIC_POSITION] == 2:
        return _corrupt(f"Record batch is corrupt (its size {len(data)} is too small)")
    return _invalid(
        "Produce requests are only allowed to contain record batches with magic version 2"
    )


def _wrong_length(header: BatchHeader, data: memoryview) -> Refusal | None:
    """Check a batch that does not end where the data does: it is torn, or something follows it."""
    if header.batch_length < HEADER_BYTES - LENGTH_OVERHEAD:
        return _corrupt(f"Record batch is corrupt (its size {header.batch_length} is too small)")
    if header.size_bytes > len(data):
        return _invalid(_NO_BATCH)
    is_batch = starts_with_batch(data[header.size_bytes :])
    if isinstance(is_batch, Refusal):
        return is_batch
    if is_batch:
        return _invalid(
            "Produce requests are only allowed to contain exactly one record batch per partition"
        )
    return None  # a torn second batch is ignored


def starts_with_batch(data: memoryview) -> bool | Refusal:
    """Return True if ``data`` begins with a whole batch of any magic.

    An impossible length or magic is refused with CORRUPT_MESSAGE.
    """
    if len(data) < LENGTH_OVERHEAD:
        return False
    length = int.from_bytes(data[8:LENGTH_OVERHEAD], "big", signed=True)
    if length < LEAST_LENGTH:
        return _corrupt(
            f"Record size {length} is less than the minimum record overhead ({LEAST_LENGTH})"
        )
    if len(data) > MAGIC_POSITION and data[MAGIC_POSITION] > 2:
        return _corrupt(f"Invalid magic found in record: {data[MAGIC_POSITION]}")
    return length + LENGTH_OVERHEAD <= len(data)


def _check_fields(header: BatchHeader) -> Refusal | None:
    count = header.last_offset_delta + 1
    if count <= 0:
        return _invalid(f"Batch has an invalid offset range: [0, {header.last_offset_delta}]")
    if header.record_count <= 0:
        return _invalid(f"Invalid reported count for record batch: {header.record_count}")
    if count != header.record_count:
        return _invalid(
            f"Inconsistent batch offset range [0, {header.last_offset_delta}] and count of records "
            f"{header.record_count}"
        )
    if header.attributes & CONTROL_BIT:
        return _invalid("Clients are not allowed to write control records")
    if header.producer_id != NO_PRODUCER_ID and header.base_sequence < 0:
        return _invalid(
            f"Invalid sequence number {header.base_sequence} in record batch with "
            f"producerId {header.producer_id}"
        )
    if header.attributes & CODEC_MASK > ZSTD:
        return Refusal(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Unknown compression type id: {header.codec}"
        )
    return None


def check_records(
    data: memoryview, header: BatchHeader, config: LogConfig, now_ms: int, opening: Opening
) -> Refusal | None:
    """Check the records of a batch whose header is valid. Most batches need not be opened for this.

    A batch is opened for a compacted topic, as its records must have keys; if
    message.timestamp.before.max.ms is set, or for a compressed batch
    max.decompressed.message.bytes; and to name the records with wrong timestamps. Then all records
    must be there, with consecutive offsets, as in Kafka.

    :return: INVALID_TIMESTAMP, INVALID_RECORD, or MESSAGE_TOO_LARGE for a batch that is too large
        to be opened, as Kafka's producer then splits it
    :raises OpenElsewhere: as :func:`check_client_batch`
    """
    before_max_ms = config.message_timestamp_before_max_ms
    wants_keys = "compact" in config.cleanup_policy
    max_bytes = config.max_decompressed_message_bytes if header.codec else ANY_RECORD_BYTES
    first_ms, last_ms, checks_times = MIN_INT64, MAX_INT64, False
    if config.message_timestamp_type != "LogAppendTime":
        first_ms, last_ms = now_ms - before_max_ms, now_ms + config.message_timestamp_after_max_ms
        checks_times = before_max_ms != FOREVER
    elif header.attributes & LOG_APPEND_TIME_BIT:
        return Refusal(ErrorCode.INVALID_TIMESTAMP, _WRONG_TIMESTAMPS)
    is_outside = header.max_timestamp > last_ms or _is_before(header.base_timestamp, first_ms)
    if not wants_keys and not checks_times and not is_outside and max_bytes == ANY_RECORD_BYTES:
        return None  # as for most batches
    if opening is OPEN_ON_LOOP and header.size_bytes > LARGE_BATCH_BYTES:
        raise OpenElsewhere
    try:
        earliest_ms, without_key, outside = _inspect(
            data, header, first_ms, last_ms, max_bytes, opening
        )
    except TooLargeToOpen as error:
        if opening is OPEN_ON_LOOP:
            raise OpenElsewhere from error
        return Refusal(ErrorCode.MESSAGE_TOO_LARGE, str(error))
    except CorruptBatch as error:
        return _invalid(str(error))
    if wants_keys and without_key:
        return RefusedRecords(
            ErrorCode.INVALID_RECORD,
            _WITHOUT_KEY,
            tuple((index, _WITHOUT_KEY) for index in without_key),
        )
    # A later record may be earlier than the first one.
    if not is_outside and not (checks_times and _is_before(earliest_ms, first_ms)):
        return None
    return RefusedRecords(
        ErrorCode.INVALID_TIMESTAMP,
        _WRONG_TIMESTAMPS,
        tuple(
            (
                index,
                f"Timestamp {timestamp_ms} of message with offset {header.base_offset + index} is "
                f"out of range. The timestamp should be within [{first_ms}, {last_ms}]",
            )
            for index, timestamp_ms in outside
        ),
    )


def _is_before(timestamp_ms: int, first_ms: int) -> bool:
    return timestamp_ms < first_ms and timestamp_ms != NO_TIMESTAMP


def _inspect(
    data: memoryview,
    header: BatchHeader,
    first_ms: int,
    last_ms: int,
    max_bytes: int,
    opening: Opening,
) -> tuple[int, list[int], list[tuple[int, int]]]:
    """Open a batch. Return the earliest timestamp, and the first records that may be refused: the
    positions of those without key, and the positions and timestamps of those out of range.

    :param max_bytes: the largest size of a record, without its length
    :raises CorruptBatch: its records cannot be read, do not have consecutive offsets, or are larger
    """
    earliest_ms = MAX_INT64
    without_key: list[int] = []
    outside: list[tuple[int, int]] = []
    base_ms, by_broker = header.base_timestamp, header.attributes & LOG_APPEND_TIME_BIT
    for index, span in enumerate(record_spans(data, header, opening, whole=True)):
        _, start, end = span
        if end - start > max_bytes:
            raise CorruptBatch(
                f"Record {index} of the batch has {end - start} bytes after decompression, more "
                f"than max.decompressed.message.bytes ({max_bytes})"
            )
        timestamp_delta, offset_delta, has_key = outline(*span)
        if offset_delta != index:
            raise CorruptBatch(f"Record {index} of the batch has the offset delta {offset_delta}")
        timestamp_ms = header.max_timestamp if by_broker else base_ms + timestamp_delta
        earliest_ms = min(earliest_ms, timestamp_ms)
        if not has_key and len(without_key) < MAX_RECORD_ERRORS:
            without_key.append(index)
        if (
            timestamp_ms != NO_TIMESTAMP
            and not first_ms <= timestamp_ms <= last_ms
            and len(outside) < MAX_RECORD_ERRORS
        ):
            outside.append((index, timestamp_ms))
    return earliest_ms, without_key, outside
