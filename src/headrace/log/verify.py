"""Verify all batches of a data directory, beside a running broker or without one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

from headrace.log import damage
from headrace.log.cleaner import CLEANER_OFFSET_FILE
from headrace.protocol.record_batch import BatchHeader

TAIL_ATTEMPTS = 5
"""Attempts to read the end of a file that a running broker may be writing to."""
TAIL_PAUSE_S = 0.1
_MAX_OFFSET = 2**63 - 1


class LogFile(NamedTuple):
    """A segment's file.

    :ivar end_offset: base offset of the next segment; the largest offset for the last one
    :ivar has_gaps: the log was compacted, so that offsets are missing
    """

    partition: str
    path: str
    base_offset: int
    end_offset: int
    size_bytes: int
    has_gaps: bool


class Verified:
    """The counts of a verification so far."""

    def __init__(self) -> None:
        self.partition_count = 0
        self.file_count = 0
        self.batch_count = 0
        self.record_count = 0
        self.size_bytes = 0


def log_files(directory: str, names: list[str]) -> list[LogFile]:
    """Return the files of logs, in the order of their offsets. Those deleted meanwhile are left
    out.

    :param names: the names of the partition directories
    """
    files = []
    for name in names:
        path = f"{directory}/{name}"
        try:
            sizes = {
                int(entry.name[:-4]): entry.stat().st_size
                for entry in os.scandir(path)
                if entry.name.endswith(".log") and entry.name[:-4].isdigit()
            }
        except FileNotFoundError:
            continue
        has_gaps = os.path.exists(f"{path}/{CLEANER_OFFSET_FILE}")
        for base, end in pairwise([*sorted(sizes), _MAX_OFFSET]):
            files.append(LogFile(name, f"{path}/{base:020d}.log", base, end, sizes[base], has_gaps))
    return files


def verify_file(
    file: LogFile,
    *,
    is_live: bool,
    verified: Verified,
    on_batch: Callable[[BatchHeader], None] | None = None,
) -> Iterator[damage.Damage]:
    """Yield the damaged batches of a file, and what of it cannot be read. A file that was deleted
    meanwhile has none.

    :param is_live: a broker may be appending to the file: a batch that is not whole at its end is
        read again
    :param on_batch: called with the header of each whole batch
    :raises OSError: when the file cannot be opened
    """
    try:
        # Opening a FIFO to read would wait for somebody to write.
        fd = os.open(file.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return

    def count(header: BatchHeader) -> None:
        verified.batch_count += 1
        verified.record_count += header.record_count
        if on_batch is not None:
            on_batch(header)

    try:
        size_bytes = file.size_bytes
        for damaged in damage.find(
            fd,
            file.path,
            file.base_offset,
            size_bytes,
            file.end_offset,
            gaps=file.has_gaps,
            on_batch=count,
        ):
            is_tail = damaged.end_position == size_bytes and file.end_offset == _MAX_OFFSET
            if is_live and is_tail and _is_whole_now(fd, damaged.position):
                continue
            listed = _listed_now(file) if is_live else file
            if listed is None:
                return
            if is_live and not _is_unchanged(file, listed, fd):
                yield from verify_file(listed, is_live=True, verified=verified, on_batch=on_batch)
                return
            yield damaged._replace(end_offset=damaged.first_offset + 1) if is_tail else damaged
        verified.file_count += 1
        verified.size_bytes += size_bytes
    finally:
        os.close(fd)


def _listed_now(file: LogFile) -> LogFile | None:
    """Return a file as it is listed now; None if it was deleted."""
    directory, name = os.path.split(os.path.dirname(file.path))
    files = log_files(directory, [name])
    return next((listed for listed in files if listed.base_offset == file.base_offset), None)


def _is_unchanged(file: LogFile, listed: LogFile, fd: int) -> bool:
    """Return True if neither compaction nor retention nor a new segment has changed a file since it
    was listed.

    :param listed: the file as it is listed now
    :param fd: the open file
    """
    if file.end_offset == _MAX_OFFSET:  # it grows
        file = file._replace(size_bytes=listed.size_bytes)
    if listed != file:
        return False
    try:
        return os.path.samestat(os.stat(file.path), os.fstat(fd))
    except FileNotFoundError:
        return False


def _is_whole_now(fd: int, position: int) -> bool:
    """Return True if a whole batch begins at a position, or the file ends there, after a while."""
    for _ in range(TAIL_ATTEMPTS):
        time.sleep(TAIL_PAUSE_S)
        end = os.fstat(fd).st_size
        if end <= position:
            return True
        try:
            following = damage.next_batch(fd, position, end, 0)
        except OSError:
            return False
        if following is not None and following[0] == position:
            return True
    return False
