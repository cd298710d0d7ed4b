"""The records in the batches that a share consumer has acquired."""

from __future__ import annotations

import struct
import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch
from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder

from headrace.client.records import Record, UnreadableBatch, decode, decode_lists
from headrace.client.share.types import AcquiredRange
from headrace.protocol import record_batch
from headrace.protocol.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from tests.bombs import CODECS, batch_of, broken_streams, liars, record, size_bomb

PLACE = ("t", 0)


def batch(first: int, count: int, codec: int = NONE) -> bytes:
    """Return a batch whose values are the offsets as text."""
    values = [(None, b"%d" % offset) for offset in range(first, first + count)]
    return record_batch.build(values, timestamp_ms=1000 + first, codec=codec, base_offset=first)


def marker(offset: int) -> bytes:
    data = record_batch.end_transaction_marker(1, 0, record_batch.Marker(True, 0), 1000)
    return offset.to_bytes(8, "big") + data[8:]


def run(first_offset: int, last_offset: int, delivery_count: int = 1) -> AcquiredRange:
    return AcquiredRange(*PLACE, first_offset, last_offset, delivery_count)


def read(data: bytes, *ranges: AcquiredRange) -> list[tuple[int, int]]:
    """Return offset and delivery count of the records."""
    records = decode(data, ranges)
    assert all(record.value == b"%d" % record.offset for record in records)
    return [(record.offset, record.delivery_count) for record in records]


def test_all_batches_of_all_codecs() -> None:
    data = b"".join(batch(3 * c, 3, c) for c in (NONE, GZIP, SNAPPY, LZ4, ZSTD))
    assert read(data, run(0, 14)) == [(offset, 1) for offset in range(15)]


def test_only_acquired_offsets_with_their_delivery_counts() -> None:
    data = batch(0, 4) + batch(4, 4) + batch(8, 4)
    assert read(data, run(9, 9, 3), run(1, 2), run(3, 4, 2)) == [
        (1, 1),
        (2, 1),
        (3, 2),
        (4, 2),
        (9, 3),
    ]


def test_markers_and_offsets_without_a_record_are_left_out() -> None:
    data = batch(0, 2) + marker(2) + batch(5, 2) + marker(7)
    assert read(data, run(0, 7)) == [(0, 1), (1, 1), (5, 1), (6, 1)]


def test_each_record_comes_once_after_its_leader_has_moved() -> None:
    data = batch(4, 4) + batch(8, 2) + batch(0, 4) + batch(4, 4)
    assert read(data, run(4, 9), run(0, 7, 2)) == [
        *((offset, 2) for offset in range(8)),
        (8, 1),
        (9, 1),
    ]


def test_runs_that_overlap() -> None:
    data = batch(0, 10)
    assert read(data, run(0, 7, 2), run(2, 3), run(5, 9)) == [
        *((offset, 2) for offset in range(8)),
        (8, 1),
        (9, 1),
    ]


def test_a_run_may_end_in_a_gap_after_the_last_batch() -> None:
    """Compaction has emptied the offsets; the limit of records ends the run between them."""
    assert read(batch(0, 3), run(0, 4)) == [(0, 1), (1, 1), (2, 1)]


def test_a_run_of_which_nothing_came_is_an_error() -> None:
    with pytest.raises(UnreadableBatch, match="from offset 3 to 9: its records did not come"):
        read(batch(0, 3), run(0, 4), run(7, 9, 2))


@pytest.mark.parametrize("data", [b"", batch(0, 3) + batch(3, 2)[:-1]])
def test_records_that_did_not_come_are_an_error(data: bytes) -> None:
    with pytest.raises(UnreadableBatch, match="did not come") as caught:
        read(data, run(0, 4))
    assert caught.value.offset == (3 if data else 0)
    assert caught.value.last_offset == 4
    assert [record.offset for record in caught.value.records] == list(range(caught.value.offset))


def test_a_damaged_batch_is_an_error_with_the_records_before_it() -> None:
    data = bytearray(batch(0, 2) + batch(2, 3, GZIP) + batch(5, 2))
    data[-len(batch(5, 2)) - 8] ^= 0xFF
    with pytest.raises(UnreadableBatch, match=r"t-0 .*offset 2 .*checksum") as caught:
        decode(bytes(data), [run(1, 6)])
    error = caught.value
    assert (error.topic, error.partition, error.offset, error.last_offset) == ("t", 0, 2, 4)
    assert [record.offset for record in error.records] == [1]
    assert read(bytes(data), run(5, 6)) == [(5, 1), (6, 1)]


def test_nothing_was_acquired() -> None:
    assert decode(batch(0, 1), []) == []


