"""The values that :class:`headrace.client.RangeConsumer` accepts and returns, and set operations on
runs of offsets, each in one linear pass at most: results are sorted and disjoint, and both ends of
a run are inclusive.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from uuid import UUID

from headrace.protocol.partitions import TopicIdPartition, TopicPartition


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
    """

    max_records: int
    max_wait_ms: int
    max_bytes: int
    mode: AcquireMode

    def spread_over(self, nodes: int) -> AcquireLimits:
        """Return the limits for each of ``nodes`` brokers that are asked at once."""
        return replace(self, max_records=max(1, self.max_records // nodes))


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
            by_partition.setdefault((run.topic, run.partition), []).append(run)
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


Span = tuple[int, int]
"""(first offset, last offset), both inclusive"""


def normalize(spans: Iterable[Span]) -> list[Span]:
    """Sort spans, and merge those that overlap or touch."""
    merged: list[Span] = []
    for first, last in sorted(spans):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged


def intersect(left: Sequence[Span], right: Sequence[Span]) -> list[Span]:
    """Return the offsets in both; each argument is sorted and disjoint."""
    if not left or not right:
        return []
    common: list[Span] = []
    # Few of many runs need not pass by all of them.
    i = max(bisect_right(left, right[0]) - 1, 0)
    j = max(bisect_right(right, left[0]) - 1, 0)
    while i < len(left) and j < len(right):
        first, last = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if first <= last:
            common.append((first, last))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return common


def subtract(left: Sequence[Span], right: Sequence[Span]) -> list[Span]:
    """Return the offsets of ``left`` not in ``right``; each argument is sorted and disjoint."""
    rest: list[Span] = []
    j = max(bisect_right(right, left[0]) - 1, 0) if left else 0
    for first, last in left:
        while j < len(right) and right[j][1] < first:
            j += 1
        k = j
        while k < len(right) and right[k][0] <= last:
            if first < right[k][0]:
                rest.append((first, right[k][0] - 1))
            first = right[k][1] + 1
            k += 1
        if first <= last:
            rest.append((first, last))
    return rest


def contains(spans: Sequence[Span], offset: int) -> bool:
    """Return whether an offset is in sorted and disjoint spans."""
    at = bisect_right(spans, (offset, math.inf)) - 1
    return at >= 0 and offset <= spans[at][1]


def count(spans: Iterable[Span]) -> int:
    """Return the number of offsets in disjoint spans."""
    return sum(last - first + 1 for first, last in spans)


# Of several partitions ----------------------------------------------------------------------------

PartitionSpans = dict[TopicIdPartition, list[Span]]
"""Topic id and partition → runs of offsets, sorted and disjoint."""


def intersection(
    left: Mapping[TopicIdPartition, Sequence[Span]],
    right: Mapping[TopicIdPartition, Sequence[Span]],
) -> PartitionSpans:
    """Return the offsets in both."""
    return _by_partition(intersect, left, right)


def difference(
    left: Mapping[TopicIdPartition, Sequence[Span]],
    right: Mapping[TopicIdPartition, Sequence[Span]],
) -> PartitionSpans:
    """Return the offsets of ``left`` that are not in ``right``."""
    return _by_partition(subtract, left, right)


def _by_partition(
    combine: Callable[[Sequence[Span], Sequence[Span]], list[Span]],
    left: Mapping[TopicIdPartition, Sequence[Span]],
    right: Mapping[TopicIdPartition, Sequence[Span]],
) -> PartitionSpans:
    return {
        partition: spans
        for partition in left
        if (spans := combine(left[partition], right.get(partition, ())))
    }


def add(held: PartitionSpans, acquired: PartitionSpans) -> None:
    """Add runs to those that are held."""
    for partition, spans in acquired.items():
        held[partition] = normalize([*held.get(partition, ()), *spans])


def drop(held: PartitionSpans, ended: PartitionSpans) -> None:
    """Remove runs from those that are held."""
    for partition, spans in ended.items():
        if rest := subtract(held.get(partition, ()), spans):
            held[partition] = rest
        else:
            held.pop(partition, None)
