"""The names of a partition: by topic name and by topic id."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar
from uuid import UUID

K = TypeVar("K")

TopicPartition = tuple[str, int]
"""(topic name, partition number)"""

TopicIdPartition = tuple[UUID, int]
"""(topic id, partition number)"""


def by_topic(partitions: Iterable[tuple[K, int]]) -> dict[K, list[int]]:
    """Return topic name or id → partition numbers, in the order given."""
    grouped: dict[K, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return grouped
