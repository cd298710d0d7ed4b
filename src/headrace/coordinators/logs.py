"""The logs as the coordinators see them. The broker implements these interfaces."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from headrace.errors import ErrorCode, Refusal

if TYPE_CHECKING:
    from headrace.groups.settings import Topic
    from headrace.log.partition_log import Appended, PartitionLog
    from headrace.log.replay import FoundBatch


class InternalLogs(Protocol):
    """The logs of the internal topics, for :class:`~headrace.coordinators.runtime`."""

    def exists(self, topic: str) -> bool:
        """Return True if an internal topic has been created."""

    def partition_count(self, topic: str) -> int:
        """Return how many partitions an internal topic has; create the topic if there is none.

        :raises StorageError: when the topic cannot be created
        """

    def append(self, topic: str, partition: int, data: bytes, wall_ms: int) -> int:
        """Append one batch at the time ``wall_ms`` and return its base offset.

        :raises StorageError: when the disk refuses; the log is as it was
        """

    def batches(self, topic: str) -> Iterator[tuple[int, FoundBatch]]:
        """Read an internal topic from its start: pairs of partition and batch.

        :raises CorruptLog: where a batch is damaged or missing
        """

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Delete the records before ``offset``. Failures are logged: the next call tries again."""

    @property
    def is_durable(self) -> bool:
        """True if everything appended so far is as durable as the flush settings ask."""

    def durable(self) -> Awaitable[None]:
        """Return an awaitable for when everything appended up to this call is as durable as the
        flush settings ask.

        :raises StorageError: from the awaitable, when a flush failed
        """


class TopicLogs(Protocol):
    """The topics of the broker and their logs, for share-partitions and transactions."""

    def create_topic(
        self, name: str, partitions: int, configs: Mapping[str, str] | None = None
    ) -> Topic:
        """Create a topic.

        :raises StorageError: when it cannot be stored
        """

    def name_refusal(self, name: str) -> Refusal | None:
        """Return the error for a topic that is to be created under ``name``, None for none."""

    def topic_value(self, topic: str, name: str) -> str | None:
        """Return a configuration of a topic that exists, as text."""

    def partition(self, topic_id: UUID | None, partition: int) -> PartitionLog | ErrorCode:
        """Return a partition's log; or UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, or
        KAFKA_STORAGE_ERROR when the log is offline.
        """

    def partition_by_name(self, name: str, partition: int) -> PartitionLog | ErrorCode:
        """Return a partition's log; or UNKNOWN_TOPIC_OR_PARTITION, or KAFKA_STORAGE_ERROR when the
        log is offline.
        """

    def append(self, partition_log: PartitionLog, data: bytes | memoryview) -> Appended | Refusal:
        """Append a batch as a producer's, checked, and wake the requests that wait for it."""

    def appended(self, partition_log: PartitionLog) -> None:
        """Schedule the flush of what was just appended, and wake the requests that wait for it."""
