"""A snapshot of all logs at one moment, made of hard links while the logs are used.

The snapshot has what a ``kill -9`` at this moment, the *cut*, would leave, so that a start recovers
it in the same way. Logs are only appended to: the cut notes the size of each active segment,
without touching the disk, and a thread links the files later. What is appended after the cut is
left out by the noted size.

Retention and compaction after the cut may delete a record because of a later one that the snapshot
does not have. So a log is linked at once, in :meth:`Snapshot.keep`, before it deletes or replaces
files, or reads its directory for the first time. A link keeps the content of a deleted file.

The directory of the snapshot is beside the partition directories, because links do not cross file
systems. Its name ends with ``-delete``: if the broker is killed, the next start deletes it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import threading
import uuid
from collections.abc import Iterator
from typing import NamedTuple

from headrace.log.cleaner import CLEANER_OFFSET_FILE, Pace
from headrace.log.data_directory import (
    DELETED_SUFFIX,
    STRAY_SUFFIX,
    is_partition_name,
    write_clean_marker,
)
from headrace.log.files import DIRECTORY_MODE, TEMPORARY_SUFFIX
from headrace.log.log_directory import LogDirectory
from headrace.log.partition_log import PartitionLog
from headrace.log.segment import DELETED, SUFFIXES

from . import (
    aborted_transactions,
    checked_file,
    checksums,
    directory_format,
    partition_metadata,
    recovery,
)

SIZES_FILE = "sizes"
"""Path of a file in the snapshot -> its size at the cut. Files that are not listed
belong to the snapshot whole.
"""
ACTIVE_SUFFIXES = (".log", aborted_transactions.SUFFIX, checksums.SUFFIX)
"""The files of an active segment that belong to a snapshot. Its indexes are in memory."""
_PREFIX = "snapshot."


class SnapshotStopped(Exception):
    """The snapshot is not needed any more."""


class LogCut(NamedTuple):
    """A log that was in use at the cut: the result of :meth:`PartitionLog.cut`.

    :ivar end_offset: its end; the records from there on are not in the snapshot
    :ivar active_base_offset: base offset of its active segment; -1 if it had no segment
    :ivar active_size_bytes: size of its active segment
    """

    log: PartitionLog
    log_start_offset: int
    end_offset: int
    active_base_offset: int
    active_size_bytes: int


class Snapshot:
    """The snapshot of a data directory. Create it in the thread of the logs, between two events;
    then call :meth:`link_all` in another thread.

    :ivar name: name of the snapshot's directory in the data directory
    :ivar path: its path
    :ivar offline: names of the logs that are offline; their last records may be damaged. Known
        after :meth:`link_all`
    """

    def __init__(self, logs: LogDirectory) -> None:
        self._directory = logs.directory
        self.name = f"{_PREFIX}{uuid.uuid4().hex}{DELETED_SUFFIX}"
        self.path = f"{self._directory.path}/{self.name}"
        os.mkdir(self.path, DIRECTORY_MODE)
        self._lock = threading.Lock()
        self._done: set[str] = set()
        self._sizes: dict[str, int] = {}
        self._error: Exception | None = None
        self._stopped, self._abandoned = threading.Event(), threading.Event()
        self.offline: list[str] = []
        self._unverified = set(self._directory.unverified)
        # 100,000 logs take about 40 ms. A dictionary, or named tuples, would take three times that.
        self._cuts = [log.cut() for log in logs if log.is_loaded]
        self._cut_of: dict[str, LogCut] = {}
        self._directory.on_change = self.keep

    def keep(self, path: str) -> None:
        """Link a log now, unless that was done, because its files are about to change. Any thread
        may call it. If it fails, :meth:`link_all` raises the error.

        :param path: path of the log
        """
        if self._error is None:
            try:
                self._link(path)
            except OSError as error:
                self._error = error

    def link_all(self) -> None:
        """Link all logs, and write the files that make the directory complete, except the catalog.

        :raises OSError: when a file cannot be linked or written
        :raises SnapshotStopped: after :meth:`stop`
        """
        try:
            rest = Pace().rests()  # lets the event loop run
            for path in self._paths():
                self._link(path)
                if self._stopped.is_set():
                    raise SnapshotStopped
                rest()
        finally:
            self._directory.on_change = None
        if self._error is not None:
            raise self._error
        _link(f"{self._directory.path}/{directory_format.FORMAT_FILE}", self.path)
        logs = [cut.log for cut in self._cut_of.values()]
        used = {log.name for log in logs}
        self.offline = sorted(log.name for log in logs if log.is_offline)
        write_clean_marker(self.path, self._unverified | used, sync=False)
        checked_file.replace(f"{self.path}/{SIZES_FILE}", self._sizes, sync=False)

    def stop(self) -> None:
        """Make :meth:`link_all` end soon. Any thread may call it."""
        self._stopped.set()
        self._directory.on_change = None

    def remove(self) -> None:
        """Delete the snapshot. This may take long; :meth:`abandon` ends it."""
        with contextlib.suppress(FileNotFoundError), os.scandir(self.path) as entries:
            for entry in entries:
                if self._abandoned.is_set():
                    return
                if entry.is_dir():
                    shutil.rmtree(entry.path, ignore_errors=True)
        shutil.rmtree(self.path, ignore_errors=True)

    def abandon(self) -> None:
        """Leave the files to the next start. Any thread may call it."""
        self._abandoned.set()
        self.stop()

    def _paths(self) -> Iterator[str]:
        """Yield the paths of all logs that existed at the cut, or were created since."""
        for log, *_ in self._cuts:
            yield log.path
        with os.scandir(self._directory.path) as entries:
            for entry in entries:
                if is_copied(entry.name) and entry.is_dir():
                    yield f"{self._directory.path}/{entry.name}"

    def _link(self, path: str) -> None:
        with self._lock:
            if path in self._done:
                return
            self._done.add(path)
            if not self._cut_of:
                cuts = map(LogCut._make, self._cuts)
                self._cut_of.update((cut.log.path, cut) for cut in cuts)
            own_cut = self._cut_of.get(path)
            if own_cut is not None:
                self._link_cut(own_cut)
            elif os.path.isdir(path):
                self._link_unused(path)

    def _link_cut(self, cut: LogCut) -> None:
        """Link a log that is in use: what belongs to it up to the cut."""
        if cut.active_base_offset < 0 and not cut.log_start_offset:
            return  # it never had a record
        log = cut.log
        target = self._make(log.path)
        for segment in list(log.segments):
            if segment.base_offset > cut.active_base_offset:
                break
            active = segment.base_offset == cut.active_base_offset
            for suffix in ACTIVE_SUFFIXES if active else SUFFIXES:
                # Few have a .txnindex, and a missing index is rebuilt.
                with contextlib.suppress(*(() if suffix == ".log" else (FileNotFoundError,))):
                    _link(segment.path(suffix), target)
            if active:
                name = os.path.basename(segment.path(".log"))
                self._sizes[f"{log.name}/{name}"] = cut.active_size_bytes
        snapshots = [
            recovery.snapshot_path(log.path, offset)
            for offset in recovery.snapshot_offsets(log.path)
            if offset <= cut.end_offset
        ]
        others = (partition_metadata.METADATA_FILE, recovery.OFFLINE_FILE, CLEANER_OFFSET_FILE)
        for path in (*snapshots, *(f"{log.path}/{name}" for name in others)):
            with contextlib.suppress(FileNotFoundError):  # an old snapshot may go at any time
                _link(path, target)
        if cut.log_start_offset > 0:
            start = f"{target}/{recovery.LOG_START_FILE}"
            checked_file.replace(start, cut.log_start_offset, sync=False)

    def _link_unused(self, path: str) -> None:
        """Link a log that was not used since the start: whatever the last process has left."""
        target = self._make(path)
        names = unused_log_files(path)
        active = max((name for name in names if name.endswith(".log")), default="")
        for name in names:
            _link(f"{path}/{name}", target)
            if name.partition(".")[0] == active.partition(".")[0]:  # the log may append to it soon
                size_bytes = os.stat(f"{target}/{name}").st_size
                self._sizes[f"{os.path.basename(path)}/{name}"] = size_bytes

    def _make(self, path: str) -> str:
        target = f"{self.path}/{os.path.basename(path)}"
        os.mkdir(target, DIRECTORY_MODE)
        return target


def is_snapshot_name(name: str) -> bool:
    """Return True if the directory of a snapshot may have this name."""
    return re.fullmatch(f"{re.escape(_PREFIX)}[0-9a-f]+{DELETED_SUFFIX}", name) is not None


def is_copied(name: str) -> bool:
    """Return True if a directory of this name belongs to a snapshot or backup: of a partition, or
    one that was set aside.
    """
    return is_partition_name(name) or name.endswith(STRAY_SUFFIX)


def unused_log_files(path: str) -> list[str]:
    """Return the names of the files of a log that no process uses. A replacement of segments that
    was decided, see :mod:`headrace.log.swap`, is among them; what a start would delete is not.
    """
    with os.scandir(path) as entries:
        return sorted(
            entry.name
            for entry in entries
            if entry.is_file(follow_symlinks=False)
            and not entry.name.endswith((DELETED, TEMPORARY_SUFFIX))
        )


def _link(path: str, target: str) -> None:
    os.link(path, f"{target}/{os.path.basename(path)}")
