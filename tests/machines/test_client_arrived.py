"""Records that a share consumer has not handed out yet."""

from __future__ import annotations

from uuid import UUID

import pytest

from headrace.client.records import UnreadableBatch
from headrace.client.share.arrived import Arrived, runs
from headrace.client.share.types import AcquiredRange
from headrace.protocol import record_batch

TOPIC_ID = UUID(int=1)


def batch(base_offset: int, values: list[bytes]) -> bytearray:
    data = bytearray(record_batch.build([(None, value) for value in values], timestamp_ms=0))
    data[:8] = base_offset.to_bytes(8, "big")
    return data


def arrived(data: bytes, *spans: tuple[int, int]) -> Arrived:
    return Arrived(data, [AcquiredRange("t", 0, *span, 1, TOPIC_ID) for span in spans])


def offsets(records: Arrived, max_records: int = 100, max_bytes: int = 100) -> list[int]:
    return [record.offset for record in records.take(max_records, max_bytes)]


def test_records_are_taken_in_parts_by_number_and_size() -> None:
    records = arrived(batch(0, [b"a", b"bb", b"c" * 50, b"d"]), (0, 3))
    assert offsets(records, max_records=1) == [0]
    assert offsets(records, max_bytes=51) == [1]
    assert offsets(records, max_bytes=1) == [2]  # the first may be larger
    assert records.left == [(3, 3)]
    assert [record.size_bytes for record in records.take(9, 9)] == [1]
    assert offsets(records) == []
    assert records.left == []


def test_offsets_without_a_record_are_left_and_lost_ones_are_not() -> None:
    records = arrived(batch(0, [b"a", b"b"]) + batch(5, [b"c", b"d", b"e"]), (0, 7))
    assert offsets(records, max_records=1) == [0]
    records.lose([(1, 1), (6, 7)])
    assert offsets(records) == [5]
    assert offsets(records) == []
    assert records.left == [(2, 4)]


def test_records_after_a_batch_that_cannot_be_read() -> None:
    damaged = batch(2, [b"c", b"d"])
    damaged[-1] ^= 1
    records = arrived(batch(0, [b"a", b"b"]) + damaged + batch(4, [b"e"]), (0, 4))
    assert offsets(records) == [0, 1]
    with pytest.raises(UnreadableBatch) as error:
        offsets(records)
    assert (error.value.offset, error.value.last_offset) == (2, 3)
    records.lose([(2, 3)])
    assert offsets(records) == [4]
    assert offsets(records) == []
    assert records.left == []


def test_runs() -> None:
    assert runs([]) == []
    assert runs([3, 4, 5]) == [(3, 5)]
    assert runs([1, 3, 4]) == [(1, 1), (3, 4)]
    assert runs([1, 3, 3, 4]) == [(1, 1), (3, 4)]
    assert runs([4, 3, 1]) == [(1, 1), (3, 4)]
