"""ListOffsets under its former names: see :mod:`headrace.client.offsets`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from headrace.protocol.partitions import TopicPartition

from . import offsets
from .cluster import Cluster
from .coordinators import LEADER_MOVED, Leaders
from .errors import ClientError, ConnectionFailed, has_code, raised
from .offsets import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    ListedOffset,
)

__all__ = [
    "EARLIEST",
    "LATEST",
    "LEADER_MOVED",
    "MAX_TIMESTAMP",
    "READ_COMMITTED",
    "READ_UNCOMMITTED",
    "ListedOffset",
]


async def list_offsets(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    *,
    isolation_level: int = READ_UNCOMMITTED,
    timeout_ms: int,
) -> dict[TopicPartition, ListedOffset]:
    """Look up offsets by timestamp; raise the first error."""
    return raised(
        await offsets.list_offsets(
            cluster, wanted, isolation_level=isolation_level, timeout=timeout_ms / 1000
        )
    )


async def end_offsets(cluster: Cluster, topics: Sequence[str]) -> dict[TopicPartition, int]:
    """Return the end offset of each partition of ``topics`` that has a leader now."""
    partitions = [
        (name, partition)
        for name, topic in (await cluster.topics(topics)).items()
        for partition, leader in topic.leaders.items()
        if leader >= 0
    ]
    listed = raised(
        await offsets.list_offsets(cluster, dict.fromkeys(partitions, LATEST), attempts=2)
    )
    return {key: found.offset for key, found in listed.items() if found.offset is not None}


async def ask_leaders(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    leaders: Mapping[TopicPartition, int],
    *,
    isolation_level: int = READ_UNCOMMITTED,
    timeout_ms: int,
) -> dict[TopicPartition, ListedOffset | ClientError]:
    """Ask the leader of each partition, once. Partitions without a leader are left out."""
    by_topic: dict[str, dict[int, int]] = {}
    for (topic, partition), leader in leaders.items():
        by_topic.setdefault(topic, {})[partition] = leader
    places = Leaders(cluster)
    places.topics = {name: SimpleNamespace(leaders=numbers) for name, numbers in by_topic.items()}
    asked: dict[TopicPartition, Any] = {
        partition: timestamp
        for partition, timestamp in wanted.items()
        if leaders.get(partition, -1) >= 0
    }
    return await offsets.list_offsets(
        cluster,
        asked,
        isolation_level=isolation_level,
        leaders=places,
        attempts=1,
        timeout=timeout_ms / 1000,
    )


def split_answers(
    answers: Mapping[TopicPartition, ListedOffset | ClientError],
) -> tuple[dict[TopicPartition, ListedOffset], list[ConnectionFailed]]:
    """Return the offsets, and the failures of brokers that did not answer.

    Refusals of brokers that do not lead a partition are left out.

    :raises ClientError: a broker refuses for another reason
    """
    listed: dict[TopicPartition, ListedOffset] = {}
    failures: dict[ConnectionFailed, None] = {}
    for partition, answer in answers.items():
        if isinstance(answer, ListedOffset):
            listed[partition] = answer
        elif isinstance(answer, ConnectionFailed):
            failures[answer] = None
        elif not has_code(answer, *LEADER_MOVED):
            raise answer
    return listed, list(failures)
