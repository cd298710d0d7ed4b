"""Fetching for a share session: reading the logs of its share-partitions, and acquiring what was read.

One budget of records for all partitions of a request; the bytes are divided evenly among those that have something
to acquire, and the partitions take turns at being first. Source: KIP-932; ``docs/behaviour/share-groups.md`` §2.4.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

from headrace.errors import ErrorCode, Refusal
from headrace.log.batch import offset_ranges
from headrace.share.acquisition_locks import AcquiredRecords
from headrace.share.settings import ShareSettings
from headrace.share.share_session import ShareSession

from .share_partitions import LoadedPartition, SharePartitions

_LEAST_READ_BYTES = 64 * 1024


class FetchLimits(NamedTuple):
    """What a ShareFetch asks for, of all its partitions together."""

    max_bytes: int
    max_records: int
    batch_size: int
    record_limit: bool


class Fetched(NamedTuple):
    """What a ShareFetch got of one partition: an error, or whole log batches and what of them was acquired."""

    topic_id: UUID
    partition: int
    error_code: ErrorCode
    records: bytes | memoryview = b""
    acquired: Sequence[AcquiredRecords] = ()


def acquire(
    share: SharePartitions, session: ShareSession, limits: FetchLimits, settings: ShareSettings
) -> list[Fetched]:
    """Acquire for a session's member what there is now. Partitions with nothing to acquire are left out."""
    ready: list[tuple[LoadedPartition, int]] = []
    fetched: list[Fetched] = []
    for topic_id, partition in session.rotated():
        loaded = share.load(session.group_id, topic_id, partition)
        if isinstance(loaded, ErrorCode):
            fetched.append(Fetched(topic_id, partition, loaded))
        elif (offset := _fetch_offset(share, loaded, settings)) is not None:
            ready.append((loaded, offset))
    left = limits.max_records
    for loaded, offset in ready:
        if left <= 0:
            break
        most = limits._replace(max_bytes=limits.max_bytes // len(ready), max_records=left)
        records, acquired = _acquire_from(share, loaded, offset, session.member_id, most, settings)
        if acquired:
            fetched.append(Fetched(loaded.key.topic_id, loaded.key.partition, ErrorCode.NONE, records, acquired))
            left -= sum(run.last_offset - run.first_offset + 1 for run in acquired)
    return fetched


def has_bytes(share: SharePartitions, session: ShareSession, min_bytes: int, settings: ShareSettings) -> bool:
    """Whether the log holds at least ``min_bytes`` for the session to acquire."""
    found = 0
    for topic_id, partition in session.partitions:
        loaded = share.load(session.group_id, topic_id, partition)
        if not isinstance(loaded, ErrorCode) and (offset := _fetch_offset(share, loaded, settings)) is not None:
            data = loaded.log.read(offset, min_bytes)
            if isinstance(data, Refusal) or not data:
                continue
            found += len(data)
            # A read that ends before the log does has left out a batch that would have gone over min_bytes.
            if found >= min_bytes or offset_ranges(data)[0][-1][1] + 1 < loaded.log.end_offset:
                return True
    return False


def wait_keys(share: SharePartitions, session: ShareSession, settings: ShareSettings) -> Iterable[Hashable]:
    """What may give the session something to acquire; see :class:`headrace.broker.waits.Waits`."""
    for topic_id, partition in session.partitions:
        yield ("share", session.group_id, topic_id, partition)
        loaded = share.loaded(session.group_id, topic_id, partition)
        if loaded is None or loaded.partition.fetch_offset(settings) is not None:  # full: new records do not help
            yield ("log", topic_id, partition)


def _fetch_offset(share: SharePartitions, loaded: LoadedPartition, settings: ShareSettings) -> int | None:
    """Where to read the log from; None when nothing may be acquired now."""
    partition, log = loaded.partition, loaded.log
    if partition.start_offset < log.log_start_offset:
        share.apply(loaded, partition.move_start(log.log_start_offset))
    offset = partition.fetch_offset(settings)
    return offset if offset is not None and offset < log.end_offset else None


def _acquire_from(
    share: SharePartitions,
    loaded: LoadedPartition,
    offset: int,
    member_id: str,
    limits: FetchLimits,
    settings: ShareSettings,
) -> tuple[bytes | memoryview, list[AcquiredRecords]]:
    """Read the log at ``offset`` and acquire of that; the log batches that hold what was acquired."""
    broker, log = share.broker, loaded.log
    up_to = None
    if broker.config.group_value(loaded.key.group_id, "share.isolation.level") == "read_committed":
        up_to = log.last_stable_offset
    # No more than the records asked for should take: what is read and not acquired would be read for nothing.
    enough = max(limits.max_records * loaded.record_bytes * 9 // 8, _LEAST_READ_BYTES)
    data = log.read(offset, min(limits.max_bytes, enough), up_to=up_to)
    if isinstance(data, Refusal) or not data:
        return b"", []
    batches, positions = offset_ranges(data)
    loaded.record_bytes = len(data) // (batches[-1][1] - batches[0][0] + 1) + 1
    if batches[0][0] > offset:
        share.apply(loaded, loaded.partition.skip_missing(batches[0][0]))
    now_ms = broker.now_ms()
    acquired = loaded.partition.acquire(
        member_id,
        batches,
        limits.max_records,
        limits.batch_size,
        now_ms,
        settings,
        record_limit=limits.record_limit,
    )
    if not acquired:
        return b"", []
    share.arm(loaded, now_ms + settings.lock_duration_ms)
    first, last = acquired[0].first_offset, acquired[-1].last_offset
    begin, end = 0, len(batches) - 1
    while batches[begin][1] < first:
        begin += 1
    while batches[end][0] > last:
        end -= 1
    return memoryview(data)[positions[begin] : positions[end + 1]], acquired
