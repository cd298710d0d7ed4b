"""The dead-letter queues of a cluster: their records, up to the end at the time of the first read,
and the counts of their letters.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from headrace.client.cluster import Cluster
from headrace.client.config import Settings, read_config
from headrace.client.configs import ConfigType, config_values
from headrace.client.errors import ClientError, ConnectionFailed, RequestRefused, raised
from headrace.client.groups import GroupList
from headrace.client.offsets import (
    READ_COMMITTED,
    CommittedOffset,
    committed_offsets,
    log_bounds,
)
from headrace.client.partition_reader import PartitionReader
from headrace.protocol.partitions import TopicPartition

from .letters import (
    DeadLetter,
    InvalidMetadata,
    LetterFilter,
    Positions,
    QueuePosition,
    parse_letter,
    position_group,
)
from .originals import TOPIC_NAME, Comparison, Originals, queues_of_groups

K = TypeVar("K")
T = TypeVar("T")

RECORDS_AT_ONCE = 500
TIMEOUT_S = 30.0
"""The timeout of a call, and of waiting for the next record."""

_WAIT_S = 0.2


class Bounds(NamedTuple):
    """The offset of the first record of a partition, and the offset after its last one."""

    first: int
    end: int


Ranges = Mapping[int, Bounds]
"""Partition → the offsets of some of its records."""


class QueueRecord(NamedTuple):
    """A record of a queue.

    :param letter: None if the record is no dead letter
    """

    partition: int
    offset: int
    letter: DeadLetter | None


class QueueReader:
    """A reader of one queue, and of the originals of its letters. All calls block.

    :param config: librdkafka's configuration properties
    :raises ClientError: the configuration is wrong
    """

    def __init__(self, config: Settings, queue: str) -> None:
        self.queue = queue
        self.cluster = read_config(config).cluster()
        self._runner = asyncio.Runner()
        self._originals = Originals(self.cluster)

    def __enter__(self) -> QueueReader:
        return self

    def __exit__(self, *_: object) -> None:
        with self._runner:
            self._runner.run(self.cluster.close())

    def wait(self, call: Coroutine[Any, Any, T]) -> T:
        """Return the result of a call that uses the reader's cluster."""
        # The runner's handler of Ctrl-C would print the result into an error that nobody sees.
        return self._runner.get_loop().run_until_complete(call)

    def bounds(self, partitions: Sequence[int] = ()) -> Ranges:
        """Return the offsets of partitions of the queue.

        :param partitions: their numbers; empty for all partitions
        :raises UnknownTopic: the queue does not exist
        :raises ClientError: a partition does not exist, or no broker answers
        """
        count = len(self.wait(self.cluster.topics([self.queue]))[self.queue].leaders)
        for number in partitions:
            if not 0 <= number < count:
                raise ClientError(f"topic '{self.queue}' has no partition {number}: it has {count}")
        numbers: Sequence[int] = sorted(set(partitions)) or range(count)
        keys = [(self.queue, number) for number in numbers]
        bounds = self.wait(log_bounds(self.cluster, keys, READ_COMMITTED))
        return {number: Bounds(*bounds[topic, number]) for topic, number in keys}

    def positions(self, bounds: Ranges) -> Positions:
        """Return the progress in each partition; without a commit it begins with the first record.

        :raises ClientError: no broker answers, or the group that keeps the progress is used for
            something else
        """
        group_id = position_group(self.queue)
        partitions = [(self.queue, number) for number in bounds]
        call = committed_offsets(self.cluster, {group_id: partitions}, require_stable=True)
        commits = raised(self.wait(call))[group_id]
        positions = {}
        for number, (first, _) in bounds.items():
            commit = commits.get((self.queue, number), CommittedOffset(0))
            try:
                position = QueuePosition.read(commit.offset, commit.metadata)
            except InvalidMetadata as error:
                raise ClientError(
                    f"group '{group_id}' is used for something else than redrives: {error}"
                ) from error
            positions[number] = position.with_done([(0, first - 1)] if first else [])
        return positions

    def records(
        self, ranges: Ranges, stop: threading.Event, most: int = RECORDS_AT_ONCE
    ) -> Iterator[QueueRecord]:
        """Yield records of the queue, those of a partition in order.

        :param ranges: partition → what to read of it
        :param stop: ends the iteration when it is set, after the records that were read
        :param most: the limit of records that are read at a time
        :raises ClientError: the queue cannot be read, or no broker answers
        """
        reader = _reader(self.cluster, {(self.queue, n): offsets for n, offsets in ranges.items()})
        last_s = time.monotonic()
        while not stop.is_set():
            records = self.wait(reader.read(most, _WAIT_S))
            if records is None:
                return
            if records:
                for record in records:
                    yield QueueRecord(record.partition, record.offset, parse_letter(record))
                last_s = time.monotonic()
            elif time.monotonic() - last_s > TIMEOUT_S:
                raise ConnectionFailed(f"reading topic '{self.queue}': no broker answers")

    def compare(self, letter: DeadLetter) -> Comparison:
        """Return a letter, compared with what the topic has in its place.

        :raises ClientError: a leader does not answer
        """
        return self.wait(self._originals.compare(letter))

    def filled(self, letter: DeadLetter) -> DeadLetter:
        """Return a letter with the content of its original record if it lacks it, and the record is
        there.

        :raises ClientError: a leader does not answer
        """
        return letter if letter.has_content else self.compare(letter).letter


