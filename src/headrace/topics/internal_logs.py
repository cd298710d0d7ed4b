"""The logs of the internal topics, for the coordinators' runtime."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from headrace.coordinators.clock import Clock
from headrace.log.partition_log import FoundBatch, PartitionLog
from headrace.log_lines import get_logger
from headrace.protocol.errors import Refusal, StorageError

from .catalog import Catalog
from .topic_logs import TopicLogs, roll

PRUNED_LOG_BYTES = 1024 * 1024
"""A larger internal log begins a new file when old records are deleted: then the old file can be
deleted, and a start after a crash has less to verify.
"""

log = get_logger("headrace.broker")


class InternalTopicLogs:
    """Implements :class:`~headrace.coordinators.environment.InternalLogs` with logs of the disk."""

    def __init__(self, catalog: Catalog, logs: TopicLogs, clock: Clock) -> None:
        self._catalog = catalog
        self._logs = logs
        self._clock = clock
        self.pending_flush = logs.pending_flush

    def exists(self, topic: str) -> bool:
        """Return True if an internal topic has been created."""
        return topic in self._catalog.topics

    def partition_count(self, topic: str) -> int:
        """Return the number of partitions of an internal topic; create the topic if it is missing.

        :raises StorageError: when the topic cannot be created
        """
        return self._logs.internal_topic(topic).partitions

    def append(self, topic: str, partition: int, data: bytes, wall_ms: int) -> int:
        """Append one batch at the time ``wall_ms`` and return its base offset.

        :raises StorageError: when the disk fails; the log is unchanged
        """
        partition_log = self._logs.log(self._catalog.topics[topic], partition)
        assert partition_log is not None
        appended = partition_log.append(data, wall_ms, from_client=False)
        if isinstance(appended, Refusal):
            raise StorageError(f"cannot append to {topic}-{partition}: {appended.message}")
        self._logs.appended(partition_log)
        return appended.base_offset

    def batches(self, topic: str) -> Iterator[tuple[int, FoundBatch]]:
        """Yield (partition, batch) for all batches of an internal topic, from its start.

        :raises CorruptLog: where a batch is damaged or missing
        """
        for partition, partition_log in self._logs.existing(self._catalog.topics[topic]):
            for batch in partition_log.checked_batches():
                yield partition, batch

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Delete the records before ``offset`` as soon as those from there on are on disk, as a
        power cut could take them. Retention deletes the files.
        """
        partition_log = self._logs.log(self._catalog.topics[topic], partition)
        assert partition_log is not None
        if offset > partition_log.log_start_offset:
            delete = partial(self._delete_before, partition_log, offset)
            self._logs.when_on_disk(partition_log, delete)

    def _delete_before(self, partition_log: PartitionLog, offset: int) -> None:
        # Not forced to disk: to read more than is needed after a power cut does no harm.
        refusal = partition_log.save_log_start(offset, sync=False)
        if refusal is not None:
            log.warning("cannot delete old records of %s: %s", partition_log.path, refusal.message)
            return
        partition_log.advance_log_start(offset)
        if partition_log.size_bytes() > PRUNED_LOG_BYTES:
            roll(partition_log, self._clock.wall_ms())
