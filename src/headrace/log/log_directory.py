"""The data directory: which logs there are, who holds it, and how it was left."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import re
import shutil
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from headrace.log.files import OpenFiles, fsync_path, replace_file, sync_filesystem
from headrace.log.log_config import LogConfig
from headrace.log.partition_log import PartitionLog

logger = logging.getLogger("headrace.log")

CLEAN_SHUTDOWN_FILE = "clean-shutdown"
LOCK_FILE = "lock"
DELETED_SUFFIX = "-delete"
SYNC_ALL_ABOVE = 64
"""With more changed logs than this a stop syncs the whole file system instead of file after file.
"""
_PARTITION = re.compile(r"(.+)-(\d+)")


class DirectoryInUse(RuntimeError):
    """Another broker holds the data directory; the message says which."""


class LogDirectory:
    """All logs under one directory, which one process holds at a time.

    :param file_limit: how many segment files are held open at most
    :param address: HOST:PORT, told to whoever tries to start a second broker
    :param sync: force files to disk at rolls and at the end; not worth it for a directory that is
        thrown away
    :raises DirectoryInUse: when another broker holds it
    """

    def __init__(
        self, path: str | os.PathLike[str], file_limit: int, *, address: str = "", sync: bool = True
    ) -> None:
        self.path = os.path.abspath(path)
        self.files = OpenFiles(file_limit)
        self.logs: dict[tuple[str, int], PartitionLog] = {}
        self.sync = sync
        self.on_offline: Callable[[PartitionLog], object] | None = None
        """Called when a log has gone offline, from any thread."""
        self._executor: ThreadPoolExecutor | None = None
        os.makedirs(self.path, exist_ok=True)
        self._lock = self._take_lock(address)
        self._unverified = self._take_marker()

    # ------------------------------------------------------------------ logs

    def open(
        self, topic: str, topic_id: uuid.UUID, partition: int, config: LogConfig
    ) -> PartitionLog:
        """The log of a partition, always the same object. Touches no disk: the log does at its
        first use.
        """
        log = self.logs.get((topic, partition))
        if log is None or log.topic_id != topic_id:
            log = self.logs[topic, partition] = PartitionLog(
                self, topic, topic_id, partition, config
            )
        return log

    def existing_partitions(self, topic: str, partitions: int) -> list[int]:
        """Those of a topic's first ``partitions`` partitions that have a directory: that ever had a
        record.
        """
        return [
            partition
            for partition in range(partitions)
            if os.path.isdir(f"{self.path}/{topic}-{partition}")
        ]

    def delete(self, topic: str) -> None:
        """Remove all logs of a topic, used or not since the start."""
        for key in [key for key in self.logs if key[0] == topic]:
            self.logs.pop(key).delete()
        for name in self._partition_directories():
            if name.rpartition("-")[0] == topic:
                self.remove(f"{self.path}/{name}")
                self._unverified.discard(name)

    def remove(self, path: str) -> None:
        """Take a partition's directory away at once, under its old name; a crash half-way leaves no
        half of a log.
        """
        doomed = f"{path}.{uuid.uuid4().hex}{DELETED_SUFFIX}"
        os.rename(path, doomed)
        shutil.rmtree(doomed, ignore_errors=True)

    def _partition_directories(self) -> list[str]:
        with os.scandir(self.path) as entries:
            return [
                entry.name
                for entry in entries
                if _PARTITION.fullmatch(entry.name) and entry.is_dir()
            ]

    # ------------------------------------------------------------------ for the logs

    def needs_recovery(self, name: str) -> bool:
        """Whether the log in directory ``name`` may have a torn tail, as no one has checked it
        since a crash.
        """
        return name in self._unverified

    def recovered(self, name: str) -> None:
        """The log has been checked."""
        self._unverified.discard(name)

    def went_offline(self, log: PartitionLog) -> None:
        """Have the next start verify a log that has gone offline. Any thread may call it."""
        self._unverified.add(os.path.basename(log.path))
        if self.on_offline is not None:
            self.on_offline(log)

    def in_background(self, work: Callable[[], None]) -> None:
        """Run something that waits for the disk, after what was asked before it. Failures are
        logged.
        """

        def run() -> None:
            try:
                work()
            except FileNotFoundError:
                pass  # deleted meanwhile
            except OSError as error:
                logger.warning("Could not finish a full segment: %s", error)

        if not self.sync:
            run()
            return
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="headrace-log")
        self._executor.submit(run)

    # ------------------------------------------------------------------ start and stop

    def announce(self, address: str) -> None:
        """Tell in the lock file where the broker listens."""
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()} {address}\n".encode(), 0)

    def _take_lock(self, address: str) -> int:
        fd = os.open(f"{self.path}/{LOCK_FILE}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pid, _, holder = os.pread(fd, 1000, 0).decode(errors="replace").strip().partition(" ")
            os.close(fd)
            where = f" at {holder}" if holder else ""
            raise DirectoryInUse(
                f"data directory {self.path} is in use by another broker (process "
                f"{pid or 'unknown'}{where})"
            ) from None
        self._lock = fd
        self.announce(address)
        return fd

    def _take_marker(self) -> set[str]:
        """The names of logs to check: none after a clean stop, but for those not opened since an
        earlier crash.
        """
        marker = f"{self.path}/{CLEAN_SHUTDOWN_FILE}"
        for name in os.listdir(self.path):
            if name.endswith(DELETED_SUFFIX):
                shutil.rmtree(f"{self.path}/{name}", ignore_errors=True)
        try:
            with open(marker, encoding="utf-8") as file:
                unverified = set(json.load(file)["unverified"])
        except (FileNotFoundError, ValueError, KeyError):
            unverified = set(self._partition_directories())
            if unverified:
                logger.warning(
                    "%s was not closed cleanly: logs are checked as they are opened", self.path
                )
        else:
            os.unlink(marker)
            if self.sync:
                fsync_path(self.path)
        return unverified

    def close(self) -> None:
        """Save everything for a clean start and let the directory go. A second call does
        nothing."""
        if self._lock < 0:
            return
        self.on_offline = None
        if self._executor:
            self._executor.shutdown()
        for log in self.logs.values():
            log.close()
        try:
            if self.sync:
                self._flush_changed()
            marker = json.dumps({"unverified": sorted(self._unverified)})
            replace_file(f"{self.path}/{CLEAN_SHUTDOWN_FILE}", marker.encode(), sync=self.sync)
        except OSError as error:
            logger.error(
                "%s could not be closed cleanly, the next start checks its logs: %s",
                self.path,
                error,
            )
        os.close(self._lock)
        self._lock = -1

    def _flush_changed(self) -> None:
        changed = [
            log for log in self.logs.values() if log.unflushed_records and not log.is_offline
        ]
        if len(changed) > SYNC_ALL_ABOVE:
            sync_filesystem(self._lock)
            return
        for log in changed:
            with contextlib.suppress(OSError):  # it is offline now, and has said so
                log.flush()
