"""The data directory: the lock of the process that holds it, the mark of a clean stop, and the
resources that its logs share.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import uuid
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor

from headrace.log import checked_file, known_partitions, partition_metadata
from headrace.log.files import (
    DIRECTORY_MODE,
    TEMPORARY_SUFFIX,
    fsync_path,
    sync_filesystem,
)
from headrace.log.segment import OpenFiles
from headrace.log_lines import get_logger

from . import directory_format, directory_lock

logger = get_logger("headrace.log")

CLEAN_SHUTDOWN_FILE = "clean-shutdown"
DELETED_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
"""Kafka's own: the end of the name of a directory that was set aside."""
_PARTITION = re.compile(r"(.+)-(0|[1-9][0-9]{0,9})")
_OWN_FILES = (
    CLEAN_SHUTDOWN_FILE,
    directory_format.FORMAT_FILE,
    known_partitions.KNOWN_PARTITIONS_FILE,
)
_TEMPORARY = re.compile(
    rf"(?:{'|'.join(map(re.escape, _OWN_FILES))})\.[0-9]+{re.escape(TEMPORARY_SUFFIX)}"
)
_SEGMENT = re.compile(r"[0-9]{20}\.log")


def is_partition_name(name: str) -> bool:
    """Return True if a partition directory may have this name, such as ``orders-0``."""
    return _PARTITION.fullmatch(name) is not None


def _close_to_others(entry: os.DirEntry[str]) -> None:
    """Let only the owner enter a directory of records. A copy by ``cp -r`` or ``tar`` may have left
    it open.
    """
    if _PARTITION.fullmatch(entry.name) or entry.name.endswith(STRAY_SUFFIX):
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode) and status.st_mode & 0o077:
            with contextlib.suppress(OSError):  # another owner, or a file system without modes
                os.chmod(entry.path, DIRECTORY_MODE)


