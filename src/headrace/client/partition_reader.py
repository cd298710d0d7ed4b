"""Reading of partitions from given offsets on, without a group and its permissions."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from headrace.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition
from headrace.protocol.record_batch import (
    BatchHeader,
    CorruptBatch,
    Record,
    has_right_crc,
    headers,
    records,
)

from .cluster import Cluster, TopicMetadata
from .errors import ClientError, ConnectionFailed, RequestRefused, UnknownTopic, check_answer
from .fetch import FetchLimits, FetchPosition, fetch
from .list_offsets import EARLIEST, LEADER_MOVED, list_offsets
from .read_budget import ReadBudget

_PARTITION_BYTES = 1024 * 1024
_FETCH_BYTES = 50 * 1024 * 1024
_READ_BYTES = 32 * 1024 * 1024
"""Decompressed bytes of the records that one call returns; the record that reaches it is the last.
"""
_READ_S = 5.0
"""The time in which one call opens batches."""
_RETRY_S = 0.1
_ABSENT_S = 5.0
"""Time for which brokers must say that a topic does not exist, as one may not know it yet."""


class ReadRecord(NamedTuple):
    """A record with its place.

    :param timestamp_type: ``CreateTime`` or ``LogAppendTime``
    """

    topic: str
    partition: int
    timestamp_type: str
    record: Record


class _Fetched(NamedTuple):
    place: TopicPartition
    data: bytes
    aborted: list[tuple[int, int]]
    """(producer id, first offset) of aborted transactions."""


class PartitionReader:
    """A reader of partitions, which joins no group. It retries while brokers cannot be reached, and
    skips offsets whose records were deleted.

    :param positions: the offset of each partition to begin with
    :param ends: the offsets before which to end, of all partitions or of none
    :param isolation_level: 0 read_uncommitted, 1 read_committed
    """

    def __init__(
        self,
        cluster: Cluster,
        positions: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        isolation_level: int,
    ) -> None:
        self._cluster = cluster
        self._positions = dict(positions)
        self._ends = ends
        self._isolation_level = isolation_level
        self._leaders: dict[TopicPartition, int] = {}
        self._topic_ids: dict[str, UUID] = {}
        self._absent_since_s: float | None = None
        self._fetched: deque[_Fetched] = deque()
        self._decoding: Iterator[ReadRecord] = iter(())
        self._problem: ClientError | None = None
        """An error behind records that were returned; the next call raises it."""

    async def read(self, max_records: int, wait_s: float) -> list[ReadRecord] | None:
        """Return the next records, none if none came within ``wait_s``, None at all ends.

        A call returns fewer than ``max_records`` if they are large; the next one continues.

        :raises ClientError: a broker refuses, a topic does not exist, or a batch is corrupt
        """
        if self._problem is not None:
            raise self._problem
        records = self._decoded(max_records)
        if not records:
            if not self._positions:
                return None
            await self._fetch(wait_s)
            records = self._decoded(max_records)
        return records

    def _decoded(self, max_records: int) -> list[ReadRecord]:
        records: list[ReadRecord] = []
        budget = ReadBudget(_READ_BYTES, max_records, _READ_S)
        while not budget.is_spent:
            try:
                record = next(self._decoding, None)
                if record is not None:
                    records.append(record)
                    budget.spend_record(record.record)
                elif self._fetched:
                    self._decoding = self._records(self._fetched.popleft())
                else:
                    break
            except ClientError as error:
                if not records:
                    raise
                self._problem = error
                break
        return records

    def _records(self, fetched: _Fetched) -> Iterator[ReadRecord]:
        """Yield the records of batches, and advance the position of the partition.

        :raises ClientError: a batch is corrupt
        """
        topic, partition = fetched.place
        end = self._ends.get(fetched.place)
        begun = deque(sorted(fetched.aborted, key=lambda transaction: transaction[1]))
        aborting: set[int] = set()
        position = self._positions.get(fetched.place)
        view = memoryview(fetched.data)
        try:
            for at, header in headers(view):
                if position is None:
                    return
                batch = view[at : at + header.size_bytes]
                while begun and begun[0][1] <= header.last_offset:
                    aborting.add(begun.popleft()[0])
                if header.is_control:
                    aborting.discard(header.producer_id)
                elif not (header.is_transactional and header.producer_id in aborting):
                    for record in _checked(batch, header):
                        if record.offset >= position and (end is None or record.offset < end):
                            yield ReadRecord(topic, partition, header.timestamp_type, record)
                position = max(position, header.last_offset + 1)
                self._advance(fetched.place, position)
                if fetched.place not in self._positions:
                    return
        except CorruptBatch as error:
            raise ClientError(f"reading {topic}-{partition}: {error}") from error

    def _advance(self, place: TopicPartition, position: int) -> None:
        end = self._ends.get(place)
        if end is None or position < end:
            self._positions[place] = position
        else:
            del self._positions[place]

    async def _fetch(self, wait_s: float) -> None:
        """Fetch from all leaders at once.

        :raises ClientError: a broker refuses, or a topic does not exist
        """
        try:
            await self._find_leaders()
        except ConnectionFailed:
            await asyncio.sleep(_RETRY_S)
            return
        by_leader: dict[int, list[TopicPartition]] = {}
        for place in self._positions:
            if (leader := self._leaders.get(place, -1)) >= 0:
                by_leader.setdefault(leader, []).append(place)
        if not by_leader:
            await asyncio.sleep(_RETRY_S)
            return
        # The answer of one leader must not wait for a record at another.
        max_wait_ms = int(wait_s * 1000) if len(by_leader) == 1 else 0
        answers: dict[TopicPartition, Any] = {}
        results = await asyncio.gather(
            *(self._ask(node_id, places, max_wait_ms) for node_id, places in by_leader.items())
        )
        for result in results:
            answers.update(result)
        out_of_range = [
            place
            for place, answer in answers.items()
            if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        ]
        for place in await self._skip_deleted(out_of_range) if out_of_range else ():
            del answers[place]
        for place, answer in answers.items():
            self._take(place, answer)
        # Only the first partition of a request is sure to get a batch larger than it asks for.
        if self._positions:
            first = next(iter(self._positions))
            self._positions[first] = self._positions.pop(first)
        has_moved = not self._positions.keys() <= self._leaders.keys()
        if not self._fetched and (max_wait_ms == 0 or has_moved):
            await asyncio.sleep(min(wait_s, _RETRY_S))

    async def _ask(
        self, node_id: int, places: list[TopicPartition], max_wait_ms: int
    ) -> dict[TopicPartition, Any]:
        try:
            return await fetch(
                await self._cluster.connection(node_id, "records"),
                {
                    place: FetchPosition(self._positions[place], _PARTITION_BYTES)
                    for place in places
                },
                self._topic_ids,
                FetchLimits(max_wait_ms, 1, _FETCH_BYTES, self._isolation_level),
                timeout_ms=self._cluster.timeout_ms,
            )
        except ConnectionFailed:
            self._leaders.clear()
            await asyncio.sleep(_RETRY_S)
            return {}

    async def _skip_deleted(self, places: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Continue with the oldest record where the one at the position was deleted.

        :returns: the partitions where it was; in the others the position is behind the end
        :raises ClientError: a broker refuses, or no leader answers in time
        """
        oldest = await list_offsets(
            self._cluster, dict.fromkeys(places, EARLIEST), timeout_ms=self._cluster.timeout_ms
        )
        deleted = []
        for place, listed in oldest.items():
            if listed.offset is not None and listed.offset > self._positions[place]:
                self._advance(place, listed.offset)
                deleted.append(place)
        return deleted

    def _take(self, place: TopicPartition, answer: Any) -> None:
        """Take the answer about a partition.

        :raises RequestRefused: it is an error that does not pass
        """
        if answer.error_code in LEADER_MOVED:
            self._leaders.pop(place, None)
            return
        topic, partition = place
        what = f"reading {topic}-{partition} from offset {self._positions[place]} on"
        check_answer(what, answer, f"READ on topic '{topic}'")
        data = bytes(answer.records or b"")
        if data:
            aborted = [
                (int(transaction.producer_id), int(transaction.first_offset))
                for transaction in answer.aborted_transactions or ()
            ]
            self._fetched.append(_Fetched(place, data, aborted))

    async def _find_leaders(self) -> None:
        """Look up the leaders that are unknown.

        :raises ClientError: a topic cannot be looked up, or has not existed for a while
        """
        names = sorted({topic for topic, _ in self._positions.keys() - self._leaders.keys()})
        if not names:
            return
        now_s = asyncio.get_running_loop().time()
        for name, topic in (await self._cluster.metadata(names)).items():
            if isinstance(topic, TopicMetadata):
                self._topic_ids[name] = topic.topic_id
                for partition, leader in topic.leaders.items():
                    if leader >= 0:
                        self._leaders[name, partition] = leader
                self._absent_since_s = None
            elif topic == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                needs = f"DESCRIBE on topic '{name}'"
                raise RequestRefused(f"looking up topic '{name}'", topic, needs=needs)
            elif self._absent_since_s is None:
                self._absent_since_s = now_s
            elif now_s - self._absent_since_s >= _ABSENT_S:
                raise UnknownTopic(name)


def _checked(batch: memoryview, header: BatchHeader) -> Iterator[Record]:
    """Return the records of a batch.

    :raises CorruptBatch: they cannot be read, or were damaged
    """
    if not has_right_crc(batch, header):
        raise CorruptBatch(f"the batch at offset {header.base_offset} has a wrong checksum")
    return records(batch)
