"""What the cluster says of dead letters: their original records, and the topics to which they may
go back.

The headers of a letter name its source, and whoever may write to the queue can write any headers.
So a source must be a topic that the letter's share group consumes, and the group must use this
queue. Both are learned from the cluster, never from letters: the cost does not depend on what they
name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from headrace.client.cluster import Cluster, TopicMetadata
from headrace.client.configs import ConfigType, config_values
from headrace.client.errors import (
    ClientError,
    ConnectionFailed,
    RequestRefused,
    UnknownTopic,
    has_code,
    raised,
)
from headrace.client.groups import GroupList, list_groups
from headrace.client.offsets import (
    LATEST,
    READ_UNCOMMITTED,
    ShareOffset,
    list_offsets,
    share_offsets,
)
from headrace.client.partition_reader import CorruptRecords, PartitionReader
from headrace.client.records import Record
from headrace.protocol.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition

from .letters import DeadLetter

CLOCK_SKEW_MS = 300_000
"""A record whose timestamp is later than its letter's by more than this is not the original: the
topic was deleted and created again.
"""
NO_TOPIC = "the topic does not exist, or the user may not describe it"

_FETCH_BYTES = 64 << 10
"""The bytes of one fetch: letters may be far apart, and what is between them is of no use."""
_WAIT_S = 0.2
_MAX_CURSORS = 1000
_NO_SUCH_TOPIC = (ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
"""Error codes of topics that cannot exist, or that the user may not describe."""


class Original(NamedTuple):
    """What the topic of a letter has in the place of its record.

    :param record: None if the log no longer has it
    :param problem: why it cannot be read, or why there was no such record; None if there is nothing
        to say
    """

    record: Record | None = None
    problem: str | None = None


class Evidence(StrEnum):
    """What is known about the content of a letter."""

    EQUAL = "as in the topic"
    UNCOMPARED = "not compared: the topic no longer has the record"
    NO_COPY = "from the topic"


class Comparison(NamedTuple):
    """A letter, compared with its original.

    :param letter: the letter to redrive, or to show
    :param evidence: what is known of its content
    :param reason: why it is not redriven; None if it may be
    """

    letter: DeadLetter
    evidence: Evidence
    reason: str | None


def compare(letter: DeadLetter, original: Original) -> Comparison:
    """Compare a letter with its original record.

    Who may write to the queue can write any content and any time into a letter. So a record that
    is there decides, and gives the headers, too; Apache Kafka 4.4 copies none into letters.
    """
    record, reason = original
    if not letter.has_content:
        if record is not None and record.timestamp_ms <= letter.timestamp_ms + CLOCK_SKEW_MS:
            letter = letter.with_content(record.key, record.value, record.headers)
        elif reason is None:
            reason = "the queue has no copy of the record, and the topic no longer has it"
        return Comparison(letter, Evidence.NO_COPY, reason)
    if record is None:
        return Comparison(letter, Evidence.UNCOMPARED, reason)
    if (letter.key, letter.value) != (record.key, record.value):
        reason = "key or value differ from those of the record in the topic"
    else:  # the letter's own key and value: those of the record would be held beside them
        letter = letter.with_content(letter.key, letter.value, record.headers)
    return Comparison(letter, Evidence.EQUAL, reason)


@dataclass(slots=True)
class _Cursor:
    """The place in a partition up to which originals were read.

    :param log_end: the end of the partition when it was first read
    :param problem: why it cannot be read; None if it can

    :ivar offset: the last offset that was looked for
    :ivar record: the first record from there on, if it is known
    :ivar damaged_to: the last offset of a damaged batch, and what is wrong with it
    """

    reader: PartitionReader
    log_end: int
    problem: str | None = None
    offset: int = 0
    record: Record | None = None
    damaged_to: tuple[int, str] = (-1, "")

    def close(self) -> None:
        """Drop what is open: few stored bytes may open to many."""
        self.reader.close()
        self.record = None


class Originals:
    """The originals of letters, one at a time. Few requests are made for letters of one partition
    in the order of its offsets, as a broker writes them.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._cursors: dict[TopicPartition, _Cursor] = {}
        self._last: TopicPartition | None = None

    async def compare(self, letter: DeadLetter) -> Comparison:
        """Return a letter, compared with what the topic has in its place.

        :raises ClientError: a leader does not answer
        """
        return compare(letter, await self._original(letter.source, letter.source_offset))

    async def _original(self, partition: TopicPartition, offset: int) -> Original:
        if self._last != partition and self._last in self._cursors:
            self._cursors[self._last].close()
        self._last = partition
        cursor = self._cursors.get(partition)
        if cursor is None or offset < cursor.offset:
            if cursor is not None:
                cursor.close()
            cursor = await self._open(partition, offset)
        if cursor.problem is not None:
            return Original(problem=cursor.problem)
        if offset >= cursor.log_end:  # created again, or there was never such a record
            return Original(problem="the partition ends before the offset of the record")
        cursor.offset = offset
        try:
            await self._advance(cursor, partition)
        except ConnectionFailed:
            raise
        except ClientError as error:
            # One source that refuses, or is damaged, does not end the redrive of the others.
            cursor.problem = str(error)
            return Original(problem=cursor.problem)
        if offset <= cursor.damaged_to[0]:
            return Original(problem=cursor.damaged_to[1])
        record = cursor.record
        return Original(record if record is not None and record.offset == offset else None)

    async def _open(self, partition: TopicPartition, offset: int) -> _Cursor:
        name, number = partition
        if len(self._cursors) >= _MAX_CURSORS:  # anybody can write letters that name others
            self._cursors.clear()
        topic = (await self._cluster.metadata([name]))[name]
        log_end, problem = 0, None
        if isinstance(topic, TopicMetadata) and number in topic.leaders:
            listed = raised(await list_offsets(self._cluster, {partition: LATEST}))
            log_end = listed[partition].offset or 0
        elif isinstance(topic, TopicMetadata | UnknownTopic) or has_code(topic, *_NO_SUCH_TOPIC):
            problem = NO_TOPIC
        else:
            raise ConnectionFailed(topic)
        begin, end = {partition: offset}, {partition: log_end}
        reader = PartitionReader(self._cluster, begin, end, READ_UNCOMMITTED, _FETCH_BYTES)
        self._cursors[partition] = _Cursor(reader, log_end, problem)
        return self._cursors[partition]

    async def _advance(self, cursor: _Cursor, partition: TopicPartition) -> None:
        """Read up to the first record from an offset on."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._cluster.timeout_ms / 1000
        while cursor.offset > cursor.damaged_to[0] and (
            cursor.record is None or cursor.record.offset < cursor.offset
        ):
            cursor.record = None
            cursor.reader.skip_to(partition, cursor.offset)
            try:
                records = await cursor.reader.read(1, _WAIT_S)
            except CorruptRecords as error:
                cursor.damaged_to = error.last_offset, str(error)
                continue
            if records is None:  # there is no record from there on
                return
            if records:
                (cursor.record,) = records
            elif loop.time() > deadline_s:
                topic = partition[0]
                raise ConnectionFailed(f"reading topic '{topic}': no broker sends its records")


# Sources ------------------------------------------------------------------------------------------


TOPIC_NAME = "errors.deadletterqueue.topic.name"
"""The config of a share group that names its dead-letter queue."""


@dataclass(frozen=True, slots=True)
class Sources:
    """What a cluster says about the sources of a queue's letters.

    :param topics: all topics by name; the broker keeps its own state in internal ones
    :param consumed: share group that uses the queue → the topics in which it has offsets
    :param unknown: share group that uses the queue → why its topics are not known
    """

    topics: Mapping[str, TopicMetadata]
    consumed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)

    def obstacle(self, letter: DeadLetter) -> str | None:
        """Return why the source of a letter gets no records; None if it may get them."""
        name, partition = letter.source
        topic = self.topics.get(name)
        if topic is None:
            return NO_TOPIC
        if topic.is_internal:
            return "an internal topic is never a source"
        if partition >= len(topic.leaders):
            return "the partition does not exist"
        if letter.group_id is None:
            return "the letter names no share group"
        if letter.group_id in self.unknown:
            return self.unknown[letter.group_id]
        if letter.group_id not in self.consumed:
            return (
                f"the letter's share group does not use this queue ({TOPIC_NAME}), was deleted, or "
                "the user may not describe the group and its configs"
            )
        if name not in self.consumed[letter.group_id]:
            return "the letter's share group does not consume the topic"
        return None


async def find_sources(cluster: Cluster, queue: str) -> Sources:
    """Look up what share groups use a queue, and which topics they consume.

    :raises ClientError: a broker does not answer
    """
    topics = await cluster.all_topics()
    # The records of a group whose coordinator is away would be skipped as if they were forged.
    queues, listed = await queues_of_groups(cluster)
    for failure in listed.errors:
        raise failure
    users = [group_id for group_id, name in queues.items() if name == queue]
    consumed: dict[str, frozenset[str]] = {}
    unknown: dict[str, str] = {}
    for group_id, offsets in (await share_offsets(cluster, users)).items():
        if isinstance(offsets, RequestRefused):
            unknown[group_id] = str(offsets)
        elif isinstance(offsets, ClientError):
            raise offsets
        else:
            consumed[group_id] = frozenset(
                topic
                for (topic, _), offset in offsets.items()
                if isinstance(offset, ShareOffset) and offset.start_offset is not None
            )
    return Sources(topics, consumed, unknown)


async def queues_of_groups(cluster: Cluster) -> tuple[dict[str, str], GroupList]:
    """Return share group → its dead-letter queue, and the list of share groups.

    :raises ClientError: no broker answers
    """
    listed = await list_groups(cluster, types=("share",))
    group_ids = [group.group_id for group in listed.groups]
    return await config_values(cluster, ConfigType.GROUP, group_ids, TOPIC_NAME), listed
