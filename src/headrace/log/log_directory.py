"""The logs of a data directory: opening, deleting and closing them.

The directories of deleted topics are removed in a thread. A directory is renamed first, so that a
crash leaves no half of a log, and a new topic of the same name can be used at once. The catalog
keeps a deleted topic until its directories are gone: a start continues what a crash or a stop has
interrupted.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from headrace.log import partition_metadata
from headrace.log.data_directory import DELETED_SUFFIX, DataDirectory
from headrace.log.log_config import LogConfig
from headrace.log.partition_log import PartitionLog
from headrace.log_lines import get_logger

logger = get_logger("headrace.log")

SYNC_ALL_ABOVE = 64
"""With more changed logs than this a stop syncs the whole file system instead of each file."""


DeletedLogs = dict[str, uuid.UUID]
"""Logs of deleted topics: the names of their directories, with the ids of their topics."""


class Removals:
    """The logs whose directories are to be removed. All methods but the thread's own are called
    from one thread.

    :param directory: the data directory
    """

    def __init__(self, directory: DataDirectory) -> None:
        self._directory = directory
        self._executor = ThreadPoolExecutor(1, "headrace-removal")
        self._stopping = threading.Event()
        self._renaming = threading.Lock()
        self._pending: DeletedLogs = {}
        """Those whose directories are not renamed yet."""

    def add(self, logs: DeletedLogs, removed: Callable[[], object] | None = None) -> None:
        """Remove the directories of logs in the background.

        :param removed: called in the thread when all of them are gone, forced to disk
        """
        for name, topic_id in logs.items():
            self.rename_now(name)  # of an earlier topic of the same name
            self._pending[name] = topic_id
        self._submit(lambda: self._remove(logs), removed)

    def remove_renamed(self) -> None:
        """Remove in the background what earlier processes have renamed and not removed."""
        names = os.listdir(self._directory.path)
        renamed = [name for name in names if name.endswith(DELETED_SUFFIX)]
        if renamed:
            self._submit(lambda: self._remove_trees(renamed))

    def close(self) -> None:
        """Stop after the directory that is being removed."""
        self._stopping.set()
        self._executor.shutdown(cancel_futures=True)

    # In the thread --------------------------------------------------------------------------------

    def _submit(self, work: Callable[[], bool], done: Callable[[], object] | None = None) -> None:
        def run() -> None:
            try:
                if work() and done is not None:
                    done()
            except Exception as error:
                logger.error(
                    "cannot remove the directories of deleted topics: %s; the next start tries "
                    "again",
                    error,
                    exc_info=None if isinstance(error, OSError) else error,
                )

        self._executor.submit(run)

    def _remove(self, names: Iterable[str]) -> bool:
        """Rename all directories, then remove them; return False if interrupted or refused."""
        renamed = []
        for name in names:
            if self._stopping.is_set():
                return False
            doomed = self.rename_now(name)
            if doomed is not None:
                renamed.append(doomed)
        return self._remove_trees(renamed)

    def rename_now(self, name: str) -> str | None:
        """Rename a directory that waits for it; return its new name. A new topic may have the same
        name. Any thread may call this.
        """
        with self._renaming:
            topic_id = self._pending.pop(name, None)
            if topic_id is None:
                return None
            try:
                return self._directory.rename_deleted(name, topic_id)
            except FileNotFoundError:
                return None

    def _remove_trees(self, names: Iterable[str]) -> bool:
        """Remove directories; return False if interrupted, or if something is left."""
        all_removed = True
        for name in names:
            if self._stopping.is_set():
                return False
            path = f"{self._directory.path}/{name}"
            try:
                shutil.rmtree(path)
            except FileNotFoundError:
                pass
            except OSError as error:
                logger.error("cannot remove %s; the next start tries again: %s", path, error)
                all_removed = False
        self._directory.make_durable()
        return all_removed


class LogDirectory:
    """All logs of one data directory.

    :param directory: the data directory; :meth:`close` releases it
    :ivar removals: the logs whose directories are removed, in a thread
    """

    def __init__(self, directory: DataDirectory) -> None:
        self.directory = directory
        self._logs: dict[str, dict[int, PartitionLog]] = {}
        self.removals = Removals(directory)

    def open(
        self,
        topic: str,
        topic_id: uuid.UUID,
        partition: int,
        config: LogConfig,
        *,
        partitions: int = 0,
    ) -> PartitionLog:
        """Return the log of a partition, always the same object.

        This touches no disk, except after the deletion of a topic of the same name: the log reads
        its directory when it is first used.

        :param partitions: see :class:`~headrace.log.partition_log.PartitionLog`
        """
        logs = self._logs.setdefault(topic, {})
        log = logs.get(partition)
        if log is None or log.topic_id != topic_id:
            self.removals.rename_now(f"{topic}-{partition}")
            log = PartitionLog(
                self.directory, topic, topic_id, partition, config, partitions=partitions
            )
            logs[partition] = log
        return log

    def __iter__(self) -> Iterator[PartitionLog]:
        """Yield the logs that :meth:`open` has returned and that are not deleted."""
        for logs in self._logs.values():
            yield from logs.values()

    def existing_partitions(self, topic: str, partitions: int) -> list[int]:
        """Return the numbers of a topic's first ``partitions`` partitions that have a directory,
        because they had a record at some time.
        """
        existing = self.directory.partitions.get(topic, ())
        return sorted(partition for partition in existing if partition < partitions)

    def used_partitions(self, topic: str) -> list[int]:
        """Return the numbers of a topic's partitions whose logs were opened since the start."""
        return list(self._logs.get(topic, ()))

    def left_of(self, topic: str, topic_id: uuid.UUID, *, is_used: bool) -> DeletedLogs:
        """Return the logs of a deleted topic whose directories are left after a restart.

        :param is_used: a new topic has the same name: the directories may be its own
        """
        path, names = self.directory.path, partition_metadata.names
        remaining = [
            partition
            for partition in self.directory.partitions.get(topic, ())
            if not is_used or names(f"{path}/{topic}-{partition}", topic_id)
        ]
        return self._forget(topic, topic_id, remaining)

    def delete(self, topic: str, topic_id: uuid.UUID) -> DeletedLogs:
        """Close all logs of a topic, used or not since the start, and refuse later appends. Give
        the result to :attr:`removals`.
        """
        for log in self._logs.pop(topic, {}).values():
            log.delete()
        return self._forget(topic, topic_id, sorted(self.directory.partitions.get(topic, ())))

    def _forget(self, topic: str, topic_id: uuid.UUID, partitions: list[int]) -> DeletedLogs:
        self.directory.forget(topic, partitions)
        return {f"{topic}-{partition}": topic_id for partition in partitions}

    def find_loss(self) -> str | None:
        """Check that the data directory is still there. If it is not, all logs refuse reads and
        writes from now on; return the reason.
        """
        reason = self.directory.find_loss()
        if reason is not None:
            for log in self:
                log.lose(reason)
        return reason

    def close(self) -> None:
        """Flush and close all logs, mark the stop as clean, and release the data directory.

        A second call does nothing.
        """
        directory = self.directory
        if not directory.is_held:
            return
        directory.on_offline = None
        self.find_loss()
        self.removals.close()
        directory.finish_background_work()
        try:
            try:
                if directory.sync:
                    self._flush_changed()  # before the snapshots, which are recovery points
            finally:
                for log in self:
                    log.close()
            directory.mark_clean()
        except OSError as error:
            logger.error(
                "%s could not be closed cleanly, the next start verifies its logs: %s",
                directory.path,
                error,
            )
        directory.release()

    def _flush_changed(self) -> None:
        changed = [log for log in self if log.unflushed_records and not log.is_offline]
        if len(changed) > SYNC_ALL_ABOVE:
            try:
                self.directory.sync_all()
            except OSError as error:
                for log in changed:
                    log.take_offline(error, is_logged=False)
                with contextlib.suppress(OSError):
                    self.directory.sync_all()  # the marks
                raise
            return
        for log in changed:
            with contextlib.suppress(OSError):  # the log went offline and logged why
                log.flush()