class DataDirectory:
    """A directory of partition directories, which one process holds at a time.

    :param file_limit: the largest number of segment files to keep open
    :param address: HOST:PORT of the broker, for the error of a second broker that opens the
        directory
    :param sync: force files to disk when a segment is full and at a clean stop; not worth it for a
        temporary directory
    :raises DirectoryInUse: when another process holds it
    :raises UnusableDirectory: when another version has written it, or it is an incomplete copy
    :ivar path: absolute path
    :ivar files: the open segment files of all logs
    :ivar on_change: called with the path of a log before it deletes or replaces files, or first
        reads its directory
    :ivar partitions: the partitions that have a directory, because they had a record at some time,
        by topic
    :ivar unverified: names of the logs that were not verified since a crash, so that their tails
        may be torn. Any thread may add one: the next start verifies it
    :ivar lost: the reason why the directory must not be used any more; None if it may
    :ivar on_offline: called with topic id and partition of a log that goes offline, from any thread
    """

    def __init__(
        self, path: str | os.PathLike[str], file_limit: int, *, address: str = "", sync: bool = True
    ) -> None:
        self.path = os.path.abspath(path)
        self.files = OpenFiles(file_limit)
        self.sync = sync
        self.on_change: Callable[[str], object] | None = None
        self.on_offline: Callable[[uuid.UUID, int], object] | None = None
        self.lost: str | None = None
        self._executor = ThreadPoolExecutor(1, "headrace-log")
        self._created: list[tuple[str, uuid.UUID, int]] = []
        """Partitions whose new directories are not in the file of known partitions yet."""
        os.makedirs(self.path, DIRECTORY_MODE, exist_ok=True)
        self._lock = directory_lock.take(self.path, address)
        self._was_clean = False
        try:
            directory_format.check(self.path)
            is_open = self._tell_mode()
            self.partitions = self._find_partitions(closing=is_open)
            self.unverified = self._take_marker()
        except BaseException:
            self.release()
            raise

    # ------------------------------------------------------------------ partition directories

    def _tell_mode(self) -> bool:
        """Log whether other users of the machine may enter the directory; return True if so."""
        mode = stat.S_IMODE(os.stat(self.path).st_mode)
        message = "Others may %s %s, as its mode is %s: chmod 700 %s"
        if mode & 0o022:
            logger.warning(message, "replace files in", self.path, f"{mode:04o}", self.path)
        elif mode & 0o055:
            logger.info(message, "list what is in", self.path, f"{mode:04o}", self.path)
        return bool(mode & 0o077)

    def _find_partitions(self, *, closing: bool) -> dict[str, set[int]]:
        """Return the partitions that have a directory.

        :param closing: take the directories that others may read away from them
        """
        partitions: dict[str, set[int]] = {}
        with os.scandir(self.path) as entries:
            for entry in entries:
                if _TEMPORARY.fullmatch(entry.name) and entry.is_file():
                    os.unlink(entry.path)  # a crash has interrupted its writing
                if closing:
                    _close_to_others(entry)
                matched = _PARTITION.fullmatch(entry.name)
                if matched is not None and entry.is_dir():
                    partitions.setdefault(matched[1], set()).add(int(matched[2]))
        return partitions

    def partition_names(self) -> list[str]:
        """Return the names of the partition directories, such as ``orders-0``."""
        return [
            f"{topic}-{partition}"
            for topic, partitions in self.partitions.items()
            for partition in partitions
        ]

    def created(self, topic: str, topic_id: uuid.UUID, partition: int) -> None:
        """Note that a partition has a directory now."""
        self.partitions.setdefault(topic, set()).add(partition)
        if self.sync:
            self._created.append((topic, topic_id, partition))

    def save_created(self) -> None:
        """Save in the background which partitions have a directory since the last call, so that the
        next start notices a directory that was deleted; see
        :mod:`~headrace.log.known_partitions`.
        """
        created, self._created = self._created, []
        if created:
            self.in_background(lambda: self._save(created))

    def _save(self, created: list[tuple[str, uuid.UUID, int]]) -> None:
        try:
            self.make_durable()
            known_partitions.append(self.path, created, sync=False)
        except OSError as error:
            logger.warning("Could not save the names of new partitions: %s", error)

    def forget(self, topic: str, partitions: Iterable[int]) -> None:
        """Note that partitions have no directory any more, or will not have it soon."""
        for partition in partitions:
            self.unverified.discard(f"{topic}-{partition}")
        remaining = self.partitions.pop(topic, set()).difference(partitions)
        if remaining:
            self.partitions[topic] = remaining

    def holds_log(self, name: str) -> bool:
        """Return True if a directory has files of a log, so that it is a partition directory."""
        with os.scandir(f"{self.path}/{name}") as entries:
            return any(
                entry.name == partition_metadata.METADATA_FILE or _SEGMENT.fullmatch(entry.name)
                for entry in entries
            )

    def set_aside(self, name: str, reason: str) -> str:
        """Keep a partition directory under another name, as its records may be needed; return the
        name. Any thread may call it.

        :param reason: the reason why it cannot be used, for the broker's log
        :raises OSError: when the disk fails
        """
        self.changes(f"{self.path}/{name}")
        if self.sync:
            topic, _, partition = name.rpartition("-")
            known_partitions.append(self.path, [(topic, None, int(partition))], sync=True)
        stray = f"{name}.{uuid.uuid4().hex}{STRAY_SUFFIX}"
        os.rename(f"{self.path}/{name}", f"{self.path}/{stray}")
        self.make_durable()
        logger.error(
            "Set aside %s/%s as %s, with all its records: %s. See docs/behaviour/disk-failures.md "
            "for how to take it back; delete it if it is not needed",
            self.path,
            name,
            stray,
            reason,
        )
        return stray

    def rename_deleted(self, name: str, topic_id: uuid.UUID) -> str | None:
        """Rename the directory of a deleted partition to a name that is not used for a log; return
        the name. If it may belong to another topic, set it aside instead and return None. Any
        thread may call it.

        :raises OSError: when the disk fails
        """
        contradiction = partition_metadata.contradiction(f"{self.path}/{name}", topic_id)
        if contradiction is not None:
            self.set_aside(name, contradiction)
            return None
        self.changes(f"{self.path}/{name}")
        doomed = f"{name}.{uuid.uuid4().hex}{DELETED_SUFFIX}"
        os.rename(f"{self.path}/{name}", f"{self.path}/{doomed}")
        return doomed

    def make_durable(self) -> None:
        """Force the names of directories to disk.

        :raises OSError: when the disk fails
        """
        if self.sync:
            fsync_path(self.path)

    def changes(self, path: str) -> None:
        """Announce that the log in ``path`` is about to delete or replace files, or to read its
        directory for the first time.
        """
        if self.on_change is not None:
            self.on_change(path)

    # ------------------------------------------------------------------ background work

    def in_background(self, work: Callable[[], None]) -> None:
        """Run work that waits for the disk in a thread, in the order of the calls. Failures are
        logged.
        """

        def run() -> None:
            try:
                self.check_held()
                work()
            except FileNotFoundError:
                pass  # the log was deleted meanwhile
            except OSError as error:
                logger.warning("Could not finish a full segment: %s", error)

        if self.sync:
            self._executor.submit(run)
        else:
            run()

    def finish_background_work(self) -> None:
        """Wait until all work given to :meth:`in_background` is done. No more may follow."""
        self._executor.shutdown()

    # ------------------------------------------------------------------ loss

    def find_loss(self) -> str | None:
        """Check that the directory is still the one that this process holds: the lock file at its
        path is the locked one. Return the reason if it is not, from now on in :attr:`lost`, too.
        """
        if self.lost is None and self.is_held:
            try:
                is_same = os.path.samestat(
                    os.stat(f"{self.path}/{directory_lock.LOCK_FILE}"), os.fstat(self._lock)
                )
            except FileNotFoundError:
                is_same = False
            except OSError:
                return None  # the disk fails, which says nothing about the directory
            if not is_same:
                self.lost = (
                    f"the data directory {self.path} was deleted, moved or replaced while the "
                    "broker was using it"
                )
        return self.lost

    def check_held(self) -> None:
        """Check that the directory is not lost.

        :raises OSError: when it is
        """
        if self.lost is not None:
            raise OSError(errno.ENOENT, self.lost)

    # ------------------------------------------------------------------ start and stop

    @property
    def is_held(self) -> bool:
        """True until :meth:`release`."""
        return self._lock >= 0

    def announce(self, address: str) -> None:
        """Write into the lock file where the broker listens."""
        directory_lock.announce(self._lock, address)

    def sync_all(self) -> None:
        """Force all files to disk, with everything else on the file system.

        :raises OSError: when anything could not be written since this process holds the directory
        """
        sync_filesystem(self._lock)

    def mark_clean(self) -> None:
        """Mark the stop as clean: the next start verifies only the logs that are still unverified.

        :raises OSError: when the disk fails; then the next start verifies all logs
        """
        self.check_held()
        if self._created:
            self._save(self._created)
        write_clean_marker(self.path, self.unverified, sync=self.sync)

    def abandon(self) -> None:
        """Release a directory that cannot be used, as it was found."""
        if self._was_clean:
            with contextlib.suppress(OSError):  # without the mark the next start verifies all logs
                self.mark_clean()
        self.release()

    def release(self) -> None:
        """Release the lock, so that another process can use the directory."""
        os.close(self._lock)
        self._lock = -1

    def _take_marker(self) -> set[str]:
        """Remove the mark of a clean stop, and return the names of the logs to verify.

        After a clean stop these are the logs that were offline, or not opened since an earlier
        crash. Without the mark they are all logs.
        """
        marker = f"{self.path}/{CLEAN_SHUTDOWN_FILE}"
        unverified: list[str] | None = checked_file.read_or_warn(marker, "it counts as missing")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(marker)
            self.make_durable()
        if unverified is not None:
            self._was_clean = True
            return set(unverified)
        names = set(self.partition_names())
        if names:
            logger.warning(
                "%s was not closed cleanly: each log is verified when it is opened", self.path
            )
        return names


def write_clean_marker(directory: str, unverified: Collection[str], *, sync: bool) -> None:
    """Write the mark of a clean stop.

    :param unverified: the logs that the next start must verify
    :raises OSError: when the disk fails
    """
    checked_file.replace(f"{directory}/{CLEAN_SHUTDOWN_FILE}", sorted(unverified), sync=sync)
