"""Checks of a producer's batch: Kafka's, in Kafka's order, with Kafka's error codes."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors import ErrorCode, Refusal
from headrace.log.log_config import FOREVER, LogConfig
from headrace.protocol.checksum import crc32c
from headrace.protocol.compression import ZSTD
from headrace.protocol.record_batch import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_START,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    BatchHeader,
    CorruptBatch,
    header_at,
    records,
)

MAGIC_POSITION = 16
LEAST_LENGTH = 14
"""The smallest batch length of any magic. Kafka refuses a smaller one before all other
checks.
"""


@dataclass(frozen=True, slots=True)
class RefusedRecords(Refusal):
    """A batch that is refused because of some of its records (KIP-467).

    :param records: their positions in the batch, counted from 0
    """

    records: tuple[int, ...] = ()


def check_client_batch(
    data: memoryview, config: LogConfig, now_ms: int, header: BatchHeader | Refusal | None = None
) -> BatchHeader | Refusal:
    """Check a producer's batch, and return its header or a refusal.

    :param header: the result of :func:`single_batch` for ``data``, if it is known
    :param now_ms: wall time, for the limits on timestamps
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
            f"configured value of "
            f"{config.max_message_bytes}.",
        )
    if crc32c(data[CRC_START:size]) != header.crc:
        return Refusal(ErrorCode.CORRUPT_MESSAGE, f"Record is corrupt (stored crc = {header.crc})")
    if size > config.segment_bytes:
        return Refusal(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"Message batch size is {size} bytes in append which exceeds the maximum "
            f"configured segment size of "
            f"{config.segment_bytes}.",
        )
    refusal = (
        _check_fields(header)
        or _check_keys(data, config)
        or _check_timestamps(data, header, config, now_ms)
    )
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
    found = starts_with_batch(data)
    if isinstance(found, Refusal):
        return found
    if not found:
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
    found = starts_with_batch(data[header.size_bytes :])
    if isinstance(found, Refusal):
        return found
    if found:
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


def _check_timestamps(
    data: memoryview, header: BatchHeader, config: LogConfig, now_ms: int
) -> Refusal | None:
    if config.message_timestamp_type == "LogAppendTime":
        if header.attributes & LOG_APPEND_TIME_BIT:
            return Refusal(
                ErrorCode.INVALID_TIMESTAMP,
                (
                    "Invalid timestamp type in message. Producer should not set timestamp type "
                    "to LogAppendTime."
                ),
            )
        return None
    earliest, latest = header.base_timestamp, header.max_timestamp
    if config.message_timestamp_before_max_ms != FOREVER:
        try:  # the header has the first record's timestamp, and a later record may be earlier
            earliest = min(record.timestamp_ms for record in records(data))
        except CorruptBatch as error:
            return _invalid(str(error))
    if earliest != NO_TIMESTAMP and now_ms - earliest > config.message_timestamp_before_max_ms:
        return _timestamp_out_of_range(data, earliest, config, now_ms)
    if latest - now_ms > config.message_timestamp_after_max_ms:
        return _timestamp_out_of_range(data, latest, config, now_ms)
    return None


def _timestamp_out_of_range(
    data: memoryview, timestamp: int, config: LogConfig, now_ms: int
) -> Refusal:
    first, last = (
        now_ms - config.message_timestamp_before_max_ms,
        now_ms + config.message_timestamp_after_max_ms,
    )
    try:
        outside = tuple(
            index
            for index, record in enumerate(records(data))
            if record.timestamp_ms != NO_TIMESTAMP and not first <= record.timestamp_ms <= last
        )
    except CorruptBatch:
        outside = ()
    return RefusedRecords(
        ErrorCode.INVALID_TIMESTAMP,
        (
            f"Timestamp {timestamp} of message is out of range. The timestamp should be within "
            f"[{first}, {last}]"
        ),
        outside,
    )


def _check_keys(data: memoryview, config: LogConfig) -> Refusal | None:
    """Refuse records without a key for a compacted topic. Only these topics need to decompress
    batches on append.
    """
    if "compact" not in config.cleanup_policy:
        return None
    try:
        without = tuple(index for index, record in enumerate(records(data)) if record.key is None)
    except CorruptBatch as error:
        return _invalid(str(error))
    if not without:
        return None
    return RefusedRecords(
        ErrorCode.INVALID_RECORD, "Compacted topic cannot accept message without key.", without
    )
