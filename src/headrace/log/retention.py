"""Retention: how many segments of a log to delete."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.log.log_config import LogConfig
from headrace.log.segment import Segment


def segments_to_delete(
    segments: Sequence[Segment],
    config: LogConfig,
    log_start_offset: int,
    end_offset: int,
    now_ms: int,
) -> int:
    """Return the number of segments to delete, counted from the oldest.

    As in Kafka: with ``delete`` in ``cleanup.policy`` those whose newest record is older than
    ``retention.ms``, then those without which the log still has at least ``retention.bytes``; with
    any policy those that lie wholly before the log start offset. If all segments are to be deleted,
    the caller rolls a new one first. An empty last segment is kept.

    :raises OSError: when the time index of a segment cannot be read
    """
    ends = [segment.base_offset for segment in segments[1:]] + [end_offset]
    candidates = len(segments) - (segments[-1].size_bytes == 0)
    count = 0
    while count < candidates and ends[count] <= log_start_offset:
        count += 1
    if "delete" not in config.cleanup_policy:
        return count
    if config.retention_ms >= 0:
        while count < candidates and now_ms - segments[count].newest_ms > config.retention_ms:
            count += 1
    if config.retention_bytes >= 0:
        surplus = sum(segment.size_bytes for segment in segments[count:]) - config.retention_bytes
        while count < candidates and surplus >= segments[count].size_bytes:
            surplus -= segments[count].size_bytes
            count += 1
    return count
