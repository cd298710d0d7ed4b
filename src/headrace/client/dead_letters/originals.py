"""The original records of dead letters, read from their topics."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from headrace.client.cluster import Cluster, TopicMetadata
from headrace.client.coordinators import backing_off
from headrace.client.errors import ClientError, ConnectionFailed, RequestRefused, check_answer
from headrace.client.fetch import FetchLimits, FetchPosition, fetch
from headrace.client.list_offsets import (
    EARLIEST,
    LATEST,
    LEADER_MOVED,
    READ_UNCOMMITTED,
    list_offsets,
)
from headrace.client.read_budget import ReadBudget
from headrace.client.settings import UnsupportedSetting, librdkafka_config, settings
from headrace.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition
from headrace.protocol.record_batch import CorruptBatch, Record, headers, records

from .letters import DeadLetter

CLOCK_SKEW_MS = 300_000
"""A record whose timestamp is later than its letter's by more than this is not the original: the
topic was deleted and created again.
"""

_KEPT_BYTES = 8 << 20
"""Decompressed bytes of the originals that are kept at a time; the one that reaches it is the last.
"""
_READ_S = 5.0
"""The time in which one look reads originals; a redrive that is stopped ends after it."""
_FIRST_FETCH_BYTES = 16 << 10
_MAX_FETCH_BYTES = 1 << 20
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
    NO_COPY = "no copy in the queue: taken from the topic"


class Comparison(NamedTuple):
    """A letter, compared with its original.

    :param letter: the letter to redrive, or to show
    :param evidence: what is known of its content
    :param reason: why it is not redriven; None if it may be
    """

    letter: DeadLetter
    evidence: Evidence
    reason: str | None


class Originals:
    """A reader of single records, which connects on first use.

    :param config: librdkafka's configuration properties
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        self._runner: asyncio.Runner | None = None
        self._cluster: Cluster | None = None

    def __enter__(self) -> Originals:
        return self

    def __exit__(self, *_: object) -> None:
        if self._runner is not None:
            if self._cluster is not None:
                self._runner.run(self._cluster.close())
            self._runner.close()

    def compare(self, letters: Sequence[DeadLetter]) -> Iterator[Comparison]:
        """Yield each letter, compared with what the topic has in its place, in order.

        Few stored bytes may open to many. So the originals of as many letters are read at a time
        as fit a budget, and no original is kept that is not needed.

        :raises ClientError: a leader does not answer
        """
        first, count = 0, len(letters)
        while first < len(letters):
            look = _Look(letters[first : first + count])
            self._read(look)
            leading = look.leading_comparisons()
            first += len(leading)
            if look.is_over:
                # Letters behind one that was not reached are read again, so that less is read.
                count = max(1, len(look.comparisons))
            else:
                count *= 2
            del look
            leading.reverse()
            while leading:
                yield leading.pop()

    def fill(self, letters: Sequence[DeadLetter]) -> Iterator[DeadLetter]:
        """Yield letters, in order, those that lack it with the content of their original records.

        Those whose record is gone, or cannot be read, are unchanged.

        :raises ClientError: a leader does not answer
        """
        comparisons = self.compare([letter for letter in letters if not letter.has_content])
        for letter in letters:
            yield letter if letter.has_content else next(comparisons).letter

    def _read(self, look: _Look) -> None:
        if self._runner is None:
            try:
                self._cluster = settings(librdkafka_config(self._config)).cluster()
            except UnsupportedSetting as error:
                raise ClientError(str(error)) from error
            self._runner = asyncio.Runner()
        assert self._cluster is not None
        self._runner.run(_read(self._cluster, look))


