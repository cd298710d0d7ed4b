"""Topics and sets of partitions, as groups see them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias
from uuid import UUID

from .records import SharedTopic, ShareMember
from .settings import Topic, Topics

Partitions: TypeAlias = Mapping[UUID, SharedTopic]
"""Partitions of topics, by topic id."""


def subscribed(members: Iterable[ShareMember], topics: Topics) -> list[Topic]:
    """Return the existing topics to which any member is subscribed, sorted by name."""
    names = {name for member in members for name in member.subscribed_topic_names}
    return [topics[name] for name in sorted(names) if name in topics]


def topics_hash(topics: Sequence[Topic]) -> int:
    """Return an int64 hash of the topics; 0 for none. It changes with each deletion, creation or
    growth.
    """
    if not topics:
        return 0
    text = "\n".join(f"{topic.name} {topic.topic_id} {topic.partitions}" for topic in topics)
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


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


def without(some: Partitions, others: Partitions) -> dict[UUID, SharedTopic]:
    """Return the partitions that are only in the first set."""
    return _keep(
        some,
        {
            topic_id: frozenset(topic.partitions) - partitions_of(others, topic_id)
            for topic_id, topic in some.items()
        },
    )


def intersection(some: Partitions, others: Partitions) -> dict[UUID, SharedTopic]:
    """Return the partitions that are in both sets."""
    return _keep(some, {topic_id: partitions_of(others, topic_id) for topic_id in some})


def _keep(some: Partitions, wanted: Mapping[UUID, frozenset[int]]) -> dict[UUID, SharedTopic]:
    kept = {
        topic_id: SharedTopic(
            name, tuple(partition for partition in partitions if partition in wanted[topic_id])
        )
        for topic_id, (name, partitions) in some.items()
    }
    return {topic_id: topic for topic_id, topic in kept.items() if topic.partitions}
