"""The logs of a data directory: opening, deleting and closing them."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator

from headrace.log import partition_metadata
from headrace.log.data_directory import DataDirectory
from headrace.log.log_config import LogConfig
from headrace.log.partition_log import PartitionLog
from headrace.log.removal import DeletedLog, Removals
from headrace.log_lines import get_logger

logger = get_logger("headrace.log")

SYNC_ALL_ABOVE = 64
"""With more changed logs than this a stop syncs the whole file system instead of each file."""


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

    def exists(self, topic: str, partition: int) -> bool:
        """Return True if a partition has a directory, because it had a record at some time."""
        return partition in self.directory.partitions.get(topic, ())

    def existing_partitions(self, topic: str, partitions: int) -> list[int]:
        """Return the numbers of a topic's first ``partitions`` partitions that have a directory,
        because they had a record at some time.
        """
        existing = self.directory.partitions.get(topic, ())
        return sorted(partition for partition in existing if partition < partitions)

    def used_partitions(self, topic: str) -> list[int]:
        """Return the numbers of a topic's partitions whose logs were opened since the start."""
        return list(self._logs.get(topic, ()))

    def left_of(self, topic: str, topic_id: uuid.UUID, *, is_used: bool) -> list[DeletedLog]:
        """Return the logs of a deleted topic whose directories are left after a restart.

        :param is_used: a new topic has the same name: the directories may be its own
        """
        path, names = self.directory.path, partition_metadata.names
        remaining = [
            partition
            for partition in self.directory.partitions.get(topic, ())
            if not is_used or names(f"{path}/{topic}-{partition}", topic_id)
        ]
        self.directory.forget(topic, remaining)
        return [DeletedLog(f"{topic}-{partition}", topic_id) for partition in remaining]

    def delete(self, topic: str, topic_id: uuid.UUID) -> list[DeletedLog]:
        """Close all logs of a topic, used or not since the start, and refuse later appends. Give
        the result to :attr:`removals`.
        """
        for log in self._logs.pop(topic, {}).values():
            log.delete()
        existing = sorted(self.directory.partitions.get(topic, ()))
        self.directory.forget(topic, existing)
        return [DeletedLog(f"{topic}-{partition}", topic_id) for partition in existing]

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
                    log.distrust(error)
                with contextlib.suppress(OSError):
                    self.directory.sync_all()  # the marks
                raise
            return
        for log in changed:
            with contextlib.suppress(OSError):  # the log went offline and logged why
                log.flush()