class _Look:
    """A look at the originals of letters, until those that are kept spend its budget.

    :ivar comparisons: place in ``letters`` → the letter, compared; some are missing if it is over
    """

    def __init__(self, letters: Sequence[DeadLetter]) -> None:
        self._letters = letters
        self._budget = ReadBudget(_KEPT_BYTES, len(letters) + 1, _READ_S)
        self.comparisons: dict[int, Comparison] = {}
        self._letter_numbers: dict[TopicPartition, dict[int, list[int]]] = {}
        for number, letter in enumerate(letters):
            of_partition = self._letter_numbers.setdefault(letter.source, {})
            of_partition.setdefault(letter.source_offset, []).append(number)

    @property
    def is_over(self) -> bool:
        """True if the budget is spent; it is enough for at least one letter."""
        return self._budget.is_spent and bool(self.comparisons)

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions of the originals, in the order of the letters."""
        return list(self._letter_numbers)

    def offsets(self, partition: TopicPartition) -> list[int]:
        """Return the offsets of the originals in a partition, ascending."""
        return sorted(self._letter_numbers[partition])

    def compare(self, partition: TopicPartition, offset: int, original: Original) -> None:
        """Compare the letters of an offset with what is there, once."""
        is_kept = False
        for number in self._letter_numbers[partition].pop(offset, ()):
            comparison = _compare(self._letters[number], original)
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


def _filled(letter: DeadLetter, record: Record | None) -> DeadLetter:
    if record is None or record.timestamp_ms > letter.timestamp_ms + CLOCK_SKEW_MS:
        return letter
    return letter.with_content(record.key, record.value, record.headers)


def _compare(letter: DeadLetter, original: Original) -> Comparison:
    """Compare a letter with its original record.

    Who may write to the queue can write any content and any time into a letter. So a record that
    is there decides, and gives the headers, too; Apache Kafka 4.4 copies none into letters.
    """
    if not letter.has_content:
        filled = _filled(letter, original.record)
        reason = original.problem
        if reason is None and not filled.has_content:
            reason = "the queue has no copy of the record, and the topic no longer has it"
        return Comparison(filled, Evidence.NO_COPY, reason)
    if original.problem is not None:
        return Comparison(letter, Evidence.UNCOMPARED, original.problem)
    record = original.record
    if record is None:
        return Comparison(letter, Evidence.UNCOMPARED, None)
    if (letter.key, letter.value) != (record.key, record.value):
        reason = "key or value differ from those of the record in the topic"
        return Comparison(letter, Evidence.EQUAL, reason)
    # The letter's own key and value: those of the record would be held beside them.
    equal = letter.with_content(letter.key, letter.value, record.headers)
    return Comparison(equal, Evidence.EQUAL, None)


async def _read(cluster: Cluster, look: _Look) -> None:
    """Compare letters with the records that exist, until the look is over.

    :raises ClientError: a leader does not answer
    """
    topics = await cluster.metadata(sorted({topic for topic, _ in look.partitions}))
    for place in look.partitions:
        name, number = place
        topic = topics.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        problem: str | None = "the topic does not exist, or the user may not describe it"
        if not isinstance(topic, TopicMetadata):
            if topic not in _NO_SUCH_TOPIC:
                raise RequestRefused(f"looking up topic '{name}'", topic)
        elif (leader := topic.leaders.get(number)) is not None:
            if leader < 0:
                raise ConnectionFailed(f"reading topic '{name}': {name}-{number} has no leader")
            problem = None
            try:
                await _read_partition(cluster, topic, place, leader, look)
            except ConnectionFailed:
                raise
            except ClientError as error:
                # One source that refuses, or is damaged, does not end the redrive of the others.
                if isinstance(error, RequestRefused) and error.code in LEADER_MOVED:
                    raise
                problem = str(error)
            if look.is_over:
                return
        for offset in look.offsets(place):
            look.compare(place, offset, Original(problem=problem))


async def _offset(cluster: Cluster, place: TopicPartition, when: int) -> int:
    listed = await list_offsets(cluster, {place: when}, timeout_ms=cluster.timeout_ms)
    return listed[place].offset or 0


async def _read_partition(
    cluster: Cluster, topic: TopicMetadata, place: TopicPartition, leader: int, look: _Look
) -> None:
    """Compare letters with the records of one partition, until the look is over.

    :raises ClientError: the partition cannot be read
    """
    what = f"reading topic '{place[0]}'"
    end = await _offset(cluster, place, LATEST)
    for offset in look.offsets(place):
        if offset >= end:  # deleted and created again, or there was never such a record
            problem = "the partition ends before the offset of the record"
            look.compare(place, offset, Original(problem=problem))
    fetch_bytes = _FIRST_FETCH_BYTES
    while offsets := look.offsets(place):
        position = FetchPosition(offsets[0], fetch_bytes)
        answer = await _answer(cluster, topic, place, leader, position, end)
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            # Deleted, and so may be thousands after it: skip them without a request for each.
            start = await _offset(cluster, place, EARLIEST)
            for offset in offsets[: max(1, bisect_left(offsets, start))]:
                look.compare(place, offset, Original())
            continue
        check_answer(what, answer, f"READ on topic '{place[0]}'")
        data = memoryview(bytes(answer.records or b""))
        last = offsets[0]
        try:
            for start, header in headers(data):
                last = header.last_offset
                first, after = bisect_left(offsets, header.base_offset), bisect_right(offsets, last)
                if first < after and not header.is_control:
                    batch = data[start : start + header.size_bytes]
                    _compare_batch(batch, place, frozenset(offsets[first:after]), look)
                    if look.is_over:
                        return
        except CorruptBatch as error:
            raise ClientError(f"{what}: {error}") from error
        count = bisect_right(offsets, last)
        for offset in offsets[:count]:
            look.compare(place, offset, Original())  # the log no longer has those that remain
        # The broker sends at least one batch. More of them serve letters that are close together.
        fetch_bytes = min(2 * fetch_bytes, _MAX_FETCH_BYTES) if count > 1 else _FIRST_FETCH_BYTES


def _compare_batch(
    batch: memoryview, place: TopicPartition, offsets: frozenset[int], look: _Look
) -> None:
    """Compare the letters of some offsets with the records of a batch, until the look is over."""
    try:
        for record in records(batch):
            if record.offset in offsets:
                look.compare(place, record.offset, Original(record))
                if look.is_over:
                    return
    except CorruptBatch as error:
        problem = f"reading topic '{place[0]}': {error}"
        for offset in offsets:
            look.compare(place, offset, Original(problem=problem))


async def _answer(
    cluster: Cluster,
    topic: TopicMetadata,
    place: TopicPartition,
    leader: int,
    position: FetchPosition,
    end: int,
) -> Any:
    """Return the answer of a leader about the records from a position on.

    :raises ClientError: there is none in time
    """

    async def attempt() -> Any | None:
        answers = await fetch(
            await cluster.connection(leader),
            {place: position},
            {topic.name: topic.topic_id},
            FetchLimits(0, 0, position.max_bytes, READ_UNCOMMITTED),
            timeout_ms=cluster.timeout_ms,
        )
        answer = answers.get(place)
        if answer is None:  # the broker leaves the partition out
            return None
        # The high watermark of a new leader may lie behind for a moment (KIP-207).
        if answer.error_code or answer.records or answer.high_watermark >= end:
            return answer
        return None

    answer = await backing_off(attempt, cluster.timeout_ms)
    if answer is None:
        raise ConnectionFailed(f"reading topic '{place[0]}': broker {leader} sends no records")
    return answer
