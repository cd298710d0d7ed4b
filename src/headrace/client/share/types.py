"""The values that :class:`headrace.client.RangeConsumer` accepts and returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TypeVar
from uuid import UUID

from headrace.protocol.partitions import TopicIdPartition, TopicPartition

from .spans import Span


class AcknowledgeType(IntEnum):
    """The outcome of an acquired record (KIP-932). ``RENEW`` keeps it and restarts its acquisition
    lock (KIP-1222).
    """

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class AcquireMode(IntEnum):
    """The meaning of the maximum number of records.

    ``BATCH_OPTIMIZED`` may exceed it up to the end of a batch; ``RECORD_LIMIT`` does not, if the
    broker supports that (ShareFetch v2, Kafka 4.2).
    """

    BATCH_OPTIMIZED = 0
    RECORD_LIMIT = 1


@dataclass(frozen=True, slots=True)
class AcquireLimits:
    """The limits of one ShareFetch.

    :param max_records: number of records to acquire
    :param max_wait_ms: time that the broker may wait for a record
    :param max_bytes: size of record batches
    :param offsets_only: the records are read by others; a broker that can leaves them out
    """

    max_records: int
    max_wait_ms: int
    max_bytes: int
    mode: AcquireMode
    offsets_only: bool


@dataclass(frozen=True, slots=True)
class AcquiredRange:
    """A run of acquired records.

    :param last_offset: inclusive
    :param delivery_count: number of deliveries, including this one
    :param topic_id: the id of the topic, which another topic of the same name does not have
    """

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    delivery_count: int
    topic_id: UUID | None = field(default=None, compare=False)

    @property
    def topic_partition(self) -> TopicPartition:
        """The topic and the number of the partition."""
        return self.topic, self.partition

    @property
    def count(self) -> int:
        """The number of offsets."""
        return self.last_offset - self.first_offset + 1

    @property
    def span(self) -> Span:
        """The first and the last offset."""
        return self.first_offset, self.last_offset

    @property
    def key(self) -> TopicIdPartition:
        """The id of the topic, which is known, and the number of the partition."""
        assert self.topic_id is not None
        return self.topic_id, self.partition


@dataclass(frozen=True, slots=True)
class Acquired:
    """The result of one :meth:`RangeConsumer.acquire`.

    :param ranges: the acquired runs
    :param data: (topic, partition) → the record batches of the runs, with other records of the same
        batches, as :func:`headrace.client.records.decode` reads them
    :param complete: False if a broker refused or did not answer, so that it may have more records
    """

    ranges: tuple[AcquiredRange, ...] = ()
    data: Mapping[TopicPartition, bytes] = field(default_factory=dict)
    complete: bool = True

    def ranges_by_partition(self) -> dict[TopicPartition, list[AcquiredRange]]:
        """Return the acquired runs of each partition."""
        by_partition: dict[TopicPartition, list[AcquiredRange]] = {}
        for run in self.ranges:
            by_partition.setdefault(run.topic_partition, []).append(run)
        return by_partition


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """The outcome of a run of records.

    :param last_offset: inclusive
    :param topic_id: the one of the :class:`AcquiredRange`; without it, records of a topic that was
        deleted and created again are taken for those of the new one
    :param reason: why records are rejected, for headrace's dead letters
    :param delay_ms: time until released records are delivered again; only headrace's broker delays
    """

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    type: AcknowledgeType
    topic_id: UUID | None = field(default=None, compare=False)
    reason: str = ""
    delay_ms: int = 0

    @property
    def span(self) -> Span:
        """The first and the last offset."""
        return self.first_offset, self.last_offset


R = TypeVar("R", AcquiredRange, Acknowledgement)


def parts(run: R, spans: Iterable[Span]) -> list[R]:
    """Return the parts of a run with the offsets of each span."""
    return [replace(run, first_offset=first, last_offset=last) for first, last in spans]
