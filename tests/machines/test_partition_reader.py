"""The reader of partitions, against brokers that answer from a script."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from headrace.client import partition_reader
from headrace.client.cluster import TopicMetadata
from headrace.client.errors import ClientError, RequestRefused, UnknownTopic
from headrace.client.fetch import FetchedPartition
from headrace.client.offsets import ListedOffset
from headrace.client.partition_reader import PartitionReader
from headrace.protocol import record_batch
from headrace.protocol.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition

PLACE = ("t", 0)


class Brokers:
    """A cluster of one partition.

    :ivar leader: its leader; None while the topic does not exist
    :ivar batches: its log
    :ivar refusals: error codes of the next fetches
    :ivar end_after: the number of fetches after which the leader knows its end
    :ivar fetches: (broker, offset) of each fetch
    """

    timeout_ms = 1000

    def __init__(self) -> None:
        self.leader: int | None = 1
        self.batches: list[tuple[int, bytes]] = []
        self.log_start = 0
        self.end_after = 0
        self.refusals: Iterator[ErrorCode] = iter(())
        self.fetches: list[tuple[int, int]] = []

    def append(self, first: int, *values: bytes) -> None:
        batch = bytearray(record_batch.build([(None, value) for value in values], timestamp_ms=0))
        batch[:8] = first.to_bytes(8)
        self.batches.append((first + len(values) - 1, bytes(batch)))

    async def metadata(self, names: list[str]) -> dict[str, TopicMetadata | ClientError]:
        if self.leader is None:
            return {"t": UnknownTopic("t")}
        return {"t": TopicMetadata("t", UUID(int=1), {0: self.leader}, False)}

    async def connection(self, node_id: int, purpose: str) -> Any:
        return SimpleNamespace(address="a:1", node_id=node_id)

    async def fetch(
        self, connection: Any, positions: Mapping[TopicPartition, Any], *_: Any, **__: Any
    ) -> dict[TopicPartition, Any]:
        node_id = connection.node_id
        offset = positions[PLACE].offset
        self.fetches.append((node_id, offset))
        code = next(self.refusals, ErrorCode.NONE)
        if offset < self.log_start:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        elif node_id != self.leader:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        data = next((batch for last, batch in self.batches if last >= offset), b"")
        high_watermark = 1 << 40 if len(self.fetches) > self.end_after else 0
        return {PLACE: FetchedPartition(code, high_watermark, -1, b"" if code else data, ())}

    async def list_offsets(self, *_: Any, **__: Any) -> dict[TopicPartition, ListedOffset]:
        return {PLACE: ListedOffset(self.log_start, None, None)}


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    scripted = Brokers()
    monkeypatch.setattr(partition_reader, "fetch", scripted.fetch)
    monkeypatch.setattr(partition_reader, "list_offsets", scripted.list_offsets)
    return scripted


def read_all(brokers: Any, end: int, next_leader: int | None = 2) -> list[tuple[int, bytes | None]]:
    """Read from offset 0 to an end; return offsets and values.

    :param next_leader: the leader after the first records
    """

    async def run() -> list[tuple[int, bytes | None]]:
        reader = PartitionReader(brokers, {PLACE: 0}, {PLACE: end}, 0)
        found = []
        while (records := await reader.read(10, 0.001)) is not None:
            found += [(record.offset, record.value) for record in records]
            if found:
                brokers.leader = next_leader
        return found

    return asyncio.run(run())


def test_a_moved_leader_is_followed(brokers: Brokers) -> None:
    brokers.append(0, b"a", b"b")
    brokers.append(2, b"c")
    assert read_all(brokers, 3) == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert brokers.fetches == [(1, 0), (1, 2), (2, 2)]


def test_a_refusing_leader_is_asked_after_pauses(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its successor may not be in the metadata yet."""
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(partition_reader.asyncio, "sleep", pause)
    brokers.append(0, b"a")
    brokers.refusals = iter([ErrorCode.NOT_LEADER_OR_FOLLOWER] * 3)
    assert read_all(brokers, 1) == [(0, b"a")]
    assert len(pauses) == 3


def test_compacted_offsets_are_passed_over(brokers: Brokers) -> None:
    """Also those before the end: the last record that is read may be behind it."""
    brokers.append(3, b"a")
    brokers.append(8, b"b")
    assert read_all(brokers, 7) == [(3, b"a")]


def test_an_end_behind_the_last_record_is_reached(brokers: Brokers) -> None:
    """Compaction may leave no record there. While the leader does not know its end, it may come."""
    brokers.append(0, b"a")
    brokers.end_after = 3
    assert read_all(brokers, 3) == [(0, b"a")]
    assert len(brokers.fetches) == 4


def test_deleted_records_are_skipped(brokers: Brokers) -> None:
    brokers.append(5, b"a", b"b")
    brokers.log_start = 6
    assert read_all(brokers, 7) == [(6, b"b")]
    assert read_all(brokers, 6) == []


def test_a_position_behind_the_end_is_refused(brokers: Brokers) -> None:
    brokers.refusals = iter([ErrorCode.OFFSET_OUT_OF_RANGE])
    with pytest.raises(RequestRefused, match="reading t-0 from offset 0 on: OFFSET_OUT_OF_RANGE"):
        read_all(brokers, 1)


def test_a_deleted_topic_ends_the_reading(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_reader, "_ABSENT_S", 0.0)
    brokers.append(0, b"a")
    with pytest.raises(UnknownTopic):
        read_all(brokers, 2, next_leader=None)


def test_a_call_ends_with_the_record_that_spends_its_bytes(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_reader, "_READ_BYTES", 1000)
    brokers.append(0, *[bytes(400)] * 7)

    async def run() -> list[list[int]]:
        reader = PartitionReader(brokers, {PLACE: 0}, {PLACE: 7}, 0)  # type: ignore[arg-type]
        calls = []
        while (records := await reader.read(500, 0.001)) is not None:
            calls.append([record.offset for record in records])
        return calls

    assert asyncio.run(run()) == [[0, 1, 2], [3, 4, 5], [6]]
