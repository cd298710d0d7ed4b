"""Reading of partitions from given offsets on, without a group and its permissions."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import NamedTuple
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
from .fetch import FetchedPartition, FetchLimits, FetchPosition, fetch
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


class CorruptRecords(ClientError):
    """A batch cannot be read.

    :param last_offset: the last offset of the batch; the records after it may be sound
    """

    def __init__(self, text: str, last_offset: int) -> None:
        super().__init__(text)
        self.last_offset = last_offset


class PartitionReader:
    """A reader of partitions, which joins no group. It retries while brokers cannot be reached, and
    skips offsets whose records were deleted.

    :param positions: the offset of each partition to begin with
    :param ends: the offsets before which to end, of all partitions or of none
    :param isolation_level: 0 read_uncommitted, 1 read_committed
    :param fetch_bytes: of a partition in one request
    """

    def __init__(
        self,
        cluster: Cluster,
        positions: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        isolation_level: int,
        fetch_bytes: int = _PARTITION_BYTES,
    ) -> None:
        self._cluster = cluster
        self._positions = dict(positions)
        self._ends = ends
        self._isolation_level = isolation_level
        self._fetch_bytes = fetch_bytes
        self._leaders: dict[TopicPartition, int] = {}
        self._topic_ids: dict[str, UUID] = {}
        self._absent_since_s: float | None = None
        self._fetched: deque[tuple[TopicPartition, FetchedPartition]] = deque()
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

    def skip_to(self, partition: TopicPartition, offset: int) -> None:
        """Open no batch that ends before an offset of a partition."""
        if self._positions.get(partition, offset) < offset:
            self._advance(partition, offset)

    def close(self) -> None:
        """Drop the batch that is open, which may be large: reader and batch refer to each other."""
        self._decoding = iter(())

    def _decoded(self, max_records: int) -> list[ReadRecord]:
        records: list[ReadRecord] = []
        budget = ReadBudget(_READ_BYTES, max_records, _READ_S)
        while not budget.is_spent:
            try:
                record = next(self._decoding, None)
            except ClientError as error:
                if not records:
                    raise
                self._problem = error
                break
            if record is not None:
                records.append(record)
                budget.spend_record(record.record)
            elif self._fetched:
                self._decoding = self._records(*self._fetched.popleft())
            else:
                break
        return records

    def _records(
        self, partition: TopicPartition, fetched: FetchedPartition
    ) -> Iterator[ReadRecord]:
        """Yield the records of batches, and advance the position of the partition.

        :raises ClientError: a batch is corrupt
        """
        topic, number = partition
        end = self._ends.get(partition)
        aborted = deque(sorted(fetched.aborted_transactions, key=attrgetter("first_offset")))
        aborting: set[int] = set()
        view = memoryview(fetched.records)
        try:
            for at, header in headers(view):
                position = self._positions.get(partition)
                if position is None:  # the end was reached
                    return
                while aborted and aborted[0].first_offset <= header.last_offset:
                    aborting.add(aborted.popleft().producer_id)
                if header.is_control:
                    aborting.discard(header.producer_id)
                elif header.last_offset >= position and not (
                    header.is_transactional and header.producer_id in aborting
                ):
                    for record in self._opened(partition, view[at:], header):
                        if record.offset >= position and (end is None or record.offset < end):
                            yield ReadRecord(topic, number, header.timestamp_type, record)
                self.skip_to(partition, header.last_offset + 1)
        except CorruptBatch as error:
            raise ClientError(f"reading {topic}-{number}: {error}") from error

    def _opened(
        self, partition: TopicPartition, data: memoryview, header: BatchHeader
    ) -> Iterator[Record]:
        """Yield the records of the first batch.

        :raises CorruptRecords: they cannot be read, or were damaged
        """
        batch = data[: header.size_bytes]
        try:
            if not has_right_crc(batch, header):
                raise CorruptBatch(f"the batch at offset {header.base_offset} has a wrong checksum")
            yield from records(batch)
        except CorruptBatch as error:
            text = f"reading {partition[0]}-{partition[1]}: {error}"
            raise CorruptRecords(text, header.last_offset) from error

    def _advance(self, partition: TopicPartition, position: int) -> None:
        end = self._ends.get(partition)
        if end is None or position < end:
            self._positions[partition] = position
        else:
            del self._positions[partition]

    async def _fetch(self, wait_s: float) -> None:
        """Fetch from all leaders at once.

        :raises ClientError: a broker refuses, or a topic does not exist
        """
        by_leader: dict[int, list[TopicPartition]] = {}
        with suppress(ConnectionFailed):
            await self._find_leaders()
            for partition in self._positions:
                if (leader := self._leaders.get(partition)) is not None:
                    by_leader.setdefault(leader, []).append(partition)
        # The answer of one leader must not wait for a record at another.
        max_wait_ms = int(wait_s * 1000) if len(by_leader) == 1 else 0
        fetched: dict[TopicPartition, FetchedPartition] = {}
        for answers in await asyncio.gather(
            *(self._ask(node_id, led, max_wait_ms) for node_id, led in by_leader.items())
        ):
            fetched |= answers
        for partition in await self._skip_deleted(fetched):
            del fetched[partition]
        firsts = {led[0] for led in by_leader.values()}
        for partition, answer in fetched.items():
            self._take(partition, answer, is_first=partition in firsts)
        # Only the first partition of a request is sure to get a batch larger than it asks for.
        if self._positions:
            first = next(iter(self._positions))
            self._positions[first] = self._positions.pop(first)
        has_moved = not self._positions.keys() <= self._leaders.keys()
        if not self._fetched and (max_wait_ms == 0 or has_moved):
            await asyncio.sleep(min(wait_s, _RETRY_S))

    async def _ask(
        self, node_id: int, partitions: Sequence[TopicPartition], max_wait_ms: int
    ) -> dict[TopicPartition, FetchedPartition]:
        try:
            return await fetch(
                await self._cluster.connection(node_id, "records"),
                {
                    partition: FetchPosition(self._positions[partition], self._fetch_bytes)
                    for partition in partitions
                },
                self._topic_ids,
                FetchLimits(max_wait_ms, 1, _FETCH_BYTES, self._isolation_level),
                timeout_ms=self._cluster.timeout_ms,
            )
        except ConnectionFailed:
            self._leaders.clear()
            return {}

    async def _skip_deleted(
        self, fetched: Mapping[TopicPartition, FetchedPartition]
    ) -> list[TopicPartition]:
        """Continue with the oldest record where the one at the position was deleted.

        :returns: the partitions where it was; in others that are out of range the position is
            behind the end
        :raises ClientError: a broker refuses, or no leader answers in time
        """
        out_of_range = [
            partition
            for partition, answer in fetched.items()
            if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        ]
        if not out_of_range:
            return []
        oldest = await list_offsets(
            self._cluster,
            dict.fromkeys(out_of_range, EARLIEST),
            timeout_ms=self._cluster.timeout_ms,
        )
        deleted = []
        for partition, listed in oldest.items():
            if listed.offset is not None and listed.offset > self._positions[partition]:
                self._advance(partition, listed.offset)
                deleted.append(partition)
        return deleted

    def _take(self, partition: TopicPartition, answer: FetchedPartition, *, is_first: bool) -> None:
        """Take the answer about a partition.

        :param is_first: whether it was the first partition of its request
        :raises RequestRefused: it is an error that does not pass
        """
        if answer.error_code in LEADER_MOVED:
            self._leaders.pop(partition, None)
            return
        topic, number = partition
        what = f"reading {topic}-{number} from offset {self._positions[partition]} on"
        check_answer(what, answer, f"READ on topic '{topic}'")
        if answer.records:
            self._fetched.append((partition, answer))
            return
        end = answer.last_stable_offset if self._isolation_level else answer.high_watermark
        # Without a batch for the first partition there is none: compaction may leave no record.
        if is_first and end >= self._ends.get(partition, end + 1):
            del self._positions[partition]

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
