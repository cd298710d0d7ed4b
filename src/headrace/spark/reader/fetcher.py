"""Fetching of ranges of offsets from their leaders, ahead of the code that decodes them.

A :class:`Fetcher` lives in an event loop. It sends each leader one Fetch at a time (KIP-74) for all
partitions that have no piece waiting, and looks up the leader again when it has moved. It does not
open record batches.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from headrace.client import ClientError, Cluster, ConnectionFailed, RequestRefused
from headrace.client.coordinators import LEADER_MOVED
from headrace.client.errors import UnknownTopic, raised
from headrace.client.fetch import FetchedPartition, FetchLimits, FetchPosition, fetch
from headrace.client.offsets import EARLIEST, LATEST, list_offsets
from headrace.log_lines import get_logger
from headrace.protocol.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition
from headrace.protocol.record_batch import CorruptBatch
from headrace.spark.errors import SourceError, failed_connection

from .batches import Batches
from .ranges import ReadError, ReadOptions

_log = get_logger(__name__)

_MAX_WAIT_MS = 500
_RETRY_S = 0.1
_ABSENT_S = 2.0
"""Time for which brokers must say that a partition or an offset does not exist. A new leader, or a
broker that has not heard of a topic yet, may know less than the others for a moment."""

_END_TIMEOUT_S = 1.0
"""Time for a leader to tell the end of its log, before it is asked for records again."""


_SMALLEST_PIECE_BYTES = 64 * 1024
_LARGEST_PIECE_BYTES = 4 * 1024 * 1024
_READ_THROUGH_RECORDS = 500
"""Gaps of up to this many records between two ranges are fetched and dropped: cheaper than a
request of their own for each range."""
_GUESSED_RECORD_BYTES = 1100
"""Assumed size of a record until the first answer shows the real one."""
_SPARE = 1.25
"""Factor over the expected size of a range, so that one answer mostly holds all of it."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Fetched record batches of one topic partition.

    :param start: the offset that was asked for; the first batch may begin before it
    :param aborted: ``(producer id, first offset)`` of the aborted transactions among the batches,
        with read_committed
    """

    key: TopicPartition
    start: int
    batches: Batches
    aborted: Sequence[tuple[int, int]]


@dataclass(slots=True)
class PartitionFetch:
    """Progress of fetching the ranges of one topic partition.

    :param ranges: ascending, disjoint ``(start, end)`` pairs, at least one
    :param offset: the next offset to fetch
    :param leader: node id; None while unknown
    :param is_asked: True while a request for the partition is in flight
    :param no_data_since_s: loop time since which requests have brought nothing
    :param absent_since_s: loop time since which brokers have said that the partition, or the
        offset, does not exist
    :param record_bytes: the size of a record in the last answer
    """

    key: TopicPartition
    ranges: deque[tuple[int, int]]
    offset: int
    leader: int | None = None
    is_asked: bool = False
    no_data_since_s: float | None = None
    absent_since_s: float | None = None
    record_bytes: float = _GUESSED_RECORD_BYTES

    @property
    def name(self) -> str:
        """Topic and partition, as in ``flights-0``."""
        return f"{self.key[0]}-{self.key[1]}"

    @property
    def is_done(self) -> bool:
        """True when nothing is left to fetch."""
        return not self.ranges

    @property
    def end(self) -> int:
        """The end of the last range, exclusive."""
        return self.ranges[-1][1]

    def advance_to(self, offset: int) -> None:
        """Drop what lies before ``offset``."""
        while self.ranges and self.ranges[0][1] <= offset:
            self.ranges.popleft()
        if self.ranges:
            self.offset = max(offset, self.ranges[0][0])

    def advance_over(self, batches: Batches) -> None:
        """Continue after batches that have been fetched."""
        self.no_data_since_s = self.absent_since_s = None
        offsets = batches.next_offset - int(batches.heads[0]["base_offset"])
        self.record_bytes = len(batches.data) / max(1, offsets)
        self.advance_to(batches.next_offset)

    def request_bytes(self, share_bytes: int) -> int:
        """Return the number of bytes to ask for.

        :param share_bytes: this partition's share of the buffer
        """
        most = min(max(share_bytes, _SMALLEST_PIECE_BYTES), _LARGEST_PIECE_BYTES)
        end = self.offset
        needed = 0.0
        for range_start, range_end in self.ranges:
            if needed >= most or range_start > end + _READ_THROUGH_RECORDS:
                break
            end = range_end
            needed = (end - self.offset) * self.record_bytes * _SPARE
        return int(min(max(needed, _SMALLEST_PIECE_BYTES), most))


class Fetcher:
    """A fetcher of ranges of several topic partitions; at most one piece of each waits to be taken.

    :param ranges: ascending, disjoint ``(start, end)`` pairs of each topic partition
    """

    def __init__(
        self,
        cluster: Cluster,
        options: ReadOptions,
        ranges: Mapping[TopicPartition, Sequence[tuple[int, int]]],
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._partitions = {
            key: PartitionFetch(key, deque(of_key), of_key[0][0]) for key, of_key in ranges.items()
        }
        self._topic_ids: dict[str, UUID] = {}
        self._ready: dict[TopicPartition, Piece] = {}
        """Pieces that wait to be taken, in the order in which they arrived."""
        self._requests: dict[int, asyncio.Task[None]] = {}
        self._wake_up = asyncio.Event()
        """Set when a request may be sent."""
        self._arrived = asyncio.Event()
        """Set when :meth:`take` may have a result."""
        self._failure: ClientError | SourceError | MemoryError | None = None

    async def start(self) -> None:
        """Begin to fetch, in the running event loop."""
        self._running = asyncio.create_task(self._run())

    async def take(self, key: TopicPartition | None) -> Piece | None:
        """Return the next piece of a topic partition, or of any; None when all have been taken.

        :raises ReadError: records are lost, or did not arrive in time
        :raises ClientError: a broker refuses
        """
        while True:
            self._arrived.clear()
            taken = next((ready for ready in self._ready if key in (None, ready)), None)
            if taken is not None:
                self._wake_up.set()
                return self._ready.pop(taken)
            if not any(key in (None, p.key) and not p.is_done for p in self._partitions.values()):
                return None
            if self._failure is not None:
                raise self._failure
            await self._arrived.wait()

    async def close(self) -> None:
        """Cancel the requests in flight and drop the pieces that nobody took."""
        tasks = [self._running, *self._requests.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # A cancelled task and its frames refer to each other, so this object lives on until the
        # garbage collector runs. The fetched bytes must not.
        self._partitions.clear()
        self._ready.clear()

    async def _run(self) -> None:
        partitions = self._partitions.values()
        while self._failure is None and not all(partition.is_done for partition in partitions):
            self._wake_up.clear()
            try:
                await self._send_requests()
            except Exception as error:
                self._fail(error, [partition for partition in partitions if not partition.is_done])
                return
            await self._wake_up.wait()

    def _fail(self, error: Exception, partitions: Sequence[PartitionFetch]) -> None:
        """Have :meth:`take` raise an error about partitions."""
        where = _positions(partitions)
        if isinstance(error, RequestRefused | SourceError | MemoryError):
            self._failure = error
        elif isinstance(error, ClientError):
            self._failure = ReadError(f"reading {where}: {error}")
        else:
            _log.exception("reading %s", where)
            self._failure = ReadError(f"reading {where} failed: {error!r}")
        self._arrived.set()

    async def _send_requests(self) -> None:
        idle = [
            partition
            for key, partition in self._partitions.items()
            if not (partition.is_done or partition.is_asked or key in self._ready)
        ]
        leaderless = [partition for partition in idle if partition.leader is None]
        if leaderless:
            await self._find_leaders(leaderless)
        by_leader: dict[int, list[PartitionFetch]] = {}
        for partition in idle:
            if partition.leader is not None and partition.leader not in self._requests:
                by_leader.setdefault(partition.leader, []).append(partition)
        for node_id, partitions in by_leader.items():
            for partition in partitions:
                partition.is_asked = True
            # Only the first partition of a request is sure to get a batch that is larger than asked
            # for: begin with the one that has waited longest.
            partitions.sort(key=lambda p: (p.no_data_since_s is None, p.no_data_since_s))
            self._requests[node_id] = asyncio.create_task(self._ask(node_id, partitions))

    async def _find_leaders(self, partitions: Sequence[PartitionFetch]) -> None:
        names = sorted({partition.key[0] for partition in partitions})
        try:
            topics = await self._cluster.existing_topics(names)
        except ConnectionFailed as failure:
            for partition in partitions:
                self._note_no_data(partition, failed_connection(failure))
            self._retry_later()
            return
        for partition in partitions:
            name, number = partition.key
            topic, absent = topics.get(name), None
            if topic is None:
                absent = f"topic '{name}' does not exist"
            elif self._topic_ids.setdefault(name, topic.topic_id) != topic.topic_id:
                absent = f"topic '{name}' was deleted and created again"
            elif number not in topic.leaders:
                absent = f"topic '{name}' has no partition {number}"
            elif topic.leaders[number] >= 0:
                partition.leader = topic.leaders[number]
                continue
            if absent is None:
                self._note_no_data(partition, "it has no leader")
            else:
                self._note_absent(partition, absent, error=absent)
            self._retry_later()
        self._arrived.set()

    def _retry_later(self) -> None:
        asyncio.get_running_loop().call_later(_RETRY_S, self._wake_up.set)

    def _note_no_data(self, partition: PartitionFetch, problem: str) -> None:
        """Record that a request brought nothing.

        :raises ReadError: nothing has come for longer than the timeout
        """
        now_s = asyncio.get_running_loop().time()
        if partition.no_data_since_s is None:
            partition.no_data_since_s = now_s
        elif (now_s - partition.no_data_since_s) * 1000 >= self._options.timeout_ms:
            raise ReadError(
                f"no record of {partition.name} from offset {partition.offset} on within "
                f"{self._options.timeout_ms} ms: {problem}"
            )

    def _note_absent(self, partition: PartitionFetch, problem: str, *, error: str | None) -> None:
        """Record that a broker says that a partition, or the offset to fetch, does not exist.

        :param error: the error to fail with, unless the range is to be skipped, as soon as brokers
            have said so for long enough; None asks until the timeout
        :raises ReadError: the partition has been absent, or without data, for too long
        """
        now_s = asyncio.get_running_loop().time()
        if partition.absent_since_s is None:
            partition.absent_since_s = now_s
        if error is not None and now_s - partition.absent_since_s >= _ABSENT_S:
            self._skip_to(partition, partition.end, problem, error)
        else:
            self._note_no_data(partition, problem + self._options.advice)

    def _skip_to(self, partition: PartitionFetch, offset: int, problem: str, error: str) -> None:
        """Skip what is lost.

        :raises ReadError: it must not be lost
        """
        if not self._options.skip_lost:
            raise ReadError(error + self._options.advice)
        if self._options.warn_of_lost:
            _log.warning(
                "skipping offsets %d to %d of %s: %s",
                partition.offset,
                offset - 1,
                partition.name,
                problem,
            )
        partition.advance_to(offset)

    async def _ask(self, node_id: int, partitions: Sequence[PartitionFetch]) -> None:
        try:
            try:
                await self._fetch(node_id, partitions)
            except ConnectionFailed as failure:
                if isinstance(failure.__cause__, MemoryError):
                    raise failure.__cause__ from None
                for partition in partitions:
                    partition.leader = None
                    self._note_no_data(partition, failed_connection(failure))
                await asyncio.sleep(_RETRY_S)
        except Exception as error:
            self._fail(error, partitions)
        finally:
            for partition in partitions:
                partition.is_asked = False
            del self._requests[node_id]
            self._wake_up.set()

    async def _fetch(self, node_id: int, partitions: Sequence[PartitionFetch]) -> None:
        share_bytes = self._options.buffer_bytes // (2 * len(self._partitions))
        answers = await fetch(
            await self._cluster.connection(node_id, "fetch"),
            {
                partition.key: FetchPosition(partition.offset, partition.request_bytes(share_bytes))
                for partition in partitions
            },
            self._topic_ids,
            FetchLimits(
                _MAX_WAIT_MS, self._options.buffer_bytes // 2, self._options.isolation_level
            ),
            timeout_ms=self._options.timeout_ms,
        )
        leader_moved = False
        for key, answer in answers.items():
            partition = self._partitions[key]
            if answer.error_code in LEADER_MOVED:
                leader_moved = True
                partition.leader = None
                error = ErrorCode(answer.error_code).name
                self._note_no_data(partition, f"its leader answers {error}")
            elif answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                await self._handle_out_of_range(partition)
            elif answer.error_code:
                raise RequestRefused(
                    f"reading {partition.name} from offset {partition.offset}",
                    answer.error_code,
                    needs=f"READ on topic '{key[0]}'",
                )
            else:
                await self._add_records(partition, answer)
        self._arrived.set()
        if leader_moved:
            await asyncio.sleep(_RETRY_S)

    async def _add_records(self, partition: PartitionFetch, answer: FetchedPartition) -> None:
        try:
            batches = Batches.find(answer.records)
        except CorruptBatch as error:
            raise ReadError(
                f"{partition.name} has record batches that are corrupt, from offset "
                f"{partition.offset} on: {error}"
            ) from None
        if len(batches):
            self._ready[partition.key] = Piece(
                partition.key, partition.offset, batches, answer.aborted_transactions
            )
            partition.advance_over(batches)
        elif answer.high_watermark <= partition.offset:
            problem = f"its log ends at {answer.high_watermark}"
            lost = (
                f"{partition.name} is to be read from offset {partition.offset} on, but {problem}"
            )
            has_ended = await self._has_ended(partition)
            self._note_absent(partition, problem, error=lost if has_ended else None)
        elif self._options.read_committed and answer.last_stable_offset <= partition.offset:
            self._note_no_data(partition, "a transaction that began before it is still open")
        else:
            self._note_no_data(partition, "the broker answers without records")

    async def _has_ended(self, partition: PartitionFetch) -> bool:
        """Ask the leader whether its log ends before the next offset to fetch.

        The high watermark of a new leader may lie behind for a moment. ListOffsets is not answered
        until it has caught up (KIP-207), so its answer is the truth.
        """
        try:
            end = await self._list_offset(partition, LATEST, _END_TIMEOUT_S)
        except ClientError:
            return False
        return end is not None and end <= partition.offset

    async def _list_offset(
        self, partition: PartitionFetch, bound: int, timeout_s: float
    ) -> int | None:
        key = partition.key
        return raised(await list_offsets(self._cluster.within(timeout_s), {key: bound}))[key].offset

    async def _handle_out_of_range(self, partition: PartitionFetch) -> None:
        try:
            timeout_s = self._options.timeout_ms / 1000
            log_start = await self._list_offset(partition, EARLIEST, timeout_s) or 0
        except UnknownTopic:
            partition.leader = None  # the topic was deleted meanwhile: the next lookup reports it
            return
        next_offset, problem = partition.end, "its log ends before it"
        if partition.offset < log_start:
            next_offset = min(log_start, partition.end)
            problem = f"its log starts at {log_start}"
        lost = f"offset {partition.offset} of {partition.name} is not available: {problem}"
        self._skip_to(partition, next_offset, problem, lost)


def _positions(partitions: Sequence[PartitionFetch]) -> str:
    """Return the first partition with its offset, and the number of the others."""
    if not partitions:
        return "nothing"
    more = f" and {len(partitions) - 1} more partitions" if len(partitions) > 1 else ""
    return f"{partitions[0].name} from offset {partitions[0].offset} on{more}"
