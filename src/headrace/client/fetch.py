"""Fetch from one broker, in the newest version that both sides support.

From version 13 on a request names topics by id (KIP-516). A broker answers UNKNOWN_TOPIC_ID for a
topic that was deleted, also if another one has its name now.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple
from uuid import UUID

from headrace.protocol.api import FetchRequest
from headrace.protocol.partitions import TopicPartition, by_topic
from headrace.protocol.record_batch import BatchHeader

from .connection import Connection
from .errors import ConnectionFailed, check_answer

_LAST_WITH_NAMES = 12


AbortedTransaction = tuple[int, int]
"""An aborted transaction among fetched batches: the producer id, and the first offset there."""


class FetchPosition(NamedTuple):
    """The offset to read a partition from, and the limit of bytes."""

    offset: int
    max_bytes: int


class Unread:
    """The batches that a reader leaves out: markers, and those of aborted transactions.

    :param aborted: the aborted transactions among them
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._begun = deque(sorted(aborted, key=itemgetter(1)))
        self._open: set[int] = set()

    def has(self, header: BatchHeader) -> bool:
        """Return whether the next batch is left out."""
        while self._begun and self._begun[0][1] <= header.last_offset:
            self._open.add(self._begun.popleft()[0])
        if header.is_control:
            self._open.discard(header.producer_id)
        return header.is_control or (header.is_transactional and header.producer_id in self._open)


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """The answer about a partition.

    :param error_code: Kafka's error code; 0 for none
    :param records: batches, the last of which may be incomplete; empty after an error
    :param aborted_transactions: those that ``read_committed`` leaves out
    """

    error_code: int
    high_watermark: int
    last_stable_offset: int
    records: bytes
    aborted_transactions: tuple[AbortedTransaction, ...]


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """The limits of a request, over all partitions.

    :param max_wait_ms: the time that the broker may wait for a record
    :param isolation_level: 0 read_uncommitted, 1 read_committed
    """

    max_wait_ms: int
    max_bytes: int
    isolation_level: int


async def fetch(
    connection: Connection,
    positions: Mapping[TopicPartition, FetchPosition],
    topic_ids: Mapping[str, UUID | None],
    limits: FetchLimits,
    *,
    timeout_ms: int,
) -> dict[TopicPartition, FetchedPartition]:
    """Read partitions that a broker leads. Wait if the client exceeds its quota.

    :param topic_ids: topic name → id, as far as known; if one is missing, the request names topics
    :raises ClientError: the broker refuses the request as a whole, or does not answer
    """
    numbers = by_topic(positions)
    version = connection.version(FetchRequest)
    if not all(topic_ids.get(topic) for topic in numbers):
        version = min(version, _LAST_WITH_NAMES)
    has_ids = version > _LAST_WITH_NAMES
    request = FetchRequest(
        max_wait_ms=limits.max_wait_ms,
        min_bytes=1,
        max_bytes=limits.max_bytes,
        isolation_level=limits.isolation_level,
        topics=[
            FetchRequest.FetchTopic(
                topic,
                topic_ids.get(topic),
                [
                    FetchRequest.FetchPartition(
                        partition=number,
                        fetch_offset=positions[topic, number].offset,
                        partition_max_bytes=positions[topic, number].max_bytes,
                    )
                    for number in of_topic
                ],
            )
            for topic, of_topic in numbers.items()
        ],
    )
    response = await _unthrottled(connection, request, version, timeout_ms)
    names_by_id = {topic_ids.get(topic): topic for topic in numbers}
    fetched = {}
    for topic in response.responses:
        name = names_by_id.get(topic.topic_id, "") if has_ids else topic.topic
        for answer in topic.partitions:
            fetched[name, answer.partition_index] = FetchedPartition(
                answer.error_code,
                answer.high_watermark,
                answer.last_stable_offset,
                bytes(answer.records or b""),
                tuple(
                    (aborted.producer_id, aborted.first_offset)
                    for aborted in answer.aborted_transactions or ()
                ),
            )
    return {partition: fetched[partition] for partition in positions if partition in fetched}


async def _unthrottled(
    connection: Connection, request: FetchRequest, version: int, timeout_ms: int
) -> Any:
    """Send a request until its response has partitions.

    A client that exceeds its quota (``consumer_byte_rate``) gets a response without any. The broker
    reads nothing more of the connection until the throttle time has passed (KIP-219).

    :raises ClientError: the broker refuses, or has not sent partitions within ``timeout_ms``
    """
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_ms / 1000
    while True:
        response = await connection.ask(request, timeout_ms=timeout_ms, version=version)
        check_answer(f"fetching from {connection.address}", response)
        throttle_s = response.throttle_time_ms / 1000
        if response.responses or throttle_s <= 0:
            return response
        if loop.time() + throttle_s > deadline_s:
            raise ConnectionFailed(
                f"the broker at {connection.address} sends no records, because the client exceeds "
                f"its quota (consumer_byte_rate), within {timeout_ms} ms"
            )
        await asyncio.sleep(throttle_s)
