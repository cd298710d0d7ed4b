"""The interfaces to logs that the coordinators use; the broker implements them."""

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
    """The logs of the internal topics, for :mod:`headrace.coordinators.runtime`."""

    def exists(self, topic: str) -> bool:
        """Return True if an internal topic has been created."""

    def partition_count(self, topic: str) -> int:
        """Return the number of partitions of an internal topic; create the topic if it is missing.

        :raises StorageError: when the topic cannot be created
        """

    def append(self, topic: str, partition: int, data: bytes, wall_ms: int) -> int:
        """Append one batch at the time ``wall_ms`` and return its base offset.

        :raises StorageError: when the disk fails; the log is unchanged
        """

    def batches(self, topic: str) -> Iterator[tuple[int, FoundBatch]]:
        """Yield (partition, batch) for all batches of an internal topic, from its start.

        :raises CorruptLog: where a batch is damaged or missing
        """

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Delete the records before ``offset``. A failure is logged; the next call tries again."""

    @property
    def is_durable(self) -> bool:
        """True if everything appended so far is as durable as the flush settings require."""

    def durable(self) -> Awaitable[None]:
        """Return an awaitable that completes when everything appended before this call is as
        durable as the flush settings require.

        :raises StorageError: from the awaitable, when a flush failed
        """


class TopicLogs(Protocol):
    """The topics of the broker and their logs, for share-partitions and transactions."""

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str] = ...) -> Topic:
        """Create a topic.

        :raises StorageError: when it cannot be stored
        """

    def name_refusal(self, name: str) -> Refusal | None:
        """Return the error for creating a topic called ``name``, None if it may be created."""

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
        """Check and append a producer's batch, and wake the requests that wait for it."""

    def appended(self, partition_log: PartitionLog) -> None:
        """Schedule the flush of what was just appended, and wake the requests that wait for it."""

    def durable(self) -> Awaitable[None]:
        """Return an awaitable that completes when everything appended before this call is as
        durable as the flush settings require.

        :raises StorageError: from the awaitable, when a flush failed
        """
