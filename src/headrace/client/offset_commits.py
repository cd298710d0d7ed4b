"""Committed offsets of a group, written and read by a client that is not a member."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition

from .cluster import Cluster
from .connection import Connection
from .errors import ClientError, RequestRefused
from .group_requests import asking_for_commits

_PARTITIONS_AT_ONCE = 10_000
_NO_GENERATION = -1
_TIMEOUT_MS = 30_000
_IGNORED = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
"""Error codes to ignore: a deleted partition does not affect the others of the request."""


async def commit_offsets(
    cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, int]
) -> None:
    """Commit offsets of a group without members, as Kafka's tools do to reset offsets.

    :param offsets: partition → next offset to read; partitions that do not exist are ignored
    :raises RequestRefused: the group has members, or is of another type
    :raises ClientError: the coordinator does not answer
    """
    partitions = list(offsets)
    for at in range(0, len(partitions), _PARTITIONS_AT_ONCE):
        by_topic: dict[str, list[int]] = {}
        for topic, partition in partitions[at : at + _PARTITIONS_AT_ONCE]:
            by_topic.setdefault(topic, []).append(partition)

        def build(connection: Connection, by_topic: Mapping[str, list[int]] = by_topic) -> Any:
            messages = connection.messages("offset_commit")
            topics = tuple(
                messages.OffsetCommitRequestTopic(
                    name=topic,
                    partitions=tuple(
                        messages.OffsetCommitRequestPartition(
                            partition_index=p,
                            committed_offset=offsets[topic, p],
                            committed_metadata="",
                        )
                        for p in numbers
                    ),
                )
                for topic, numbers in by_topic.items()
            )
            return messages.OffsetCommitRequest(
                group_id=group_id,
                generation_id_or_member_epoch=_NO_GENERATION,
                member_id="",
                group_instance_id=None,
                topics=topics,
            )

        response = await cluster.coordinator_call(group_id, build, _first_error)
        code = _first_error(response)
        if code:
            topics = ", ".join(f"'{topic}'" for topic in by_topic)
            needs = f"READ on group '{group_id}' and on topic {topics}"
            raise RequestRefused(f"committing offsets of group '{group_id}'", code, needs=needs)


def _first_error(response: Any) -> int:
    codes = (int(p.error_code) for topic in response.topics for p in topic.partitions)
    return next((code for code in codes if code not in _IGNORED), int(ErrorCode.NONE))


async def committed_offsets(
    cluster: Cluster,
    group_id: str,
    partitions: Iterable[TopicPartition],
    timeout_ms: int = _TIMEOUT_MS,
) -> dict[TopicPartition, int]:
    """Return the committed offsets of a group, without partitions that have none.

    :raises ClientError: the coordinator refuses or does not answer
    """
    asked: dict[str, list[int]] = {}
    for topic, partition in partitions:
        asked.setdefault(topic, []).append(partition)
    ask = asking_for_commits({group_id: asked})
    answer = (await cluster.coordinators.ask([group_id], ask, timeout_ms))[group_id]
    if isinstance(answer, ClientError):
        raise answer
    return {
        (str(topic.name), int(p.partition_index)): int(p.committed_offset)
        for topic in answer.topics
        for p in topic.partitions
        if p.committed_offset >= 0
    }