def read_letters(
    config: Settings,
    queue: str,
    selection: LetterFilter,
    stop: threading.Event,
    *,
    max_letters: int | None = None,
) -> Iterator[DeadLetter]:
    """Yield the letters of a queue. Letters without a copy get the content of the original record,
    if it exists.

    :param config: librdkafka's configuration properties
    :param stop: set it to end early
    :param max_letters: end after this many letters; None for all
    :raises ClientError: the queue cannot be read
    """
    with QueueReader(config, queue) as reader:
        ranges = selected_ranges(reader.bounds(selection.partitions), selection)
        selected = (
            record.letter
            for record in reader.records(ranges, stop)
            if record.letter is not None and selection.selects(record.letter)
        )
        letters = filter(selection.selects_key, map(reader.filled, selected))
        yield from islice(letters, max_letters)


def selected_ranges(bounds: Ranges, selection: LetterFilter) -> Ranges:
    """Return what a filter may select of partitions."""
    return {
        number: Bounds(
            max(first, selection.from_offset),
            end if selection.to_offset is None else min(end, selection.to_offset),
        )
        for number, (first, end) in bounds.items()
    }


def _newest(bounds: Mapping[K, tuple[int, int]], most: int) -> dict[K, Bounds]:
    """Return the last offsets of each partition, at most ``most``."""
    return {key: Bounds(max(first, end - most), end) for key, (first, end) in bounds.items()}


def _reader(cluster: Cluster, ranges: Mapping[TopicPartition, tuple[int, int]]) -> PartitionReader:
    starts = {key: first for key, (first, end) in ranges.items() if first < end}
    ends = {key: end for key, (_, end) in ranges.items()}
    return PartitionReader(cluster, starts, ends, READ_COMMITTED)


_NEWEST_RECORDS, _NEWEST_S = 10, 5.0
"""The last records of each partition that are read for the newest letter, and the time for that."""


async def newest_letter(cluster: Cluster, group_id: str, since_ms: int) -> DeadLetter | None:
    """Return the newest letter of a share group among the last records of its queue; None without
    one.

    :param since_ms: the earliest time of the letter
    :raises ClientError: the queue cannot be read
    """
    queues = await config_values(cluster, ConfigType.GROUP, [group_id], TOPIC_NAME)
    topics = await cluster.existing_topics(list(queues.values()))
    keys = [(queue, number) for queue, topic in topics.items() for number in topic.leaders]
    bounds = await log_bounds(cluster, keys, READ_COMMITTED)
    reader = _reader(cluster, _newest(bounds, _NEWEST_RECORDS))
    letters: list[DeadLetter] = []
    until_s = time.monotonic() + _NEWEST_S
    while time.monotonic() < until_s:
        records = await reader.read(RECORDS_AT_ONCE, _WAIT_S)
        if records is None:
            break
        letters += filter(None, map(parse_letter, records))
    selection = LetterFilter(groups=(group_id,), from_ms=since_ms)
    selected = filter(selection.selects, letters)
    return max(selected, key=lambda letter: letter.timestamp_ms, default=None)


# Counts -------------------------------------------------------------------------------------------


DEFAULT_PREFIX = "dlq."
"""The default of ``errors.deadletterqueue.topic.name.prefix``."""
SCANNED_RECORDS = 10_000
"""The default number of records of a queue that are read to count letters."""
_MAX_TEXT_CHARS = 1000
"""Whoever writes letters may write texts of any size into them."""

