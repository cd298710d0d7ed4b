"""The original records of dead letters, read from their topics."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
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
from headrace.client.settings import UnsupportedSetting, librdkafka_config, settings
from headrace.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition
from headrace.protocol.record_batch import CorruptBatch, Record, headers, records

from .letters import DeadLetter

CLOCK_SKEW_MS = 300_000
"""A record whose timestamp is later than its letter's by more than this is not the original: the
topic was deleted and created again.
"""

_FETCH_BYTES = 1 << 20
_NO_SUCH_TOPIC = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
}
"""Error codes of topics that do not exist, or that the user may not describe."""


_NO_END = 1 << 63
"""Behind the last offset that a log can have: where the end of a partition is not known."""


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

    def find(self, letters: Sequence[DeadLetter]) -> list[Original]:
        """Return what the topics have in the places of the letters' records.

        :returns: one for each letter, in order
        :raises ClientError: a leader does not answer
        """
        offsets: dict[TopicPartition, set[int]] = {}
        for letter in letters:
            offsets.setdefault(letter.source, set()).add(letter.source_offset)
        if not offsets:
            return []
        if self._runner is None:
            try:
                self._cluster = settings(librdkafka_config(self._config)).cluster()
            except UnsupportedSetting as error:
                raise ClientError(str(error)) from error
            self._runner = asyncio.Runner()
        assert self._cluster is not None
        originals = self._runner.run(_find(self._cluster, offsets))
        return [
            originals.get((letter.source, letter.source_offset), Original()) for letter in letters
        ]

    def fill(self, letters: Sequence[DeadLetter]) -> list[DeadLetter]:
        """Add the content of the original records to letters that lack it.

        :returns: all letters in order; those whose record is gone, or cannot be read, are unchanged
        :raises ClientError: a leader does not answer
        """
        originals = iter(self.find([letter for letter in letters if not letter.has_content]))
        return [
            letter if letter.has_content else _filled(letter, next(originals).record)
            for letter in letters
        ]


def _filled(letter: DeadLetter, record: Record | None) -> DeadLetter:
    if record is None or record.timestamp_ms > letter.timestamp_ms + CLOCK_SKEW_MS:
        return letter
    return letter.with_content(record.key, record.value, record.headers)


def compare(letter: DeadLetter, original: Original) -> tuple[DeadLetter, Evidence, str | None]:
    """Compare a letter with its original record.

    Who may write to the queue can write any content and any time into a letter. So a record that
    is there decides, and gives the headers, too; Apache Kafka 4.4 copies none into letters.

    :returns: the letter to redrive, what is known of its content, and why it is not redriven
    """
    if not letter.has_content:
        filled = _filled(letter, original.record)
        reason = original.problem
        if reason is None and not filled.has_content:
            reason = "the queue has no copy of the record, and the topic no longer has it"
        return filled, Evidence.NO_COPY, reason
    if original.problem is not None:
        return letter, Evidence.UNCOMPARED, original.problem
    record = original.record
    if record is None:
        return letter, Evidence.UNCOMPARED, None
    if (letter.key, letter.value) != (record.key, record.value):
        return letter, Evidence.EQUAL, "key or value differ from those of the record in the topic"
    return letter.with_content(record.key, record.value, record.headers), Evidence.EQUAL, None


async def _find(
    cluster: Cluster, offsets: Mapping[TopicPartition, Iterable[int]]
) -> dict[tuple[TopicPartition, int], Original]:
    """Read the records that exist.

    :raises ClientError: a leader does not answer
    """
    topics = await cluster.metadata(sorted({topic for topic, _ in offsets}))
    originals: dict[tuple[TopicPartition, int], Original] = {}
    for place, numbers in offsets.items():
        name, number = place
        topic = topics.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        problem: str | None = "the topic does not exist, or the user may not describe it"
        records: dict[int, Record] = {}
        end = _NO_END
        if not isinstance(topic, TopicMetadata):
            if topic not in _NO_SUCH_TOPIC:
                raise RequestRefused(f"looking up topic '{name}'", topic)
        elif (leader := topic.leaders.get(number)) is not None:
            if leader < 0:
                raise ConnectionFailed(f"reading topic '{name}': {name}-{number} has no leader")
            problem = None
            try:
                end = await _offset(cluster, place, LATEST)
                reached = sorted(offset for offset in numbers if offset < end)
                await _find_in(cluster, topic, place, leader, reached, end, records)
            except ConnectionFailed:
                raise
            except ClientError as error:
                # One source that refuses, or is damaged, does not end the redrive of the others.
                if isinstance(error, RequestRefused) and error.code in LEADER_MOVED:
                    raise
                problem = str(error)
        for offset in numbers:
            original = Original(records.get(offset), None if offset in records else problem)
            if offset >= end:  # deleted and created again, or there was never such a record
                original = Original(problem="the partition ends before the offset of the record")
            originals[place, offset] = original
    return originals


async def _offset(cluster: Cluster, place: TopicPartition, when: int) -> int:
    listed = await list_offsets(cluster, {place: when}, timeout_ms=cluster.timeout_ms)
    return listed[place].offset or 0


async def _find_in(
    cluster: Cluster,
    topic: TopicMetadata,
    place: TopicPartition,
    leader: int,
    offsets: Sequence[int],
    end: int,
    found: dict[int, Record],
) -> None:
    """Read the records of one partition that exist.

    :param offsets: ascending
    :param end: the offset after the last record
    :param found: gets the records
    :raises ClientError: the partition cannot be read
    """
    what = f"reading topic '{place[0]}'"
    at = 0
    while at < len(offsets):
        answer = await _answer(cluster, topic, place, leader, offsets[at], end)
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            # Deleted, and so may be thousands after it: skip them without a request for each.
            start = await _offset(cluster, place, EARLIEST)
            at = max(at + 1, bisect_left(offsets, start))
            continue
        check_answer(what, answer, f"READ on topic '{place[0]}'")
        data = memoryview(bytes(answer.records or b""))
        wanted, passed = frozenset(offsets[at:]), offsets[at]
        try:
            for start, header in headers(data):
                passed = header.last_offset
                if header.is_control or not _has_any(offsets, at, header.base_offset, passed):
                    continue
                for record in records(data[start : start + header.size_bytes]):
                    if record.offset in wanted:
                        found[record.offset] = record
        except CorruptBatch as error:
            raise ClientError(f"{what}: {error}") from error
        while at < len(offsets) and offsets[at] <= passed:
            at += 1


async def _answer(
    cluster: Cluster,
    topic: TopicMetadata,
    place: TopicPartition,
    leader: int,
    offset: int,
    end: int,
) -> Any:
    """Return the answer of a leader about the records from an offset on.

    :raises ClientError: there is none in time
    """

    async def attempt() -> Any | None:
        answers = await fetch(
            await cluster.connection(leader),
            {place: FetchPosition(offset, _FETCH_BYTES)},
            {topic.name: topic.topic_id},
            FetchLimits(0, 0, _FETCH_BYTES, READ_UNCOMMITTED),
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


def _has_any(offsets: Sequence[int], at: int, first: int, last: int) -> bool:
    return any(first <= offset <= last for offset in offsets[at:])
