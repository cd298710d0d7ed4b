"""The names of a partition: by topic name and by topic id."""

from __future__ import annotations

from uuid import UUID

TopicPartition = tuple[str, int]
"""(topic name, partition number)"""

TopicIdPartition = tuple[UUID, int]
"""(topic id, partition number)"""