GROUP_ENABLE = "errors.deadletterqueue.group.enable"
"""The config of a topic that allows groups to use it as their dead-letter queue."""


@dataclass(slots=True)
class LetterCount:
    """Letters of one share group, source topic and reason.

    :ivar pending: letters that were not redriven; None if the user may not read the progress
    :ivar oldest_ms: the time of the oldest letter read; ``newest_ms`` that of the newest
    """

    letters: int = 0
    pending: int | None = 0
    oldest_ms: int = 0
    newest_ms: int = 0


@dataclass(slots=True)
class QueueSummary:
    """A dead-letter queue.

    :ivar groups: the share groups that are configured to use it; empty if the cluster does not
        report configs of groups
    :ivar records: number of offsets from its start to its end
    :ivar read: number of offsets that were read to count letters, the newest ones of each partition
    :ivar counts: (share group, source topic, reason) → letters; None for a missing header. The
        reason of a worker's letter is the type of the exception: their texts may all differ
    :ivar not_letters: number of records read that are no dead letters
    """

    queue: str
    partitions: int
    groups: tuple[str, ...]
    records: int = 0
    read: int = 0
    counts: dict[tuple[str | None, str, str | None], LetterCount] = field(default_factory=dict)
    not_letters: int = 0

    def add(self, letter: DeadLetter, positions: Positions | None) -> None:
        """Count a letter.

        :param positions: what was redriven; None if the user may not read it
        """
        group_id, topic, message = (
            None if text is None else text[:_MAX_TEXT_CHARS]
            for text in (letter.group_id, letter.source[0], letter.exception or letter.message)
        )
        key = group_id, topic or "", message
        at_ms = letter.timestamp_ms
        count = self.counts.setdefault(key, LetterCount(oldest_ms=at_ms, newest_ms=at_ms))
        count.letters += 1
        count.oldest_ms = min(count.oldest_ms, at_ms)
        count.newest_ms = max(count.newest_ms, at_ms)
        if positions is None:
            count.pending = None
        elif count.pending is not None:
            count.pending += not positions[letter.partition].is_done(letter.offset)


def find_queues(
    config: Settings,
) -> tuple[dict[str, tuple[str, ...]], GroupList]:
    """Find the dead-letter queues of a cluster.

    They are the topics whose name has the default prefix, those that groups may use, and those that
    groups are configured to use, as far as the cluster reports these configs.

    :param config: librdkafka's configuration properties
    :returns: queue → the share groups that are configured to use it; and the list of share groups,
        which tells whether some are missing
    :raises ClientError: no broker answers
    """
    return asyncio.run(_find(read_config(config).cluster()))


async def _find(cluster: Cluster) -> tuple[dict[str, tuple[str, ...]], GroupList]:
    async with cluster:
        topics = [
            name for name, topic in (await cluster.all_topics()).items() if not topic.is_internal
        ]
        users: dict[str, list[str]] = {}
        queues, listed = await queues_of_groups(cluster)
        for group_id, name in sorted(queues.items()):
            users.setdefault(name, []).append(group_id)
        enabled = await config_values(cluster, ConfigType.TOPIC, topics, GROUP_ENABLE)
        return {
            name: tuple(users.get(name, ()))
            for name in topics
            if name in users or name.startswith(DEFAULT_PREFIX) or enabled.get(name) == "true"
        }, listed


def count_letters(
    config: Settings,
    queue: str,
    groups: tuple[str, ...],
    stop: threading.Event,
    max_records: int = SCANNED_RECORDS,
) -> QueueSummary:
    """Read the newest records of a queue, and count its letters.

    :param config: librdkafka's configuration properties
    :param groups: the share groups that use it
    :param stop: set it to end early
    :param max_records: the number of records to read, shared by the partitions
    :raises ClientError: the queue cannot be read
    """
    with QueueReader(config, queue) as reader:
        bounds = reader.bounds()
        positions = None
        with suppress(RequestRefused):
            positions = reader.positions(bounds)
        summary = QueueSummary(queue, len(bounds), groups)
        summary.records = sum(end - first for first, end in bounds.values())
        share = max_records
        if summary.records > max_records:
            share = max(1, max_records // len(bounds))
        ranges = _newest(bounds, share)
        summary.read = sum(end - first for first, end in ranges.values())
        for record in reader.records(ranges, stop):
            if record.letter is None:
                summary.not_letters += 1
            else:
                summary.add(record.letter, positions)
        return summary
