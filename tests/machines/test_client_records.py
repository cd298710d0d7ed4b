"""The records in the batches that a share consumer has acquired."""

from __future__ import annotations

from uuid import UUID

import pytest

from headrace.client.records import Record, UnreadableBatch, decode
from headrace.client.share.types import AcquiredRange
from headrace.protocol import record_batch
from headrace.protocol.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD

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


@pytest.mark.parametrize("data", [b"", batch(0, 3), batch(0, 3) + batch(3, 2)[:-1]])
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
