"""Search of the records of a topic from an offset or a time on, by filters, with bounded work."""

from __future__ import annotations

import asyncio
import heapq
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError, RequestRefused, UnknownTopic, error_name
from headrace.client.fetch import FetchLimits, FetchPosition, fetch
from headrace.client.lag.partition_leaders import PartitionLeaders
from headrace.client.list_offsets import EARLIEST, LATEST
from headrace.client.read_budget import ReadBudget, size_of
from headrace.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition
from headrace.protocol.record_batch import (
    CorruptBatch,
    Opening,
    Record,
    header_at,
    headers,
    records,
)

from .limits import (
    FETCH_BYTES,
    MAX_KEPT_BYTES,
    MAX_OPENED_BYTES,
    MAX_READ_BYTES,
    MAX_READ_S,
    MAX_SCANNED_RECORDS,
    MAX_SHOWN_HEADERS,
    MAX_VALUE_BYTES,
    RECORDS_OF_PAGE,
    SHOWN_VALUE_BYTES,
)
from .reads import in_thread

_LARGEST_BATCH_BYTES = 32 * 1024 * 1024
_PARTITIONS_AT_ONCE = 50
"""The number of partitions that are read at a time, and of those in one Fetch request. Another one
begins where one ends, so that a page has few positions to continue from.
"""
_GROWTH = 8
"""The factor by which more bytes of a partition are asked for, if its next batch has not fitted."""
_PARTITIONS_WHOLE = 20
"""The number of partitions above which only some of the newest records of each are read."""
_OPENING = Opening(MAX_OPENED_BYTES, MAX_SCANNED_RECORDS)


class Filter(NamedTuple):
    """The records to show; empty texts select all. Texts are compared without case.

    :param key: a part of the key
    :param value: a part of the value
    :param header: the name of a header, or ``name=part of its value``
    """

    key: str = ""
    value: str = ""
    header: str = ""

    def selects(self, record: Record) -> bool:
        """Return whether a record is shown."""
        return (
            _contains(record.key, self.key)
            and _contains(record.value, self.value)
            and self._has_header(record)
        )

    def _has_header(self, record: Record) -> bool:
        if not self.header:
            return True
        name, separator, wanted = self.header.partition("=")
        return any(
            own.lower() == name.strip().lower() and (not separator or _contains(content, wanted))
            for own, content in record.headers
        )


def _contains(data: bytes | None, wanted: str) -> bool:
    if not wanted:
        return True
    return data is not None and wanted.lower().encode() in data.lower()


class Query(NamedTuple):
    """A question for records.

    :param partition: None for all
    :param start: "earliest", "latest" (the newest), "offset", "time" or "positions"
    :param offset: with "offset"
    :param time_ms: with "time"
    :param positions: partition → offset, where an earlier page ended; with "positions", and for the
        partitions below ``rest``. Those that are left out have ended
    :param rest: the first partition that no earlier page has begun to read
    """

    topic: str
    partition: int | None = None
    start: str = "latest"
    offset: int = 0
    time_ms: int = 0
    limit: int = RECORDS_OF_PAGE
    filter: Filter = Filter()
    positions: Mapping[int, int] | None = None
    rest: int = 0
    read_committed: bool = False

    def is_begun(self, partition: int) -> bool:
        """Return whether an earlier page has begun to read a partition."""
        return self.start == "positions" or partition < self.rest


class FoundRecord(NamedTuple):
    """A record and its partition.

    :param record: with what is shown of it
    :param value_bytes: the size of its whole value
    :param is_cut: whether its key, value or headers are not whole
    """

    partition: int
    record: Record
    value_bytes: int
    is_cut: bool


Cut = Callable[[Record], Record]
"""Return a record with the parts of it that are shown: a value may have megabytes."""


def cut_record(record: Record, max_bytes: int = SHOWN_VALUE_BYTES) -> Record:
    """Return a record with the first bytes of its key and value, and its first headers.

    :param max_bytes: of the key, of the value, and of all headers
    """
    headers: list[tuple[str, bytes | None]] = []
    left_bytes = max_bytes
    for name, content in record.headers[:MAX_SHOWN_HEADERS]:
        if left_bytes <= 0:
            break
        name = name[:left_bytes]
        left_bytes -= len(name)
        content = None if content is None else content[:left_bytes]
        left_bytes -= len(content or b"")
        headers.append((name, content))
    return record._replace(
        key=None if record.key is None else record.key[:max_bytes],
        value=None if record.value is None else record.value[:max_bytes],
        headers=tuple(headers),
    )


