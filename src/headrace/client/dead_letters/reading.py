"""The records of a dead-letter queue, up to its end at the time of the first read."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from typing import Any, NamedTuple

from confluent_kafka import Consumer

from headrace.client.cluster import Cluster, TopicMetadata
from headrace.client.errors import ClientError, ConnectionFailed, UnknownTopic
from headrace.client.group_requests import asking_for_commits
from headrace.client.list_offsets import EARLIEST, LATEST, READ_COMMITTED, list_offsets
from headrace.client.partition_reader import PartitionReader, ReadRecord
from headrace.client.settings import UnsupportedSetting, librdkafka_config, settings

from .letters import DeadLetter, LetterFilter, parse_letter
from .librdkafka_errors import client_errors
from .originals import Originals
from .sources import Sources, find_sources

RECORDS_AT_ONCE = 500
TIMEOUT_S = 30.0
"""The timeout of a call, and of waiting for the next record."""

_WAIT_S = 0.2


class Bounds(NamedTuple):
    """The offset of the first record of a partition, and the offset after its last one."""

    first: int
    end: int


class QueueRecord(NamedTuple):
    """A record of a queue.

    :param letter: None if the record is no dead letter
    """

    partition: int
    offset: int
    letter: DeadLetter | None


class QueueReader:
    """A reader of one queue.

    :param config: librdkafka's configuration properties
    :param group_id: the group whose committed offsets are read, if any; it does not join the group
    :raises ClientError: the configuration is wrong
    """

    def __init__(self, config: Mapping[str, Any], queue: str, group_id: str | None = None) -> None:
        self.queue = queue
        self._config = config
        self._group_id = group_id
        try:
            self._cluster = settings(librdkafka_config(config)).cluster()
        except UnsupportedSetting as error:
            raise ClientError(str(error)) from error
        self._runner = asyncio.Runner()

    def __enter__(self) -> QueueReader:
        return self

    def __exit__(self, *_: object) -> None:
        with self._runner:
            self._runner.run(self._cluster.close())
        if "consumer" in vars(self):
            self.consumer.close()

    @cached_property
    def consumer(self) -> Consumer:
        """A consumer with the group's id, for its offsets: it needs permissions on the group.

        :raises ClientError: the configuration is wrong
        """
        with client_errors("the client configuration", f"READ on group '{self._group_id}'"):
            return Consumer(
                {
                    "log_level": 2,
                    **librdkafka_config(self._config),
                    "group.id": self._group_id,
                    "enable.auto.commit": False,
                    "isolation.level": "read_committed",
                }
            )

    def check_group(self) -> None:
        """Check that the user may read the offsets of the group.

        librdkafka would retry a refused request until its timeout.

        :raises ClientError: the user may not, or no broker answers
        """
        assert self._group_id is not None
        self._runner.run(_check_group(self._cluster, self._group_id))

    def partition_counts(self) -> dict[str, int]:
        """Return the number of partitions of each topic of the cluster.

        :raises ClientError: no broker answers
        """
        topics = self._runner.run(self._cluster.metadata(None))
        return {
            name: len(topic.leaders)
            for name, topic in topics.items()
            if isinstance(topic, TopicMetadata)
        }

    def sources(self) -> Sources:
        """Return what the cluster says about the sources of the queue's letters.

        :raises ClientError: a broker does not answer
        """
        return self._runner.run(find_sources(self._cluster, self.queue))

    def bounds(
        self, partition_counts: Mapping[str, int], partitions: Sequence[int] = ()
    ) -> dict[int, Bounds]:
        """Return the offsets of partitions of the queue.

        :param partition_counts: those of :meth:`partition_counts`
        :param partitions: their numbers; empty for all partitions
        :raises UnknownTopic: the queue does not exist
        :raises ClientError: a partition does not exist, or no broker answers
        """
        if self.queue not in partition_counts:
            raise UnknownTopic(self.queue)
        count = partition_counts[self.queue]
        for number in partitions:
            if not 0 <= number < count:
                raise ClientError(f"topic '{self.queue}' has no partition {number}: it has {count}")
        numbers: Sequence[int] = sorted(set(partitions)) or range(count)
        firsts, ends = (self._offsets(numbers, when) for when in (EARLIEST, LATEST))
        return {number: Bounds(firsts[number], ends[number]) for number in numbers}

    def _offsets(self, numbers: Sequence[int], when: int) -> dict[int, int]:
        listing = list_offsets(
            self._cluster,
            {(self.queue, number): when for number in numbers},
            isolation_level=READ_COMMITTED,
            timeout_ms=int(TIMEOUT_S * 1000),
        )
        listed = self._runner.run(listing)
        return {number: answer.offset or 0 for (_, number), answer in listed.items()}

    def chunks(
        self,
        starts: Mapping[int, int],
        ends: Mapping[int, int],
        stop: threading.Event,
        most: int = RECORDS_AT_ONCE,
    ) -> Iterator[list[QueueRecord]]:
        """Yield records of the queue, those of a partition in order.

        :param starts: partition → first offset
        :param ends: partition → exclusive end, at most the end of the log
        :param stop: ends the iteration when it is set
        :param most: the limit of records in a chunk
        :raises ClientError: the queue cannot be read, or no broker answers
        """
        positions = {
            (self.queue, number): start for number, start in starts.items() if start < ends[number]
        }
        reader = PartitionReader(
            self._cluster,
            positions,
            {place: ends[place[1]] for place in positions},
            READ_COMMITTED,
        )
        last_s = time.monotonic()
        while not stop.is_set():
            chunk = self._runner.run(reader.read(most, _WAIT_S))
            if chunk is None:
                return
            if chunk:
                yield [_record(record) for record in chunk]
                last_s = time.monotonic()
            elif time.monotonic() - last_s > TIMEOUT_S:
                raise ConnectionFailed(f"reading topic '{self.queue}': no broker answers")


async def _check_group(cluster: Cluster, group_id: str) -> None:
    async with cluster:
        asking = asking_for_commits({group_id: {}})
        answers = await cluster.coordinators.ask([group_id], asking, int(TIMEOUT_S * 1000))
        answer = answers[group_id]
        if isinstance(answer, ClientError):
            raise answer


def _record(read: ReadRecord) -> QueueRecord:
    record = read.record
    letter = parse_letter(
        (read.topic, read.partition),
        record.offset,
        record.timestamp_ms,
        record.key,
        record.value,
        record.headers,
    )
    return QueueRecord(read.partition, record.offset, letter)


def read_letters(
    config: Mapping[str, Any],
    queue: str,
    wanted: LetterFilter,
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
    with ExitStack() as opened:
        reader = opened.enter_context(QueueReader(config, queue))
        originals = opened.enter_context(Originals(config))
        bounds = reader.bounds(reader.partition_counts(), wanted.partitions)
        starts, ends = limits_of(bounds, wanted)
        left = max_letters
        for chunk in reader.chunks(starts, ends, stop):
            found = [one.letter for one in chunk if one.letter is not None]
            letters = [letter for letter in found if wanted.selects(letter)]
            for letter in originals.fill(letters):
                if not wanted.selects_key(letter):
                    continue
                if left == 0:
                    return
                yield letter
                left = None if left is None else left - 1
            if left == 0:
                return


def limits_of(
    bounds: Mapping[int, Bounds], wanted: LetterFilter
) -> tuple[dict[int, int], dict[int, int]]:
    """Return the starts and exclusive ends of what a filter may select of partitions."""
    starts = {number: max(one.first, wanted.from_offset) for number, one in bounds.items()}
    ends = {
        number: one.end if wanted.to_offset is None else min(one.end, wanted.to_offset)
        for number, one in bounds.items()
    }
    return starts, ends
