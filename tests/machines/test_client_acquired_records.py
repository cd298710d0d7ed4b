"""The records in what a share consumer has acquired."""

from __future__ import annotations

import pytest

from headrace.client.share.types import Acquired, AcquiredRange
from headrace.protocol import record_batch
from headrace.protocol.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from headrace.protocol.record_batch import CorruptBatch

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
    records = list(Acquired(ranges, {PLACE: data}).records())
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


def test_several_partitions() -> None:
    other = AcquiredRange("u", 1, 5, 5, 1)
    acquired = Acquired((run(0, 0), other), {PLACE: batch(0, 1), ("u", 1): batch(4, 2)})
    assert [(r.topic, r.partition, r.offset) for r in acquired.records()] == [
        ("t", 0, 0),
        ("u", 1, 5),
    ]


@pytest.mark.parametrize("data", [b"", batch(0, 3), batch(0, 3) + batch(3, 2)[:-1]])
def test_records_that_did_not_come_are_an_error(data: bytes) -> None:
    with pytest.raises(CorruptBatch, match="did not come"):
        read(data, run(0, 4))


def test_a_damaged_batch_is_an_error_after_the_records_before_it() -> None:
    data = bytearray(batch(0, 1) + batch(1, 1, GZIP))
    data[-8] ^= 0xFF
    records = Acquired((run(0, 1),), {PLACE: bytes(data)}).records()
    assert next(records).offset == 0
    with pytest.raises(CorruptBatch):
        next(records)


def test_nothing_was_acquired() -> None:
    assert list(Acquired().records()) == []