def test_the_size_of_a_record_has_key_value_and_headers() -> None:
    data = record_batch.build(
        [(b"key", b"value"), (None, None)],
        timestamp_ms=0,
        headers=[[("name", b"abc"), ("n", None)], []],
    )
    assert [record.size_bytes for record in decode(data, [run(0, 1)])] == [3 + 5 + 7 + 1, 0]


def test_a_record_is_immutable_and_compared_without_the_id_of_its_topic() -> None:
    (record,) = decode(batch(7, 1), [AcquiredRange("t", 0, 7, 7, 2, UUID(int=1))])
    assert repr(record) == (
        "Record(topic='t', partition=0, offset=7, key=None, value=b'7', headers=(), "
        "timestamp_ms=1007, timestamp_type='CreateTime', delivery_count=2)"
    )
    same = Record("t", 0, 7, None, b"7", (), 1007, "CreateTime", 2, UUID(int=2))
    assert record == same
    assert not (record != same)  # noqa: SIM202 - the operator is its own
    assert len({record, same, same._replace(offset=8)}) == 2
    with pytest.raises(AttributeError):
        record.offset = 8  # type: ignore[misc]
    with pytest.raises(AttributeError):
        record.other = 8  # type: ignore[attr-defined]


# Batches that lie ---------------------------------------------------------------------------------

HARMLESS = {
    "a max timestamp that no record has",
    "a key of length -2",
    "a value of length -2",
    "a null header name",
    "a header name that is not UTF-8",
}
"""Lies about what no reader needs, which Kafka's clients read, too."""


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
@pytest.mark.parametrize("lie", liars(0))
def test_a_batch_that_lies_is_an_error_or_read_right(lie: str, codec: int) -> None:
    data = liars(codec)[lie]
    began_s = time.process_time()
    if lie in HARMLESS:
        assert [record.offset for record in decode(data, [run(0, 1)])] == [0, 1]
        return
    with pytest.raises(UnreadableBatch) as caught:
        decode(data, [run(0, 2)])
    error = caught.value
    assert str(error).startswith("t-0 cannot be read from offset ")
    assert [record.value for record in error.records] == [b"v"] * len(error.records)
    assert [record.offset for record in error.records] == list(range(error.offset))
    assert time.process_time() - began_s < 1


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
def test_a_batch_that_is_too_large_to_open_is_an_error(codec: int) -> None:
    with pytest.raises(UnreadableBatch, match="not opened"):
        decode(size_bomb(codec, 300 << 20), [run(0, 0)])


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_a_record_of_100_mb(codec: int) -> None:
    value = bytes(50_000_000) * 2
    data = record_batch.build([(None, value)], timestamp_ms=1, codec=codec)
    (large,) = decode(data, [run(0, 0)])
    assert large.value == value


@pytest.mark.parametrize("damage", broken_streams(GZIP))
@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_broken_streams(damage: str, codec: int) -> None:
    data = broken_streams(codec)[damage]
    if damage in ("bytes after the end", "cut by one byte"):  # after the records
        with suppress(UnreadableBatch):
            assert [record.offset for record in decode(data, [run(0, 1)])] == [0, 1]
    else:
        with pytest.raises(UnreadableBatch):
            decode(data, [run(0, 1)])


@pytest.mark.parametrize(
    "fields",
    [
        {"magic": 1},
        {"record_count": -1},
        {"record_count": 3},
        {"last_offset_delta": -5},
        {"last_offset_delta": 0},
    ],
)
def test_headers_that_lie(fields: dict[str, int]) -> None:
    data = batch_of(record(0) + record(1), 2, **fields)
    with pytest.raises(UnreadableBatch, match="offset 0"):
        decode(data, [run(0, 1)])


def test_offsets_outside_the_batch_are_an_error() -> None:
    for numbers in ((1, 0), (0, 2), (-1, 1), (0, 2**60)):
        data = batch_of(b"".join(map(record, numbers)), 2)
        with pytest.raises(UnreadableBatch, match="wrong offsets"):
            decode(data, [run(-5, 2**61)])


def test_a_batch_without_records_is_skipped_if_it_has_no_bytes() -> None:
    """Compaction leaves such a batch, whose producer is not forgotten."""
    empty = batch_of(b"", 0, GZIP, last_offset_delta=4)
    assert read(empty + batch(5, 1), run(0, 5)) == [(5, 1)]
    with pytest.raises(UnreadableBatch, match="bytes follow"):
        decode(batch_of(record(0), 0, last_offset_delta=4), [run(0, 4)])


def test_what_is_not_acquired_is_not_read() -> None:
    spoiled = bytearray(batch(4, 2))
    spoiled[-1] ^= 0xFF
    assert read(batch(0, 4) + bytes(spoiled) + batch(6, 2), run(2, 3), run(6, 7)) == [
        (2, 1),
        (3, 1),
        (6, 1),
        (7, 1),
    ]


