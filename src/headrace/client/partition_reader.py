"""Reading of partitions from given offsets on, without a group and its permissions; and the limits
on one look at records.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from headrace.protocol.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition
from headrace.protocol.record_batch import (
    OPEN_ANY,
    BatchHeader,
    CorruptBatch,
    Opening,
    headers,
)
from headrace.protocol.record_batch import Record as PlainRecord

from .cluster import Cluster
from .connection import Connection
from .coordinators import LEADER_MOVED, Leaders, ask_brokers
from .errors import Answers, ClientError, ConnectionFailed, UnknownTopic, has_code, raised, refused
from .fetch import FetchedPartition, FetchLimits, FetchPosition, Unread, fetch
from .offsets import EARLIEST, list_offsets
from .records import Record, opened

_PARTITION_BYTES = 1024 * 1024
_FETCH_BYTES = 50 * 1024 * 1024
_GROWTH, _LARGEST_BYTES = 8, 32 * 1024 * 1024
"""The factor by which more bytes of a partition are asked for if its next batch has not fitted, and
the limit.
"""
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
    :param fetch_bytes: of a partition in one request, unless its next batch is larger
    :param opening: the limits on opening a batch
    :param on_error: is told of each partition that cannot be read, which then ends. By default an
        error that does not pass is raised
    :param leaders: those that are known
    :ivar positions: the offset with which each partition that has not ended goes on
    """

    def __init__(
        self,
        cluster: Cluster,
        positions: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        isolation_level: int,
        fetch_bytes: int = _PARTITION_BYTES,
        opening: Opening = OPEN_ANY,
        on_error: Callable[[TopicPartition, ClientError], object] | None = None,
        leaders: Leaders | None = None,
    ) -> None:
        self._cluster = cluster
        self.positions = dict(positions)
        self._ends = ends
        self._isolation_level = isolation_level
        self._fetch_bytes = defaultdict[TopicPartition, int](lambda: fetch_bytes)
        self._opening = opening
        self._on_error = on_error
        self._leaders = leaders or Leaders(cluster)
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
            if not self.positions:
                return None
            self._fetched.extend(await self.fetch(wait_s))
            records = self._decoded(max_records)
        return records

    def skip_to(self, partition: TopicPartition, offset: int) -> None:
        """Open no batch that ends before an offset of a partition."""
        if self.positions.get(partition, offset) < offset:
            if offset < self._ends.get(partition, offset + 1):
                self.positions[partition] = offset
            else:
                del self.positions[partition]

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
                self._decoding = self.records(*self._fetched.popleft())
            else:
                break
        return records

    def records(self, partition: TopicPartition, fetched: FetchedPartition) -> Iterator[Record]:
        """Yield the records of batches from the position of the partition on, which advances with
        each batch.

        :raises CorruptRecords: a batch cannot be read
        :raises ClientError: likewise, and no batch after it
        """
        topic, number = partition
        end = self._ends.get(partition)
        unread = Unread(fetched.aborted_transactions)
        view = memoryview(fetched.records)
        try:
            for at, header in headers(view):
                position = self.positions.get(partition)
                if position is None:  # the end was reached
                    return
                if not unread.has(header) and header.last_offset >= position:
                    batch = view[at : at + header.size_bytes]
                    plain = self._opened(partition, batch, header, position)
                    for offset, timestamp_ms, key, value, fields in plain:
                        if offset >= position and (end is None or offset < end):
                            yield Record(
                                topic,
                                number,
                                offset,
                                key,
                                value,
                                fields,
                                timestamp_ms,
                                header.timestamp_type,
                                0,
                            )
                self.skip_to(partition, header.last_offset + 1)
        except CorruptBatch as error:
            raise ClientError(f"reading {topic}-{number}: {error}") from error

    def _opened(
        self, partition: TopicPartition, batch: memoryview, header: BatchHeader, position: int
    ) -> Iterator[PlainRecord]:
        """Yield the records of a batch; those before the position may be left out.

        :raises CorruptRecords: they cannot be read, or were damaged
        """
        try:
            for listed in opened(batch, header, self._opening, position):
                yield from listed
        except CorruptBatch as error:
            text = f"reading {partition[0]}-{partition[1]}: {error}"
            raise CorruptRecords(text, header.last_offset) from error

    async def fetch(self, wait_s: float) -> list[tuple[TopicPartition, FetchedPartition]]:
        """Fetch from all leaders at once; return the partitions that have batches.

        :raises ClientError: a broker refuses, or a topic does not exist
        """
        firsts: set[TopicPartition] = set()
        partitions = list(self.positions)

        async def send(
            connection: Connection, led: Sequence[TopicPartition], timeout_ms: int
        ) -> Answers[TopicPartition, FetchedPartition]:
            # The answer of one leader must not wait for a record at another.
            max_wait_s = wait_s if len(led) == len(partitions) else 0
            firsts.add(led[0])
            fetched = await fetch(
                connection,
                {p: FetchPosition(self.positions[p], self._fetch_bytes[p]) for p in led},
                {topic: self._leaders.topics[topic].topic_id for topic, _ in led},
                FetchLimits(int(max_wait_s * 1000), _FETCH_BYTES, self._isolation_level),
                timeout_ms=timeout_ms,
            )
            return {
                (topic, number): refused(
                    f"reading {topic}-{number} from offset {self.positions[topic, number]} on",
                    answer,
                    f"READ on topic '{topic}'",
                )
                or answer
                for (topic, number), answer in fetched.items()
            }

        answers = await ask_brokers(self._cluster, self._leaders, partitions, send, attempts=1)
        errors: dict[TopicPartition, ClientError] = {}
        with_batches: list[tuple[TopicPartition, FetchedPartition]] = []
        for partition, answer in answers.items():
            if isinstance(answer, ClientError):
                errors[partition] = answer
                continue
            self._absent_since_s = None
            if answer.records:
                with_batches.append((partition, answer))
            else:
                self._take_empty(partition, answer, is_first=partition in firsts)
        has_waited = len(firsts) == 1 and not errors
        await self._skip_deleted(errors)
        for partition, error in errors.items():
            self._leaders.forget(partition)
            if self._on_error is None:
                self._raise_lasting(error)
            else:
                self._on_error(partition, error)
                del self.positions[partition]
        # Only the first partition of a request is sure to get a batch larger than it asks for.
        if self.positions:
            first = next(iter(self.positions))
            self.positions[first] = self.positions.pop(first)
        if not with_batches and not has_waited:
            await asyncio.sleep(min(wait_s, _RETRY_S))
        return with_batches

    def _take_empty(
        self, partition: TopicPartition, answer: FetchedPartition, *, is_first: bool
    ) -> None:
        """Take an answer without batches.

        :param is_first: whether the partition was the first one of its request
        """
        end = answer.last_stable_offset if self._isolation_level else answer.high_watermark
        # Without a batch for the first partition there is none: compaction may leave no record.
        if is_first and end >= self._ends.get(partition, end + 1):
            del self.positions[partition]
        elif end > self.positions[partition]:
            more = _GROWTH * self._fetch_bytes[partition]
            self._fetch_bytes[partition] = min(more, _LARGEST_BYTES)

    def _raise_lasting(self, error: ClientError) -> None:
        """Raise an error that does not pass."""
        if isinstance(error, ConnectionFailed) or has_code(error, *LEADER_MOVED):
            return
        now_s = asyncio.get_running_loop().time()
        if self._absent_since_s is None:
            self._absent_since_s = now_s
        if not isinstance(error, UnknownTopic) or now_s - self._absent_since_s >= _ABSENT_S:
            raise error

    async def _skip_deleted(self, errors: dict[TopicPartition, ClientError]) -> None:
        """Continue with the oldest record where the one at the position was deleted.

        :param errors: loses those of the partitions where it was; in others that are out of range
            the position is behind the end
        :raises ClientError: a broker refuses, or no leader answers in time
        """
        out_of_range = [
            partition
            for partition, error in errors.items()
            if has_code(error, ErrorCode.OFFSET_OUT_OF_RANGE)
        ]
        if not out_of_range:
            return
        oldest = raised(await list_offsets(self._cluster, dict.fromkeys(out_of_range, EARLIEST)))
        for partition, listed in oldest.items():
            if listed.offset is not None and listed.offset > self.positions[partition]:
                self.skip_to(partition, listed.offset)
                del errors[partition]


