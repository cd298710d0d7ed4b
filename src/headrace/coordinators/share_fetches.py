"""Fetch for a share session: read the logs of its share-partitions and acquire the records.

``max_records`` and ``max_bytes`` hold for all partitions of a request together; the bytes are
divided evenly among the partitions with records to acquire. The share-partition from which its
group acquired least recently comes first, so none with records waits longer than a round. Source:
KIP-932; ``docs/behaviour/share-groups.md``, "Acquiring".
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple
from uuid import UUID

from headrace.log.aborted_transactions import AbortedLookup
from headrace.log_lines import LimitedLog
from headrace.protocol.errors import ErrorCode, Refusal, StorageError
from headrace.protocol.file_range import FileRange
from headrace.protocol.record_batch import (
    CorruptBatch,
    headers,
    offset_after,
    offset_ranges,
)
from headrace.share.acquisition_locks import AcquiredRecords
from headrace.share.records import SharePartitionKey, StateUpdate
from headrace.share.settings import FetchLimits, ShareSettings
from headrace.share.share_session import ShareSession
from headrace.share.spans import offset_count

from .share_partitions import LoadedPartition, SharePartitions

logger = LimitedLog("headrace.coordinators")

_LEAST_READ_BYTES = 64 * 1024
_READ_AHEAD_BYTES = 1024 * 1024
"""More records are read when the socket takes them; until then, only the headers of batches."""


class Fetched(NamedTuple):
    """The result of a ShareFetch for one partition: an error, or whole log batches and the
    acquired offsets in them.
    """

    key: SharePartitionKey
    error_code: ErrorCode
    records: bytes | memoryview | FileRange = b""
    acquired: Sequence[AcquiredRecords] = ()


@dataclass(frozen=True, slots=True)
class SessionFetch:
    """A ShareFetch of a session, whose acknowledgements have been applied.

    :ivar may_read: returns whether the member may read a topic; True for an unknown id
    """

    share: SharePartitions
    session: ShareSession
    may_read: Callable[[UUID], bool]

    @property
    def settings(self) -> ShareSettings:
        """The current settings of the group; they may change while the request waits."""
        return self.share.settings(self.session.group_id)

    def is_open(self) -> bool:
        """Return False if the session has ended, as it may while the request waits. Nothing would
        release records that are acquired afterwards.
        """
        return self.share.sessions.is_open(self.session)

    def load(self, key: SharePartitionKey) -> LoadedPartition | ErrorCode:
        """Return a share-partition that the member may read: the first use of a log reads its
        directory.
        """
        if not self.may_read(key.topic_id):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return self.share.load(key)

    def acquire(self, limits: FetchLimits) -> list[Fetched]:
        """Acquire available records for the member. Partitions without any are left out of the
        result.
        """
        settings = self.settings
        ready: list[tuple[LoadedPartition, int]] = []
        fetched: list[Fetched] = []
        for key in self.session.partitions:
            readable = self._find(key, settings)
            if isinstance(readable, ErrorCode):
                fetched.append(Fetched(key, readable))
            elif readable is not None:
                ready.append(readable)
        ready.sort(key=lambda readable: readable[0].turn)
        max_bytes, max_records = limits.max_bytes, limits.max_records
        for position, (loaded, offset) in enumerate(ready):
            # The first batch of a partition may exceed its share, and the end of a batch
            # max_records.
            if max_bytes <= 0 or max_records <= 0:
                break
            share_limits = limits._replace(
                max_bytes=max_bytes // (len(ready) - position), max_records=max_records
            )
            result = self._acquire_from(loaded, offset, share_limits, settings)
            if result is None:
                continue
            if isinstance(result, ErrorCode):
                result = Fetched(loaded.key, result)
            fetched.append(result)
            if result.acquired:
                self.session.acquired_from.add(loaded.key)
                loaded.turn = next(self.share.turns)
            max_bytes -= len(result.records)
            max_records -= offset_count(result.acquired)
        return fetched

    def has_bytes(self, min_bytes: int) -> bool:
        """Return True if the logs hold at least ``min_bytes`` for the session to acquire, or if one
        byte is enough.
        """
        if min_bytes <= 1:
            return True
        settings, bytes_ready = self.settings, 0
        for key in self.session.partitions:
            ready = self._find(key, settings)
            if ready is None or isinstance(ready, ErrorCode):
                continue
            loaded, offset = ready
            end_offset = _end_offset(loaded, settings)
            data = loaded.log.find(offset, min_bytes, up_to=end_offset)
            if isinstance(data, Refusal) or not data:
                continue
            bytes_ready += len(data)
            # If the read stopped before the end of the log, the next batch would exceed min_bytes.
            # A damaged batch is an error that is to be answered now.
            if bytes_ready >= min_bytes or offset_after(data, otherwise=0) < end_offset:
                return True
        return False

    def wait_keys(self) -> Iterable[Hashable]:
        """Yield the keys of :class:`headrace.topics.long_polls.LongPolls` to wait on until the
        session may acquire records.
        """
        settings = self.settings
        for key in self.session.partitions:
            yield ("share", *key)
            loaded = self.share.loaded(key)
            # no new records can be acquired while max_record_locks are in flight
            if loaded is None or loaded.partition.fetch_offset(settings) is not None:
                yield ("log", key.topic_id, key.partition)

    def _find(
        self, key: SharePartitionKey, settings: ShareSettings
    ) -> tuple[LoadedPartition, int] | ErrorCode | None:
        """Return a share-partition and the offset to read its log from; None if nothing can be
        acquired now.
        """
        loaded = self.load(key)
        if isinstance(loaded, ErrorCode):
            return loaded
        if loaded.log.is_offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if loaded.partition.start_offset < loaded.log.log_start_offset:
            code = self._persist(loaded, loaded.partition.move_start(loaded.log.log_start_offset))
            if code is not None:
                return code
        offset = loaded.partition.fetch_offset(settings)
        if offset is None or offset >= _end_offset(loaded, settings):
            return None
        return loaded, offset

    def _persist(self, loaded: LoadedPartition, update: StateUpdate | None) -> ErrorCode | None:
        """Persist an update; return the error, None for success."""
        try:
            refusal = self.share.persist(loaded, update)
        except StorageError:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return None if refusal is None else refusal.code

    def _acquire_from(
        self,
        loaded: LoadedPartition,
        offset: int,
        limits: FetchLimits,
        settings: ShareSettings,
    ) -> Fetched | ErrorCode | None:
        """Read the log from ``offset``, acquire records, and return the log batches with them; None
        if there are none.
        """
        partition, log = loaded.partition, loaded.log
        end_offset = _end_offset(loaded, settings)
        # Read no more than the wanted records are likely to take.
        enough = max(limits.max_records * loaded.record_bytes * 9 // 8, _LEAST_READ_BYTES)
        while True:
            data = log.find(
                offset,
                min(limits.max_bytes, enough),
                up_to=end_offset,
                held_bytes=_READ_AHEAD_BYTES,
            )
            if isinstance(data, Refusal):
                return data.code
            if not data:
                return None
            try:
                batches, positions = _undamaged(data, log.end_offset)
            except OSError as error:
                logger.error(log.path, "cannot read %s: %s", log.path, error)
                return ErrorCode.KAFKA_STORAGE_ERROR
            if not batches:
                logger.error(
                    log.path, "the batch with offset %d of %s is damaged", offset, log.path
                )
                return ErrorCode.CORRUPT_MESSAGE
            loaded.record_bytes = positions[-1] // (batches[-1][1] - batches[0][0] + 1) + 1
            if batches[0][0] > offset:
                code = self._persist(loaded, partition.skip_missing(batches[0][0]))
                if code is not None:
                    return code
            aborted: list[tuple[int, int]] = []
            if settings.read_committed and (
                transactions := log.aborted.overlapping(batches[0][0], batches[-1][1] + 1)
            ):
                lookup = AbortedLookup(transactions)
                undamaged = _part(data, 0, positions[-1])
                aborted = [
                    (header.base_offset, header.last_offset)
                    for _, header in headers(undamaged)
                    if header in lookup
                ]
            now_ms = self.share.clock.now_ms()
            acquired = partition.acquire(
                self.session.member_id, batches, limits, now_ms, settings, aborted
            )
            if acquired:
                break
            # all records read were aborted: continue after them
            following = partition.fetch_offset(settings) if aborted else None
            if following is None or not offset < following < end_offset:
                return None
            offset = following
        self.share.schedule(loaded, now_ms + settings.lock_duration_ms)
        begin = bisect_left(batches, acquired[0].first_offset, key=itemgetter(1))
        end = bisect_right(batches, acquired[-1].last_offset, key=itemgetter(0))
        records = _part(data, positions[begin], positions[end])
        return Fetched(loaded.key, ErrorCode.NONE, records, acquired)


def _end_offset(loaded: LoadedPartition, settings: ShareSettings) -> int:
    """Return the offset, exclusive, up to which the group may read the log."""
    return loaded.log.last_stable_offset if settings.read_committed else loaded.log.end_offset


def _part(data: bytes | FileRange, start: int, end: int) -> memoryview | FileRange:
    return data.part(start, end) if isinstance(data, FileRange) else memoryview(data)[start:end]


def _undamaged(data: bytes | FileRange, end_offset: int) -> tuple[list[tuple[int, int]], list[int]]:
    """Return the offset ranges of the batches before the first damaged one, and their positions,
    see :func:`headrace.protocol.record_batch.offset_ranges`.

    :param end_offset: of the log: a batch that goes beyond it is damaged
    :raises OSError: when the log cannot be read
    """
    in_memory = data.data if isinstance(data, FileRange) else data
    if in_memory is not None:
        with suppress(CorruptBatch):
            ranges, positions = offset_ranges(in_memory)
            # Damage may have given a batch impossible offsets: then look for the first such batch.
            if ranges and max(ranges)[1] < end_offset and ranges[-1][0] <= ranges[-1][1]:
                return ranges, positions
    ranges, positions = [], [0]
    following = 0
    with suppress(CorruptBatch):
        for position, header in headers(data):
            end = position + header.size_bytes
            is_in_order = following <= header.base_offset <= header.last_offset < end_offset
            if not is_in_order:
                break
            ranges.append((header.base_offset, header.last_offset))
            positions.append(end)
            following = header.last_offset + 1
    return ranges, positions
