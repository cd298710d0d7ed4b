"""The original records of dead letters without a copy, read from their topics."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headrace.client.cluster import Cluster, TopicMetadata
from headrace.client.coordinators import backing_off
from headrace.client.errors import ClientError, ConnectionFailed, RequestRefused, check_answer
from headrace.client.fetch import FetchLimits, FetchPosition, fetch
from headrace.client.list_offsets import LATEST, READ_UNCOMMITTED, list_offsets
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

    def fill(self, letters: Sequence[DeadLetter]) -> list[DeadLetter]:
        """Add the content of the original records to letters that lack it.

        :returns: all letters in order; those whose record is gone are unchanged
        :raises ClientError: a topic cannot be read
        """
        wanted: dict[TopicPartition, set[int]] = {}
        for letter in letters:
            if not letter.has_content:
                wanted.setdefault(letter.source, set()).add(letter.source_offset)
        if not wanted:
            return list(letters)
        if self._runner is None:
            try:
                self._cluster = settings(librdkafka_config(self._config)).cluster()
            except UnsupportedSetting as error:
                raise ClientError(str(error)) from error
            self._runner = asyncio.Runner()
        assert self._cluster is not None
        found = self._runner.run(_find(self._cluster, wanted))
        return [_filled(letter, found) for letter in letters]


def _filled(letter: DeadLetter, found: Mapping[tuple[TopicPartition, int], Record]) -> DeadLetter:
    record = found.get((letter.source, letter.source_offset))
    if letter.has_content or record is None:
        return letter
    if record.timestamp_ms > letter.timestamp_ms + CLOCK_SKEW_MS:
        return letter
    return letter.with_content(record.key, record.value, record.headers)


async def _find(
    cluster: Cluster, wanted: Mapping[TopicPartition, Iterable[int]]
) -> dict[tuple[TopicPartition, int], Record]:
    """Read the records that exist.

    :raises ClientError: a topic cannot be read
    """
    topics = await cluster.metadata(sorted({topic for topic, _ in wanted}))
    found: dict[tuple[TopicPartition, int], Record] = {}
    for place, offsets in wanted.items():
        name, number = place
        topic = topics.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not isinstance(topic, TopicMetadata):
            if topic not in _NO_SUCH_TOPIC:
                raise RequestRefused(f"looking up topic '{name}'", topic)
        elif (leader := topic.leaders.get(number)) is not None:
            if leader < 0:
                raise ConnectionFailed(f"reading topic '{name}': {name}-{number} has no leader")
            await _find_in(cluster, topic, place, leader, sorted(offsets), found)
    return found


async def _find_in(
    cluster: Cluster,
    topic: TopicMetadata,
    place: TopicPartition,
    leader: int,
    offsets: Sequence[int],
    found: dict[tuple[TopicPartition, int], Record],
) -> None:
    """Read the records of one partition that exist.

    :param offsets: ascending
    :param found: gets the records
    :raises ClientError: the partition cannot be read
    """
    what = f"reading topic '{place[0]}'"
    at = 0
    while at < len(offsets):
        answer = await _answer(cluster, topic, place, leader, offsets[at])
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            at += 1  # deleted
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
                        found[place, record.offset] = record
        except CorruptBatch as error:
            raise ClientError(f"{what}: {error}") from error
        while at < len(offsets) and offsets[at] <= passed:
            at += 1


async def _answer(
    cluster: Cluster, topic: TopicMetadata, place: TopicPartition, leader: int, offset: int
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
        if answer.error_code or answer.records or offset < answer.high_watermark:
            return answer
        # The high watermark of a new leader may lie behind for a moment. ListOffsets is not
        # answered until it has caught up (KIP-207).
        listed = await list_offsets(cluster, {place: LATEST}, timeout_ms=cluster.timeout_ms)
        return None if offset < (listed[place].offset or 0) else answer

    answer = await backing_off(attempt, cluster.timeout_ms)
    if answer is None:
        raise ConnectionFailed(f"reading topic '{place[0]}': broker {leader} sends no records")
    return answer


def _has_any(offsets: Sequence[int], at: int, first: int, last: int) -> bool:
    return any(first <= offset <= last for offset in offsets[at:])