# Limits -------------------------------------------------------------------------------------------


_HEADER_BYTES = 2
"""The least bytes of a header besides its name and content: records may have many empty ones."""


class ReadBudget:
    """The cost that one look at records may have. Whichever limit is reached first ends it.

    One thread at a time spends it; any thread may stop it.

    :param max_bytes: decompressed bytes
    :param max_records: records, shown or not
    :param max_s: seconds from now on. They end nothing before the first record was read, so that a
        look advances even if the broker has taken longer to answer
    :param now_s: the clock
    """

    def __init__(
        self,
        max_bytes: int,
        max_records: int,
        max_s: float,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._left_bytes = max_bytes
        self._left_records = max_records
        self._deadline_s = now_s() + max_s
        self._now_s = now_s
        self._has_begun = False
        self._is_stopped = False

    @property
    def is_spent(self) -> bool:
        """True if nothing more may be read."""
        return (
            self._is_stopped
            or self._left_bytes <= 0
            or self._left_records <= 0
            or (self._has_begun and self._now_s() >= self._deadline_s)
        )

    def stop(self) -> None:
        """End the look: nobody waits for it any more."""
        self._is_stopped = True

    def spend(self, size_bytes: int) -> None:
        """Count bytes."""
        self._has_begun = True
        self._left_bytes -= size_bytes

    def spend_record(self, record: Record) -> None:
        """Count a record."""
        self._left_records -= 1
        self.spend(size_of(record.key, record.value, record.headers))


def size_of(
    key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]]
) -> int:
    """Return the bytes of a record's key, value and headers."""
    of_headers = (len(name) + len(content or b"") + _HEADER_BYTES for name, content in headers)
    return len(key or b"") + len(value or b"") + sum(of_headers)
