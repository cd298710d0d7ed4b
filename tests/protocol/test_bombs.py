"""Opening record batches that are much larger than their bytes, or that lie about their records."""

from __future__ import annotations

import random
import struct

import pytest

from headrace.protocol.compression import GZIP, LZ4, SNAPPY, ZSTD, compress
from headrace.protocol.limits import MAX_FRAMES, MAX_OPENED_RECORDS, MAX_RECORD_HEADERS
from headrace.protocol.primitives import read_varint, varint
from headrace.protocol.record_batch import (
    CorruptBatch,
    Opening,
    TooLargeToOpen,
    build,
    header_at,
    record_spans,
    records,
)
from tests.bombs import (
    CODECS,
    batch_of,
    broken_streams,
    compressed,
    cost_of,
    count_bomb,
    liars,
    record,
    size_bomb,
    tiny_records,
)

MIB = 1 << 20
COMPRESSED = {name: codec for name, codec in CODECS.items() if codec}


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
@pytest.mark.parametrize("function", ["sum(1 for _ in records(bomb))", "len(opened(bomb, head))"])
def test_a_batch_of_a_gigabyte_is_not_opened_whole(codec: int, function: str):
    """On 1 GiB of zeros in 33 kB of zstd this took 2.1 GB."""
    cost = cost_of(
        function,
        f"bomb = size_bomb({codec}, {1 << 30 if codec == ZSTD else 300 * MIB})\n"
        "head = header_at(bomb)",
    )
    assert cost.result == "TooLargeToOpen"
    limit = 100 * MIB if function.startswith("sum") else 700 * MIB
    assert cost.grown_bytes < limit, cost


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
@pytest.mark.parametrize(("count", "result"), [(64, "64"), (260, "TooLargeToOpen")])
def test_large_records_are_read_one_by_one_up_to_a_sum(codec: int, count: int, result: str):
    prepare = (
        "one = record(0, value=bytes(1 << 20))\n"
        f"bomb = batch_of(compressed({codec}, [one] * {count}), {count}, {codec})"
    )
    cost = cost_of("sum(1 for _ in records(bomb))", prepare)
    assert cost.result == result
    assert cost.grown_bytes < 16 * MIB, cost


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_two_million_tiny_records_are_refused_by_their_number(codec: int):
    """They took 16 s."""
    bomb = count_bomb(codec, 2_000_000)
    with pytest.raises(TooLargeToOpen):
        next(records(bomb))


@pytest.mark.slow
@pytest.mark.parametrize("codec", [GZIP, ZSTD])
def test_the_most_records_take_little_memory(codec: int):
    cost = cost_of(
        "sum(1 for _ in record_spans(bomb, header_at(bomb)))",
        f"bomb = count_bomb({codec}, {MAX_OPENED_RECORDS})",
    )
    assert cost.result == str(MAX_OPENED_RECORDS)
    assert cost.grown_bytes < 8 * MIB, cost


def test_a_zstd_frame_with_a_larger_window_than_javas_is_refused():
    prepare = (
        "import zstandard\n"
        "parameters = zstandard.ZstdCompressionParameters(window_log=31)\n"
        "stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()\n"
        "payload = b''.join(map(stream.compress, one_large_record(1 << 20))) + stream.flush()\n"
        "bomb = batch_of(payload, 1, 4)\n"
    )
    cost = cost_of("sum(1 for _ in records(bomb))", prepare)
    assert cost.result == "CorruptBatch"
    assert cost.grown_bytes < 8 * MIB, cost


@pytest.mark.parametrize("codec", [GZIP, ZSTD])
def test_a_batch_of_empty_frames_is_refused_by_their_number(codec: int) -> None:
    """30,000 of them fit into what is opened at once, and would take a quarter of a second."""
    empty, payload = compressed(codec, []), compressed(codec, [record()])
    assert len(list(records(batch_of(empty * (MAX_FRAMES - 1) + payload, 1, codec)))) == 1
    with pytest.raises(TooLargeToOpen):
        list(records(batch_of(empty * MAX_FRAMES + payload, 1, codec)))


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
def test_a_stream_that_ends_early_is_corrupt(codec: int) -> None:
    payload = compressed(codec, [record(value=random.Random(0).randbytes(1000))])
    for size in (len(payload) - 100, len(payload) // 2, 3):
        with pytest.raises(CorruptBatch):
            list(records(batch_of(payload[:size], 1, codec)))


@pytest.mark.parametrize("claimed", [2**32 - 1, 1 << 30, 100_000])
@pytest.mark.parametrize("framed", [True, False])
def test_a_snappy_block_that_claims_to_be_large(claimed: int, framed: bool):
    block, rest = bytearray(), claimed
    while rest >= 0x80:
        block.append(rest & 0x7F | 0x80)
        rest >>= 7
    block += bytes((rest,)) + b"\0\0"
    payload = bytes(block)
    if framed:
        payload = b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, len(payload)) + payload
    with pytest.raises(CorruptBatch):
        list(records(batch_of(payload, 1, SNAPPY)))


