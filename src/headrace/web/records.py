"""Search of the records of a topic from an offset or a time on, by filters, with bounded work."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError, ConnectionFailed, has_code
from headrace.client.fetch import FetchedPartition
from headrace.client.lag.partition_leaders import PartitionLeaders
from headrace.client.offsets import EARLIEST, LATEST
from headrace.client.partition_reader import CorruptRecords, PartitionReader, ReadBudget, size_of
from headrace.client.records import Record
from headrace.protocol.dead_letters import HEADERS, TRACEBACK, WORKER_HEADERS
from headrace.protocol.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition
from headrace.protocol.record_batch import Opening

from .errors import NotThere
from .schemas import Data
from .site import in_thread
from .views import ShownRecord

RECORDS_OF_PAGE = 50
"""Records on one page, unless a request names another number."""
MAX_READ_BYTES = 32 * 1024 * 1024
"""Decompressed bytes that are read for one page of records."""
MAX_SCANNED_RECORDS = 50_000
"""Records that are compared with the filters for one page."""
MAX_READ_S = 5.0
"""The time in which one page of records is read."""
MAX_OPENED_BYTES = 8 * 1024 * 1024
"""The decompressed size above which a batch is not opened; its records cannot be shown. A page may
read more, so that each page comes further than the one before.
"""
MAX_KEPT_BYTES = 1024 * 1024
"""Bytes of keys, values and headers on one page; the record that reaches it is the last one."""
FETCH_BYTES = 1024 * 1024
"""Bytes of one Fetch request."""
MAX_SHOWN_CHARS = 2_000
"""Characters of a value in a table of records."""
MAX_VALUE_CHARS = 64 * 1024
"""Characters of a value on the page of its record."""
SHOWN_VALUE_BYTES = 4 * MAX_SHOWN_CHARS + 1
"""Bytes of a key, of a value and of all headers of a record in a list: a character has up to four,
and one more tells that the value was cut.
"""
RECORD_VALUE_BYTES = 4 * MAX_VALUE_CHARS
"""The same of one record."""
MAX_SHOWN_HEADERS = 20
"""Headers of a record."""

_OF_LETTERS = frozenset((*HEADERS, *WORKER_HEADERS)) - {TRACEBACK}
_PARTITIONS_AT_ONCE = 50
"""The number of partitions that are read at a time. The next ones begin where these end, so that a
page has few positions to continue from.
"""
_PARTITIONS_WHOLE = 20
"""The number of partitions above which only some of the newest records of each are read."""
OPENING = Opening(MAX_OPENED_BYTES, MAX_SCANNED_RECORDS)


class Filter(NamedTuple):
    """The records to show; empty texts select all. Case counts only in letters
    that are not ASCII.

    :param key: a part of the key
    :param value: a part of the value
    :param header: the name of a header, ``name=part of its value``, or ``name==value``
    """

    key: str = ""
    value: str = ""
    header: str = ""

    def selects(self, record: Record) -> bool:
        """Return whether a record is shown."""
        if not _contains(record.key, self.key) or not _contains(record.value, self.value):
            return False
        name, _, part = self.header.partition("=")
        value = part[1:].encode() if part.startswith("=") else None
        return not self.header or any(
            own.lower() == name.strip().lower()
            and (_contains(content, part) if value is None else content == value)
            for own, content in record.headers
        )


def _contains(data: bytes | None, part: str) -> bool:
    return not part or (data is not None and part.encode().lower() in data.lower())


class Query(NamedTuple):
    """A question for records.

    :param partition: None for all
    :param start: "earliest", "latest" (the newest), "offset", "time" or "positions"
    :param offset: with "offset"
    :param time_ms: with "time"
    :param positions: partition → offset, where an earlier page ended; with "positions", and for the
        partitions below ``rest``. Those that are left out have ended
    :param rest: the first partition that no earlier page has begun to read
    :param max_bytes: see :func:`cut_record`
    """

    topic: str
    partition: int | None = None
    start: str = "latest"
    offset: int = 0
    time_ms: int = 0
    limit: int = RECORDS_OF_PAGE
    filter: Filter = Filter()
    positions: Mapping[int, int] = {}
    rest: int = 0
    read_committed: bool = False
    max_bytes: int = SHOWN_VALUE_BYTES

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
        content = content and content[:left_bytes]
        left_bytes -= len(content or b"")
        headers[at] = name, content
    return record._replace(
        key=record.key and record.key[:max_bytes],
        value=record.value and record.value[:max_bytes],
        headers=tuple(headers[at] for at in sorted(headers)),
    )


class FoundRecords(NamedTuple):
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


class Shelf:
    """The room for the records of one page. One thread at a time fills it.

    :ivar budget: what reading them may cost
    :ivar selected: the records that the query selects
    :ivar scanned: the number of records that were compared with the filters
    :ivar problems: what could not be read, one line each; an ordered set
    """

    def __init__(self, query: Query, budget: ReadBudget) -> None:
        self.budget = budget
        self.selected: list[ShownRecord] = []
        self.scanned = 0
        self.problems: dict[str, None] = {}
        self._query = query
        self._limit = sys.maxsize if query.start == "latest" else query.limit
        """All of the newest records are compared."""
        self._kept_bytes = 0

    @property
    def is_full(self) -> bool:
        """True if no more may be read."""
        return self._kept_bytes >= MAX_KEPT_BYTES or self.budget.is_spent

    @property
    def has_enough(self) -> bool:
        """True if the page ends."""
        return self.is_full or len(self.selected) >= self._limit

    def take(
        self,
        reader: PartitionReader,
        fetched: Sequence[tuple[TopicPartition, FetchedPartition]],
    ) -> None:
        """Search batches until the page is full; advance the reader."""
        for partition, batches in fetched:
            while not self.is_full:
                try:
                    self._search(reader, partition, batches)
                    break
                except CorruptRecords as error:
                    self.problems[str(error)] = None
                    # It was read up to an unknown place: it counts as the largest that is opened.
                    self.budget.spend(MAX_OPENED_BYTES)
                    reader.skip_to(partition, error.last_offset + 1)
                except ClientError as error:
                    self.problems[str(error)] = None
                    reader.positions.pop(partition, None)
                    break
        self.budget.spend(0)  # the time also ends a page of batches without records

    def refuse(self, _: TopicPartition, error: ClientError) -> None:
        """Note why a partition cannot be read.

        :raises ClientError: none can
        """
        is_hidden = has_code(error, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if is_hidden or isinstance(error, ConnectionFailed):
            raise error
        self.problems[str(error)] = None

    def _search(
        self, reader: PartitionReader, partition: TopicPartition, batches: FetchedPartition
    ) -> None:
        enough = len(self.selected) + self._limit
        for record in reader.records(partition, batches):
            self.budget.spend_record(record)
            self.scanned += 1
            if self._query.filter.selects(record):
                self._keep(record)
            if self.is_full or len(self.selected) >= enough:
                reader.skip_to(partition, record.offset + 1)
                return

    def _keep(self, record: Record) -> None:
        """Keep what the page shows of a record."""
        cut = cut_record(record, self._query.max_bytes)
        self._kept_bytes += size_of(cut.key, cut.value, cut.headers)
        self.selected.append(
            ShownRecord(
                cut.topic,
                cut.partition,
                cut.offset,
                cut.timestamp_ms,
                _data(cut.key),
                _data(cut.value),
                [(name, _data(content)) for name, content in cut.headers],
                len(record.value or b""),
                cut != record,
            )
        )


def _data(content: bytes | None) -> Data | None:
    return None if content is None else Data(content)


async def find_records(cluster: Cluster, query: Query) -> FoundRecords:
    """Return the first records that a query selects; for "latest" the newest, if the budget of a
    page allows.

    :raises UnknownTopic: the topic does not exist
    :raises NotThere: it has no such partition
    :raises ClientError: the cluster cannot be reached, or refuses
    """
    topics = await cluster.topics([query.topic])
    leaders = PartitionLeaders(cluster)
    leaders.topics |= topics
    numbers = sorted(topics[query.topic].leaders)
    if query.partition is not None and query.partition not in numbers:
        raise NotThere(f"The topic {query.topic!r} has no partition {query.partition}.")
    chosen = numbers if query.partition is None else [query.partition]
    places = [(query.topic, number) for number in chosen]
    positions, ends = await _bounds(leaders, query, places)
    at_once = len(positions) if query.start == "latest" else _PARTITIONS_AT_ONCE
    waiting = deque(key for key in positions if not query.is_begun(key[1]))
    shelf = Shelf(query, page_budget())
    reader = PartitionReader(
        cluster,
        {key: at for key, at in positions.items() if query.is_begun(key[1])},
        ends,
        int(query.read_committed),
        FETCH_BYTES // max(1, min(_PARTITIONS_AT_ONCE, len(places))),
        OPENING,
        shelf.refuse,
        leaders,
    )
    before: Mapping[TopicPartition, int] | None = None
    try:
        while not shelf.has_enough:
            while waiting and len(reader.positions) < at_once:
                key = waiting.popleft()
                reader.positions[key] = positions[key]
            if not reader.positions or reader.positions == before:
                break
            before = dict(reader.positions)
            # Opening batches takes time, which other requests do not wait for.
            await in_thread(shelf.take, reader, await reader.fetch(0))
    finally:
        shelf.budget.stop()  # a thread may still read: nobody waits for it after a cancellation
    records, nexts = _page(query, shelf.selected, reader.positions)
    return FoundRecords(
        records,
        nexts,
        waiting[0][1] if waiting else None,
        shelf.scanned,
        [*shelf.problems, *leaders.problems],
        len(numbers),
    )


async def _bounds(
    leaders: PartitionLeaders, query: Query, keys: Sequence[TopicPartition]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Return where to begin and to end in each partition that has records."""
    starts = await leaders.offsets(keys, EARLIEST)
    ends = await leaders.offsets(keys, LATEST, read_committed=query.read_committed)
    fresh = [key for key in keys if not query.is_begun(key[1])]
    if query.start == "time":
        # Without a record since then, the offset is missing: there is nothing to read.
        first = await leaders.offsets(fresh, query.time_ms)
    elif query.start == "latest":
        newest = _newest(query, len(keys))
        first = {key: ends[key] - newest for key in fresh if key in ends}
    else:
        first = dict.fromkeys(fresh, query.offset if query.start == "offset" else 0)
    first |= {
        (query.topic, number): at
        for number, at in query.positions.items()
        if query.is_begun(number)
    }
    begins = {key: max(at, starts.get(key, 0)) for key, at in sorted(first.items()) if key in ends}
    return {key: at for key, at in begins.items() if at < ends[key]}, ends


