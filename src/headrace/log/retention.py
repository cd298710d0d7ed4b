"""Which segments have had their time. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.log.log_config import LogConfig


class SegmentAge(NamedTuple):
    """What retention asks of a segment; ``largest_timestamp_ms`` is the file's own time where its
    records have none.
    """

    base_offset: int
    size_bytes: int
    largest_timestamp_ms: int


def segments_to_delete(
    segments: Sequence[SegmentAge],
    config: LogConfig,
    log_start_offset: int,
    end_offset: int,
    now_ms: int,
) -> int:
    """How many of the oldest segments to delete.

    As in Kafka, with ``delete`` in ``cleanup.policy``: those whose newest record is older than
    ``retention.ms``, then those without which the log is still at least ``retention.bytes`` large;
    and with any policy those that lie wholly before the log start offset. The answer may be all
    segments: then a new one is to be rolled first. An empty last segment stays.
    """
    ends = [segment.base_offset for segment in segments[1:]] + [end_offset]
    candidates = len(segments) - (segments[-1].size_bytes == 0)
    count = 0
    while count < candidates and ends[count] <= log_start_offset:
        count += 1
    if "delete" not in config.cleanup_policy:
        return count
    if config.retention_ms >= 0:
        while (
            count < candidates
            and now_ms - segments[count].largest_timestamp_ms > config.retention_ms
        ):
            count += 1
    if config.retention_bytes >= 0:
        surplus = sum(segment.size_bytes for segment in segments[count:]) - config.retention_bytes
        while count < candidates and surplus >= segments[count].size_bytes:
            surplus -= segments[count].size_bytes
            count += 1
    return count
