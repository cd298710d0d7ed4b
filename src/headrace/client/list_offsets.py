"""ListOffsets for any number of partitions: a request to each leader, with retries."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from headrace.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition

from .cluster import Cluster
from .errors import ClientError, ConnectionFailed, RequestRefused, refused

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
"""Special timestamps: the end, the start, the record with the largest timestamp (KIP-734)."""
READ_UNCOMMITTED, READ_COMMITTED = 0, 1

LEADER_MOVED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Error codes of a broker that does not lead the partition, or not yet."""
_RETRY_S = 0.1
_PARTITIONS_PER_REQUEST = 10_000
"""Bounds the work of a broker for one request, and the size of the response."""


class ListedOffset(NamedTuple):
    """An offset in a ListOffsets response.

    :param offset: None if the log has no record at or after the timestamp
    :param timestamp_ms: timestamp of the record; None for the start and the end
    :param leader_epoch: leader epoch of the record; None if unknown
    """

    offset: int | None
    timestamp_ms: int | None
    leader_epoch: int | None


async def list_offsets(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    *,
    isolation_level: int = READ_UNCOMMITTED,
    timeout_ms: int,
) -> dict[TopicPartition, ListedOffset]:
    """Look up offsets by timestamp: the first offset with at least that timestamp.

    :param wanted: partition → timestamp in ms, or :data:`LATEST` and so on
    :param isolation_level: with :data:`READ_COMMITTED`, :data:`LATEST` is the last stable offset
    :raises ClientError: a topic does not exist, a broker refuses, or no leader answered in time
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_ms / 1000
    found: dict[TopicPartition, ListedOffset] = {}
    problem = "they have no leader"
    while True:
        missing = {
            partition: timestamp
            for partition, timestamp in wanted.items()
            if partition not in found
        }
        if not missing:
            return found
        leaders = await _leaders(cluster, sorted({topic for topic, _ in missing}))
        answers = await ask_leaders(
            cluster, missing, leaders, isolation_level=isolation_level, timeout_ms=timeout_ms
        )
        listed, failures = split_answers(answers)
        found.update(listed)
        if failures:
            problem = str(failures[-1])
        if len(found) < len(wanted):
            if loop.time() >= deadline:
                names = ", ".join(
                    f"{topic}-{partition}"
                    for topic, partition in sorted(wanted.keys() - found.keys())[:3]
                )
                raise ConnectionFailed(f"no offsets of {names} within {timeout_ms} ms: {problem}")
            await asyncio.sleep(_RETRY_S)


async def end_offsets(cluster: Cluster, topics: Sequence[str]) -> dict[TopicPartition, int]:
    """Return the end offset of each partition of ``topics`` that has a leader now.

    :raises ClientError: a topic does not exist, or a broker refuses or does not answer
    """
    leaders = await _leaders(cluster, topics)
    answers = await ask_leaders(
        cluster, dict.fromkeys(leaders, LATEST), leaders, timeout_ms=cluster.timeout_ms
    )
    listed, failures = split_answers(answers)
    if failures:
        raise failures[0]
    return {key: one.offset for key, one in listed.items() if one.offset is not None}


async def _leaders(cluster: Cluster, topics: Sequence[str]) -> dict[TopicPartition, int]:
    return {
        (name, partition): leader
        for name, topic in (await cluster.topics(topics)).items()
        for partition, leader in topic.leaders.items()
    }


async def ask_leaders(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    leaders: Mapping[TopicPartition, int],
    *,
    isolation_level: int = READ_UNCOMMITTED,
    timeout_ms: int,
) -> dict[TopicPartition, ListedOffset | ClientError]:
    """Ask the leader of each partition, once. Partitions without a leader are left out.

    :param wanted: partition → timestamp in ms, or :data:`LATEST` and so on
    :param leaders: partition → node id; -1 for none
    :returns: partition → offset, or why there is none
    """
    by_leader: dict[int, list[TopicPartition]] = {}
    for partition in wanted:
        by_leader.setdefault(leaders.get(partition, -1), []).append(partition)
    by_leader.pop(-1, None)
    found: dict[TopicPartition, ListedOffset | ClientError] = {}

    async def ask(node_id: int, partitions: Sequence[TopicPartition]) -> None:
        for start in range(0, len(partitions), _PARTITIONS_PER_REQUEST):
            some = {one: wanted[one] for one in partitions[start : start + _PARTITIONS_PER_REQUEST]}
            try:
                found.update(await _ask_leader(cluster, node_id, some, isolation_level, timeout_ms))
            except ClientError as error:
                found.update(dict.fromkeys(some, error))

    await asyncio.gather(*(ask(node_id, of_leader) for node_id, of_leader in by_leader.items()))
    return found


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
        elif not (isinstance(answer, RequestRefused) and answer.code in LEADER_MOVED):
            raise answer
    return listed, list(failures)


async def _ask_leader(
    cluster: Cluster,
    node_id: int,
    wanted: Mapping[TopicPartition, int],
    isolation_level: int,
    timeout_ms: int,
) -> dict[TopicPartition, ListedOffset | ClientError]:
    """Ask one broker.

    :returns: partition → offset, or the refusal
    :raises ClientError: it does not answer
    """
    connection = await cluster.connection(node_id)
    messages = connection.messages("list_offsets")
    by_topic: dict[str, list[Any]] = {}
    for (topic, partition), timestamp in wanted.items():
        by_topic.setdefault(topic, []).append(
            messages.ListOffsetsPartition(
                partition_index=partition, current_leader_epoch=-1, timestamp=timestamp
            )
        )
    newer = {}
    if connection.version("list_offsets") >= 10:
        newer = {"timeout": timedelta(milliseconds=timeout_ms)}
    request = messages.ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=tuple(
            messages.ListOffsetsTopic(name=n, partitions=tuple(ps)) for n, ps in by_topic.items()
        ),
        **newer,
    )
    response = await connection.request(request, timeout_ms=timeout_ms)
    found: dict[TopicPartition, ListedOffset | ClientError] = {}
    for topic in response.topics:
        for answer in topic.partitions:
            key = (str(topic.name), int(answer.partition_index))
            values = (answer.offset, answer.timestamp, answer.leader_epoch)
            found[key] = refused(
                f"asking for offsets of {key[0]}-{key[1]}", answer, f"DESCRIBE on topic '{key[0]}'"
            ) or ListedOffset(*(None if value < 0 else value for value in values))
    return found
