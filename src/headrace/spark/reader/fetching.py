"""Fetching ranges of offsets from their leaders, a piece of each topic partition ahead of who
decodes them.

One :class:`Fetching` lives in an event loop. It asks each leader for all partitions of it that have
room, one Fetch at a time (KIP-74), and looks for the leader again where it moved. It knows offsets
and batches, but opens nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from headrace.client import ClientError, Cluster, ConnectionFailed, RequestRefused
from headrace.client.errors import UnknownTopic
from headrace.client.list_offsets import EARLIEST, LEADER_MOVED, READ_COMMITTED, list_offsets
from headrace.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition
from headrace.protocol.record_batch import CorruptBatch
from headrace.spark.option_parsing import SourceError

from .batches import Batches

_log = logging.getLogger(__name__)

_MAX_WAIT_MS = 500
_RETRY_S = 0.1
_SMALLEST_PIECE_BYTES = 64 * 1024
_LARGEST_PIECE_BYTES = 4 * 1024 * 1024
_READ_THROUGH_RECORDS = 500
"""Records between two ranges that are fetched, and dropped, rather than asked around."""
_GUESSED_RECORD_BYTES = 1100
"""Until the first answer tells how large the records of a partition are."""
_SPARE = 1.25
"""What is asked for beyond the bytes that the rest of a range should have."""
_ABSENT_S = 2.0
"""For so long brokers must say that a partition, or what is wanted of it, is not there: a new
leader, or a broker that has yet to hear of a topic, may know less than others for a moment."""


class ReadError(SourceError):
    """Records could not be read. One line that names the topic partition."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How to fetch; see :class:`headrace.spark.reader.log_reader.ReadOptions`."""

    isolation_level: int
    skip_lost: bool
    warn_of_lost: bool
    advice: str
    timeout_ms: int
    buffer_bytes: int


@dataclass(frozen=True, slots=True)
class Piece:
    """Fetched batches of a topic partition.

    :param start: the offset asked for: the first batch may begin before
    :param aborted: ``(producer id, first offset)`` of the aborted transactions among them, for
        read_committed
    """

    key: TopicPartition
    start: int
    batches: Batches
    aborted: Sequence[tuple[int, int]]


class _Partition:
    """How far one topic partition has been fetched."""

    __slots__ = (
        "_record_bytes",
        "absent_at_s",
        "at",
        "busy",
        "key",
        "leader",
        "piece",
        "ranges",
        "stuck_at_s",
        "why",
    )

    def __init__(self, key: TopicPartition, ranges: Sequence[tuple[int, int]]) -> None:
        self.key = key
        self.ranges = deque(ranges)
        self.at = ranges[0][0]
        self.leader: int | None = None
        self.piece: Piece | None = None
        self.busy = False
        self.stuck_at_s: float | None = None
        """Since when it has been asked for in vain."""
        self.absent_at_s: float | None = None
        """Since when brokers have said that it, or what is wanted of it, is not there."""
        self.why = "no answer"
        self._record_bytes: float = _GUESSED_RECORD_BYTES

    @property
    def name(self) -> str:
        return f"{self.key[0]}-{self.key[1]}"

    @property
    def is_read(self) -> bool:
        return not self.ranges

    def go_on_at(self, offset: int) -> None:
        """What lies before ``offset`` is done."""
        while self.ranges and self.ranges[0][1] <= offset:
            self.ranges.popleft()
        if self.ranges:
            self.at = max(offset, self.ranges[0][0])

    def arrived(self, batches: Batches, size_bytes: int) -> None:
        """Take note of fetched batches."""
        self.stuck_at_s = self.absent_at_s = None
        following = batches.next_offset
        self._record_bytes = size_bytes / max(1, following - int(batches.heads[0]["base_offset"]))
        self.go_on_at(following)

    def most_bytes(self, share: int) -> int:
        """How much to ask for: no more than the ranges at hand need, nor than a ``share`` of what
        is to be held.
        """
        most = min(max(share, _SMALLEST_PIECE_BYTES), _LARGEST_PIECE_BYTES)
        until, needed = self.at, 0.0
        for start, end in self.ranges:
            if needed >= most or start > until + _READ_THROUGH_RECORDS:
                break
            until = end
            needed = (until - self.at) * self._record_bytes * _SPARE
        return int(min(max(needed, _SMALLEST_PIECE_BYTES), most))


