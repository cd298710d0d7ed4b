"""The part of a log that compaction would clean, by Kafka's rules."""

from __future__ import annotations

import os
from typing import NamedTuple

from headrace.log.partition_log import PartitionLog
from headrace.log.segment import Segment
from headrace.log_lines import get_logger

from . import checked_file

logger = get_logger("headrace.log")

CLEANER_OFFSET_FILE = "cleaner-offset"


class Cleanable(NamedTuple):
    """The plan of a round of compaction.

    :ivar first_dirty_offset: end offset, exclusive, of what earlier rounds have cleaned
    :ivar end_offset: end offset of this round, exclusive
    :ivar segments: segments with offsets before ``end_offset``, each with its own end offset
    :ivar dirty_ratio: share of the bytes of ``segments`` that no round has cleaned, 0 to 1
    :ivar is_overdue: True if a record has waited for longer than max.compaction.lag.ms
    """

    first_dirty_offset: int
    end_offset: int
    segments: tuple[tuple[Segment, int], ...]
    dirty_ratio: float
    is_overdue: bool


def cleanable(log: PartitionLog, now_ms: int) -> Cleanable | None:
    """Return the plan for a round over a log; None if there is nothing to clean, or less than
    min.cleanable.dirty.ratio.

    Leave out the last segment, batches that may belong to an open transaction, and segments with
    records younger than min.compaction.lag.ms.
    """
    config, segments = log.config, list(log.segments)
    if len(segments) < 2:
        return None
    first_dirty = _first_dirty_offset(log)
    sealed = [*zip(segments, (segment.base_offset for segment in segments[1:]), strict=False)]
    end_offset = min(sealed[-1][1], log.last_stable_offset)
    dirty = [segment for segment, end in sealed if end > first_dirty]
    if config.min_compaction_lag_ms > 0:
        youngest_ms = now_ms - config.min_compaction_lag_ms
        young = next((segment for segment in dirty if segment.max_timestamp[0] > youngest_ms), None)
        if young is not None:
            end_offset = min(end_offset, young.base_offset)
    dirty_bytes = sum(segment.size_bytes for segment in dirty if segment.base_offset < end_offset)
    if end_offset <= first_dirty or not dirty_bytes:
        return None
    to_clean = tuple(pair for pair in sealed if pair[0].base_offset < end_offset)
    ratio = dirty_bytes / sum(segment.size_bytes for segment, _ in to_clean)
    is_overdue = _is_overdue(log, dirty, now_ms)
    if ratio <= config.min_cleanable_dirty_ratio and not is_overdue:
        return None
    return Cleanable(first_dirty, end_offset, to_clean, ratio, is_overdue)


def _is_overdue(log: PartitionLog, dirty: list[Segment], now_ms: int) -> bool:
    longest_ms = max(log.config.max_compaction_lag_ms, log.config.min_compaction_lag_ms)
    if longest_ms >= now_ms:
        return False
    times = [segment.first_timestamp for segment in dirty]
    return any(0 < time < now_ms - longest_ms for time in times)


def _first_dirty_offset(log: PartitionLog) -> int:
    """Return the first offset that no round has cleaned."""
    if log.first_dirty_offset is None:
        try:
            log.first_dirty_offset = checked_file.read(f"{log.path}/{CLEANER_OFFSET_FILE}") or 0
        except checked_file.DamagedFile as error:
            logger.warning("%s: the log is cleaned from its start on", error)
            log.first_dirty_offset = 0
    if not log.log_start_offset <= log.first_dirty_offset <= log.segments[-1].base_offset:
        log.first_dirty_offset = log.log_start_offset  # records were deleted or lost in a crash
    return log.first_dirty_offset


def expect_gaps(log: PartitionLog) -> None:
    """Save that offsets may be missing from now on, unless that is saved already. Without it,
    verification would report missing offsets as damage after a crash in the first round. Any thread
    may call it; it has no effect if the topic was deleted.

    The name of the file is forced to disk with that of the first new segment.

    :raises OSError: when the disk fails
    """
    path = f"{log.path}/{CLEANER_OFFSET_FILE}"
    with log.saving:
        if not log.is_deleted and not os.path.exists(path):
            checked_file.replace(path, log.first_dirty_offset or 0, sync=log.syncs)


def cleaned_up_to(log: PartitionLog, offset: int) -> None:
    """Save that a round has cleaned the log up to ``offset``, exclusive.

    This is not forced to disk: after a power cut some batches are cleaned once more.

    :raises OSError: when the disk fails
    """
    log.first_dirty_offset = offset
    checked_file.replace(f"{log.path}/{CLEANER_OFFSET_FILE}", offset, sync=False)
