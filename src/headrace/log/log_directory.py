"""The logs of a data directory: opening, deleting and closing them."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator

from headrace.log.data_directory import DataDirectory
from headrace.log.log_config import LogConfig
from headrace.log.partition_log import PartitionLog
from headrace.log_lines import get_logger

logger = get_logger("headrace.log")

SYNC_ALL_ABOVE = 64
"""With more changed logs than this a stop syncs the whole file system instead of each file."""


class LogDirectory:
    """All logs of one data directory.

    :param directory: the data directory; :meth:`close` releases it
    """

    def __init__(self, directory: DataDirectory) -> None:
        self.directory = directory
        self._logs: dict[tuple[str, int], PartitionLog] = {}

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

        :param partitions: see :class:`~headrace.log.partition_log.PartitionLog`

        This touches no disk: the log reads its directory when it is first used.
        """
        log = self._logs.get((topic, partition))
        if log is None or log.topic_id != topic_id:
            log = PartitionLog(
                self.directory, topic, topic_id, partition, config, partitions=partitions
            )
            self._logs[topic, partition] = log
        return log

    def __iter__(self) -> Iterator[PartitionLog]:
        """Yield the logs that :meth:`open` has returned and that are not deleted."""
        return iter(self._logs.values())

    def existing_partitions(self, topic: str, partitions: int) -> list[int]:
        """Return the numbers of a topic's first ``partitions`` partitions that have a directory,
        because they had a record at some time.
        """
        return [
            partition
            for partition in range(partitions)
            if os.path.isdir(f"{self.directory.path}/{topic}-{partition}")
        ]

    def delete(self, topic: str, topic_id: uuid.UUID) -> None:
        """Delete all logs of a topic, used or not since the start. A directory that may belong to
        another topic is set aside.
        """
        for key in [key for key in self._logs if key[0] == topic]:
            self._logs.pop(key).delete()
        for name in self.directory.partition_names():
            if name.rpartition("-")[0] == topic:
                self.directory.remove(name, topic_id)

    def close(self) -> None:
        """Flush and close all logs, mark the stop as clean, and release the data directory.

        A second call does nothing.
        """
        directory = self.directory
        if not directory.is_held:
            return
        directory.on_offline = None
        directory.finish_background_work()
        for log in self._logs.values():
            log.close()
        try:
            if directory.sync:
                self._flush_changed()
            directory.mark_clean()
        except OSError as error:
            logger.error(
                "%s could not be closed cleanly, the next start verifies its logs: %s",
                directory.path,
                error,
            )
        directory.release()

    def _flush_changed(self) -> None:
        changed = [
            log for log in self._logs.values() if log.unflushed_records and not log.is_offline
        ]
        if len(changed) > SYNC_ALL_ABOVE:
            self.directory.sync_all()
            return
        for log in changed:
            with contextlib.suppress(OSError):  # the log went offline and logged why
                log.flush()
