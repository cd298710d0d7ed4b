"""Sets of partitions, as share groups see them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias
from uuid import UUID

from headrace.groups.records import SharedTopic

Partitions: TypeAlias = Mapping[UUID, SharedTopic]
"""Partitions of topics, by topic id."""


def partitions_of(partitions: Partitions, topic_id: UUID) -> frozenset[int]:
    """Return the partitions of one topic."""
    topic = partitions.get(topic_id)
    return frozenset(topic.partitions) if topic is not None else frozenset()


def union(some: Partitions, more: Partitions) -> dict[UUID, SharedTopic]:
    """Return all partitions that are in either set."""
    result = dict(some)
    for topic_id, (name, partitions) in more.items():
        result[topic_id] = SharedTopic(
            name, tuple(sorted({*partitions, *partitions_of(some, topic_id)}))
        )
    return result


def selected(some: Partitions, others: Partitions, *, are_in_both: bool) -> dict[UUID, SharedTopic]:
    """Return the partitions of the first set that are also in the other one, or are not."""
    partitions = {}
    for topic_id, (name, numbers) in some.items():
        in_others = partitions_of(others, topic_id)
        of_topic = tuple(number for number in numbers if (number in in_others) is are_in_both)
        if of_topic:
            partitions[topic_id] = SharedTopic(name, of_topic)
    return partitions
