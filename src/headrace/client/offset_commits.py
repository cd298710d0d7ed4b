"""Committed offsets of a group, written and read by a client that is not a member."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from headrace.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition

from .cluster import Cluster
from .connection import Connection
from .coordinators import Ask, backing_off
from .errors import ClientError, RequestRefused
from .group_requests import asking_for_commits

T = TypeVar("T")

_PARTITIONS_AT_ONCE = 10_000
_NO_GENERATION = -1
_TIMEOUT_MS = 30_000
_IGNORED = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
"""Error codes to ignore: a deleted partition does not affect the others of the request."""
_UNSTABLE_TEXT = "a transaction that commits offsets there is open: wait for its end, or abort it"


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

    While a transaction has pending offsets of one of the partitions, wait for its end (KIP-447).

    :raises RequestRefused: the coordinator refuses; UNSTABLE_OFFSET_COMMIT if a transaction has not
        ended within ``timeout_ms``
    :raises ClientError: the coordinator does not answer
    """
    asked: dict[str, list[int]] = {}
    for topic, partition in partitions:
        asked.setdefault(topic, []).append(partition)
    ask_group = asking_for_commits({group_id: asked}, require_stable=True)

    async def ask(
        connection: Connection, group_ids: Sequence[str], timeout_ms: int
    ) -> dict[str, dict[TopicPartition, int] | RequestRefused]:
        answers = await ask_group(connection, group_ids, timeout_ms)
        return {
            group_id: answer if isinstance(answer, RequestRefused) else _offsets(answer)
            for group_id, answer in answers.items()
        }

    answer = (await ask_until_stable(cluster, [group_id], ask, timeout_ms))[group_id]
    if isinstance(answer, ClientError):
        raise answer
    return answer


def _offsets(group: Any) -> dict[TopicPartition, int] | RequestRefused:
    found: dict[TopicPartition, int] = {}
    for topic in group.topics:
        for p in topic.partitions:
            partition = f"{topic.name}-{p.partition_index}"
            if p.error_code:
                return RequestRefused(
                    f"asking for the offset of group '{group.group_id}' in {partition}",
                    int(p.error_code),
                    _UNSTABLE_TEXT if p.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT else None,
                    needs=f"DESCRIBE on topic '{topic.name}'",
                )
            if p.committed_offset >= 0:
                found[str(topic.name), int(p.partition_index)] = int(p.committed_offset)
    return found


async def ask_until_stable(
    cluster: Cluster, group_ids: Iterable[str], ask: Ask[T], timeout_ms: int
) -> dict[str, T | ClientError]:
    """Ask for the committed offsets of groups; ask again about those of which a transaction has
    pending offsets.

    :param ask: returns UNSTABLE_OFFSET_COMMIT for such a group
    :param timeout_ms: the time in which to ask again
    :returns: group id → answer, or the error that stands in its place
    """
    waiting = list(group_ids)
    answers: dict[str, T | ClientError] = {}

    async def attempt() -> bool | None:
        answers.update(await cluster.coordinators.ask(waiting, ask, timeout_ms))
        waiting[:] = [group_id for group_id in waiting if _is_unstable(answers[group_id])]
        return None if waiting else True

    await backing_off(attempt, timeout_ms)
    return answers


def _is_unstable(answer: object) -> bool:
    return isinstance(answer, RequestRefused) and answer.code == ErrorCode.UNSTABLE_OFFSET_COMMIT
