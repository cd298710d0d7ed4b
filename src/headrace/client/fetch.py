"""Fetch from one broker, in the newest version that both sides support.

From version 13 on a request names topics by id (KIP-516). A broker answers UNKNOWN_TOPIC_ID for a
topic that was deleted, also if another one has its name now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

from headrace.protocol.partitions import TopicPartition

from .connection import Connection
from .errors import ConnectionFailed, check_answer

_LAST_WITH_NAMES = 12


class FetchPosition(NamedTuple):
    """The offset to read a partition from, and the limit of bytes."""

    offset: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """The limits of a request, over all partitions.

    :param max_wait_ms: the time that the broker may wait for ``min_bytes``
    :param isolation_level: 0 read_uncommitted, 1 read_committed
    """

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int


async def fetch(
    connection: Connection,
    positions: Mapping[TopicPartition, FetchPosition],
    topic_ids: Mapping[str, UUID | None],
    limits: FetchLimits,
    *,
    timeout_ms: int,
) -> dict[TopicPartition, Any]:
    """Read partitions that a broker leads. Wait if the client exceeds its quota.

    :param topic_ids: topic name → id, as far as known; if one is missing, the request names topics
    :returns: partition → its part of kio's response
    :raises ClientError: the broker refuses the request as a whole, or does not answer
    """
    by_topic: dict[str, list[TopicPartition]] = {}
    for key in positions:
        by_topic.setdefault(key[0], []).append(key)
    has_ids = all(topic_ids.get(topic) for topic in by_topic)
    version = connection.version("fetch")
    if version > _LAST_WITH_NAMES and not has_ids:
        version = _LAST_WITH_NAMES
    messages = connection.messages("fetch", version)
    names_by_id = {topic_ids.get(topic): topic for topic in by_topic}

    def fetch_topic(topic: str) -> Any:
        partitions = tuple(
            messages.FetchPartition(
                partition=key[1],
                fetch_offset=positions[key].offset,
                partition_max_bytes=positions[key].max_bytes,
            )
            for key in by_topic[topic]
        )
        if version > _LAST_WITH_NAMES:
            return messages.FetchTopic(topic_id=topic_ids[topic], partitions=partitions)
        return messages.FetchTopic(topic=topic, partitions=partitions)

    request = messages.FetchRequest(
        max_wait=timedelta(milliseconds=limits.max_wait_ms),
        min_bytes=limits.min_bytes,
        max_bytes=limits.max_bytes,
        isolation_level=limits.isolation_level,
        topics=tuple(map(fetch_topic, by_topic)),
        forgotten_topics_data=(),
    )
    response = await _unthrottled(connection, request, timeout_ms)
    return {
        (_name(topic, names_by_id), int(partition.partition_index)): partition
        for topic in response.responses
        for partition in topic.partitions
    }


async def _unthrottled(connection: Connection, request: Any, timeout_ms: int) -> Any:
    """Send a request until its response has partitions.

    A client that exceeds its quota (``consumer_byte_rate``) gets a response without any. The broker
    reads nothing more of the connection until the throttle time has passed (KIP-219).

    :raises ClientError: the broker refuses, or has not sent partitions within ``timeout_ms``
    """
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_ms / 1000
    while True:
        response = await connection.request(request, timeout_ms=timeout_ms)
        check_answer(f"fetching from {connection.address}", response)
        throttle_s = response.throttle_time.total_seconds()
        if response.responses or not throttle_s:
            return response
        if loop.time() + throttle_s > deadline_s:
            raise ConnectionFailed(
                f"the broker at {connection.address} sends no records, because the client exceeds "
                f"its quota (consumer_byte_rate), within {timeout_ms} ms"
            )
        await asyncio.sleep(throttle_s)


def _name(topic: Any, names_by_id: Mapping[UUID | None, str]) -> str:
    """Return the name of a topic in a response of any version."""
    return str(topic.topic) if hasattr(topic, "topic") else names_by_id[topic.topic_id]
