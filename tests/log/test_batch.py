"""Record batches: building, opening, reading headers."""

from __future__ import annotations

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.protocol.compression import LZ4, SNAPPY
from headrace.protocol.record_batch import (
    HEADER_BYTES,
    CorruptBatch,
    build,
    has_right_crc,
    header_at,
    headers,
    records,
    seal,
)

small_bytes = st.none() | st.binary(max_size=40)
record = st.tuples(
    small_bytes,
    small_bytes,
    st.integers(0, 2**42),
    st.lists(st.tuples(st.text(max_size=5), small_bytes), max_size=3),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(record, min_size=1, max_size=20), st.integers(0, 4), st.integers(0, 2**50))
def test_a_built_batch_can_be_read(given_records, codec, base_offset):
    batch = build(
        [(key, value) for key, value, _, _ in given_records],
        timestamp_ms=0,
        timestamps_ms=[timestamp for _, _, timestamp, _ in given_records],
        headers=[own for _, _, _, own in given_records],
        codec=codec,
        base_offset=base_offset,
    )
    header = header_at(batch)
    assert has_right_crc(memoryview(batch), header)
    assert (header.size_bytes, header.codec, header.record_count) == (
        len(batch),
        codec,
        len(given_records),
    )
    assert header.max_timestamp == max(timestamp for _, _, timestamp, _ in given_records)
    opened = list(records(batch))
    assert [record.offset for record in opened] == list(
        range(base_offset, base_offset + len(given_records))
    )
    assert [(r.key, r.value, r.timestamp_ms, list(r.headers)) for r in opened] == given_records


def test_bare_snappy_blocks_are_read_too():
    body = build([(b"k", b"v" * 100)], timestamp_ms=5)[HEADER_BYTES:]
    block = bytes(cramjam.snappy.compress_raw(body))
    header = header_at(build([(b"k", b"v" * 100)], timestamp_ms=5))
    header = header._replace(attributes=SNAPPY, batch_length=49 + len(block))
    assert [r.value for r in records(seal(header, block) + block)] == [b"v" * 100]


def test_snappy_larger_than_one_xerial_block():
    batch = build([(None, bytes(100_000))], timestamp_ms=5, codec=SNAPPY)
    assert [r.value for r in records(batch)] == [bytes(100_000)]


def test_lz4_frames_are_of_independent_blocks():
    """The Java clients refuse other frames."""
    batch = build([(None, bytes(200_000))], timestamp_ms=5, codec=LZ4)
    assert batch[HEADER_BYTES + 4] & 0x20
    assert [r.value for r in records(batch)] == [bytes(200_000)]


@pytest.mark.parametrize("codec", range(5))
def test_invalid_records_are_corrupt(codec):
    batch = bytearray(build([(b"key", b"v" * 50)] * 3, timestamp_ms=5, codec=codec))
    batch[HEADER_BYTES:] = b"\xf7" * (len(batch) - HEADER_BYTES)
    with pytest.raises(CorruptBatch):
        list(records(bytes(batch)))


def test_headers_leaves_out_a_torn_last_batch():
    one, two = build([(b"a", b"1")], timestamp_ms=1), build([(b"b", b"2")] * 2, timestamp_ms=2)
    for cut in range(1, len(two)):
        data = one + two[:-cut]
        assert [position for position, _ in headers(data)] == [0]
    assert [(p, h.record_count) for p, h in headers(one + two)] == [(0, 1), (len(one), 2)]


def test_a_length_no_batch_has_stops_the_walk():
    with pytest.raises(CorruptBatch):
        list(headers(bytes(100)))


def test_log_append_time_is_the_time_of_every_record():
    batch = build([(b"k", b"v")] * 3, timestamp_ms=1)
    header = header_at(batch)._replace(attributes=0x08, max_timestamp=99)
    assert [r.timestamp_ms for r in records(seal(header, batch[61:]) + batch[61:])] == [99, 99, 99]


def test_header_keys_that_are_not_utf8_are_read_as_kafkas_clients_read_them():
    batch = build([(b"k", b"v")], timestamp_ms=1, headers=[[("h?", b"1")]])
    payload = batch[HEADER_BYTES:].replace(b"h?", b"h\xff")
    (found,) = records(seal(header_at(batch), payload) + payload)
    assert found.headers == (("h\ufffd", b"1"),)


def test_sequences_start_again_after_the_largest():
    batch = build(
        [(b"k", b"v")] * 3, timestamp_ms=1, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2
    )
    assert header_at(batch).last_sequence == 0


def test_a_batch_needs_a_record():
    with pytest.raises(ValueError):
        build([], timestamp_ms=1)
