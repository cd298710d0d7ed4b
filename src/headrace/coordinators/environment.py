"""The interfaces of the broker that the coordinators use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar
from uuid import UUID

from headrace.coordinators.clock import Clock
from headrace.protocol.configuration import Configuration
from headrace.protocol.errors import ErrorCode, Refusal

if TYPE_CHECKING:
    # Groups are not imported before one is needed, so these are names for annotations only.
    from headrace.groups.catalog import Topic, TopicCatalog
    from headrace.log.partition_log import Appended, FoundBatch, PartitionLog
    from headrace.protocol.record_batch import Opening

    from .share_metrics import ShareMetrics

    class Catalog(TopicCatalog, Protocol):
        """The topics, group configs and producer ids."""

        def configs(self, kind: str, name: str) -> Mapping[str, str]:
            """Return the configs that were set for a resource."""

        def allocate_producer_id(self) -> int:
            """Return a producer id that was never returned before.

            :raises StorageError: when it cannot be stored
            """


T = TypeVar("T")


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

    def pending_flush(self) -> Awaitable[None] | None:
        """Return an awaitable that completes when everything appended before this call is as
        durable as the flush settings require; None if it is now.

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

    def partition(self, topic: UUID | str | None, partition: int) -> PartitionLog | ErrorCode:
        """Return a partition's log; or UNKNOWN_TOPIC_ID for an unknown id,
        UNKNOWN_TOPIC_OR_PARTITION, or KAFKA_STORAGE_ERROR when the log is offline.

        :param topic: its id (None for the zero id), or its name
        """

    def append(self, partition_log: PartitionLog, data: bytes | memoryview) -> Appended | Refusal:
        """Check and append a producer's batch, and wake the requests that wait for it."""

    def appended(self, partition_log: PartitionLog) -> None:
        """Schedule the flush of what was just appended, and wake the requests that wait for it."""

    def pending_flush(self) -> Awaitable[None] | None:
        """Return an awaitable that completes when everything appended before this call is as
        durable as the flush settings require; None if it is now.

        :raises StorageError: from the awaitable, when a flush failed
        """


class WriteMeter(Protocol):
    """Counts the writes of one coordinator."""

    def wrote(self, records: Sequence[object], started: float) -> None:
        """Count a batch of records that was appended and replayed since ``started``, a
        :func:`time.perf_counter` reading.
        """


class Meters(Protocol):
    """The counters of a broker."""

    @property
    def coordinators(self) -> Mapping[str, WriteMeter]:
        """One meter for each internal topic, by the topic's name."""

    @property
    def share(self) -> ShareMetrics:
        """The counters of share groups."""


class BatchOpener(Protocol):
    """The thread that opens large batches, one after the other."""

    async def run(self, prepare: Callable[[], Callable[[Opening], T] | None]) -> T | None:
        """Wait for the turn of this call, prepare it on the loop, and run it in the thread.

        :param prepare: returns the function to run, or None if nothing is left to do
        :returns: the result of the function, or None
        """


@dataclass(frozen=True, slots=True)
class Environment:
    """The parts of the broker that the coordinators use.

    :ivar internal_logs: the logs of the internal topics
    :ivar logs: the logs of all topics
    :ivar notify: wakes the requests that wait for a key, see
        :class:`~headrace.topics.long_polls.LongPolls`
    :ivar serves_dead_letters: returns whether ``share.version`` is at a level with dead letters
    """

    clock: Clock
    config: Configuration
    catalog: Catalog
    internal_logs: InternalLogs
    logs: TopicLogs
    meters: Meters
    notify: Callable[[Hashable], object]
    opener: BatchOpener
    serves_dead_letters: Callable[[], bool] = lambda: True