def test_a_snappy_frame_with_impossible_block_lengths():
    start = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    for length in (-1, 1000, 2**31 - 1):
        with pytest.raises(CorruptBatch):
            list(records(batch_of(start + struct.pack(">i", length) + b"abc", 1, SNAPPY)))


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_limits_on_one_opening(codec: int):
    batch = batch_of(compressed(codec, tiny_records(100)), 100, codec)
    header = header_at(batch)
    assert sum(1 for _ in record_spans(batch, header, Opening(1000, 100))) == 100
    with pytest.raises(TooLargeToOpen):
        list(record_spans(batch, header, Opening(1000, 99)))
    if codec:
        with pytest.raises(TooLargeToOpen):
            list(record_spans(batch, header, Opening(699, 100)))


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_an_opening_pauses_after_every_piece(codec: int):
    batch = build([(b"k", bytes(200_000))] * 3, timestamp_ms=1, codec=codec)
    pauses: list[int] = []
    opening = Opening(pause=lambda: pauses.append(1))
    assert sum(1 for _ in records(batch, opening)) == 3
    assert len(pauses) >= 600_000 // 40_000


READABLE = {
    "more records than stated",
    "rubbish after the records",
    "an offset twice",
    "offsets with a gap",
    "a max timestamp that no record has",
    "a key of length -2",
    "a value of length -2",
    "a null header name",
    "a header name that is not UTF-8",
}
"""Lies that do not keep the stated records from being read."""


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
@pytest.mark.parametrize("lie", liars(0))
def test_lies(codec: int, lie: str):
    batch = liars(codec)[lie]
    if lie in READABLE:
        assert list(records(batch))
    else:
        with pytest.raises(CorruptBatch):
            list(records(batch))


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_bytes_after_the_last_record_are_refused_on_demand(codec: int):
    for lie in ("more records than stated", "rubbish after the records"):
        batch = liars(codec)[lie]
        with pytest.raises(CorruptBatch, match="follow"):
            list(record_spans(batch, header_at(batch), whole=True))
    batch = build([(b"k", b"v")] * 3, timestamp_ms=1, codec=codec)
    assert len(list(record_spans(batch, header_at(batch), whole=True))) == 3


@pytest.mark.parametrize("codec", COMPRESSED.values(), ids=COMPRESSED)
@pytest.mark.parametrize("damage", broken_streams(GZIP))
def test_broken_streams(codec: int, damage: str):
    batch = broken_streams(codec)[damage]
    try:
        read = list(records(batch))
    except CorruptBatch:
        return
    assert damage in ("bytes after the end", "cut by one byte")
    assert [one.offset for one in read] == [0, 1]


def test_more_headers_than_a_record_may_have():
    count = MAX_RECORD_HEADERS + 1
    crowded = record(0, headers=varint(count) + b"\0\1" * count)
    with pytest.raises(CorruptBatch, match="headers"):
        list(records(batch_of(crowded, 1)))


def test_a_gzip_stream_of_several_members():
    first, second = record(0), record(1)
    payload = compress(GZIP, first) + compress(GZIP, second)
    assert [one.offset for one in records(batch_of(payload, 2, GZIP))] == [0, 1]
    assert [one.offset for one in records(batch_of(payload + b"rubbish", 2, GZIP))] == [0, 1]


def test_a_zstd_stream_of_several_frames():
    payload = compress(ZSTD, record(0)) + compress(ZSTD, record(1))
    assert [one.offset for one in records(batch_of(payload, 2, ZSTD))] == [0, 1]


def test_a_varint_has_ten_bytes_at_most():
    """A million bytes made one integer of seven million bits, in quadratic time."""
    longest = b"\xff" * 9 + b"\x01"
    assert read_varint(longest, 0) == (-(2**63), 10)
    with pytest.raises(ValueError, match="longer than 10 bytes"):
        read_varint(b"\x80" * 1_000_000 + b"\1", 0)


def test_a_size_bomb_is_small():
    assert len(size_bomb(ZSTD, 64 * MIB)) < 40_000
