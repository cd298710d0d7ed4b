"""The values that :class:`headrace.client.RangeConsumer` accepts and returns."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from uuid import UUID

from headrace.protocol.partitions import TopicPartition
from headrace.protocol.record_batch import BatchHeader, CorruptBatch, headers, records


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
    :param batch_size: number of records above which an acquired run is split, at batch boundaries
    """

    max_records: int
    max_wait_ms: int
    max_bytes: int
    batch_size: int
    mode: AcquireMode

    def spread_over(self, nodes: int, max_wait_ms: int) -> AcquireLimits:
        """Return the limits for each of ``nodes`` brokers that are asked at once."""
        each = max(1, self.max_records // nodes)
        return AcquireLimits(each, max_wait_ms, self.max_bytes, self.batch_size, self.mode)


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


@dataclass(frozen=True, slots=True)
class AcquiredRecord:
    """A record that a member has acquired.

    :param timestamp_ms: since the epoch; -1 for none
    :param timestamp_type: ``CreateTime`` or ``LogAppendTime``
    :param headers: names and values
    :param delivery_count: number of deliveries, including this one
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int
    timestamp_type: str
    delivery_count: int


@dataclass(frozen=True, slots=True)
class Acquired:
    """The result of one :meth:`RangeConsumer.acquire`.

    :param ranges: the acquired runs
    :param data: (topic, partition) → the record batches of the runs, with other records of the same
        batches, as :meth:`records` reads them; empty with ``keep_data=False``
    :param complete: False if a broker refused or did not answer, so that it may have more records
    """

    ranges: tuple[AcquiredRange, ...] = ()
    data: Mapping[TopicPartition, bytes] = field(default_factory=dict)
    complete: bool = True

    def records(self) -> Iterator[AcquiredRecord]:
        """Yield the acquired records, partition by partition.

        Transaction markers and offsets that compaction has emptied have no record: acknowledge
        whole ranges, or these offsets as ``GAP``.

        :raises CorruptBatch: a batch cannot be read, or data are missing. The rest of the partition
            and the other partitions were not read: do not accept them
        """
        for place in self.ranges_by_partition():
            yield from self.records_of(place)

    def records_of(self, place: TopicPartition) -> Iterator[AcquiredRecord]:
        """Yield the acquired records of one partition, in the order of their offsets.

        :raises CorruptBatch: see :meth:`records`
        """
        return _records(self.data.get(place, b""), self.ranges_by_partition().get(place, []))

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
    """

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    type: AcknowledgeType
    topic_id: UUID | None = field(default=None, compare=False)


def _records(data: bytes, ranges: Sequence[AcquiredRange]) -> Iterator[AcquiredRecord]:
    """Yield the records of the acquired runs of one partition, in the order of their offsets.

    :param data: record batches, in the order of their offsets for each broker that has sent some
    :param ranges: of this partition
    :raises CorruptBatch: a batch cannot be read, or the batches end before the runs do
    """
    runs = _without_overlaps(ranges)
    last_offsets = [run.last_offset for run in runs]
    view = memoryview(data)
    next_offset = 0
    # Two brokers have sent batches if the leader has moved, perhaps the same ones.
    for position, header in sorted(headers(view), key=lambda batch: batch[1].base_offset):
        if header.last_offset < next_offset:
            continue
        if not header.is_control and _overlaps(header, runs, last_offsets):
            for record in records(view[position : position + header.size_bytes]):
                at = bisect_left(last_offsets, record.offset)
                if record.offset < next_offset or at == len(runs):
                    continue
                run = runs[at]
                if record.offset >= run.first_offset:
                    yield AcquiredRecord(
                        run.topic,
                        run.partition,
                        record.offset,
                        record.key,
                        record.value,
                        record.headers,
                        record.timestamp_ms,
                        header.timestamp_type,
                        run.delivery_count,
                    )
        next_offset = header.last_offset + 1
    # Who acknowledges the runs after the last record must not acknowledge what never came.
    if runs and runs[-1].last_offset >= next_offset:
        raise CorruptBatch(
            f"the records of {runs[-1].topic}-{runs[-1].partition} up to offset "
            f"{runs[-1].last_offset} were acquired, and those from {next_offset} on did not come"
        )


def _without_overlaps(ranges: Sequence[AcquiredRange]) -> list[AcquiredRange]:
    """Return the runs in ascending order, each offset once."""
    runs: list[AcquiredRange] = []
    for run in sorted(ranges, key=lambda run: run.first_offset):
        first_offset = max(run.first_offset, runs[-1].last_offset + 1) if runs else run.first_offset
        if first_offset <= run.last_offset:
            runs.append(replace(run, first_offset=first_offset))
    return runs


def _overlaps(
    header: BatchHeader, runs: Sequence[AcquiredRange], last_offsets: Sequence[int]
) -> bool:
    at = bisect_left(last_offsets, header.base_offset)
    return at < len(runs) and runs[at].first_offset <= header.last_offset
