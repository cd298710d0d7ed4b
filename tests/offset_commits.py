"""Records of committed offsets, as OffsetCommit makes them."""

from __future__ import annotations

from uuid import UUID

from headrace.groups.records import CommittedOffset, OffsetCommit

NO_RETENTION = -1
"""The retention of a commit without its own; the broker's applies."""


def commit_record(
    group_id: str,
    topic: str,
    topic_id: UUID | None,
    partition: int,
    offset: int,
    leader_epoch: int = -1,
    metadata: str = "",
    *,
    wall_ms: int,
    retention_ms: int = NO_RETENTION,
) -> OffsetCommit:
    """Return the record of a commit in one partition at the time ``wall_ms``."""
    expire_ms = -1 if retention_ms == NO_RETENTION else wall_ms + retention_ms
    committed = CommittedOffset(offset, leader_epoch, metadata, wall_ms, expire_ms, topic_id)
    return OffsetCommit(group_id, topic, partition, committed)