class Fetching:
    """Begins at once; :meth:`take` hands out what came, :meth:`close` ends it."""

    def __init__(
        self,
        cluster: Cluster,
        reading: Reading,
        wanted: Mapping[TopicPartition, Sequence[tuple[int, int]]],
    ) -> None:
        self._cluster = cluster
        self._reading = reading
        self._partitions = {key: _Partition(key, ranges) for key, ranges in wanted.items()}
        self._ready: deque[TopicPartition] = deque()
        self._asking: dict[int, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._arrived = asyncio.Condition()
        self._failure: ClientError | SourceError | None = None
        self._running = asyncio.create_task(self._run())

    async def take(self, key: TopicPartition | None) -> Piece | None:
        """The next piece of a topic partition, or of any; None when all of it has been handed out.

        :raises ReadError: records are gone, or did not come in time
        :raises ClientError: a broker refuses
        """
        async with self._arrived:
            while True:
                open_keys = [
                    k
                    for k in self._of(key)
                    if self._partitions[k].piece or not self._partitions[k].is_read
                ]
                if not open_keys:
                    return None
                found = next((k for k in self._ready if key in (None, k)), None)
                if found is not None:
                    break
                if self._failure is not None:
                    raise self._failure
                await self._arrived.wait()
        self._ready.remove(found)
        partition = self._partitions[found]
        piece, partition.piece = partition.piece, None
        self._changed.set()
        return piece

    def _of(self, key: TopicPartition | None) -> Iterable[TopicPartition]:
        if key is None:
            return self._partitions
        return (key,) if key in self._partitions else ()

    async def close(self) -> None:
        """Stop asking, and let go of what nobody took."""
        tasks = [self._running, *self._asking.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # A cancelled task and what ran in it refer to each other: this lives on until the garbage
        # collector comes.
        self._partitions.clear()
        self._ready.clear()

    async def _run(self) -> None:
        try:
            while any(not partition.is_read for partition in self._partitions.values()):
                self._changed.clear()
                await self._ask_all()
                await self._changed.wait()
        except (ClientError, SourceError) as failure:
            await self._fail(failure)
        except Exception as bug:
            await self._fail(ReadError(f"reading failed: {bug!r}"))
            raise

    async def _fail(self, failure: ClientError | SourceError) -> None:
        async with self._arrived:
            self._failure = failure
            self._arrived.notify_all()

    async def _ask_all(self) -> None:
        if self._failure is not None:
            raise self._failure
        waiting = [p for p in self._partitions.values() if not (p.is_read or p.piece or p.busy)]
        if any(p.leader is None for p in waiting):
            await self._find_leaders(waiting)
        led: dict[int, list[_Partition]] = {}
        for partition in waiting:
            if partition.leader is not None and partition.leader not in self._asking:
                led.setdefault(partition.leader, []).append(partition)
        for node_id, partitions in led.items():
            for partition in partitions:
                partition.busy = True
            # Who got nothing the last time comes first: only the first is sure to get a batch
            # larger than asked for.
            partitions.sort(key=lambda p: (p.stuck_at_s is None, p.stuck_at_s))
            self._asking[node_id] = asyncio.create_task(self._ask(node_id, partitions))

    async def _find_leaders(self, waiting: Sequence[_Partition]) -> None:
        lost = [partition for partition in waiting if partition.leader is None]
        try:
            topics = await self._cluster.existing_topics(
                sorted({partition.key[0] for partition in lost})
            )
        except ConnectionFailed as failure:
            for partition in lost:
                self._got_nothing(partition, str(failure))
            self._again_soon()
            return
        for partition in lost:
            topic, index = partition.key
            if topic not in topics or index not in topics[topic].leaders:
                why = f"topic '{topic}' " + (
                    f"has no partition {index}" if topic in topics else "does not exist"
                )
                self._is_absent(partition, why, fails=True)
                self._again_soon()
            elif topics[topic].leaders[index] < 0:
                self._got_nothing(partition, "it has no leader")
                self._again_soon()
            else:
                partition.leader = topics[topic].leaders[index]
        async with self._arrived:
            self._arrived.notify_all()

    def _again_soon(self) -> None:
        asyncio.get_running_loop().call_later(_RETRY_S, self._changed.set)

    def _got_nothing(self, partition: _Partition, why: str) -> None:
        now_s = asyncio.get_running_loop().time()
        partition.why = why
        if partition.stuck_at_s is None:
            partition.stuck_at_s = now_s
        elif (now_s - partition.stuck_at_s) * 1000 >= self._reading.timeout_ms:
            raise ReadError(
                f"no record of {partition.name} from offset {partition.at} on within "
                f"{self._reading.timeout_ms} ms: "
                f"{partition.why}"
            )

    def _is_absent(self, partition: _Partition, why: str, *, fails: bool) -> None:
        """A broker says that a partition, or all that is still wanted of it, is not there.

        :param fails: fail when it has been saying so for long enough, rather than ask until the
            time is over
        """
        now_s = asyncio.get_running_loop().time()
        if partition.absent_at_s is None:
            partition.absent_at_s = now_s
        if now_s - partition.absent_at_s >= _ABSENT_S:
            if self._reading.skip_lost:
                self._pass_over(partition, partition.ranges[-1][1], why)
                return
            if fails:
                raise ReadError(why + self._reading.advice)
        self._got_nothing(partition, why + self._reading.advice)

    def _pass_over(self, partition: _Partition, until: int, why: str) -> None:
        if self._reading.warn_of_lost:
            _log.warning(
                "offsets %d to %d of %s are passed over: %s",
                partition.at,
                until - 1,
                partition.name,
                why,
            )
        partition.go_on_at(until)

    async def _ask(self, node_id: int, partitions: Sequence[_Partition]) -> None:
        try:
            await self._fetch(node_id, partitions)
        except ConnectionFailed as failure:
            for partition in partitions:
                partition.leader = None
            try:
                for partition in partitions:
                    self._got_nothing(partition, str(failure))
            except ReadError as late:
                await self._fail(late)
            await asyncio.sleep(_RETRY_S)
        except (ClientError, SourceError) as failure:
            await self._fail(failure)
        except CorruptBatch as error:
            await self._fail(ReadError(f"a broker sent batches that cannot be read: {error}"))
        finally:
            for partition in partitions:
                partition.busy = False
            del self._asking[node_id]
            self._changed.set()

    async def _fetch(self, node_id: int, partitions: Sequence[_Partition]) -> None:
        connection = await self._cluster.connection(node_id, "fetch")
        request = self._request(connection.messages("fetch"), partitions)
        response = await connection.request(request, timeout_ms=self._reading.timeout_ms)
        if response.error_code:
            raise RequestRefused(f"fetching from {connection.address}", int(response.error_code))
        moved = False
        for topic in response.responses:
            for answer in topic.partitions:
                partition = self._partitions[str(topic.topic), int(answer.partition_index)]
                if answer.error_code in LEADER_MOVED:
                    partition.leader, moved = None, True
                    self._got_nothing(
                        partition, f"its leader answers {ErrorCode(answer.error_code).name}"
                    )
                elif answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    await self._out_of_range(partition)
                elif answer.error_code:
                    raise RequestRefused(
                        f"reading {partition.name} from offset {partition.at}",
                        int(answer.error_code),
                    )
                else:
                    self._take_in(partition, answer)
        async with self._arrived:
            self._arrived.notify_all()
        if moved:
            await asyncio.sleep(_RETRY_S)

    def _request(self, messages: Any, partitions: Sequence[_Partition]) -> Any:
        share = self._reading.buffer_bytes // (2 * len(self._partitions))
        topics: dict[str, list[Any]] = {}
        for partition in partitions:
            topic, index = partition.key
            topics.setdefault(topic, []).append(
                messages.FetchPartition(
                    partition=index,
                    fetch_offset=partition.at,
                    partition_max_bytes=partition.most_bytes(share),
                )
            )
        return messages.FetchRequest(
            max_wait=timedelta(milliseconds=_MAX_WAIT_MS),
            min_bytes=1,
            max_bytes=self._reading.buffer_bytes // 2,
            isolation_level=self._reading.isolation_level,
            topics=tuple(
                messages.FetchTopic(topic=name, partitions=tuple(asked))
                for name, asked in topics.items()
            ),
            forgotten_topics_data=(),
        )

    def _take_in(self, partition: _Partition, answer: Any) -> None:
        data = answer.records or b""
        batches = Batches.find(data)
        if not len(batches):
            if answer.high_watermark <= partition.at:
                self._is_absent(partition, f"its log ends at {answer.high_watermark}", fails=False)
            else:
                self._got_nothing(partition, self._why_nothing(partition, answer))
            return
        aborted = [
            (int(a.producer_id), int(a.first_offset)) for a in answer.aborted_transactions or ()
        ]
        partition.piece = Piece(partition.key, partition.at, batches, aborted)
        partition.arrived(batches, len(data))
        self._ready.append(partition.key)

    def _why_nothing(self, partition: _Partition, answer: Any) -> str:
        if (
            self._reading.isolation_level == READ_COMMITTED
            and answer.last_stable_offset <= partition.at
        ):
            return "a transaction that began before is still open"
        return "the broker answers without records"

    async def _out_of_range(self, partition: _Partition) -> None:
        try:
            listed = await list_offsets(
                self._cluster, {partition.key: EARLIEST}, timeout_ms=self._reading.timeout_ms
            )
        except UnknownTopic:
            partition.leader = None  # deleted meanwhile: the look for its leader will tell
            return
        start = listed[partition.key].offset or 0
        why = f"its log begins at {start}" if partition.at < start else "its log ends before that"
        if not self._reading.skip_lost:
            gone = f"offset {partition.at} of {partition.name} is not there (any more): {why}"
            raise ReadError(gone + self._reading.advice)
        end = partition.ranges[-1][1]
        self._pass_over(partition, min(start, end) if partition.at < start else end, why)