def _newest(query: Query, partitions: int) -> int:
    """Return the number of newest records to read of each partition."""
    if query.filter != Filter():
        return max(query.limit, MAX_SCANNED_RECORDS // 10 // partitions)
    if partitions <= _PARTITIONS_WHOLE:
        return query.limit
    return max(1, -(-query.limit // partitions))


def _page(
    query: Query, selected: Sequence[ShownRecord], positions: Mapping[TopicPartition, int]
) -> tuple[list[ShownRecord], dict[int, int]]:
    """Return the records of the page, and where the next one begins."""
    nexts = {number: at for (_, number), at in positions.items()}
    by_time = sorted(selected, key=attrgetter("timestamp_ms", "partition", "offset"))
    if query.start == "latest":
        return by_time[: -query.limit - 1 : -1], nexts
    # The page has the first records of each partition; the next page begins with the rest.
    last: dict[int, int] = {}
    for record in by_time[: query.limit]:
        last[record.partition] = max(last.get(record.partition, -1), record.offset)
    shown = []
    for record in by_time:
        number, offset = record.partition, record.offset
        if offset <= last.get(number, -1):
            shown.append(record)
        else:
            nexts[number] = min(nexts.get(number, offset), offset)
    return shown, nexts


async def record_at(
    cluster: Cluster, topic: str, partition: int, offset: int
) -> ShownRecord | None:
    """Return the record at an offset, or None.

    :raises ClientError: the cluster cannot be reached, or refuses
    """
    query = Query(topic, partition, "offset", offset, limit=1, max_bytes=RECORD_VALUE_BYTES)
    page = await find_records(cluster, query)
    record = next((record for record in page.records if record.offset == offset), None)
    if record is None and page.positions.get(partition) == offset:
        raise ClientError(
            f"{topic}-{partition} was not read up to offset {offset} in time: try again"
        )
    return record