@dataclass(slots=True)
class FoundRecords:
    """A page of records, by time.

    :ivar positions: partition → where the next page begins; partitions at their end are left out
    :ivar rest: the first partition that was not begun, nor any after it; None if all were
    :ivar scanned: the records that were compared with the filters
    :ivar problems: what could not be read, one line each
    :ivar numbers: all partitions of the topic
    """

    records: Sequence[FoundRecord]
    positions: Mapping[int, int]
    rest: int | None
    scanned: int
    problems: Sequence[str]
    numbers: Sequence[int]

    @property
    def complete(self) -> bool:
        """True if all records up to the end were compared."""
        return not self.positions and self.rest is None


def page_budget() -> ReadBudget:
    """Return what one page of records may cost."""
    return ReadBudget(MAX_READ_BYTES, MAX_SCANNED_RECORDS, MAX_READ_S)


async def find_records(
    cluster: Cluster, query: Query, cut: Cut = cut_record, budget: ReadBudget | None = None
) -> FoundRecords:
    """Return the first records that a query selects; for "latest" the newest, if the budget allows.

    :param budget: None for that of a page
    :raises UnknownTopic: the topic or the partition does not exist
    :raises ClientError: the cluster cannot be reached, or refuses
    """
    leaders = PartitionLeaders(cluster)
    await leaders.learn([query.topic])
    numbers = leaders.partitions(query.topic)
    if numbers is None:
        numbers = sorted((await cluster.topics([query.topic]))[query.topic].leaders)
    chosen = numbers
    if query.partition is not None:
        if query.partition not in numbers:
            raise UnknownTopic(f"{query.topic}-{query.partition}")
        chosen = [query.partition]
    keys = [(query.topic, number) for number in chosen]
    starts = await leaders.offsets(keys, EARLIEST)
    ends = await leaders.offsets(keys, LATEST, read_committed=query.read_committed)
    positions = await _positions(leaders, query, keys, starts, ends)
    budget = budget or page_budget()
    scan = _Scan(cluster, leaders, query, positions, ends, _Shelf(cut, budget))
    try:
        return await scan.run(numbers)
    finally:
        budget.stop()  # a thread may still read: nobody waits for it after a cancellation