# Against kafka-python -----------------------------------------------------------------------------

CONTROL, COMPRESSED, PLAIN = "control", "compressed", "plain"
content = st.none() | st.binary(max_size=40) | st.binary(min_size=60, max_size=9000)
plain_record = st.tuples(
    st.integers(0, 2**42),
    content,
    content,
    st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=200)), max_size=3),
)


@st.composite
def logs(draw: st.DrawFn) -> list[bytes]:
    """Return batches in the order of their offsets, with gaps between them. kafka-python writes
    them; some are control batches.
    """
    batches, next_offset = [], draw(st.integers(0, 2**40))
    for records in draw(st.lists(st.lists(plain_record, min_size=1, max_size=12), max_size=6)):
        next_offset += draw(st.sampled_from((0, 0, 1, 7)))
        if draw(st.integers(0, 5)) == 0:
            batches.append(marker(next_offset))
            next_offset += 1
            continue
        builder = MemoryRecordsBuilder(2, draw(st.integers(0, 4)), 1 << 30)
        for timestamp_ms, key, value, headers in records:
            builder.append(timestamp_ms, key, value, headers)
        builder.close()
        data = bytearray(builder.buffer())
        struct.pack_into(">q", data, 0, next_offset)
        batches.append(bytes(data))
        next_offset += len(records)
    return batches


def of_kafka_python(batches: list[bytes]) -> Iterator[tuple[int, Any]]:
    """Yield the offsets and records that kafka-python reads, without markers."""
    reader = MemoryRecords(b"".join(batches))
    while reader.has_next():
        found = reader.next_batch()
        assert isinstance(found, DefaultRecordBatch)
        if not found.is_control_batch:
            for one in found:
                yield one.offset, (one.key, one.value, tuple(one.headers), one.timestamp)


@st.composite
def answers(draw: st.DrawFn) -> tuple[list[bytes], bytes, list[AcquiredRange]]:
    """Return a log, the batches of an answer, and what was acquired of them.

    As after a move of the leader, some batches come twice, and those of the second broker first.
    """
    batches = draw(logs())
    cut, begin = (draw(st.integers(0, len(batches))) for _ in range(2))
    data = b"".join(batches[min(cut, begin) :] + batches[:cut])
    ranges: list[AcquiredRange] = []
    if batches:
        first = record_batch.header_at(batches[0]).base_offset
        last = record_batch.header_at(batches[-1]).last_offset
        bounds = sorted(draw(st.lists(st.integers(first, last), max_size=8)))
        for begin, end in zip(bounds[::2], bounds[1::2], strict=False):
            if not ranges or ranges[-1].last_offset < begin:
                ranges.append(run(begin, end, draw(st.integers(1, 5))))
    return batches, data, draw(st.permutations(ranges))


def shown(record: Record) -> tuple[int, Any]:
    return record.offset, (record.key, record.value, record.headers, record.timestamp_ms)


@settings(deadline=None)
@given(answers())
def test_kafka_python_reads_the_same(answer: Any) -> None:
    batches, data, ranges = answer
    decoded = decode(data, ranges)
    assert list(map(shown, decoded)) == [
        (offset, content)
        for offset, content in of_kafka_python(batches)
        if any(run.first_offset <= offset <= run.last_offset for run in ranges)
    ]
    ascending = sorted(ranges, key=lambda run: run.first_offset)
    last_offsets = [run.last_offset for run in ascending]
    assert [one.delivery_count for one in decoded] == [
        ascending[bisect_left(last_offsets, one.offset)].delivery_count for one in decoded
    ]


@settings(deadline=None)
@given(answers(), st.data())
def test_damage_is_an_error_and_never_a_wrong_record(answer: Any, data: Any) -> None:
    """Of a batch's head, the checksum covers what comes after the checksum."""
    batches, received, ranges = answer
    right = dict(of_kafka_python(batches))
    spoiled = bytearray(received)
    places = [
        position + at
        for position, header in record_batch.headers(received)
        for at in range(header.size_bytes)
        if not (at < 8 or 12 <= at < 16)
    ]
    if places:
        at = data.draw(st.sampled_from(places))
        spoiled[at] ^= data.draw(st.integers(1, 255))
    del spoiled[data.draw(st.integers(0, len(spoiled))) :]
    decoded: list[Record] = []
    for some in decode_lists(bytes(spoiled), ranges):
        if not isinstance(some, UnreadableBatch):
            decoded += some
    assert [shown(one) for one in decoded] == [(one.offset, right[one.offset]) for one in decoded]
