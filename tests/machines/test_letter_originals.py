"""What the look-up of the originals of dead letters reads and keeps, whatever the topic holds."""

from __future__ import annotations

import tracemalloc
from bisect import bisect_right
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from headrace.client import partition_reader
from headrace.client.cluster import Cluster, TopicMetadata
from headrace.client.dead_letters import originals
from headrace.client.dead_letters.letters import DeadLetter
from headrace.client.dead_letters.originals import Evidence
from headrace.client.dead_letters.reading import QueueReader
from headrace.client.fetch import FetchedPartition
from headrace.client.offsets import ListedOffset
from headrace.protocol.compression import NONE, ZSTD
from headrace.protocol.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition
from headrace.protocol.record_batch import header_at
from tests.bombs import batch_of, compressed, record

MIB = 1 << 20


class Log:
    """Partitions of topic ``t``, as a leader sends them; it counts what it sends.

    :param batches: partition → batches, in order of their offsets
    """

    def __init__(self, batches: dict[int, list[bytes]]) -> None:
        self.batches = batches
        self.sent_bytes = 0

    def fetch(self, place: TopicPartition, offset: int, max_bytes: int) -> Any:
        batches = self.batches[place[1]]
        lasts = [header_at(batch).last_offset for batch in batches]
        data = b""
        for batch in batches[bisect_right(lasts, offset - 1) :]:
            if data and len(data) + len(batch) > max_bytes:
                break
            data += batch
        self.sent_bytes += len(data)
        return FetchedPartition(ErrorCode.NONE, 1 << 40, 1 << 40, data, ())


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    log = Log({})

    async def metadata(*_: object) -> Any:
        return {"t": TopicMetadata("t", UUID(int=1), dict.fromkeys(log.batches, 0))}

    async def connection(*_: object) -> Any:
        return SimpleNamespace(address="a:1")

    async def list_offsets(_: object, places: Any, **__: object) -> Any:
        return {place: ListedOffset(1 << 40, None, None) for place in places}

    async def fetch(_: object, positions: Any, *__: object, **___: object) -> Any:
        return {
            place: log.fetch(place, position.offset, position.max_bytes)
            for place, position in positions.items()
        }

    monkeypatch.setattr(Cluster, "metadata", metadata)
    monkeypatch.setattr(Cluster, "connection", connection)
    monkeypatch.setattr(originals, "list_offsets", list_offsets)
    monkeypatch.setattr(partition_reader, "list_offsets", list_offsets)
    monkeypatch.setattr(partition_reader, "fetch", fetch)
    return log


@pytest.fixture
def reader(log: Log) -> Iterator[QueueReader]:
    with QueueReader({"bootstrap.servers": "127.0.0.1:1"}, "dlq") as opened:
        yield opened


def batch(offset: int, value: bytes, codec: int = NONE) -> bytes:
    """Return a batch of one record."""
    return batch_of(compressed(codec, [record(0, None, value)]), 1, codec, base_offset=offset)


def opening(count: int, size_bytes: int) -> list[bytes]:
    """Return batches of few bytes, each of which opens to one record of this size."""
    payload = compressed(ZSTD, [record(0, None, bytes(size_bytes))])
    return [batch_of(payload, 1, ZSTD, base_offset=offset) for offset in range(count)]


def letter(offset: int, partition: int = 0, value: bytes | None = None) -> DeadLetter:
    """Return the letter of a record; it has a copy of the record if ``value`` is given."""
    has_copy = value is not None
    return DeadLetter(
        *("dlq", 0, 0, 1 << 41, ("t", partition), offset, "g", 5, "rejected"),
        *(has_copy, None, value, (), 0),
    )


def test_few_stored_bytes_that_open_to_many_are_not_kept_together(
    log: Log, reader: QueueReader
) -> None:
    log.batches = {0: opening(60, 8 * MIB - 200)}
    count = 0
    tracemalloc.start()
    try:
        for filled in (reader.filled(letter(offset)) for offset in range(60)):
            assert len(filled.value or b"") == 8 * MIB - 200
            assert filled.source_offset == count
            count += 1
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 60
    assert peak_bytes < 60 * MIB


def test_letters_of_many_partitions_keep_their_order(log: Log, reader: QueueReader) -> None:
    log.batches = {
        0: [batch(n, b"a%d" % n) for n in range(40)],
        1: opening(10, 3 * MIB),
        2: [batch(n, b"c%d" % n) for n in range(0, 40, 2)],
    }
    letters = [letter(n, partition) for n in range(40) for partition in (2, 0, 1)]
    comparisons = [reader.compare(one) for one in letters]
    places = [(one.letter.source, one.letter.source_offset) for one in comparisons]
    assert places == [(one.source, one.source_offset) for one in letters]
    values = {
        (one.letter.source[1], one.letter.source_offset): one.letter.value
        for one in comparisons
        if one.reason is None
    }
    assert values == {
        **{(0, n): b"a%d" % n for n in range(40)},
        **{(1, n): bytes(3 * MIB) for n in range(10)},
        **{(2, n): b"c%d" % n for n in range(0, 40, 2)},
    }


def test_the_original_of_a_letter_with_a_copy_is_not_held_beside_it(
    log: Log, reader: QueueReader
) -> None:
    log.batches = {0: opening(3, MIB)}
    value = bytes(MIB)
    equal = reader.compare(letter(0, value=value))
    forged = reader.compare(letter(1, value=b"forged"))
    assert (equal.evidence, equal.reason) == (Evidence.EQUAL, None)
    assert equal.letter.value is value
    assert forged.reason is not None


def test_a_damaged_batch_concerns_its_own_letters_alone(log: Log, reader: QueueReader) -> None:
    damaged = batch_of(b"\0" * 40, 1, ZSTD, base_offset=1)
    log.batches = {0: [batch(0, b"a"), damaged, batch(2, b"c")]}
    comparisons = [reader.compare(letter(n)) for n in range(3)]
    assert [one.letter.value for one in comparisons] == [b"a", None, b"c"]
    assert [one.reason is None for one in comparisons] == [True, False, True]


def test_letters_that_are_far_apart_do_not_read_what_is_between(
    log: Log, reader: QueueReader
) -> None:
    log.batches = {0: [batch(n, bytes(8000)) for n in range(5000)]}
    comparisons = [reader.compare(letter(n)) for n in range(0, 5000, 500)]
    assert all(one.reason is None for one in comparisons)
    assert log.sent_bytes < MIB
