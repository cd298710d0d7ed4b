"""The log of one partition: append, read, search by timestamp, delete.

All methods but :meth:`PartitionLog.flush`, :meth:`PartitionLog.save_log_start` and
:meth:`PartitionLog.take_offline` are called from one thread. The directory is not read before the
log is first used, and nothing is created before the first append.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from headrace.log.aborted_transactions import AbortedTransactions
from headrace.log.data_directory import DataDirectory
from headrace.log.files import DIRECTORY_MODE, fsync_path
from headrace.log.log_config import LogConfig
from headrace.log.producer_state import ProducerState
from headrace.log.recovery import CorruptLog
from headrace.log.segment import SUFFIXES, Segment, TornTailError, scan
from headrace.log.segment_list import SegmentList, index_of
from headrace.log.validation import check_client_batch
from headrace.log_lines import LimitedLog, get_logger
from headrace.protocol.errors import ErrorCode, Refusal
from headrace.protocol.file_range import FileRange
from headrace.protocol.record_batch import (
    LENGTH_OVERHEAD,
    NO_PRODUCER_ID,
    OPEN_ANY,
    BatchHeader,
    Marker,
    Opening,
    end_transaction_marker,
    header_at,
    place,
)

from . import aborted_transactions, checked_file, partition_metadata, recovery

logger = get_logger("headrace.log")
limited = LimitedLog("headrace.log")

_STAGING_ATTEMPTS = 3
"""The times that a large batch is written in pieces. Then it is written at once."""

LEADER_EPOCH = 0
"""The only leader epoch, as there is only one node."""


class Appended(NamedTuple):
    """The result of an append; offsets are inclusive.

    :ivar log_append_time_ms: -1 for CreateTime; for a duplicate its largest timestamp
    :ivar duplicate: True if the batch was in the log already, at these offsets
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool = False


class FoundBatch(NamedTuple):
    """A whole batch with the right checksum, and the file that has it."""

    path: str
    header: BatchHeader
    data: memoryview


