"""The records of a dead-letter queue, up to its end at the time of the first read."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError, ConnectionFailed, UnknownTopic
from headrace.client.group_requests import asking_for_commits
from headrace.client.message_headers import UnreadableHeaders, message_headers
from headrace.client.settings import UnsupportedSetting, librdkafka_config, settings

from .letters import DeadLetter, LetterFilter, parse_letter
from .librdkafka_errors import client_error, client_errors
from .originals import Originals

RECORDS_AT_ONCE = 500
TIMEOUT_S = 30.0
"""The timeout of a call, and of waiting for the next record."""

_WAIT_S = 0.2
_NO_GROUP = "headrace-dlq"
"""A group id for readers that commit nothing; librdkafka requires one."""


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
    :param group_id: the group whose committed offsets it reads; it does not join the group
    :raises ClientError: the configuration is wrong
    """

    def __init__(self, config: Mapping[str, Any], queue: str, group_id: str = _NO_GROUP) -> None:
        self.queue = queue
        self._config = config
        self._group_id = group_id
        self._needs = f"READ on topic '{queue}'"
        with client_errors("the client configuration", self._needs):
            self.consumer = Consumer(
                {
                    "log_level": 2,
                    **librdkafka_config(config),
                    "group.id": group_id,
                    "enable.auto.commit": False,
                    "enable.partition.eof": True,
                    "isolation.level": "read_committed",
                    "auto.offset.reset": "earliest",
                    "allow.auto.create.topics": False,
                }
            )

    def __enter__(self) -> QueueReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.consumer.close()

    def check_group(self) -> None:
        """Check that the user may read the offsets of the group.

        librdkafka would retry a refused request until its timeout. Do nothing if only librdkafka
        supports the security settings.

        :raises ClientError: the user may not, or no broker answers
        """
        try:
            cluster = settings(librdkafka_config(self._config)).cluster()
        except UnsupportedSetting:
            return
        asyncio.run(_check_group(cluster, self._group_id))

    def partition_counts(self) -> dict[str, int]:
        """Return the number of partitions of each topic of the cluster.

        :raises ClientError: no broker answers
        """
        with client_errors("listing topics", "DESCRIBE on topics"):
            topics = self.consumer.list_topics(timeout=TIMEOUT_S).topics
        return {name: len(topic.partitions) for name, topic in topics.items()}

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
        found = []
        with client_errors(f"looking up offsets of topic '{self.queue}'", self._needs):
            for when in (OFFSET_BEGINNING, OFFSET_END):
                asked = [TopicPartition(self.queue, number, when) for number in numbers]
                answers = self.consumer.offsets_for_times(asked, timeout=TIMEOUT_S)
                for one in answers:
                    if one.error is not None:
                        raise KafkaException(one.error)
                found.append({one.partition: one.offset for one in answers})
        firsts, ends = found
        return {number: Bounds(firsts[number], ends[number]) for number in numbers}

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
        what = f"reading topic '{self.queue}'"
        unread = {number for number, start in starts.items() if start < ends[number]}
        with client_errors(what, self._needs):
            self.consumer.assign(
                [TopicPartition(self.queue, number, starts[number]) for number in unread]
            )
        last_s = time.monotonic()
        while unread and not stop.is_set():
            with client_errors(what, self._needs):
                messages = self.consumer.consume(most, _WAIT_S)
            if messages:
                last_s = time.monotonic()
            elif time.monotonic() - last_s > TIMEOUT_S:
                raise ConnectionFailed(f"{what}: no broker answers")
            chunk = []
            for message in messages:
                error = message.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise client_error(what, error, self._needs)
                number, offset = int(message.partition() or 0), int(message.offset() or 0)
                if number not in unread:
                    continue
                if error is None and offset < ends[number]:
                    chunk.append(_record(message))
                if error is not None or offset >= ends[number] - 1:
                    self._end(unread, number)
            if chunk:
                yield chunk

    def _end(self, unread: set[int], number: int) -> None:
        unread.discard(number)
        self.consumer.pause([TopicPartition(self.queue, number)])


async def _check_group(cluster: Cluster, group_id: str) -> None:
    async with cluster:
        asking = asking_for_commits({group_id: {}})
        answers = await cluster.coordinators.ask([group_id], asking, int(TIMEOUT_S * 1000))
        answer = answers[group_id]
        if isinstance(answer, ClientError):
            raise answer


def _record(message: Any) -> QueueRecord:
    number, offset = message.partition(), message.offset()
    try:
        headers = message_headers(message)
    except UnreadableHeaders:  # no broker writes such a letter
        return QueueRecord(number, offset, None)
    letter = parse_letter(
        (message.topic(), number),
        offset,
        message.timestamp()[1],
        message.key(),
        message.value(),
        headers,
    )
    return QueueRecord(number, offset, letter)


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
