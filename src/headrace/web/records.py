"""Search of the records of a topic from an offset or a time on, by filters, with bounded work."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
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
    RECORDS_OF_PAGE,
    SHOWN_VALUE_BYTES,
)
from .reads import in_thread
from .views import ShownRecord

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


@dataclass(frozen=True, slots=True)
class FoundRecords:
    """A page of records, by time.

    :ivar positions: partition → where the next page begins; partitions at their end are left out
    :ivar rest: the first partition that was not begun, nor any after it; None if all were
    :ivar scanned: the records that were compared with the filters
    :ivar problems: what could not be read, one line each
    :ivar partitions: the number of partitions of the topic
    """

    records: Sequence[ShownRecord]
    positions: Mapping[int, int]
    rest: int | None
    scanned: int
    problems: Sequence[str]
    partitions: int

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
    if query.partition is not None and query.partition not in numbers:
        raise UnknownTopic(f"{query.topic}-{query.partition}")
    chosen = numbers if query.partition is None else [query.partition]
    keys = [(query.topic, number) for number in chosen]
    starts = await leaders.offsets(keys, EARLIEST)
    ends = await leaders.offsets(keys, LATEST, read_committed=query.read_committed)
    positions = await _positions(leaders, query, keys, starts, ends)
    budget = budget or page_budget()
    scan = _Scan(cluster, leaders, query, positions, ends, Shelf(cut, budget))
    try:
        return await scan.run(len(numbers))
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
        shelf: Shelf,
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
        self._found: list[ShownRecord] = []
        self._scanned = 0
        self._searching = asyncio.Lock()
        self._problems: dict[str, None] = {}

    async def run(self, partitions: int) -> FoundRecords:
        """Read until there are enough records, or the limits are reached.

        :param partitions: the number of partitions of the topic
        """
        while not self._enough:
            while self._waiting and len(self._positions) < self._most:
                key = self._waiting.popleft()
                self._positions[key] = self._starts[key]
            by_broker = self._leaders.by_broker(self._positions)
            if not by_broker:
                break
            before = dict(self._positions)
            await asyncio.gather(*(self._fetch(node, keys) for node, keys in by_broker.items()))
            if before == self._positions and not self._can_grow:
                break
        records, positions = self._page()
        return FoundRecords(
            records,
            positions,
            self._waiting[0][1] if self._waiting else None,
            self._scanned,
            [*self._problems, *self._leaders.problems],
            partitions,
        )

    @property
    def _enough(self) -> bool:
        has_enough = self._query.start != "latest" and len(self._found) >= self._query.limit
        return has_enough or self._shelf.is_full()

    @property
    def _can_grow(self) -> bool:
        """True if a partition without an answer is to be asked for more bytes."""
        return any(self._max_bytes[key] < _LARGEST_BATCH_BYTES for key in self._positions)

    def _page(self) -> tuple[list[ShownRecord], dict[int, int]]:
        """Return the records of the page, and where the next one begins."""
        positions = {number: offset for (_, number), offset in self._positions.items()}
        limit = self._query.limit
        by_time = sorted(self._found, key=attrgetter("timestamp_ms", "partition", "offset"))
        if self._query.start == "latest":
            return by_time[: -limit - 1 : -1], positions
        # The page has the first records of each partition; the next page begins with the rest.
        last: dict[int, int] = {}
        for record in by_time[:limit]:
            last[record.partition] = max(last.get(record.partition, -1), record.offset)
        shown = []
        for record in by_time:
            number, offset = record.partition, record.offset
            if offset <= last.get(number, -1):
                shown.append(record)
            else:
                positions[number] = min(positions.get(number, offset), offset)
        return shown, positions

    async def _fetch(self, node_id: int, partitions: Sequence[TopicPartition]) -> None:
        """Read the next batches of partitions that a broker leads."""
        keys = partitions[:_PARTITIONS_AT_ONCE]  # the others follow in the next round
        positions = {key: FetchPosition(self._positions[key], self._max_bytes[key]) for key in keys}
        answers = await fetch(
            await self._cluster.connection(node_id, "records"),
            positions,
            self._leaders.topic_ids,
            FetchLimits(0, 0, _LARGEST_BATCH_BYTES, int(self._query.read_committed)),
            timeout_ms=self._cluster.timeout_ms,
        )
        read = []
        for key, answer in answers.items():
            topic = f"topic '{key[0]}'"
            if answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise RequestRefused(
                    f"reading {topic}", answer.error_code, needs=f"READ on {topic}"
                )
            if answer.error_code:
                self._problems[f"{key[0]}-{key[1]}: {error_name(answer.error_code)}"] = None
                del self._positions[key]
                continue
            if not answer.records:  # its next batch is larger
                more = _GROWTH * self._max_bytes[key]
                self._max_bytes[key] = min(more, _LARGEST_BATCH_BYTES)
            aborted = answer.aborted_transactions
            read.append(
                Batches(key, answer.records, self._positions[key], self._ends[key], aborted)
            )
        # Opening batches takes time, which other requests do not wait for. One thread spends the
        # budget at a time.
        async with self._searching:
            outcomes = await in_thread(_search_all, read, self._query, self._shelf)
        for batches, outcome in zip(read, outcomes, strict=True):
            self._take(batches.key, outcome)
        for key in keys:  # rotate, so that all partitions get their turn
            if key in self._positions:
                self._positions[key] = self._positions.pop(key)

    def _take(self, key: TopicPartition, outcome: Searched) -> None:
        """Take what was found in batches of a partition."""
        self._found += outcome.found
        self._scanned += outcome.scanned
        for problem in outcome.problems:
            self._problems[f"{key[0]}-{key[1]}: {problem}"] = None
        if outcome.position >= self._ends[key]:
            del self._positions[key]
        else:
            self._positions[key] = outcome.position


class Batches(NamedTuple):
    """Batches of a partition that were read.

    :param aborted: (producer id, first offset) of aborted transactions
    """

    key: TopicPartition
    data: bytes
    position: int
    end: int
    aborted: Iterable[tuple[int, int]] = ()


class Shelf:
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

    def keep(self, key: TopicPartition, record: Record) -> ShownRecord:
        """Return what the page keeps of a record."""
        cut = self._cut(record)
        self._kept_bytes += size_of(cut.key, cut.value, cut.headers)
        return ShownRecord(
            *key,
            cut.offset,
            cut.timestamp_ms,
            cut.key,
            cut.value,
            cut.headers,
            len(record.value or b""),
            cut != record,
        )


@dataclass(slots=True)
class Searched:
    """The outcome of a search in batches.

    :ivar position: the offset at which the search continues
    :ivar scanned: the number of records that were compared
    :ivar problems: what cannot be read, one line each
    """

    position: int
    found: list[ShownRecord] = field(default_factory=list)
    scanned: int = 0
    problems: list[str] = field(default_factory=list)


def _search_all(read: Sequence[Batches], query: Query, shelf: Shelf) -> list[Searched]:
    return [search(batches, query, shelf) for batches in read]


def search(batches: Batches, query: Query, shelf: Shelf) -> Searched:
    """Search batches until the page is full."""
    outcome = Searched(batches.position)
    budget = shelf.budget
    begun = deque(sorted(batches.aborted, key=lambda transaction: transaction[1]))
    dropping: set[int] = set()
    try:
        for at, header in headers(batches.data):
            if header.base_offset >= batches.end:
                outcome.position = batches.end
                return outcome
            if shelf.is_full():
                return outcome
            while begun and begun[0][1] <= header.last_offset:
                dropping.add(begun.popleft()[0])
            is_dropped = header.is_transactional and header.producer_id in dropping
            if header.is_control:
                dropping.discard(header.producer_id)
            if header.is_control or is_dropped:
                budget.spend(header.size_bytes)
            else:
                batch = batches.data[at : at + header.size_bytes]
                for record in _opened(batch, budget, outcome.problems):
                    if not batches.position <= record.offset < batches.end:
                        continue
                    outcome.scanned += 1
                    if query.filter.selects(record):
                        outcome.found.append(shelf.keep(batches.key, record))
                    has_enough = len(outcome.found) >= query.limit and query.start != "latest"
                    if has_enough or shelf.is_full():
                        outcome.position = record.offset + 1
                        return outcome
            outcome.position = max(outcome.position, header.last_offset + 1)
    except CorruptBatch as error:
        outcome.problems.append(str(error))
        outcome.position = batches.end
    return outcome


def _opened(batch: bytes, budget: ReadBudget, problems: list[str]) -> Iterator[Record]:
    try:
        for record in records(batch, _OPENING):
            budget.spend_record(record)
            yield record
    except CorruptBatch as error:
        problems.append(f"the batch at offset {header_at(batch).base_offset}: {error}")
        # It was read up to an unknown place, so that it counts as the largest that is opened.
        budget.spend(MAX_OPENED_BYTES)


async def record_at(
    cluster: Cluster, topic: str, partition: int, offset: int, max_bytes: int
) -> ShownRecord | None:
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
    return first if first is not None and first.offset == offset else None
