"""Reading of partitions from given offsets on, without a group and its permissions."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from headrace.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition
from headrace.protocol.record_batch import (
    BatchHeader,
    CorruptBatch,
    has_right_crc,
    headers,
    records,
)
from headrace.protocol.record_batch import Record as PlainRecord

from .cluster import Cluster
from .connection import Connection
from .coordinators import LEADER_MOVED, Leaders, ask_brokers
from .errors import ClientError, ConnectionFailed, UnknownTopic, check_answer, raised
from .fetch import FetchedPartition, FetchLimits, FetchPosition, Unread, fetch
from .offsets import EARLIEST, list_offsets
from .read_budget import ReadBudget
from .records import Record

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
        self._leaders = Leaders(cluster)
        self._leaders.purpose = "records"
        self._absent_since_s: float | None = None
        self._fetched: deque[tuple[TopicPartition, FetchedPartition]] = deque()
        self._decoding: Iterator[Record] = iter(())
        self._problem: ClientError | None = None
        """An error behind records that were returned; the next call raises it."""

    async def read(self, max_records: int, wait_s: float) -> list[Record] | None:
        """Return the next records, none if none came within ``wait_s``, None at all ends.

        A call returns fewer than ``max_records`` if they are large; the next one continues. Their
        delivery count is 0.

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
        """Drop what was fetched, and the batch that is open. The next call fetches it again."""
        self._decoding = iter(())
        self._fetched.clear()

    def _decoded(self, max_records: int) -> list[Record]:
        records: list[Record] = []
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
                budget.spend_record(record)
            elif self._fetched:
                self._decoding = self._records(*self._fetched.popleft())
            else:
                break
        return records

    def _records(self, partition: TopicPartition, fetched: FetchedPartition) -> Iterator[Record]:
        """Yield the records of batches, and advance the position of the partition.

        :raises ClientError: a batch is corrupt
        """
        topic, number = partition
        end = self._ends.get(partition)
        unread = Unread(fetched.aborted_transactions)
        view = memoryview(fetched.records)
        try:
            for at, header in headers(view):
                position = self._positions.get(partition)
                if position is None:  # the end was reached
                    return
                if not unread.has(header) and header.last_offset >= position:
                    for plain in self._opened(partition, view[at:], header):
                        if plain.offset >= position and (end is None or plain.offset < end):
                            yield Record(
                                topic,
                                number,
                                plain.offset,
                                plain.key,
                                plain.value,
                                plain.headers,
                                plain.timestamp_ms,
                                header.timestamp_type,
                                0,
                            )
                self.skip_to(partition, header.last_offset + 1)
        except CorruptBatch as error:
            raise ClientError(f"reading {topic}-{number}: {error}") from error

    def _opened(
        self, partition: TopicPartition, data: memoryview, header: BatchHeader
    ) -> Iterator[PlainRecord]:
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
        firsts: set[TopicPartition] = set()
        partitions = list(self._positions)
        has_waited = False

        async def send(
            connection: Connection, led: Sequence[TopicPartition], timeout_ms: int
        ) -> dict[TopicPartition, FetchedPartition | ClientError]:
            nonlocal has_waited
            # The answer of one leader must not wait for a record at another.
            has_waited = len(led) == len(partitions)
            firsts.add(led[0])
            fetched = await fetch(
                connection,
                {p: FetchPosition(self._positions[p], self._fetch_bytes) for p in led},
                {topic: self._leaders.topics[topic].topic_id for topic, _ in led},
                FetchLimits(
                    int(wait_s * 1000) if has_waited else 0, 1, _FETCH_BYTES, self._isolation_level
                ),
                timeout_ms=timeout_ms,
            )
            return {**fetched}

        answers = await ask_brokers(self._cluster, self._leaders, partitions, send, attempts=1)
        fetched: dict[TopicPartition, FetchedPartition] = {}
        for partition, answer in answers.items():
            if isinstance(answer, ClientError):
                self._check(partition, answer)
            elif answer.error_code in LEADER_MOVED:
                self._leaders.forget(partition)
            else:
                self._absent_since_s = None
                fetched[partition] = answer
        for partition in await self._skip_deleted(fetched):
            del fetched[partition]
        for partition, answer in fetched.items():
            self._take(partition, answer, is_first=partition in firsts)
        # Only the first partition of a request is sure to get a batch larger than it asks for.
        if self._positions:
            first = next(iter(self._positions))
            self._positions[first] = self._positions.pop(first)
        if not self._fetched and not (has_waited and len(fetched) == len(partitions)):
            await asyncio.sleep(min(wait_s, _RETRY_S))

    def _check(self, partition: TopicPartition, error: ClientError) -> None:
        """Raise an error that does not pass."""
        self._leaders.forget(partition)
        if isinstance(error, ConnectionFailed):
            return
        now_s = asyncio.get_running_loop().time()
        if self._absent_since_s is None:
            self._absent_since_s = now_s
        if not isinstance(error, UnknownTopic) or now_s - self._absent_since_s >= _ABSENT_S:
            raise error

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
        oldest = raised(await list_offsets(self._cluster, dict.fromkeys(out_of_range, EARLIEST)))
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
