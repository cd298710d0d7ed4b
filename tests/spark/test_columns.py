"""Record batches as columns, compared with opening them record by record."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.protocol import record_batch
from headrace.protocol.primitives import varint
from headrace.protocol.record_batch import Marker
from headrace.spark.reader.batches import Batches, WantedOffsets
from headrace.spark.reader.columns import decode
from tests.bombs import batch_of, cost_of, liars, record

HEADER = st.tuples(st.text(max_size=100), st.none() | st.binary(max_size=100))
RECORD = st.tuples(
    st.none() | st.binary(max_size=100),
    st.none() | st.binary(max_size=300),
    st.lists(HEADER, max_size=3),
    st.integers(-1, 2**62),
)
BATCH = st.tuples(
    st.lists(RECORD, min_size=1, max_size=6),
    st.integers(0, 4),
    st.sampled_from((0, record_batch.LOG_APPEND_TIME_BIT)),
    st.integers(0, 3),
)


def built(batches: list[Any], repeat: int = 1) -> bytes:
    """Return batches one behind the other, with gaps in their offsets."""
    out, offset = bytearray(), 7
    for records, codec, attributes, gap in batches * repeat:
        out += record_batch.build(
            [(key, value) for key, value, _, _ in records],
            timestamp_ms=0,
            timestamps_ms=[timestamp for *_, timestamp in records],
            headers=[headers for _, _, headers, _ in records],
            codec=codec,
            attributes=attributes,
            base_offset=offset,
        )
        offset += len(records) + gap
    return bytes(out)


def one_by_one(data: bytes) -> list[tuple[Any, ...]]:
    return [
        (
            r.offset,
            r.timestamp_ms,
            r.key,
            r.value,
            [{"key": k, "value": v} for k, v in r.headers] or None,
        )
        for position, _ in record_batch.headers(data)
        for r in record_batch.records(data[position:])
    ]


def as_columns(
    data: bytes, wanted: WantedOffsets | None = None, **options: Any
) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for r in decode(Batches.find(data), kept_offsets=wanted, headers=True, **options):
        columns = (
            r.offset.tolist(),
            r.timestamp_ms.tolist(),
            *(c.to_pylist() for c in (r.key, r.value, r.headers)),
        )
        rows += zip(*columns, strict=True)
    return rows


@given(st.lists(BATCH, max_size=5), st.sampled_from((1, 1, 150)), st.integers(0, 50))
@settings(deadline=None)
def test_columns_hold_what_opening_each_record_finds(
    batches: list[Any], repeat: int, torn_bytes: int
) -> None:
    data = built(batches, repeat)
    assert as_columns(data + data[:torn_bytes], most_bytes=1000) == one_by_one(data)


@given(st.lists(BATCH, min_size=1, max_size=5), st.sets(st.integers(0, 60), min_size=2))
@settings(deadline=None)
def test_only_wanted_offsets_are_decoded(batches: list[Any], bounds: set[int]) -> None:
    ordered = sorted(bounds)
    ranges = list(zip(ordered[::2], ordered[1::2], strict=False))
    data = built(batches)
    expected = [
        row for row in one_by_one(data) if any(start <= row[0] < end for start, end in ranges)
    ]
    assert as_columns(data, WantedOffsets.of(ranges)) == expected


@given(st.lists(BATCH, min_size=1, max_size=4), st.data())
@settings(deadline=None)
def test_damaged_bytes_raise_only_corrupt_batch(batches: list[Any], data: Any) -> None:
    broken = bytearray(built(batches, data.draw(st.sampled_from((1, 60)))))
    for _ in range(data.draw(st.integers(1, 4))):
        broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = Batches.find(bytes(broken))
        for records in decode(found, headers=True):
            records.key.validate(full=True)
            records.value.validate(full=True)
    except record_batch.CorruptBatch:
        pass
    try:
        found = Batches.find(bytes(broken))
    except record_batch.CorruptBatch:
        return
    for number in range(len(found)):
        batch = found.batch(number)
        if not record_batch.has_right_crc(batch, record_batch.header_at(batch)):
            return
    assert as_columns(bytes(broken)) == one_by_one(bytes(broken)), (
        "bytes with a right checksum must be readable"
    )


def test_timestamps_are_limited_to_microseconds_of_64_bits() -> None:
    data = record_batch.build(
        [(None, None), (b"", b"")], timestamp_ms=0, timestamps_ms=[1_700_000_000_123, 2**62]
    )
    (records,) = decode(Batches.find(data))
    rows = records.spark_batch("flights", 3)
    assert rows.column("timestamp").cast("int64").to_pylist() == [
        1_700_000_000_123_000,
        (2**63 - 1) // 1000 * 1000,
    ]
    assert rows.column("key").to_pylist() == [None, b""]
    assert rows.column("topic").to_pylist() == ["flights"] * 2
    assert rows.column("partition").to_pylist() == [3, 3]


def test_aborted_records_and_markers_are_not_visible() -> None:
    data, expected, offset = b"", [], 0

    def add(producer_id: int, is_visible: bool, marker: Marker | None = None) -> None:
        nonlocal data, offset
        if marker is not None:
            piece = bytearray(record_batch.end_transaction_marker(producer_id, 0, marker, 1))
            piece[:8] = offset.to_bytes(8, "big")
            count = 1
        else:
            attributes = record_batch.TRANSACTIONAL_BIT if producer_id >= 0 else 0
            pairs = [(None, b"%d" % (offset + i)) for i in range(2)]
            piece = bytearray(
                record_batch.build(
                    pairs,
                    timestamp_ms=1,
                    base_offset=offset,
                    attributes=attributes,
                    producer_id=producer_id,
                )
            )
            count = 2
        if is_visible:
            expected.extend(range(offset, offset + count))
        data += bytes(piece)
        offset += count

    add(5, is_visible=False)  # aborted
    add(6, is_visible=True)  # committed
    add(-1, is_visible=True)
    add(5, is_visible=False, marker=Marker(False, 0))
    add(5, is_visible=True)  # its next transaction
    add(6, is_visible=False, marker=Marker(True, 0))
    second = offset
    add(6, is_visible=False)
    add(5, is_visible=False, marker=Marker(True, 0))
    add(6, is_visible=False, marker=Marker(False, 0))
    add(6, is_visible=True)
    batches = Batches.find(data)
    seen = [o for r in decode(batches, [(6, second), (5, 0)]) for o in r.offset.tolist()]
    assert seen == expected


@pytest.mark.parametrize(
    "data",
    [
        batch_of(record(0) + record(1), 2_000_000_000) * 200,
        batch_of(record(0) + record(1), 2_000_000_000),
        batch_of(b"\x80" * 400_000 + b"\x01", 1),
        batch_of(record(0, headers=varint(300_000) + b"\0\1" * 300_000), 1),
        *liars(0).values(),
        *liars(4).values(),
    ],
)
def test_batches_that_lie(data: bytes) -> None:
    """2 billion records in each of 200 batches were a MemoryError, 300,000 headers took 13 s."""
    try:
        found = sum(map(len, decode(Batches.find(data), headers=True)))
    except record_batch.CorruptBatch:
        return
    assert found == record_batch.header_at(data).record_count == 2


def test_a_bomb_is_not_opened_whole() -> None:
    cost = cost_of(
        "next(decode(Batches.find(data)))",
        "from headrace.spark.reader.batches import Batches\n"
        "from headrace.spark.reader.columns import decode\n"
        "data = size_bomb(4, 1 << 30)",
    )
    assert cost.result == "TooLargeToOpen"
    assert cost.grown_bytes < 300 << 20
