"""Descriptions of consumer groups and share groups.

The responses of ConsumerGroupDescribe and ShareGroupDescribe have the same structure but different
classes; ``schema`` is kio's module of the response.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar
from uuid import UUID

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode, Refusal

G = TypeVar("G")


def describe_each(
    schema: Any,
    group_ids: Iterable[str],
    find: Callable[[str], G | Refusal],
    describe: Callable[[str, G], Any],
) -> tuple[Any, ...]:
    """Return a ``DescribedGroup`` for each id; one with an error for a group that is not found."""
    described = []
    for group_id in group_ids:
        group = find(group_id) if group_id else Refusal(ErrorCode.INVALID_GROUP_ID)
        if isinstance(group, Refusal):
            described.append(_refused(schema, group_id, group))
        else:
            described.append(describe(group_id, group))
    return tuple(described)


def _refused(schema: Any, group_id: str, refusal: Refusal) -> Any:
    return schema.DescribedGroup(
        error_code=refusal.code,
        error_message=refusal.message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=(),
    )


def assignment(schema: Any, broker: Broker, partitions: Mapping[UUID, Collection[int]]) -> Any:
    """Return the ``Assignment`` of a member, without the topics that no longer exist."""
    topics = broker.catalog.topics_by_id
    return schema.Assignment(
        topic_partitions=tuple(
            schema.TopicPartitions(
                topic_id=topic_id, topic_name=topics[topic_id].name, partitions=tuple(numbers)
            )
            for topic_id, numbers in partitions.items()
            if topic_id in topics
        )
    )
