"""Search of the records of a topic from an offset or a time on, by filters, with bounded work."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError, RequestRefused, error_name
from headrace.client.fetch import FetchedPartition, FetchLimits, FetchPosition, Unread, fetch
from headrace.client.lag.partition_leaders import PartitionLeaders
from headrace.client.offsets import EARLIEST, LATEST
from headrace.client.read_budget import ReadBudget, size_of
from headrace.errors import ErrorCode
from headrace.protocol.dead_letters import HEADERS, TRACEBACK, WORKER_HEADERS
from headrace.protocol.partitions import TopicPartition
from headrace.protocol.record_batch import (
    CorruptBatch,
    Opening,
    Record,
    header_at,
    headers,
    record_lists,
)

from .errors import NotThere
from .limits import (
    FETCH_BYTES,
    MAX_KEPT_BYTES,
    MAX_OPENED_BYTES,
    MAX_READ_BYTES,
    MAX_READ_S,
    MAX_SCANNED_RECORDS,
    MAX_SHOWN_HEADERS,
    RECORD_VALUE_BYTES,
    RECORDS_OF_PAGE,
    SHOWN_VALUE_BYTES,
)
from .reads import in_thread
from .schemas import Data
from .views import ShownRecord

_OF_LETTERS = frozenset((*HEADERS, *WORKER_HEADERS)) - {TRACEBACK}
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
        if not _contains(record.key, self.key) or not _contains(record.value, self.value):
            return False
        name, _, part = self.header.lower().partition("=")
        return not self.header or any(
            own.lower() == name.strip() and _contains(content, part)
            for own, content in record.headers
        )


def _contains(data: bytes | None, part: str) -> bool:
    return not part or (data is not None and part.lower().encode() in data.lower())


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


def cut_record(record: Record, max_bytes: int = SHOWN_VALUE_BYTES) -> Record:
    """Return a record with the first bytes of its key and value, and its first headers.

    :param max_bytes: of the key, of the value, and of all headers
    """
    headers: dict[int, tuple[str, bytes | None]] = {}
    left_bytes = max_bytes
    # Those of a dead letter count most: they say what it is about. The last of each name is its
    # own; others were in its record.
    own = {name: at for at, (name, _) in enumerate(record.headers) if name in _OF_LETTERS}
    by_use = sorted(range(len(record.headers)), key=lambda at: own.get(record.headers[at][0]) != at)
    for at in by_use[:MAX_SHOWN_HEADERS]:
        if left_bytes <= 0:
            break
        name, content = record.headers[at]
        name = name[:left_bytes]
        left_bytes -= len(name)
        content = None if content is None else content[:left_bytes]
        left_bytes -= len(content or b"")
        headers[at] = name, content
    return record._replace(
        key=None if record.key is None else record.key[:max_bytes],
        value=None if record.value is None else record.value[:max_bytes],
        headers=tuple(headers[at] for at in sorted(headers)),
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


@dataclass(slots=True)
class Place:
    """The progress in a partition.

    :ivar position: the offset at which the search continues
    :ivar end: the offset at which it ends
    :ivar max_bytes: of the next Fetch request
    """

    key: TopicPartition
    position: int
    end: int
    max_bytes: int = FETCH_BYTES


class Shelf:
    """The room for the records of one page. One thread at a time fills it.

    :param max_bytes: see :func:`cut_record`
    :ivar budget: what reading them may cost
    :ivar selected: the records that the query selects
    :ivar scanned: the number of records that were compared with the filters
    :ivar problems: what could not be read, one line each; an ordered set
    """

    def __init__(self, max_bytes: int, budget: ReadBudget) -> None:
        self.budget = budget
        self.selected: list[ShownRecord] = []
        self.scanned = 0
        self.problems: dict[str, None] = {}
        self._max_bytes = max_bytes
        self._kept_bytes = 0

    @property
    def is_full(self) -> bool:
        """True if the page ends."""
        return self._kept_bytes >= MAX_KEPT_BYTES or self.budget.is_spent

    def keep(self, key: TopicPartition, record: Record) -> None:
        """Keep what the page shows of a record."""
        cut = cut_record(record, self._max_bytes)
        self._kept_bytes += size_of(cut.key, cut.value, cut.headers)
        size_bytes = len(record.value or b"")
        topic, number = key
        self.selected.append(
            ShownRecord(
                topic,
                number,
                cut.offset,
                cut.timestamp_ms,
                _data(cut.key),
                _data(cut.value),
                [(name, _data(content)) for name, content in cut.headers],
                size_bytes,
                cut != record,
            )
        )

    def note(self, key: TopicPartition, problem: object) -> None:
        """Note what could not be read."""
        self.problems[f"{key[0]}-{key[1]}: {problem}"] = None


def _data(content: bytes | None) -> Data | None:
    return None if content is None else Data(content)


async def find_records(
    cluster: Cluster, query: Query, max_bytes: int = SHOWN_VALUE_BYTES
) -> FoundRecords:
    """Return the first records that a query selects; for "latest" the newest, if the budget of a
    page allows.

    :param max_bytes: see :func:`cut_record`
    :raises UnknownTopic: the topic does not exist
    :raises NotThere: it has no such partition
    :raises ClientError: the cluster cannot be reached, or refuses
    """
    leaders = PartitionLeaders(cluster)
    await leaders.learn([query.topic])
    numbers = leaders.partitions(query.topic)
    if numbers is None:
        numbers = sorted((await cluster.topics([query.topic]))[query.topic].leaders)
    if query.partition is not None and query.partition not in numbers:
        raise NotThere(f"The topic {query.topic!r} has no partition {query.partition}.")
    chosen = numbers if query.partition is None else [query.partition]
    places = await _places(leaders, query, [(query.topic, number) for number in chosen])
    budget = page_budget()
    scan = _Scan(cluster, leaders, query, places, Shelf(max_bytes, budget))
    try:
        return await scan.run(len(numbers))
    finally:
        budget.stop()  # a thread may still read: nobody waits for it after a cancellation


async def _places(
    leaders: PartitionLeaders, query: Query, keys: Sequence[TopicPartition]
) -> list[Place]:
    """Return where to begin in each partition that has records."""
    starts = await leaders.offsets(keys, EARLIEST)
    ends = await leaders.offsets(keys, LATEST, read_committed=query.read_committed)
    fresh = [key for key in keys if not query.is_begun(key[1])]
    first: dict[TopicPartition, int] = {}
    if query.start == "time":
        # Without a record since then, the offset is missing: there is nothing to read.
        first = await leaders.offsets(fresh, query.time_ms)
    elif query.start == "latest":
        newest = _newest(query, len(keys))
        first = {key: ends[key] - newest for key in fresh if key in ends}
    else:
        first = dict.fromkeys(fresh, query.offset if query.start == "offset" else 0)
    positions = query.positions or {}
    first |= {
        (query.topic, number): at for number, at in positions.items() if query.is_begun(number)
    }
    max_bytes = FETCH_BYTES // max(1, min(_PARTITIONS_AT_ONCE, len(keys)))
    places = [
        Place(key, max(first[key], starts.get(key, 0)), ends[key], max_bytes)
        for key in keys
        if key in first and key in ends
    ]
    return [place for place in places if place.position < place.end]


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
        places: Sequence[Place],
        shelf: Shelf,
    ) -> None:
        self._cluster = cluster
        self._leaders = leaders
        self._query = query
        self._shelf = shelf
        self._open = {place.key: place for place in places if query.is_begun(place.key[1])}
        self._waiting = deque(place for place in places if place.key not in self._open)
        self._searching = asyncio.Lock()

    async def run(self, partitions: int) -> FoundRecords:
        """Read until there are enough records, or the limits are reached.

        :param partitions: the number of partitions of the topic
        """
        is_latest = self._query.start == "latest"
        most = len(self._open) + len(self._waiting) if is_latest else _PARTITIONS_AT_ONCE
        advances = True
        while advances and not self._shelf.is_full:
            if not is_latest and len(self._shelf.selected) >= self._query.limit:
                break
            while self._waiting and len(self._open) < most:
                place = self._waiting.popleft()
                self._open[place.key] = place
            by_broker = self._leaders.by_broker(self._open)
            advanced = await asyncio.gather(
                *(self._fetch(node, keys) for node, keys in by_broker.items())
            )
            advances = any(advanced)
        records, positions = self._page()
        return FoundRecords(
            records,
            positions,
            self._waiting[0].key[1] if self._waiting else None,
            self._shelf.scanned,
            [*self._shelf.problems, *self._leaders.problems],
            partitions,
        )

    def _page(self) -> tuple[list[ShownRecord], dict[int, int]]:
        """Return the records of the page, and where the next one begins."""
        positions = {key[1]: place.position for key, place in self._open.items()}
        limit = self._query.limit
        by_time = sorted(
            self._shelf.selected, key=attrgetter("timestamp_ms", "partition", "offset")
        )
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

    async def _fetch(self, node_id: int, keys: Sequence[TopicPartition]) -> bool:
        """Read the next batches of partitions that a broker leads; return whether to go on."""
        keys = keys[:_PARTITIONS_AT_ONCE]  # the others follow in the next round
        before = [replace(self._open[key]) for key in keys]
        answers = await fetch(
            await self._cluster.connection(node_id, "records"),
            {place.key: FetchPosition(place.position, place.max_bytes) for place in before},
            self._leaders.topic_ids,
            FetchLimits(0, 0, _LARGEST_BATCH_BYTES, int(self._query.read_committed)),
            timeout_ms=self._cluster.timeout_ms,
        )
        for key, answer in answers.items():
            if answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                topic = f"topic '{key[0]}'"
                needs = f"READ on {topic}"
                raise RequestRefused(f"reading {topic}", answer.error_code, needs=needs)
            if answer.error_code:
                self._shelf.note(key, error_name(answer.error_code))
                del self._open[key]
            elif not answer.records:  # its next batch is larger
                more = _GROWTH * self._open[key].max_bytes
                self._open[key].max_bytes = min(more, _LARGEST_BATCH_BYTES)
        read = [(self._open[key], answers[key]) for key in answers if key in self._open]
        # Opening batches takes time, which other requests do not wait for. One thread spends the
        # budget at a time.
        async with self._searching:
            await in_thread(_search_all, read, self._query, self._shelf)
        after = [self._open.pop(key) for key in keys if key in self._open]
        # The others get their turn first.
        self._open |= {place.key: place for place in after if place.position < place.end}
        return before != after


def _search_all(read: Sequence[tuple[Place, FetchedPartition]], query: Query, shelf: Shelf) -> None:
    for place, fetched in read:
        search(place, fetched.records, query, shelf, fetched.aborted_transactions)


def search(
    place: Place,
    data: bytes,
    query: Query,
    shelf: Shelf,
    aborted: Iterable[tuple[int, int]] = (),
) -> None:
    """Search batches until the page is full; advance the place.

    :param aborted: (producer id, first offset) of aborted transactions
    """
    budget = shelf.budget
    unread = Unread(aborted)
    count = 0
    try:
        for at, header in headers(data):
            if header.base_offset >= place.end:
                place.position = place.end
            if place.position >= place.end or shelf.is_full:
                return
            if unread.has(header):
                budget.spend(header.size_bytes)
            else:
                for record in _opened(data[at : at + header.size_bytes], place, shelf):
                    if not place.position <= record.offset < place.end:
                        continue
                    shelf.scanned += 1
                    if query.filter.selects(record):
                        shelf.keep(place.key, record)
                        count += 1
                    has_enough = count >= query.limit and query.start != "latest"
                    if has_enough or shelf.is_full:
                        place.position = record.offset + 1
                        return
            place.position = max(place.position, header.last_offset + 1)
    except CorruptBatch as error:
        shelf.note(place.key, error)
        place.position = place.end


def _opened(batch: bytes, place: Place, shelf: Shelf) -> Iterator[Record]:
    """Yield the records of a batch; of one that is cheap to skip in, those from the place on."""
    header = header_at(batch)
    skip = 0
    # Of compressed records, and after a compaction, a place is found by reading all before it.
    if not header.codec and header.record_count == header.last_offset_delta + 1:
        skip = max(0, place.position - header.base_offset)
        shelf.budget.spend(len(batch) if skip else 0)
    try:
        if header.magic != 2:
            raise CorruptBatch(f"magic {header.magic}")
        for some in record_lists(batch, header, _OPENING, skip=skip):
            for record in some:
                shelf.budget.spend_record(record)
                yield record
    except CorruptBatch as error:
        shelf.note(place.key, f"the batch at offset {header.base_offset}: {error}")
        # It was read up to an unknown place, so that it counts as the largest that is opened.
        shelf.budget.spend(MAX_OPENED_BYTES)


async def record_at(
    cluster: Cluster, topic: str, partition: int, offset: int
) -> ShownRecord | None:
    """Return the record at an offset, or None.

    :raises ClientError: the cluster cannot be reached, or refuses
    """
    query = Query(topic, partition, "offset", offset, limit=1)
    page = await find_records(cluster, query, RECORD_VALUE_BYTES)
    first = next(iter(page.records), None)
    if first is None and page.positions.get(partition) == offset:
        raise ClientError(
            f"{topic}-{partition} was not read up to offset {offset} in time: try again"
        )
    return first if first is not None and first.offset == offset else None
