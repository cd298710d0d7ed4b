"""Load a log from its directory. After a crash, verify all batches that may not be on disk.

A snapshot of the producers is written when a segment is full, after that segment was forced to
disk, and at a clean stop. So the newest snapshot is the recovery point too: batches before it need
no verification. Batches after it are replayed, which also finds the transactions that were aborted
since; see :mod:`headrace.log.aborted_transactions` for the earlier ones.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from headrace.log.aborted_transactions import AbortedTransaction, AbortedTransactions
from headrace.log.damage import next_batch
from headrace.log.files import (
    DAMAGED_SUFFIX,
    TEMPORARY_SUFFIX,
    fsync_path,
    link_aside,
    opened,
    private,
    read_file,
    remove_file,
    replace_file,
)
from headrace.log.producer_state import ProducerState
from headrace.log.segment import OpenFiles, Segment, scan
from headrace.log.segment_list import index_of
from headrace.log_lines import get_logger
from headrace.protocol.record_batch import (
    BatchHeader,
    CorruptBatch,
    Marker,
    has_right_crc,
    marker_in,
)

from . import aborted_transactions, checked_file, checksums, partition_metadata, swap

logger = get_logger("headrace.log")

LOG_START_FILE = "log-start-offset"
"""The log start offset that DeleteRecords asked for."""
OFFLINE_FILE = "offline"
_KEPT = re.compile(r"[0-9]{20}\.log\.damaged(?:-[0-9]+)?")
SNAPSHOTS_KEPT = 2


class CorruptLog(RuntimeError):
    """Damage in a log that must be whole.

    The message names the file and the offset, and says what can be done.
    """

    @classmethod
    def damage(cls, path: str, position: int, offset: int, problem: str) -> CorruptLog:
        """Return the error for a batch, with ``offset`` and at ``position`` of a file, that cannot
        be read because of ``problem``.
        """
        return cls(
            f"{path} is damaged at offset {offset}: {problem}. Restore the file from a backup; "
            f"or give up what it holds from there on: truncate -s {position} {path} and remove "
            "the later .log files beside it, if there are any"
        )

    @classmethod
    def gap(cls, path: str, expected: int, offset: int) -> CorruptLog:
        """Return the error for a file that begins, or continues, with ``offset`` instead of
        ``expected``.
        """
        return cls(
            f"{path} has offset {offset} where {expected} should come: records are missing. "
            "Restore the files beside it from a backup; or remove this one and the later ones, "
            "and give up what they hold"
        )

    @classmethod
    def doubtful(cls, directory: str, contradiction: str) -> CorruptLog:
        """Return the error for a directory of an internal topic that may belong to another one."""
        return cls(
            f"{directory} may not belong to the topic of its name: {contradiction}. If it does, "
            f"remove {directory}/{partition_metadata.METADATA_FILE}, which is written again; if it "
            f"does not, rename the directory to {directory}.old-stray"
        )


class LoadedLog(NamedTuple):
    """A log that was loaded from its directory.

    :ivar segments: the segments, oldest first
    :ivar producers: the state of producers at the end of the log
    :ivar aborted: the aborted transactions
    :ivar end_offset: offset after the last record
    :ivar flushed_offset: offset, exclusive, up to which the files are known to be on disk
    """

    segments: list[Segment]
    producers: ProducerState
    aborted: AbortedTransactions
    log_start_offset: int
    end_offset: int
    flushed_offset: int


def load(directory: str, files: OpenFiles, *, crashed: bool, refuse_damage: bool) -> LoadedLog:
    """Load a log from its directory. A log with a damaged batch ends before it. What is behind is
    kept in files of other names (:func:`kept_files`), except a tail that a crash has torn.

    :param crashed: the broker did not stop cleanly since it last had this log open: cut a torn tail
    :param refuse_damage: do not cut a damaged batch that valid ones follow, as a crash tears only
        the tail
    :raises CorruptLog: for such a batch
    :raises OSError: when the disk fails
    """
    swap.recover(directory)
    loaded = _load_segments(directory, files, crashed=crashed, refuse_damage=refuse_damage)
    start = _read_log_start(directory)
    if start > loaded.end_offset:
        logger.warning(
            "%s ends before its log start offset %d: it begins again there without records",
            directory,
            start,
        )
        for segment in loaded.segments:
            segment.retire()()
        return LoadedLog([], loaded.producers, AbortedTransactions(), start, start, start)
    return loaded._replace(log_start_offset=max(start, loaded.log_start_offset))


def _load_segments(
    directory: str, files: OpenFiles, *, crashed: bool, refuse_damage: bool
) -> LoadedLog:
    segments = _segments(directory, files)
    if not segments:
        return LoadedLog([], ProducerState(), AbortedTransactions(), 0, 0, 0)
    active = segments[-1]
    may_be_torn = crashed
    if not crashed:
        active.open()
        crashed = active.is_damaged
    while True:
        point, producers = _newest_snapshot(directory, segments[0].base_offset)
        aborted = _read_aborted(directory, segments, point)
        on_batch = _replay_from(directory, point, producers, aborted)
        affected = index_of(segments, point)
        replayed = True
        if crashed:
            _recover(segments, affected, on_batch, refuse_damage, may_be_torn)
        elif point < active.next_offset:
            for segment in segments[affected:]:
                start = segment.locate(point)
                for position, header, data in scan(segment.open(), start, segment.size_bytes):
                    on_batch(
                        header,
                        segment.read(position, header.size_bytes) if header.is_control else data,
                    )
        else:
            replayed = False
        end = segments[-1].next_offset
        if point <= end:
            if replayed:
                _save_aborted(segments[affected:], aborted)
            start, flushed = segments[0].base_offset, point if crashed else end
            return LoadedLog(segments, producers, aborted, start, end, flushed)
        logger.warning(
            "%s has lost records before offset %d: using an older snapshot", directory, point
        )
        os.unlink(snapshot_path(directory, point))


def _read_aborted(directory: str, segments: list[Segment], point: int) -> AbortedTransactions:
    """Return the aborted transactions that ended before ``point``. If the entries of one segment
    are in doubt, find those of all segments again in the batches, and write the files again.
    """
    entries: list[AbortedTransaction] = []
    for segment in segments:
        if segment.base_offset >= point:
            break
        of_segment = aborted_transactions.read(segment.path(""), segment.size_bytes, point)
        if of_segment is None:
            logger.warning(
                "%s has no checksum of all its entries: finding the aborted transactions again",
                segment.path(aborted_transactions.SUFFIX),
            )
            return _find_aborted(directory, segments, point)
        entries += of_segment
    return AbortedTransactions(entries)


def _find_aborted(directory: str, segments: list[Segment], point: int) -> AbortedTransactions:
    producers, aborted = ProducerState(), AbortedTransactions()
    on_batch = _replay_from(directory, segments[0].base_offset, producers, aborted)
    for segment in segments:
        if segment.base_offset >= point:
            break
        end, end_offset = 0, segment.base_offset
        with opened(segment.path(".log")) as fd:  # not by the indexes: the tail may be torn
            for position, header, data in scan(fd, 0, segment.size_bytes, whole=True):
                if header.base_offset >= point:
                    break
                on_batch(header, data)
                end, end_offset = position + header.size_bytes, header.last_offset + 1
        entries = aborted.in_segment(segment.base_offset, end_offset)
        aborted_transactions.write(segment.path(aborted_transactions.SUFFIX), entries)
        segment.renew_checksums(end, end_offset)
    return aborted


def _save_aborted(segments: Sequence[Segment], aborted: AbortedTransactions) -> None:
    """Write the ``.txnindex`` files of the segments that were replayed. Replace checksums that are
    of fewer entries, or of more of the log than there is: it will have other entries there.
    """
    for segment in segments:
        stem, end_offset = segment.path(""), segment.next_offset
        entries = aborted.in_segment(segment.base_offset, end_offset)
        aborted_transactions.write(segment.path(aborted_transactions.SUFFIX), entries)
        sums = checksums.read(stem)
        if sums is not None and (
            sums.end_offset > end_offset
            or aborted_transactions.read(stem, segment.size_bytes, end_offset) != entries
        ):
            segment.renew_checksums(segment.size_bytes, end_offset)


def _segments(directory: str, files: OpenFiles) -> list[Segment]:
    segments = []
    with os.scandir(directory) as entries:
        for entry in entries:
            stem, _, suffix = entry.name.partition(".")
            if suffix.endswith(TEMPORARY_SUFFIX) and entry.is_file():
                os.unlink(entry.path)  # a crash has interrupted its writing
            elif suffix == "log" and stem.isdigit():
                stat = entry.stat()
                segments.append(
                    Segment(
                        files, directory, int(stem), stat.st_size, stat.st_mtime_ns // 1_000_000
                    )
                )
    return sorted(segments, key=lambda segment: segment.base_offset)


OnBatch = Callable[[BatchHeader, memoryview | bytes], None]


def _replay_from(
    directory: str, point: int, producers: ProducerState, aborted: AbortedTransactions
) -> OnBatch:
    def on_batch(header: BatchHeader, data: memoryview | bytes) -> None:
        if header.base_offset < point:
            return
        if not header.is_control:
            producers.replay(header, header.base_offset)
            return
        end = _marker(directory, header, data)
        ended = None if end is None else producers.complete(header, end)
        if ended is not None:
            aborted.replay(ended)

    return on_batch


def _marker(directory: str, header: BatchHeader, data: memoryview | bytes) -> Marker | None:
    """Return the transaction marker in a control batch; None for one of another type.

    A damaged one counts as an abort: read_committed readers must not see aborted records, and they
    go on after them.
    """
    try:
        if has_right_crc(memoryview(data), header):
            return marker_in(data)
    except CorruptBatch:
        pass
    logger.error(
        "%s: the transaction marker at offset %d is damaged: its transaction counts as aborted",
        directory,
        header.base_offset,
    )
    return Marker(commit=False, coordinator_epoch=-1)


def _recover(
    segments: list[Segment],
    first: int,
    on_batch: OnBatch,
    refuse_damage: bool,
    may_be_torn: bool,
) -> None:
    """Verify each batch from segment ``first`` on. Cut the log at the first invalid one.

    :param may_be_torn: the last batch may be incomplete because of a crash, so that nothing is lost
        with it
    """
    for number, segment in enumerate(segments[first:], first + 1):
        end = segment.rebuild(on_batch)
        if end == segment.size_bytes:
            continue
        later = segments[number:]
        followed = any(following.size_bytes for following in later) or (
            next_batch(segment.open(), end, segment.size_bytes, segment.base_offset) is not None
        )
        if refuse_damage and followed:
            problem = "this is not a whole batch with the right checksum, but what follows it is"
            raise CorruptLog.damage(segment.path(".log"), end, segment.next_offset, problem)
        if followed or not may_be_torn:
            _keep([segment, *later], end)
        logger.warning(
            (
                "Cut %s at position %d, offset %d: the %d bytes that followed are not a whole "
                "batch with the right CRC"
            ),
            segment.path(".log"),
            end,
            segment.next_offset,
            segment.size_bytes - end,
        )
        for following in reversed(later):
            logger.warning("Removed %s: the segment before it is torn", following.path(".log"))
            following.retire()()
        segment.truncate(end)
        del segments[number:]
        return


def _keep(segments: Sequence[Segment], position: int) -> None:
    """Keep the files of segments that are about to be cut and removed under other names, on disk.

    :param position: position of the first damaged batch in the first segment
    :raises OSError: when the disk fails
    """
    first = segments[0]
    paths = [segment.path(".log") for segment in segments if segment.size_bytes]
    copies = [link_aside(path, path) for path in paths]
    fsync_path(first.directory)
    others = f" and {len(copies) - 1} later files" if len(copies) > 1 else ""
    logger.error(
        "Set aside %s%s: %s is damaged at position %d, offset %d, where the log ends now. See "
        "docs/behaviour/disk-failures.md for the records behind; delete what is not needed",
        copies[0],
        others,
        first.path(".log"),
        position,
        first.next_offset,
    )


def kept_files(directory: str, names: Iterable[str]) -> list[str]:
    """Return the paths of the files that recoveries have kept.

    :param names: the names of the partition directories
    :raises OSError: when the disk fails
    """
    paths = []
    for name in names:
        with contextlib.suppress(FileNotFoundError):  # the topic was deleted
            files = sorted(os.listdir(f"{directory}/{name}"))
            paths += [f"{directory}/{name}/{file}" for file in files if _KEPT.fullmatch(file)]
    return paths


def rewrite(directory: str, segments: Sequence[Segment], from_offset: int) -> None:
    """Replace the files of segments that have offsets from ``from_offset`` on by copies that are on
    disk, and remove the mark of a log that is offline.

    After a failed fsync the page cache may have data that the disk does not have, and that no later
    fsync writes. To write it again in place is not enough: ext4 takes the blocks that it has
    allocated for the failed write for unwritten, although a later write of them succeeds, and they
    read as zeros when the page cache has lost them (seen with Linux 6.18).

    :raises OSError: when the disk fails again, or has no room for a copy
    """
    for segment in segments[index_of(segments, from_offset) :]:
        segment.replace_by_copy(segment.size_bytes)
    fsync_path(directory)
    os.unlink(f"{directory}/{OFFLINE_FILE}")


# ---------------------------------------------------------------------- small files


def mark_offline(directory: str) -> None:
    """Mark the log in a directory, so that the next start verifies it even after a clean stop or
    ``kill -9``.

    Failures are ignored: a clean stop lists the log too.
    """
    with contextlib.suppress(OSError):
        os.close(private(f"{directory}/{OFFLINE_FILE}", os.O_CREAT))


def force_offline_mark(directory: str) -> None:
    """Force the mark to disk, so that it survives a power cut. Failures are ignored."""
    with contextlib.suppress(OSError):
        fsync_path(f"{directory}/{OFFLINE_FILE}")
        fsync_path(directory)


def is_marked_offline(directory: str) -> bool:
    """Return True if the log in a directory went offline and has not been verified since."""
    return os.path.exists(f"{directory}/{OFFLINE_FILE}")


def snapshot_path(directory: str, offset: int) -> str:
    """Return the path of the snapshot of producers as of ``offset``."""
    return f"{directory}/{offset:020d}.snapshot"


def snapshot_offsets(directory: str) -> list[int]:
    """Return the offsets of the snapshots in a directory, newest first."""
    names = (name.partition(".") for name in os.listdir(directory))
    return sorted(
        (int(stem) for stem, _, suffix in names if suffix == "snapshot" and stem.isdigit()),
        reverse=True,
    )


def _newest_snapshot(directory: str, log_start: int) -> tuple[int, ProducerState]:
    """Return the newest whole snapshot with its offset, or an empty state as of ``log_start``.

    As in Kafka, a snapshot from before ``log_start`` is not used: later batches of its producers
    are deleted, so their next batches would be refused as out of order. Unknown producers may begin
    with any sequence.
    """
    for offset in snapshot_offsets(directory):
        if offset < log_start:
            break
        path = snapshot_path(directory, offset)
        producers = ProducerState.from_snapshot(read_file(path))
        if producers is not None:
            return offset, producers
        logger.warning("%s is not a whole snapshot: using an older one", path)
        os.unlink(path)
    return log_start, ProducerState()


def write_snapshot(directory: str, offset: int, data: bytes, *, sync: bool) -> None:
    """Write the snapshot of producers as of ``offset``, and delete all older ones but the newest.

    :param data: the snapshot
    :param sync: force it to disk
    :raises OSError: when the disk fails
    """
    replace_file(snapshot_path(directory, offset), data, sync=sync)
    for old in snapshot_offsets(directory)[SNAPSHOTS_KEPT:]:
        remove_file(snapshot_path(directory, old))


def _read_log_start(directory: str) -> int:
    """Return the saved log start offset; 0 if there is none.

    A damaged file counts as none, as in Kafka: deleted records that are still in the oldest segment
    can be read again, but no other record gets lost.
    """
    path = f"{directory}/{LOG_START_FILE}"
    try:
        return checked_file.read(path) or 0
    except checked_file.DamagedFile as error:
        logger.error(
            "%s: the log starts with its oldest segment. If records were deleted with "
            "DeleteRecords, they may be there again: delete them once more",
            error,
        )
        with contextlib.suppress(OSError):
            os.replace(path, f"{path}{DAMAGED_SUFFIX}")
        return 0