class PartitionLog:
    """Batches in segment files, from ``log_start_offset`` up to ``end_offset``, exclusive.

    :param partitions: the number of partitions of the topic, to be noted in a new directory
    :ivar name: the name of the log's directory
    :ivar path: its path
    :ivar config: the topic's configuration; replaced when it changes
    :ivar syncs: True if files are forced to disk
    :ivar is_loaded: True if the log was used since the start. Otherwise its first use reads the
        disk, and may have to recover
    :ivar is_deleted: True if the topic was deleted
    :ivar saving: held while a thread writes a small file of the log, unless the topic was deleted.
        The deletion waits for it, as a new log may have the same path
    :ivar first_dirty_offset: first offset that no round of compaction has cleaned; None until it is
        read from disk
    :ivar is_uncleanable: True if compaction skips this log until the next start
    """

    def __init__(
        self,
        directory: DataDirectory,
        topic: str,
        topic_id: uuid.UUID,
        partition: int,
        config: LogConfig,
        *,
        partitions: int = 0,
    ) -> None:
        self._partitions = partitions
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.config = config
        self.name = f"{topic}-{partition}"
        self.path = f"{directory.path}/{self.name}"
        self.syncs = directory.sync
        self.is_deleted = False
        self._directory = directory
        self.is_loaded = False
        self._full = False
        self._offline: Refusal | None = None
        self._forcing = threading.Lock()
        self.saving = threading.Lock()
        self._saved_log_start = 0
        """The largest offset given to :meth:`save_log_start`."""
        self._forced_snapshot = -1
        """The offset of the last snapshot of producers that was forced to disk."""
        self._directory_is_durable = False
        self._segments = SegmentList()
        self._producers = ProducerState()
        self._aborted = AbortedTransactions()
        self._log_start_offset = 0
        self._end_offset = 0
        self._flushed_offset = 0
        self._staged: memoryview | None = None
        """The batch that :meth:`stage` writes or has written."""
        self._staged_checksum = 0
        self.first_dirty_offset: int | None = None
        self.is_uncleanable = False

    # ------------------------------------------------------------------ state

    @property
    def log_start_offset(self) -> int:
        """First offset that can be read."""
        if not self.is_loaded:
            self.load()
        return self._log_start_offset

    @property
    def end_offset(self) -> int:
        """Offset of the next record. On one node this is the high watermark too."""
        if not self.is_loaded:
            self.load()
        return self._end_offset

    @property
    def last_stable_offset(self) -> int:
        """End offset for read_committed readers: the first record of the oldest open transaction,
        or the end.
        """
        end = self.end_offset
        first_open = self._producers.first_open_offset
        return end if first_open is None else max(first_open, self._log_start_offset)

    @property
    def producers(self) -> ProducerState:
        """The state of the producers that have written here."""
        self.load()
        return self._producers

    @property
    def aborted(self) -> AbortedTransactions:
        """The aborted transactions, which read_committed readers skip."""
        self.load()
        return self._aborted

    @property
    def unflushed_records(self) -> int:
        """Number of offsets since the last :meth:`flush` (flush.messages counts these). This does
        not load the log.
        """
        return self._end_offset - self._flushed_offset

    @property
    def is_offline(self) -> bool:
        """True if the disk has failed so that only a restart can verify the log. Reads and writes
        are refused with KAFKA_STORAGE_ERROR.
        """
        return self._offline is not None

    @property
    def segments(self) -> SegmentList:
        """All segments, oldest first; the last one is appended to."""
        self.load()
        return self._segments

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """Return ``(epoch, end offset)`` of a leader epoch; (-1, -1) for an unknown epoch."""
        return (LEADER_EPOCH, self.end_offset) if leader_epoch == LEADER_EPOCH else (-1, -1)

    def size_bytes(self) -> int:
        """Return the size of all segments' batches."""
        return sum(segment.size_bytes for segment in self.segments)

    def load(self) -> None:
        """Read the directory, if this is the first use since the start. The log may go offline.

        :raises OSError: when the disk fails
        """
        if self.is_loaded:
            return
        self._directory.check_held()
        self.announce_change()
        if os.path.isdir(self.path):
            contradiction = partition_metadata.contradiction(self.path, self.topic_id)
            if contradiction is None:
                self._load_directory()
            elif self.config.internal:
                raise CorruptLog.doubtful(self.path, contradiction)
            else:
                self._directory.set_aside(self.name, contradiction)
                self._directory.forget(self.topic, [self.partition])
        self.is_loaded = True
        if self._offline is None:
            self._directory.unverified.discard(self.name)

    def _load_directory(self) -> None:
        partition_metadata.complete(self.path, self.topic_id, self._partitions)
        distrusted = recovery.is_marked_offline(self.path)
        crashed = distrusted or self.name in self._directory.unverified
        loaded = recovery.load(
            self.path,
            self._directory.files,
            crashed=crashed,
            # After a failed fsync a power cut leaves holes in what was never on disk.
            refuse_damage=self.config.internal and not distrusted,
        )
        self._segments, self._producers = SegmentList(loaded.segments), loaded.producers
        self._aborted = loaded.aborted
        self._log_start_offset, self._end_offset = loaded.log_start_offset, loaded.end_offset
        self._flushed_offset = loaded.flushed_offset
        if distrusted:
            self._restore()

    def _restore(self) -> None:
        """Bring a log back online: force the batches that recovery has kept to disk. If that fails,
        take it offline again.
        """
        try:
            recovery.rewrite(self.path, self._segments, self._flushed_offset)
        except OSError as error:
            self.take_offline(error)
            return
        self._flushed_offset = self._end_offset
        logger.warning(
            "%s was offline: its records up to offset %d are verified and on disk",
            self.path,
            self._end_offset,
        )

    # ------------------------------------------------------------------ appending

    def append(
        self,
        data: bytes | memoryview,
        now_ms: int,
        header: BatchHeader | None = None,
        *,
        from_client: bool = True,
        opening: Opening | None = OPEN_ANY,
    ) -> Appended | Refusal:
        """Check one batch, assign its offsets, and write it.

        :param from_client: check everything, and the producer's sequence; the broker's own batches
            are trusted
        :param header: the result of :func:`~headrace.log.validation.single_batch` for ``data``, if
            it is known
        :param opening: see :func:`~headrace.log.validation.check_client_batch`
        :return: the batch's place in the log; or a refusal of
            :func:`~headrace.log.validation.check_client_batch` or
            :meth:`~headrace.log.producer_state.ProducerState.check`; or KAFKA_STORAGE_ERROR when
            the write fails, which leaves the log unchanged, or when the log is offline
        :raises OpenElsewhere: as :func:`~headrace.log.validation.check_client_batch`
        """
        if self.is_deleted:
            return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic was deleted")
        view = data if isinstance(data, memoryview) else memoryview(data)
        try:
            if not self.is_loaded:
                self.load()
            if self._offline is not None:
                return self._offline
            if not from_client:
                # A marker that was refused would leave its transaction open for ever.
                return self._append(view, header_at(view), now_ms)
            checksum = self._staged_checksum if view is self._staged else None
            checked = check_client_batch(view, self.config, now_ms, header, opening, checksum)
            if isinstance(checked, Refusal):
                return checked
            header = checked
            if header.producer_id != NO_PRODUCER_ID:
                verdict = self._producers.check(header)
                if isinstance(verdict, Refusal):
                    return verdict
                if verdict is not None:
                    # A retry after a lost answer gets the offsets of the first attempt.
                    return Appended(*verdict[2:], self._log_start_offset, duplicate=True)
            return self._append(view, header, now_ms)
        except OSError as error:
            return self._write_failed(error)

    def _write_failed(self, error: OSError) -> Refusal:
        """Return the refusal for a write that the disk refused; log the first of a series."""
        if self._offline is not None or isinstance(error, TornTailError):
            return self.take_offline(error)
        if not self._full:
            logger.error(
                "Cannot write to %s, refusing records until it can be written again: %s",
                self.path,
                error,
            )
        self._full = True
        return Refusal(ErrorCode.KAFKA_STORAGE_ERROR, f"Cannot write to the log: {error.strerror}")

    def _append(self, view: memoryview, header: BatchHeader, now_ms: int) -> Appended:
        config = self.config
        append_time = now_ms if config.message_timestamp_type == "LogAppendTime" else -1
        base_offset = self._end_offset
        last_offset = base_offset + header.last_offset_delta
        size = header.batch_length + LENGTH_OVERHEAD
        header, buffers = place(view, header, base_offset, append_time)
        segment = self._segment_for(header, now_ms)
        position = segment.size_bytes
        # Only the write may fail, and it leaves the segment as it was: memory follows the file.
        if view is self._staged and segment.is_staged:
            segment.append(buffers[:1], size, staged_bytes=len(buffers[1]))
        else:
            segment.append(buffers, size)
        if self._full:
            logger.warning("%s can be written again", self.path)
            self._full = False
        segment.note(position, header, last_offset, config.index_interval_bytes)
        if header.producer_id != NO_PRODUCER_ID:
            self._producers.replay(header, base_offset)
        self._end_offset = last_offset + 1
        return Appended(base_offset, last_offset, append_time, self._log_start_offset)

    @property
    def is_staging(self) -> bool:
        """True while a client's large batch is written: those of other clients wait, so that it is
        not written again and again.
        """
        return self._staged is not None

    def stage(
        self, batch: memoryview, now_ms: int, header: BatchHeader, checksum: int
    ) -> Generator[None, None, Refusal | None]:
        """Write a large batch at the end of the log without adding it, and yield between pieces;
        :meth:`append` then adds it at once. :meth:`unstage` must follow.

        A batch that would be refused is not written. Neither does it hold up the broker's own
        batches, such as markers: they take its place, and it is written again.

        :param checksum: the CRC-32C of the batch's contents
        :return: KAFKA_STORAGE_ERROR when the disk fails; else None
        """
        self._staged, self._staged_checksum = batch, checksum
        self.load()
        for _ in range(_STAGING_ATTEMPTS):
            if self.is_deleted or self._offline is not None:
                return None
            checked = check_client_batch(batch, self.config, now_ms, header, None, checksum)
            if isinstance(checked, Refusal) or self._producers.check(header) is not None:
                return None
            by_client = self.config.message_timestamp_type != "LogAppendTime"
            latest_ms = header.max_timestamp if by_client else now_ms
            try:
                segment = self._segment_for(header._replace(max_timestamp=latest_ms), now_ms)
                yield from segment.stage(batch[: header.size_bytes])
            except OSError as error:
                return self._write_failed(error)
            if segment.is_staged:
                return None
        return None

    def unstage(self) -> None:
        """Cut off a batch that was written by :meth:`stage` and not added."""
        self._staged = None
        active = self._segments.active
        if active is not None:
            try:
                active.discard_staged()
            except TornTailError as error:
                self.take_offline(error)

    def append_marker(
        self, producer_id: int, producer_epoch: int, marker: Marker, now_ms: int
    ) -> Appended | Refusal:
        """Append a control batch that ends a producer's transaction in this log: commit or abort
        (KIP-98).

        :return: as :meth:`append`; after a refusal the transaction is still open
        """
        data = end_transaction_marker(producer_id, producer_epoch, marker, now_ms)
        appended = self.append(data, now_ms, from_client=False)
        if isinstance(appended, Refusal):
            return appended
        header = header_at(data)._replace(base_offset=appended.base_offset)
        aborted = self._producers.complete(header, marker)
        if aborted is not None:
            segment = self._segments[-1]
            if not self._aborted.add(aborted, segment.path(aborted_transactions.SUFFIX)):
                segment.lacks_entries = True
        return appended

    def _segment_for(self, header: BatchHeader, now_ms: int) -> Segment:
        """Return the active segment, or a new one where Kafka would roll for a batch."""
        if not self._segments:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self.path, DIRECTORY_MODE)  # not the data directory, which must be there
            self._directory.created(self.topic, self.topic_id, self.partition)
            partition_metadata.write(self.path, self.topic_id, self._partitions)
            return self._add_segment(now_ms)
        active = self._segments[-1]
        full = active.must_roll_for(header, self._end_offset, now_ms, self.config)
        return self.roll(now_ms) if full else active

    def _add_segment(self, now_ms: int) -> Segment:
        segment = Segment(self._directory.files, self.path, self._end_offset, 0, now_ms)
        segment.open()
        self._segments.add(segment)
        return segment

    def roll(self, now_ms: int) -> Segment:
        """Begin a new segment, unless the active one is empty. The full one is forced to disk in
        the background.

        :raises OSError: when no file can be created, or the log is offline; the log stays as it was
        """
        self._check_online()
        full = self._segments[-1]
        if not full.size_bytes:
            return full
        full.discard_staged()
        full.save_indexes()
        segment = self._add_segment(now_ms)
        point, snapshot = self._end_offset, self._producers.snapshot()

        def make_durable() -> None:
            # Batches before a snapshot are not verified after a crash: they must be on disk first.
            if self.syncs:
                try:
                    self._force((full,), SUFFIXES)
                except OSError:
                    return  # the log went offline and logged why
            self._save_producers(point, snapshot)

        self._directory.in_background(make_durable)
        return segment

    # ------------------------------------------------------------------ reading

    def read(self, offset: int, max_bytes: int) -> bytes | Refusal:
        """Return whole batches of one segment as bytes; see :meth:`find`."""
        batches = self.find(offset, max_bytes, held_bytes=None)
        return bytes(batches) if isinstance(batches, FileRange) else batches

    def find(
        self,
        offset: int,
        max_bytes: int,
        *,
        minimum_one: bool = True,
        up_to: int | None = None,
        held_bytes: int | None = 0,
    ) -> bytes | FileRange | Refusal:
        """Return whole batches of one segment, from the one with ``offset`` on, as many as fit.

        :param max_bytes: limit on their size
        :param minimum_one: return the first batch even if it is larger than ``max_bytes``
        :param up_to: leave out batches that end at or after this offset, for example the last
            stable offset
        :param held_bytes: larger results are not read yet: they are a file range without data.
            Smaller ones are a file range with data, or bytes; None for bytes in any case
        :return: bytes as they are on disk, empty at the end of the log; or OFFSET_OUT_OF_RANGE
            unless ``log_start_offset <= offset <= end_offset``, KAFKA_STORAGE_ERROR when the disk
            fails or the log is offline
        """
        end = self.end_offset
        if self._offline is not None:
            return self._offline
        if not self._log_start_offset <= offset <= end:
            return Refusal(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name} has the offsets {self._log_start_offset} to {end}, not {offset}",
            )
        if offset == end or (up_to is not None and offset >= up_to):
            return b""
        try:
            segment, position = self._segments.find(offset)
            limit = segment.size_bytes
            if up_to is not None and up_to < end:
                limit = segment.locate(up_to)
            batches = segment.read_batches(
                position, limit, max_bytes, minimum_one=minimum_one, held_bytes=held_bytes
            )
            if batches and not segment.reads_fail:
                end_offset = self._segments.remember(segment, position + len(batches), end)
                if isinstance(batches, FileRange):
                    batches.end_offset = end_offset
            return batches
        except OSError as error:
            limited.error(self.path, "Cannot read offset %d of %s: %s", offset, self.path, error)
            return Refusal(ErrorCode.KAFKA_STORAGE_ERROR, f"Cannot read the log: {error.strerror}")

    def live_segments(self) -> list[Segment]:
        """Return the segments that have offsets from the log start offset on."""
        segments = self.segments
        if self._log_start_offset == self._end_offset:
            return []
        return segments[index_of(segments, self._log_start_offset) :]

    def checked_batches(self) -> Iterator[FoundBatch]:
        """Yield all batches, beginning with the one that has the log start offset. Coordinators
        load their state with this.

        :raises CorruptLog: where the next batch is damaged or missing. Damage that a crash has left
            at the end was cut off when the log was loaded
        """
        start = self.log_start_offset
        expected: int | None = None
        for segment in self.live_segments():
            path, fd = segment.path(".log"), segment.open()
            size_bytes = os.fstat(fd).st_size
            end = 0 if segment.base_offset >= start else segment.indexed_position(start)
            for position, header, data in scan(fd, end, size_bytes, checked=True):
                if (
                    expected is not None
                    and header.base_offset != expected
                    and not self.config.is_compacted
                ):
                    raise CorruptLog.gap(path, expected, header.base_offset)
                expected = header.last_offset + 1
                end = position + header.size_bytes
                if header.last_offset >= start:
                    yield FoundBatch(path, header, data)
            if end != size_bytes:
                raise CorruptLog.damage(
                    path,
                    end,
                    expected or start,
                    "this is not a whole batch with the right checksum",
                )

    # ------------------------------------------------------------------ deleting

    def new_log_start(self, before_offset: int) -> int | Refusal:
        """Return the log start offset for the deletion of the records before an offset. This
        changes nothing.

        :param before_offset: -1 stands for the end of the log
        :return: the offset; or OFFSET_OUT_OF_RANGE beyond the end, KAFKA_STORAGE_ERROR when the log
            is offline
        """
        end = self.end_offset
        if self._offline is not None:
            return self._offline
        target = end if before_offset == -1 else before_offset
        if not 0 <= target <= end:
            message = f"Cannot delete records before {target} of {self.name}, which ends at {end}"
            return Refusal(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        return target

    def save_log_start(self, offset: int, *, sync: bool = True) -> Refusal | None:
        """Write a log start offset to disk, unless the log starts there already, or a larger one
        was written. This blocks; any thread may call it. :meth:`advance_log_start` follows.

        :param sync: force it to disk; otherwise a power cut may bring deleted records back
        :return: UNKNOWN_TOPIC_OR_PARTITION if the topic was deleted, KAFKA_STORAGE_ERROR when the
            disk fails or the log is offline; else None
        """
        with self.saving:
            if self.is_deleted:
                return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic was deleted")
            least = max(self._saved_log_start, self._log_start_offset)
            if self._offline is not None or offset <= least:
                return self._offline
            try:
                path = f"{self.path}/{recovery.LOG_START_FILE}"
                checked_file.replace(path, offset, sync=sync and self.syncs)
            except OSError as error:
                return Refusal(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"Cannot write the log start offset: {error.strerror}",
                )
            self._saved_log_start = offset
        return None

    def advance_log_start(self, offset: int) -> int:
        """Move the log start offset up to one that was saved; return the log start offset.
        Retention deletes the files.
        """
        if not self.is_deleted:
            self._log_start_offset = max(self._log_start_offset, offset)
        return self._log_start_offset

    def expire_producers(self, now_ms: int) -> None:
        """Forget the producers that have been idle for ``producer.id.expiration.ms``. A log that is
        not loaded has none in memory.
        """
        self._producers.expire(now_ms, self.config.producer_id_expiration_ms)

    def _save_producers(self, offset: int, snapshot: bytes) -> None:
        """Write a snapshot of producers, unless this log has done so: the one of a clean stop may
        not be on disk. This blocks; any thread may call it.

        :raises OSError: when the disk fails
        """
        with self.saving:
            path = recovery.snapshot_path(self.path, offset)
            if self.is_deleted or (offset == self._forced_snapshot and os.path.exists(path)):
                return
            recovery.write_snapshot(self.path, offset, snapshot, sync=self.syncs)
            self._forced_snapshot = offset

    def retention_steps(self, now_ms: int) -> Iterator[Callable[[], None]]:
        """Delete old segments.

        Yield functions that wait for the disk. Run each before the next step, in any thread; the
        log can be used meanwhile.

        :raises OSError: when a file cannot be renamed or created; segments deleted before that stay
            deleted
        """
        if not self.segments or self.is_offline:
            return
        segments = list(self._segments)
        old = segments_to_delete(
            segments, self.config, self._log_start_offset, self._end_offset, now_ms
        )
        if not old:
            return
        self.announce_change()
        if old == len(segments):
            self.roll(now_ms)
        if old + 1 == len(self._segments) and not self._segments[-1].size_bytes:
            # No batch will have the producers any more.
            yield partial(self._save_producers, self._end_offset, self._producers.snapshot())
        count = 0
        try:
            for segment in segments[:old]:
                is_oldest = len(self._segments) > 1 and self._segments[0] is segment
                if not is_oldest or self.is_offline:
                    break  # it was deleted or replaced meanwhile
                self.announce_change()
                self._log_start_offset = max(self._log_start_offset, self._segments[1].base_offset)
                delete_files = self._segments.retire_oldest()
                count += 1
                yield delete_files
        finally:
            if count:
                self._aborted.drop(0, self._log_start_offset)
                limited.info(
                    self.path,
                    "Deleted %d old segments of %s, which now starts at offset %d",
                    count,
                    self.path,
                    self._log_start_offset,
                )

    def cut(self) -> tuple[PartitionLog, int, int, int, int]:
        """Return the log with its state now: log start offset, end offset, and base offset and size
        of the active segment. These two are -1 and 0 without segments. The log must be loaded.

        A snapshot calls this for every log in one go: it touches no disk.
        """
        active = self._segments.active
        place = (-1, 0) if active is None else (active.base_offset, active.size_bytes)
        return self, self._log_start_offset, self._end_offset, *place

    def announce_change(self) -> None:
        """Announce that files are about to be deleted or replaced, so that a snapshot that is being
        taken keeps them.
        """
        self._directory.changes(self.path)

    # ------------------------------------------------------------------ durability, closing

    def flush(self) -> None:
        """Force everything appended so far to disk. This blocks; any thread may call it.

        :raises OSError: when the disk fails, which takes the log offline, or when the log is
            offline
        """
        # What is appended during the fsync may have missed it: the end is read before.
        end, segments = self._end_offset, list(self._segments)
        self._check_online()
        if end == self._flushed_offset:
            return
        unflushed = segments[index_of(segments, self._flushed_offset) :]
        self._force(unflushed, (".log", aborted_transactions.SUFFIX))
        self._flushed_offset = max(self._flushed_offset, end)

    def _force(self, segments: Sequence[Segment], suffixes: Sequence[str]) -> None:
        """Force files of segments to disk, one thread at a time.

        The kernel reports an error once: the next fsync succeeds even if the data was lost.
        """
        with self._forcing:
            self._check_online()
            try:
                for segment in segments:
                    segment.fsync(suffixes)
                if not self._directory_is_durable:  # a file whose name is lost is lost
                    fsync_path(f"{self.path}/{partition_metadata.METADATA_FILE}")
                    self._directory.make_durable()
                fsync_path(self.path, must_exist=True)
                self._directory_is_durable = True
                for active in segments[-1:]:
                    path = active.path(".log")
                    if not os.path.exists(path) and active in self._segments:
                        # Neither retention nor compaction has deleted it.
                        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            except OSError as error:
                if self.is_deleted:
                    return
                # The kernel may drop the pages that it could not write: a retry proves nothing.
                self.take_offline(error)
                recovery.force_offline_mark(self.path)
                raise

    def _check_online(self) -> None:
        if self._offline is not None:
            raise OSError(errno.EIO, self._offline.message, self.path)

    def take_offline(self, error: OSError, *, is_logged: bool = True) -> Refusal:
        """Refuse reads and writes until a restart has verified the log. Any thread may call it.

        :param error: the disk's error
        :param is_logged: write a log line
        :return: the refusal
        """
        if self._offline is not None:
            return self._offline
        self._offline = offline = Refusal(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"{self.name} is offline: {error.strerror}",
        )
        self.is_uncleanable = True
        recovery.mark_offline(self.path)
        self._directory.unverified.add(self.name)
        if self._directory.on_offline is not None:
            self._directory.on_offline(self.topic_id, self.partition)
        if is_logged:
            logger.error(
                "Took %s offline, as its last records may not be on disk: %s. Check the disk and "
                "restart the broker, which verifies them; until then reads and writes are refused",
                self.path,
                error,
            )
        return offline

    def check_files(self) -> None:
        """Take the log offline if its active segment was deleted by somebody else."""
        active = self._segments.active
        if active is not None and active.fd >= 0 and not os.fstat(active.fd).st_nlink:
            path = active.path(".log")
            self.take_offline(FileNotFoundError(errno.ENOENT, f"{path} was deleted", path))

    def lose(self, reason: str) -> None:
        """Refuse reads and writes, as the data directory is lost. Nothing is written any more."""
        self._offline = Refusal(ErrorCode.KAFKA_STORAGE_ERROR, reason)
        self.is_uncleanable = True

    def close(self) -> None:
        """Save the indexes and the snapshot of producers, which make the next start quick, and
        close the files.
        """
        if self.is_offline:
            for segment in self._segments:
                segment.abandon()
            return
        for segment in self._segments:
            segment.release()
        if self._segments:
            try:
                if not os.path.exists(recovery.snapshot_path(self.path, self._end_offset)):
                    recovery.write_snapshot(
                        self.path, self._end_offset, self._producers.snapshot(), sync=False
                    )
            except OSError as error:
                logger.warning(
                    "Could not write the snapshot of %s, the next start reads the log instead: %s",
                    self.path,
                    error,
                )

    def delete(self) -> None:
        """Close the files and refuse later appends. The caller removes the directory."""
        self.announce_change()
        with self.saving:
            self.is_deleted = True
        self._offline = None
        for segment in self._segments:
            segment.abandon()
        self._segments, self.is_loaded = SegmentList(), True
        self._log_start_offset = self._end_offset = self._flushed_offset = 0


def segments_to_delete(
    segments: Sequence[Segment],
    config: LogConfig,
    log_start_offset: int,
    end_offset: int,
    now_ms: int,
) -> int:
    """Return the number of segments that retention deletes, counted from the oldest.

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
