"""The values that :class:`headrace.client.ShareConsumer` takes and gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from headrace.protocol.partitions import TopicPartition


class AcknowledgeType(IntEnum):
    """What becomes of an acquired record. ``RENEW`` keeps it, and starts its acquisition lock anew
    (KIP-1222).
    """

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class AcquireMode(IntEnum):
    """How strictly the number of records asked for is kept.

    ``BATCH_OPTIMIZED`` goes on to the end of the producer's batch; ``RECORD_LIMIT`` stops at the
    number, where the broker offers it (ShareFetch v2, Kafka 4.2).
    """

    BATCH_OPTIMIZED = 0
    RECORD_LIMIT = 1


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """How much one ShareFetch asks for.

    :param max_wait_ms: how long the broker may wait when there is nothing to acquire
    :param max_bytes: of record batches
    :param batch_size: acquired runs longer than this are split, at batch boundaries
    """

    max_records: int
    max_wait_ms: int
    max_bytes: int
    batch_size: int
    mode: AcquireMode

    def spread_over(self, nodes: int, max_wait_ms: int) -> FetchLimits:
        """The same, for each of ``nodes`` brokers that are asked at once."""
        each = max(1, self.max_records // nodes)
        return FetchLimits(each, max_wait_ms, self.max_bytes, self.batch_size, self.mode)


@dataclass(frozen=True, slots=True)
class AcquiredRange:
    """A run of records that this member now holds.

    :param last_offset: inclusive
    :param delivery_count: how often they have been delivered, this time included
    """

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    delivery_count: int

    @property
    def count(self) -> int:
        """How many offsets it spans."""
        return self.last_offset - self.first_offset + 1


@dataclass(frozen=True, slots=True)
class Acquired:
    """The result of one :meth:`ShareConsumer.acquire`.

    :param ranges: what was acquired
    :param data: per (topic, partition) the record batches that hold them, in Kafka's format, as the
        broker sent them: they may hold records before and after the acquired ones.
        :func:`headrace.protocol.record_batch.records` reads them
    :param complete: False when a broker did not answer or answered with an error: there may be more
        to acquire
    """

    ranges: tuple[AcquiredRange, ...] = ()
    data: Mapping[TopicPartition, bytes] = field(default_factory=dict)
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """What became of a run of records; ``last_offset`` is inclusive."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    type: AcknowledgeType
