"""The names of a partition: by topic name and by topic id."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

TopicPartition = tuple[str, int]
"""(topic name, partition number)"""

TopicIdPartition = tuple[UUID, int]
"""(topic id, partition number)"""


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return topic → partition numbers, in the order given."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return grouped
