"""The timestamps of records at positions of many partitions, from few Fetch requests of few bytes.

The record of a position is the first one at or after it, without transaction markers, and with
read_committed without aborted records. The header of a batch has the timestamp of its first record,
and with LogAppendTime of all records. A batch is opened only if a position lies in its middle.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headrace.client.errors import ClientError, error_name
from headrace.client.fetch import (
    AbortedTransaction,
    FetchLimits,
    FetchPosition,
    Unread,
    fetch,
)
from headrace.client.offsets import EARLIEST
from headrace.protocol.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition
from headrace.protocol.primitives import read_varint
from headrace.protocol.record_batch import (
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    NO_TIMESTAMP,
    BatchHeader,
    header_at,
    record_spans,
)

from .partition_leaders import PartitionLeaders

FIRST_BYTES = 4 * 1024
"""The size of a first request: the header of a batch, or a whole small one."""
MOST_BYTES = 1024 * 1024
"""The limit of a request for several positions; a single batch may need more."""
_LARGEST_BATCH_BYTES = 1 << 30
_GROWTH = 4
_MAX_IDLE_RESPONSES = 12
"""The number of consecutive responses without a result after which the search ends: 9 MiB of small
batches. They occur in long runs of aborted transactions.
"""


class PartitionSearch:
    """The search in one partition: fetch up to :attr:`max_bytes` from :attr:`offset`, and pass the
    response to :meth:`feed`, until :attr:`done`.

    :param positions: the offsets whose records to find
    :param end_offset: the exclusive end of the search
    :ivar held_back: True if the last response was empty, as from a broker that sends only whole
        batches
    :ivar found: position → timestamp in ms; None if no record follows; :data:`NO_TIMESTAMP` if its
        record has none, or is beyond the limit of the search. Missing positions were not searched
    """

    def __init__(self, positions: Iterable[int], end_offset: int) -> None:
        self._pending = deque(sorted(set(positions)))
        self._end_offset = end_offset
        self.found: dict[int, int | None] = {}
        self.offset = self._pending[0] if self._pending else end_offset
        self.max_bytes = min(FIRST_BYTES * max(1, len(self._pending)), MOST_BYTES // _GROWTH)
        self.held_back = False
        self._idle = 0
        self._stop_at_end()

    @property
    def done(self) -> bool:
        """True once the search has ended."""
        return not self._pending

    def give_up(self) -> None:
        """End the search; the positions without a result stay unknown."""
        self._pending.clear()

    def start_at(self, log_start_offset: int) -> None:
        """Continue at the log start offset, which is after :attr:`offset`."""
        if log_start_offset <= self.offset:
            self.give_up()  # the fetch failed for another reason
        self.offset = log_start_offset
        self._stop_at_end()

    def feed(self, data: bytes, aborted: Sequence[AbortedTransaction] = ()) -> None:
        """Search a response for the fetch from :attr:`offset`.

        :param data: record batches; the last one may be incomplete
        :param aborted: the aborted transactions in it, with read_committed
        """
        self.held_back = not data
        before, open_before = self.offset, len(self._pending)
        wanted_bytes = self._scan(data, aborted)
        resolved = open_before - len(self._pending)
        self._idle = 0 if resolved else self._idle + 1
        if self._idle > _MAX_IDLE_RESPONSES:
            self.found.update(dict.fromkeys(self._pending, NO_TIMESTAMP))
            self.give_up()
        if wanted_bytes:
            self.max_bytes = max(wanted_bytes, FIRST_BYTES)
        elif resolved > 1 or (not resolved and self.offset > before):
            self.max_bytes = max(FIRST_BYTES, min(self.max_bytes * _GROWTH, MOST_BYTES))
        elif resolved:
            self.max_bytes = FIRST_BYTES
        else:
            self.max_bytes = min(self.max_bytes * _GROWTH, _LARGEST_BATCH_BYTES)
        if self._pending and self._pending[0] > self.offset:
            self.offset = self._pending[0]
        self._stop_at_end()

    def _stop_at_end(self) -> None:
        while self._pending and max(self._pending[0], self.offset) >= self._end_offset:
            self.found[self._pending.popleft()] = None

    def _resolve(self, offset: int, timestamp: int) -> None:
        """Set the timestamp of the positions up to ``offset``."""
        while self._pending and self._pending[0] <= offset:
            self.found[self._pending.popleft()] = timestamp

    def _scan(self, data: bytes, aborted: Sequence[AbortedTransaction]) -> int:
        """Search the batches.

        :returns: the size of a batch that must be read whole, or 0
        """
        unread = Unread(aborted)
        at = 0
        while self._pending and at + HEADER_BYTES <= len(data):
            header = header_at(data, at)
            if header.magic != 2 or header.size_bytes < HEADER_BYTES:
                self.give_up()  # a format from before Kafka 0.11
                break
            if header.base_offset >= self._end_offset:
                self.offset = self._end_offset
                break
            batch = memoryview(data)[at : at + header.size_bytes]
            if not unread.has(header) and not self._take(header, batch):
                return header.size_bytes
            at += header.size_bytes
            self.offset = max(self.offset, header.last_offset + 1)
        return 0

    def _take(self, header: BatchHeader, batch: memoryview) -> bool:
        """Search a batch; return False if that requires the whole batch."""
        complete = header.record_count == header.last_offset_delta + 1  # not compacted
        if complete and header.attributes & LOG_APPEND_TIME_BIT:
            self._resolve(header.last_offset, header.max_timestamp)
        elif complete and self.offset <= header.base_offset and header.delete_horizon_ms is None:
            self._resolve(header.base_offset, header.base_timestamp)
        if not self._pending or self._pending[0] > header.last_offset or not header.record_count:
            return True
        if len(batch) < header.size_bytes:
            return False
        try:
            self._open(header, batch, complete)
        except (IndexError, ValueError):  # CorruptBatch, too
            self._resolve(header.last_offset, NO_TIMESTAMP)
        return True

    def _open(self, header: BatchHeader, batch: memoryview, complete: bool) -> None:
        least_delta = max(self._pending[0], self.offset) - header.base_offset
        by_broker = header.attributes & LOG_APPEND_TIME_BIT
        for offset_delta, (data, start, _) in enumerate(record_spans(batch, header)):
            if not complete or offset_delta >= least_delta:
                delta_ms, after = read_varint(data, start + 1)
                if not complete:
                    offset_delta, _ = read_varint(data, after)
                if offset_delta >= least_delta:
                    timestamp = (
                        header.max_timestamp if by_broker else header.base_timestamp + delta_ms
                    )
                    self._resolve(header.base_offset + offset_delta, timestamp)
                    if not self._pending or self._pending[0] > header.last_offset:
                        return
                    least_delta = self._pending[0] - header.base_offset


Position = tuple[TopicPartition, int]
"""A partition and an offset in it."""
_Searches = dict[TopicPartition, PartitionSearch]

_ANSWER_BYTES = 16 * 1024 * 1024
"""The limit of one response, over all partitions."""
_PARTITIONS_AT_ONCE = 2_000
_SIZE_FACTOR = 2
"""The factor from the size of a received batch to the size of later requests."""


class _Look(NamedTuple):
    """The result of a search, and its end offset and time."""

    timestamp_ms: int | None
    end_offset: int
    time_ms: int

    def holds(self, end_offset: int, now_ms: int, kept_ms: int) -> bool:
        """Return whether the result is still right."""
        if self.timestamp_ms in (None, NO_TIMESTAMP) and self.end_offset == end_offset:
            return True
        return self.timestamp_ms is not None and 0 <= now_ms - self.time_ms < kept_ms


_Looks = dict[tuple[bool, Position], _Look]
"""(read_committed, position) → the result there."""


class RecordTimes:
    """Timestamps of records, for one snapshot or repeated ones: a position that does not move is
    read rarely.

    :param max_requests: the limit of Fetch requests to one broker in one search; positions beyond
        it stay unknown until a later search
    :param kept_ms: the time after which a timestamp is read again, as compaction may have deleted
        its record. That no record follows up to an end offset is true for ever
    """

    def __init__(self, max_requests: float = math.inf, kept_ms: int = 0) -> None:
        self._max_requests = max_requests
        self._kept_ms = kept_ms
        self._earlier: _Looks = {}
        self._looks: _Looks = {}

    @property
    def size(self) -> int:
        """The number of positions in memory."""
        return len(self._looks) + len(self._earlier)

    def begin(self) -> None:
        """Begin a snapshot: forget positions that the last snapshot did not have."""
        self._earlier, self._looks = self._looks, {}

    async def search(
        self,
        leaders: PartitionLeaders,
        positions: Iterable[Position],
        end_offsets: Mapping[TopicPartition, int],
        *,
        read_committed: bool,
        now_ms: int,
    ) -> dict[Position, int | None]:
        """Find the timestamps of the records at ``positions``.

        A request to a broker names all partitions with open positions, within a limit of size. It
        asks for few bytes of each; for more after a response with a larger batch, or with several
        results.

        :param end_offsets: partition → exclusive end of the search
        :param read_committed: ignore records of aborted transactions
        :param now_ms: time since the epoch
        :returns: position → timestamp, as :attr:`PartitionSearch.found` has it
        """
        timestamps: dict[Position, int | None] = {}
        unread: defaultdict[TopicPartition, list[int]] = defaultdict(list)
        for position in positions:
            key, (partition, offset) = (read_committed, position), position
            look = self._looks.get(key) or self._earlier.get(key)
            if look is not None and look.holds(end_offsets[partition], now_ms, self._kept_ms):
                self._looks[key] = look
                timestamps[position] = look.timestamp_ms
            else:
                unread[partition].append(offset)
        searches = {
            partition: PartitionSearch(offsets, end_offsets[partition])
            for partition, offsets in unread.items()
        }
        await asyncio.gather(
            *(
                _BrokerSearch(leaders, node_id, read_committed).search(
                    {p: searches[p] for p in led if not searches[p].done}, self._max_requests
                )
                for node_id, led in leaders.by_broker(searches).items()
            )
        )
        for partition, search in searches.items():
            for offset, timestamp_ms in search.found.items():
                position = partition, offset
                timestamps[position] = timestamp_ms
                look = _Look(timestamp_ms, end_offsets[partition], now_ms)
                self._looks[read_committed, position] = look
        return timestamps


@dataclass(slots=True)
class _BrokerSearch:
    """The searches in the partitions that one broker leads.

    :ivar least_bytes: the minimum size of a request, learned from a broker that sends only whole
        batches
    """

    leaders: PartitionLeaders
    node_id: int
    read_committed: bool
    least_bytes: int = 0

    async def search(self, searches: _Searches, max_requests: float) -> None:
        """Run the searches to their ends. An error goes to ``PartitionLeaders.problems``.

        :param max_requests: end after this many requests
        """
        requests = 0
        try:
            while searches and requests < max_requests:
                requests += 1
                chosen = self._choose(searches)
                beyond = await self._fetch(chosen)
                if beyond:  # their logs start after the position
                    starts = await self.leaders.offsets(beyond, EARLIEST)
                    for partition in beyond:
                        searches[partition].start_at(starts.get(partition, -1))
                for partition, search in chosen.items():
                    # Searches stay in front until they end: a broker sends the first batch whole.
                    if search.done:
                        del searches[partition]
        except ClientError as error:
            self.leaders.problems[str(error)] = None

    def _choose(self, searches: _Searches) -> _Searches:
        """Return the first searches that fit into one response."""
        chosen: _Searches = {}
        room = _ANSWER_BYTES
        for partition, search in searches.items():
            search.max_bytes = max(search.max_bytes, self.least_bytes)
            if chosen and (search.max_bytes > room or len(chosen) == _PARTITIONS_AT_ONCE):
                break
            chosen[partition] = search
            room -= search.max_bytes
        return chosen

    async def _fetch(self, searches: _Searches) -> list[TopicPartition]:
        """Send one request for all searches.

        :returns: the partitions whose log starts after the position
        """
        cluster = self.leaders.cluster
        all_bytes = sum(search.max_bytes for search in searches.values())
        answers = await fetch(
            await cluster.connection(self.node_id, "fetch"),
            {
                partition: FetchPosition(search.offset, search.max_bytes)
                for partition, search in searches.items()
            },
            self.leaders.topic_ids,
            FetchLimits(0, max(_ANSWER_BYTES, all_bytes), int(self.read_committed)),
            timeout_ms=cluster.timeout_ms,
        )
        beyond = []
        for partition, search in searches.items():
            answer = answers.get(partition)
            if answer is None:
                search.give_up()
            elif answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                beyond.append(partition)
            elif answer.error_code:
                reason = error_name(answer.error_code)
                self.leaders.problems[f"reading {partition[0]}-{partition[1]}: {reason}"] = None
                search.give_up()
            else:
                data = answer.records
                if data and search.held_back and search.max_bytes <= MOST_BYTES:
                    enough_bytes = min(search.max_bytes, _SIZE_FACTOR * len(data))
                    self.least_bytes = max(self.least_bytes, enough_bytes)
                search.feed(data, answer.aborted_transactions)
        return beyond
