"""The original records of dead letters, read from their topics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from enum import StrEnum
from typing import NamedTuple

from headrace.client.cluster import Cluster, TopicMetadata
from headrace.client.errors import ClientError, ConnectionFailed, RequestRefused, raised
from headrace.client.offsets import LATEST, READ_UNCOMMITTED, list_offsets
from headrace.client.partition_reader import CorruptRecords, PartitionReader
from headrace.client.read_budget import ReadBudget
from headrace.client.records import Record
from headrace.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition

from .letters import DeadLetter

CLOCK_SKEW_MS = 300_000
"""A record whose timestamp is later than its letter's by more than this is not the original: the
topic was deleted and created again.
"""
NO_TOPIC = "the topic does not exist, or the user may not describe it"

_KEPT_BYTES = 8 << 20
"""Decompressed bytes of the originals that are kept at a time; the one that reaches it is the last.
"""
_READ_S = 5.0
"""The time in which one look reads originals; a redrive that is stopped ends after it."""
_FETCH_BYTES = 64 << 10
"""The bytes of one fetch: letters may be far apart, and what is between them is of no use."""
_WAIT_S = 0.2
_NO_SUCH_TOPIC = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
}
"""Error codes of topics that do not exist, or that the user may not describe."""


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


class Look:
    """A look at the originals of letters, until those that are kept spend its budget.

    :ivar comparisons: place in ``letters`` → the letter, compared; some are missing if it is over
    """

    def __init__(self, letters: Sequence[DeadLetter]) -> None:
        self._letters = letters
        self._budget = ReadBudget(_KEPT_BYTES, len(letters) + 1, _READ_S)
        self.comparisons: dict[int, Comparison] = {}
        self.pending: dict[TopicPartition, dict[int, list[int]]] = {}
        """Partition of the originals → offset → places in ``letters`` that are not compared yet."""
        for number, letter in enumerate(letters):
            of_partition = self.pending.setdefault(letter.source, {})
            of_partition.setdefault(letter.source_offset, []).append(number)

    @property
    def is_over(self) -> bool:
        """True if the budget is spent; it is enough for at least one letter."""
        return self._budget.is_spent and bool(self.comparisons)

    def compare(self, partition: TopicPartition, offset: int, original: Original) -> None:
        """Compare the letters of an offset with what is there, once."""
        is_kept = False
        for number in self.pending[partition].pop(offset, ()):
            comparison = compare(self._letters[number], original)
            self.comparisons[number] = comparison
            is_kept = is_kept or comparison.reason is None
        if is_kept and original.record is not None:
            self._budget.spend_record(original.record)

    def leading_comparisons(self) -> list[Comparison]:
        """Return the letters before the first one that was not reached, compared."""
        leading: list[Comparison] = []
        while (comparison := self.comparisons.get(len(leading))) is not None:
            leading.append(comparison)
        return leading


def compared(letters: Sequence[DeadLetter], read: Callable[[Look], None]) -> Iterator[Comparison]:
    """Yield each letter, compared with what the topic has in its place, in order.

    Few stored bytes may open to many. So the originals of as many letters are read at a time as fit
    a budget, and no original is kept that is not needed.

    :param read: compares the letters of a look until it is over, as :func:`read_originals` does
    """
    first, count = 0, len(letters)
    while first < len(letters):
        look = Look(letters[first : first + count])
        read(look)
        leading = look.leading_comparisons()
        first += len(leading)
        # Letters behind one that was not reached are read again, so that less is read.
        count = max(1, len(look.comparisons)) if look.is_over else 2 * count
        del look
        leading.reverse()
        while leading:
            yield leading.pop()


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


async def read_originals(cluster: Cluster, look: Look) -> None:
    """Compare letters with the records that exist, until the look is over.

    :raises ClientError: a leader does not answer
    """
    topics = await cluster.metadata(sorted({topic for topic, _ in look.pending}))
    for partition, offsets in look.pending.items():
        name, number = partition
        topic = topics.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        problem = None
        if isinstance(topic, TopicMetadata) and number in topic.leaders:
            try:
                await _read_partition(cluster, partition, look)
            except ConnectionFailed:
                raise
            except ClientError as error:
                # One source that refuses, or is damaged, does not end the redrive of the others.
                problem = str(error)
        elif isinstance(topic, TopicMetadata) or topic in _NO_SUCH_TOPIC:
            problem = NO_TOPIC
        else:
            raise RequestRefused(f"looking up topic '{name}'", topic)
        if look.is_over:
            return
        for offset in list(offsets):
            look.compare(partition, offset, Original(problem=problem))


async def _read_partition(cluster: Cluster, partition: TopicPartition, look: Look) -> None:
    """Compare letters with the records of one partition, until the look is over.

    What is left to compare has no record any more.

    :raises ClientError: the partition cannot be read
    """
    listed = raised(await list_offsets(cluster, {partition: LATEST}))
    log_end = listed[partition].offset or 0
    offsets = sorted(look.pending[partition])
    while offsets and offsets[-1] >= log_end:  # created again, or there was never such a record
        problem = "the partition ends before the offset of the record"
        look.compare(partition, offsets.pop(), Original(problem=problem))
    if not offsets:
        return
    begin, end = {partition: offsets[0]}, {partition: offsets[-1] + 1}
    with closing(PartitionReader(cluster, begin, end, READ_UNCOMMITTED, _FETCH_BYTES)) as reader:
        await _read_records(cluster, reader, partition, offsets, look)


async def _read_records(
    cluster: Cluster,
    reader: PartitionReader,
    partition: TopicPartition,
    offsets: list[int],
    look: Look,
) -> None:
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + cluster.timeout_ms / 1000
    offsets.reverse()
    while offsets and not look.is_over:
        reader.skip_to(partition, offsets[-1])
        try:
            records = await reader.read(1, _WAIT_S)
        except CorruptRecords as error:
            while offsets and offsets[-1] <= error.last_offset:
                look.compare(partition, offsets.pop(), Original(problem=str(error)))
            continue
        if records is None:
            return
        if not records and loop.time() > deadline_s:
            raise ConnectionFailed(f"reading topic '{partition[0]}': no broker sends its records")
        for record in records:
            while offsets and offsets[-1] < record.offset:
                look.compare(partition, offsets.pop(), Original())
            if offsets and offsets[-1] == record.offset:
                look.compare(partition, offsets.pop(), Original(record))
            deadline_s = loop.time() + cluster.timeout_ms / 1000