async def _positions(
    leaders: PartitionLeaders,
    query: Query,
    keys: Sequence[TopicPartition],
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Return where to begin in each partition that has records."""
    named = query.positions or {}
    found = {key: named[key[1]] for key in keys if query.is_begun(key[1]) and key[1] in named}
    others = [key for key in keys if not query.is_begun(key[1])]
    if query.start == "time":
        # Without a record since then, the offset is missing: there is nothing to read.
        found.update(await leaders.offsets(others, query.time_ms))
    elif query.start == "offset":
        found.update(dict.fromkeys(others, query.offset))
    elif query.start == "latest":
        newest = _newest(query, len(keys))
        found.update((key, ends.get(key, 0) - newest) for key in others)
    else:
        found.update(dict.fromkeys(others, 0))
    return {
        key: max(position, starts.get(key, 0))
        for key, position in found.items()
        if key in ends and max(position, starts.get(key, 0)) < ends[key]
    }


def _newest(query: Query, partitions: int) -> int:
    """Return the number of newest records to read of each partition."""
    if query.filter != Filter():
        return max(query.limit, MAX_SCANNED_RECORDS // 10 // partitions)
    if partitions <= _PARTITIONS_WHOLE:
        return query.limit
    return max(1, -(-query.limit // partitions))


class _Scan:
    """A search through partitions, a Fetch at a time for those of one broker."""

    def __init__(
        self,
        cluster: Cluster,
        leaders: PartitionLeaders,
        query: Query,
        positions: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        shelf: _Shelf,
    ) -> None:
        self._cluster = cluster
        self._shelf = shelf
        self._leaders = leaders
        self._query = query
        self._positions = {key: at for key, at in positions.items() if query.is_begun(key[1])}
        self._waiting = deque(sorted(positions.keys() - self._positions.keys()))
        self._starts = positions
        self._ends = ends
        self._most = math.inf if query.start == "latest" else _PARTITIONS_AT_ONCE
        together = max(1, min(_PARTITIONS_AT_ONCE, len(positions)))
        self._max_bytes = dict.fromkeys(positions, FETCH_BYTES // together)
        self._found: list[FoundRecord] = []
        self._scanned = 0
        self._searching = asyncio.Lock()
        self._problems: dict[str, None] = {}

    async def run(self, numbers: Sequence[int]) -> FoundRecords:
        """Read until there are enough records, or the limits are reached.

        :param numbers: all partitions of the topic
        """
        while not self._enough:
            while self._waiting and len(self._positions) < self._most:
                key = self._waiting.popleft()
                self._positions[key] = self._starts[key]
            by_broker = self._leaders.by_broker(self._positions)
            if not by_broker:
                break
            before = dict(self._positions)
            await asyncio.gather(*(self._fetch(node, some) for node, some in by_broker.items()))
            if before == self._positions and not self._can_grow:
                break
        records, positions = self._page()
        return FoundRecords(
            records,
            positions,
            self._waiting[0][1] if self._waiting else None,
            self._scanned,
            list(self._problems) + list(self._leaders.problems),
            numbers,
        )

    @property
    def _enough(self) -> bool:
        return (
            self._query.start != "latest" and len(self._found) >= self._query.limit
        ) or self._shelf.is_full()

    @property
    def _can_grow(self) -> bool:
        """True if a partition without an answer is to be asked for more bytes."""
        return any(self._max_bytes[key] < _LARGEST_BATCH_BYTES for key in self._positions)

    def _page(self) -> tuple[list[FoundRecord], dict[int, int]]:
        """Return the records of the page, and where the next one begins."""
        positions = {number: offset for (_, number), offset in self._positions.items()}
        limit = self._query.limit

        def order(one: FoundRecord) -> tuple[int, int, int]:
            return one.record.timestamp_ms, one.partition, one.record.offset

        if self._query.start == "latest":
            return heapq.nlargest(limit, self._found, key=order), positions
        # The page has the first records of each partition; the next page begins with the rest.
        by_partition = sorted(self._found, key=lambda one: (one.partition, one.record.offset))
        if len(by_partition) > limit:
            kept = sorted(by_partition, key=order)[:limit]
            last: dict[int, int] = {}
            for one in kept:
                last[one.partition] = max(last.get(one.partition, -1), one.record.offset)
            for one in by_partition:
                if one.record.offset > last.get(one.partition, -1):
                    number = one.partition
                    positions[number] = min(
                        positions.get(number, one.record.offset), one.record.offset
                    )
            by_partition = [
                one for one in by_partition if one.record.offset <= last.get(one.partition, -1)
            ]
        return sorted(by_partition, key=order), positions

    async def _fetch(self, node_id: int, partitions: Sequence[TopicPartition]) -> None:
        """Read the next batches of partitions that a broker leads."""
        some = partitions[:_PARTITIONS_AT_ONCE]  # the others follow in the next round
        positions = {key: FetchPosition(self._positions[key], self._max_bytes[key]) for key in some}
        connection = await self._cluster.connection(node_id, "records")
        answers = await fetch(
            connection,
            positions,
            self._leaders.topic_ids,
            FetchLimits(0, 0, _LARGEST_BATCH_BYTES, int(self._query.read_committed)),
            timeout_ms=self._cluster.timeout_ms,
        )
        read: dict[TopicPartition, _Read] = {}
        for key, answer in answers.items():
            if answer.error_code:
                if answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    raise RequestRefused(
                        f"reading topic '{key[0]}'",
                        int(answer.error_code),
                        needs=f"READ on topic '{key[0]}'",
                    )
                self._problems[f"{key[0]}-{key[1]}: {error_name(answer.error_code)}"] = None
                del self._positions[key]
            else:
                aborted = {
                    (int(one.producer_id), int(one.first_offset))
                    for one in answer.aborted_transactions or ()
                }
                data = bytes(answer.records or b"")
                if not data:  # its next batch is larger
                    more = _GROWTH * self._max_bytes[key]
                    self._max_bytes[key] = min(more, _LARGEST_BATCH_BYTES)
                read[key] = _Read(data, self._positions[key], self._ends[key], aborted)
        # Opening batches takes time, which other requests do not wait for. One thread spends the
        # budget at a time.
        async with self._searching:
            outcomes = await in_thread(_search_all, read, self._query, self._shelf)
        for key, outcome in outcomes.items():
            self._take(key, outcome)
        for key in some:  # rotate, so that all partitions get their turn
            if key in self._positions:
                self._positions[key] = self._positions.pop(key)

    def _take(self, key: TopicPartition, outcome: _Searched) -> None:
        """Take what was found in batches of a partition."""
        self._found += (FoundRecord(key[1], *record) for record in outcome.found)
        self._scanned += outcome.scanned
        self._problems.update(
            dict.fromkeys(f"{key[0]}-{key[1]}: {one}" for one in outcome.problems)
        )
        if outcome.position >= self._ends[key]:
            del self._positions[key]
        else:
            self._positions[key] = outcome.position


class _Read(NamedTuple):
    """Batches of a partition that were read.

    :param aborted: (producer id, first offset) of aborted transactions
    """

    data: bytes
    position: int
    end: int
    aborted: set[tuple[int, int]]


class _KeptRecord(NamedTuple):
    """A record with what is shown of it, as :class:`FoundRecord`."""

    record: Record
    value_bytes: int
    is_cut: bool


class _Shelf:
    """The room for the records of one page.

    :ivar budget: what reading them may cost
    """

    def __init__(self, cut: Cut, budget: ReadBudget) -> None:
        self.budget = budget
        self._cut = cut
        self._kept_bytes = 0

    def is_full(self) -> bool:
        """Return whether the page ends."""
        return self._kept_bytes >= MAX_KEPT_BYTES or self.budget.is_spent

    def keep(self, record: Record) -> _KeptRecord:
        """Return what the page keeps of a record."""
        shown = self._cut(record)
        self._kept_bytes += size_of(shown.key, shown.value, shown.headers)
        return _KeptRecord(shown, len(record.value or b""), shown != record)


class _Searched(NamedTuple):
    """The outcome of a search in batches.

    :param position: the offset at which the search continues
    :param scanned: the number of records that were compared
    :param problems: what cannot be read, one line each
    """

    position: int
    found: list[_KeptRecord]
    scanned: int
    problems: list[str]


def _search_all(
    read: Mapping[TopicPartition, _Read], query: Query, shelf: _Shelf
) -> dict[TopicPartition, _Searched]:
    return {key: _search(batches, query, shelf) for key, batches in read.items()}


def _search(read: _Read, query: Query, shelf: _Shelf) -> _Searched:
    """Search batches until the page is full."""
    found: list[_KeptRecord] = []
    problems: list[str] = []
    scanned, position = 0, read.position
    budget = shelf.budget
    begun = deque(sorted(read.aborted, key=lambda transaction: transaction[1]))
    dropping: set[int] = set()
    try:
        for at, header in headers(read.data):
            if header.base_offset >= read.end:
                return _Searched(read.end, found, scanned, problems)
            if shelf.is_full():
                return _Searched(position, found, scanned, problems)
            while begun and begun[0][1] <= header.last_offset:
                dropping.add(begun.popleft()[0])
            if header.is_control:
                dropping.discard(header.producer_id)
                budget.spend(header.size_bytes)
            elif header.is_transactional and header.producer_id in dropping:
                budget.spend(header.size_bytes)
            else:
                batch = read.data[at : at + header.size_bytes]
                for record in _records(batch, budget, problems):
                    if position <= record.offset < read.end:
                        scanned += 1
                        if query.filter.selects(record):
                            found.append(shelf.keep(record))
                            if len(found) >= query.limit and query.start != "latest":
                                return _Searched(record.offset + 1, found, scanned, problems)
                        if shelf.is_full():
                            return _Searched(record.offset + 1, found, scanned, problems)
            position = max(position, header.last_offset + 1)
    except CorruptBatch as error:
        problems.append(str(error))
        position = read.end
    return _Searched(position, found, scanned, problems)


def _records(batch: bytes, budget: ReadBudget, problems: list[str]) -> Iterator[Record]:
    try:
        for record in records(batch, _OPENING):
            budget.spend_record(record)
            yield record
    except CorruptBatch as error:
        problems.append(f"the batch at offset {header_at(batch).base_offset}: {error}")
        # It was read up to an unknown place, so that it counts as the largest that is opened.
        budget.spend(MAX_OPENED_BYTES)


async def record_at(
    cluster: Cluster, topic: str, partition: int, offset: int, max_bytes: int = MAX_VALUE_BYTES
) -> FoundRecord | None:
    """Return the record at an offset, or None.

    :param max_bytes: of its key, of its value, and of its headers
    :raises ClientError: the cluster cannot be reached, or refuses
    """
    query = Query(topic, partition, "offset", offset, limit=1)
    found = await find_records(cluster, query, partial(cut_record, max_bytes=max_bytes))
    first = next(iter(found.records), None)
    if first is None and found.positions.get(partition) == offset:
        raise ClientError(
            f"{topic}-{partition} was not read up to offset {offset} in time: try again"
        )
    return first if first is not None and first.record.offset == offset else None
