"""Validation of a client's batch. The error codes are those of Apache Kafka 4.3.1 for the same
bytes.
"""

from __future__ import annotations

import struct

import pytest

from headrace.protocol.errors import ErrorCode, Refusal
from headrace.protocol.record_batch import build, header_at, records, seal
from tests.log.disk import NOW, Disk, batch, put

GOOD = batch(b"value")


def changed(data: bytes = GOOD, **fields: int) -> bytes:
    header = header_at(data)._replace(**fields)
    return seal(header, data[61:]) + data[61:]


def with_bytes(position: int, value: bytes) -> bytes:
    return GOOD[:position] + value + GOOD[position + len(value) :]


REFUSED = {
    "nothing": (b"", ErrorCode.INVALID_RECORD),
    "two batches": (GOOD + GOOD, ErrorCode.INVALID_RECORD),
    "zeros after a batch": (GOOD + bytes(30), ErrorCode.CORRUPT_MESSAGE),
    "magic 0": (with_bytes(16, b"\0"), ErrorCode.INVALID_RECORD),
    "magic 1": (with_bytes(16, b"\1"), ErrorCode.INVALID_RECORD),
    "magic 3": (with_bytes(16, b"\3"), ErrorCode.CORRUPT_MESSAGE),
    "a flipped bit": (with_bytes(70, b"\xff"), ErrorCode.CORRUPT_MESSAGE),
    "torn": (GOOD[:-3], ErrorCode.INVALID_RECORD),
    "torn in the header": (GOOD[:40], ErrorCode.INVALID_RECORD),
    "ten bytes": (GOOD[:10], ErrorCode.INVALID_RECORD),
    "length 5": (with_bytes(8, struct.pack(">i", 5)), ErrorCode.CORRUPT_MESSAGE),
    "length 20": (with_bytes(8, struct.pack(">i", 20)), ErrorCode.CORRUPT_MESSAGE),
    "length -1": (with_bytes(8, struct.pack(">i", -1)), ErrorCode.CORRUPT_MESSAGE),
    "base offset": (changed(base_offset=5), ErrorCode.INVALID_RECORD),
    "no records": (changed(record_count=0), ErrorCode.INVALID_RECORD),
    "negative count": (changed(record_count=-1), ErrorCode.INVALID_RECORD),
    "another count": (changed(record_count=2), ErrorCode.INVALID_RECORD),
    "negative range": (changed(last_offset_delta=-1), ErrorCode.INVALID_RECORD),
    "a control batch": (changed(attributes=0x20), ErrorCode.INVALID_RECORD),
    "an unknown codec": (changed(attributes=5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "no sequence": (
        changed(producer_id=9, producer_epoch=0, base_sequence=-1),
        ErrorCode.INVALID_RECORD,
    ),
    "from the future": (batch(b"v", at=NOW + 3_600_001), ErrorCode.INVALID_TIMESTAMP),
    "too large": (batch(bytes(2000)), ErrorCode.MESSAGE_TOO_LARGE),
    "too large and corrupt": (batch(bytes(2000))[:-1] + b"x", ErrorCode.MESSAGE_TOO_LARGE),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(disk: Disk, name: str):
    data, code = REFUSED[name]
    log = disk.log(max_message_bytes=1500)
    put(log, GOOD)
    refusal = log.append(data, NOW)
    assert isinstance(refusal, Refusal) and refusal.code == code, refusal
    assert log.end_offset == 1
    assert put(log, GOOD).base_offset == 1


@pytest.mark.parametrize("tail", [b"abc", GOOD[:12], GOOD[:-1]])
def test_a_torn_second_batch_is_dropped(disk: Disk, tail: bytes):
    log = disk.log()
    put(log, GOOD + tail)
    assert log.size_bytes() == len(GOOD)


def test_accepted_oddities(disk: Disk):
    log = disk.log()
    for data in (batch(b"v", at=-1), batch(b"v", at=5), batch(b"v", at=NOW + 3_600_000)):
        put(log, data)
    put(log, memoryview(changed(partition_leader_epoch=7)))
    assert header_at(log.read(3, 1000)).partition_leader_epoch == 0


def test_larger_than_a_segment(disk: Disk):
    refusal = disk.log(segment_bytes=1000).append(batch(bytes(1500)), NOW)
    assert isinstance(refusal, Refusal) and refusal.code == ErrorCode.RECORD_LIST_TOO_LARGE


def test_compacted_topics_want_keys(disk: Disk):
    log = disk.log(cleanup_policy="compact")
    refusal = log.append(build([(b"k", b"v"), (None, b"v")], timestamp_ms=NOW), NOW)
    assert isinstance(refusal, Refusal) and refusal.code == ErrorCode.INVALID_RECORD
    put(log, build([(b"k", b"v"), (b"", b"v")], timestamp_ms=NOW))


def test_too_old_by_a_record_in_the_middle(disk: Disk):
    log = disk.log(message_timestamp_before_max_ms=1000)
    times = [NOW, NOW - 1001, NOW]
    refusal = log.append(build([(b"k", b"v")] * 3, timestamp_ms=0, timestamps_ms=times), NOW)
    assert isinstance(refusal, Refusal) and refusal.code == ErrorCode.INVALID_TIMESTAMP
    put(log, build([(b"k", b"v")] * 2, timestamp_ms=0, timestamps_ms=[NOW, NOW - 1000]))


@pytest.mark.parametrize("codec", range(5))
def test_log_append_time(disk: Disk, codec: int):
    log = disk.log(message_timestamp_type="LogAppendTime")
    data = build([(b"k", b"v")] * 3, timestamp_ms=NOW + 10**9, codec=codec)
    assert put(log, data, NOW + 7).log_append_time_ms == NOW + 7
    stored = log.read(0, 1000)
    header = header_at(stored)
    assert stored == seal(header, stored[61:]) + stored[61:], "the checksum is made anew"
    assert (header.timestamp_type, header.max_timestamp) == ("LogAppendTime", NOW + 7)
    assert {record.timestamp_ms for record in records(stored)} == {NOW + 7}
    refusal = log.append(changed(attributes=0x08), NOW)
    assert isinstance(refusal, Refusal) and refusal.code == ErrorCode.INVALID_TIMESTAMP


def test_create_time_clears_a_wrong_timestamp_type(disk: Disk):
    log = disk.log()
    assert put(log, changed(attributes=0x08)).log_append_time_ms == -1
    stored = log.read(0, 1000)
    assert header_at(stored).timestamp_type == "CreateTime"
    assert stored == seal(header_at(stored), stored[61:]) + stored[61:]


@pytest.mark.parametrize("codec", range(5))
def test_batches_are_stored_untouched(disk: Disk, codec: int):
    log = disk.log()
    data = build([(b"k", b"v" * 99)] * 3, timestamp_ms=NOW, codec=codec)
    put(log, data)
    put(log, data)
    stored = log.read(3, 1000)
    assert stored[16:] == data[16:]
    assert header_at(stored).base_offset == 3
