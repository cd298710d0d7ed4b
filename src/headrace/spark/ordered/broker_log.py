"""Questions of the driver of ``kafka-ordered`` to the brokers.

There are few requests: a Metadata once in a while, and one ListOffsets per broker and question.
Batches are fetched only where :mod:`headrace.spark.ordered.plan` has to check a hint, and opened
only where their heads do not tell enough.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from headrace.client import ClientError, ConnectionFailed, TopicMetadata
from headrace.client.connection import Connection
from headrace.client.coordinators import LEADER_MOVED, Leaders, ask_brokers
from headrace.client.errors import Answers, UnknownTopic, has_code, raised
from headrace.client.fetch import FetchLimits, FetchPosition, fetch
from headrace.client.offsets import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    READ_UNCOMMITTED,
    ListedOffset,
    committed_offsets,
    list_offsets,
)
from headrace.log_lines import get_logger
from headrace.protocol.partitions import TopicPartition
from headrace.protocol.record_batch import (
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    BatchHeader,
    header_at,
)
from headrace.protocol.time_slices import chunks
from headrace.spark.reader.log_reader import LogReader
from headrace.spark.reader.ranges import OffsetRange

from .options import OrderedOptions

Offsets = dict[TopicPartition, int]
_log = get_logger(__name__)

_LOOK_BYTES = 512 * 1024
"""Bytes of a partition to hold while its first visible record is looked for."""
_SCAN_BYTES = 4 * 1024 * 1024
_HEADS_AT_ONCE = 2
"""Batches of one leader that are in memory at a time to look at their heads."""
_TIMEOUT_S = 10.0


class BrokerLog:
    """The logs of a query's subscribed topics. All questions but :meth:`scan` are about many
    partitions at once.

    A record is *visible* if a consumer would get it: transaction markers are not, and with
    read_committed neither are records of aborted transactions. A partition whose broker does not
    answer is missing in the result.

    Connects when it is first asked.

    :ivar thread: the connections to the cluster
    :ivar replaced: topics that were deleted, or got another id; to be cleared by whoever gives up
        the positions in them
    """

    def __init__(self, options: OrderedOptions) -> None:
        self._options = options
        self.thread = options.kafka.shared_thread()
        self._leaders = Leaders(self.thread.cluster)
        self._topics: dict[str, int] = {}
        self._existing: dict[str, TopicMetadata] = {}
        self._hints: dict[TopicPartition, ListedOffset] = {}
        """The last answers of :meth:`offsets_at`."""
        self.replaced: set[str] = set()
        self._metadata_at_s = -math.inf

    def topics(self) -> Mapping[str, int]:
        """Return the number of partitions of each subscribed topic that exists.

        Topics are in the order of the subscription. The metadata are at most ``metadata_age_ms``
        old.

        :raises ClientError: the cluster does not answer, or a topic may not be read
        """
        now_s = time.monotonic()
        if now_s - self._metadata_at_s >= self._options.metadata_age_ms / 1000:
            subscription = self._options.subscription
            existing = self.thread.run(subscription.existing(self.thread.cluster))
            names = subscription.topics or sorted(existing)
            self._topics = {name: len(existing[name].leaders) for name in names if name in existing}
            self._leaders.topics = dict(existing)
            for name, topic in self._existing.items():
                if name not in existing or existing[name].topic_id != topic.topic_id:
                    self.replaced.add(name)
                    self._hints.clear()
            self._existing = existing
            self._metadata_at_s = now_s
        return self._topics

    def complete_topics(self) -> Mapping[str, int]:
        """Return the same as :meth:`topics`, if all subscribed topics exist.

        :raises ClientError: a topic does not exist, or the cluster does not answer
        :raises SourceError: no topic matches the pattern
        """
        topics = self.topics()
        self._options.subscription.check(topics)
        return topics

    def expire_metadata(self) -> None:
        """Ask for metadata again when they are next needed."""
        self._metadata_at_s = -math.inf

    def starts(self, partitions: Sequence[TopicPartition]) -> Offsets:
        """Return the first offset of each log."""
        return self._bounds(partitions, EARLIEST)

    def ends(self, partitions: Sequence[TopicPartition]) -> Offsets:
        """Return the high watermark, or the last stable offset with read_committed."""
        return self._bounds(partitions, LATEST)

    def high_watermarks(self, partitions: Sequence[TopicPartition]) -> Offsets:
        """Return the offset after the last record, whatever transactions are open."""
        return self._bounds(partitions, LATEST, READ_UNCOMMITTED)

    def offsets_at(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        """Return the first offset of the whole log with that timestamp or a later one.

        The record may be invisible. None if there is no such record.
        """
        hints = self._list_offsets(timestamps_ms)
        self._hints |= hints
        return {p: record.offset for p, record in hints.items()}

    def largest_timestamps(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return (timestamp in ms, offset) of the first record with the largest timestamp.

        The record may be invisible. An empty partition is missing in the result.
        """
        listed = self._list_offsets(dict.fromkeys(partitions, MAX_TIMESTAMP))
        return {
            p: (record.timestamp_ms, record.offset)
            for p, record in listed.items()
            if record.offset is not None and record.timestamp_ms is not None
        }

    def first_visible(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], by_heads: bool = True
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return (offset, timestamp in ms) of the first visible record in each range.

        :param ranges: (start inclusive, end exclusive)
        :param by_heads: believe the heads of batches. Some producers write the smallest timestamp
            of a batch where others write that of its first record
        """
        firsts: dict[TopicPartition, tuple[int, int]] = {}
        if by_heads:
            firsts = self._first_of_heads({p: start for p, (start, _) in ranges.items()})
        ranges = {p: bounds for p, bounds in ranges.items() if p not in firsts}
        if not ranges:
            return firsts
        with self._reader(ranges, min(len(ranges) * _LOOK_BYTES, _SCAN_BYTES)) as reader:
            for partition in ranges:
                batch = reader.next(partition)
                if batch is not None:
                    first = batch.slice(0, 1)
                    offset = first.column("offset")[0].as_py()
                    firsts[partition] = (offset, int(timestamps_ms(first)[0]))
        return firsts

    def _first_of_heads(
        self, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return (offset, timestamp in ms) of the records at offsets, as far as the heads of their
        batches tell: that they are there and visible; and their timestamps, if they are the first
        of their batches or the broker's last hints.
        """
        heads = self.thread.run(
            ask_brokers(
                self.thread.cluster.within(_TIMEOUT_S),
                self._leaders,
                offsets,
                partial(self._heads, offsets),
                attempts=1,
            )
        )
        firsts: dict[TopicPartition, tuple[int, int]] = {}
        for partition, head in heads.items():
            if head is None or isinstance(head, ClientError) or head.magic != 2:
                continue
            hides_records = head.is_transactional and self._options.reading.read_committed
            has_gaps = head.record_count != head.last_offset_delta + 1
            offset, hint = offsets[partition], self._hints.get(partition)
            if head.is_control or hides_records or has_gaps or head.base_offset > offset:
                continue
            if hint is not None and hint.offset == offset and hint.timestamp_ms is not None:
                firsts[partition] = offset, hint.timestamp_ms
            elif head.base_offset == offset and head.delete_horizon_ms is None:
                by_broker = head.attributes & LOG_APPEND_TIME_BIT
                firsts[partition] = offset, head.max_timestamp if by_broker else head.base_timestamp
        return firsts

    async def _heads(
        self,
        offsets: Mapping[TopicPartition, int],
        connection: Connection,
        led: Sequence[TopicPartition],
        timeout_ms: int,
    ) -> Answers[TopicPartition, BatchHeader | None]:
        """Return the head of the batch at each partition's offset; None where there is none."""
        topic_ids = {name: topic.topic_id for name, topic in self._existing.items()}

        async def head(partition: TopicPartition) -> BatchHeader | None:
            # In a request of its own: a broker sends a batch that is larger than asked for only of
            # the first partition that has one.
            answers = await fetch(
                connection,
                {partition: FetchPosition(offsets[partition], 1)},
                topic_ids,
                FetchLimits(0, 1, self._options.reading.isolation_level),
                timeout_ms=timeout_ms,
            )
            answer = answers.get(partition)
            if answer is None or len(answer.records) < HEADER_BYTES:
                return None
            return header_at(answer.records)

        heads: Answers[TopicPartition, BatchHeader | None] = {}
        for few in chunks(led, _HEADS_AT_ONCE):
            heads |= zip(few, await asyncio.gather(*map(head, few)), strict=True)
        return heads

    def scan(self, partition: TopicPartition, start: int, end: int) -> Iterator[tuple[Any, Any]]:
        """Yield offsets and timestamps in ms of the visible records in a range, as numpy arrays."""
        with self._reader({partition: (start, end)}, _SCAN_BYTES) as reader:
            while (batch := reader.next(partition)) is not None:
                yield batch.column("offset").to_numpy(), timestamps_ms(batch)

    def committed(self, group_id: str, partitions: Sequence[TopicPartition]) -> Offsets:
        """Return the group's committed offsets, of the partitions that have one."""
        answers = self.thread.run(
            committed_offsets(self.thread.cluster, {group_id: partitions}, require_stable=True)
        )
        return {partition: at.offset for partition, at in raised(answers)[group_id].items()}

    def _reader(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], buffer_bytes: int
    ) -> LogReader:
        options = replace(
            self._options.reading,
            headers=False,
            warn_of_lost=False,  # the task that reads the same range warns
            buffer_bytes=buffer_bytes,
        )
        offsets = [OffsetRange(*partition, *bounds) for partition, bounds in ranges.items()]
        return LogReader(self._options.kafka, offsets, options)

    def _bounds(
        self, partitions: Sequence[TopicPartition], bound: int, isolation_level: int | None = None
    ) -> Offsets:
        listed = self._list_offsets(dict.fromkeys(partitions, bound), isolation_level)
        return {p: record.offset for p, record in listed.items() if record.offset is not None}

    def _list_offsets(
        self, timestamps: Mapping[TopicPartition, int], isolation_level: int | None = None
    ) -> dict[TopicPartition, ListedOffset]:
        """Ask the leader of each partition, once.

        :raises ClientError: a leader refuses
        """
        if not timestamps:
            return {}
        if isolation_level is None:
            isolation_level = self._options.reading.isolation_level
        answers = self.thread.run(
            list_offsets(
                self.thread.cluster.within(_TIMEOUT_S),
                timestamps,
                isolation_level=isolation_level,
                leaders=self._leaders,
                attempts=1,
            )
        )
        listed: dict[TopicPartition, ListedOffset] = {}
        failures: dict[str, None] = {}
        for partition, answer in answers.items():
            if isinstance(answer, ListedOffset):
                listed[partition] = answer
            elif isinstance(answer, ConnectionFailed):
                failures[str(answer)] = None
            elif not (isinstance(answer, UnknownTopic) or has_code(answer, *LEADER_MOVED)):
                raise answer
        for failure in failures:
            _log.warning("%s", failure)
        if len(listed) < len(timestamps):
            self.expire_metadata()  # leaders have moved, or do not answer
        return listed


def timestamps_ms(batch: Any) -> Any:
    """Return the column ``timestamp`` in milliseconds, as a numpy array."""
    return batch.column("timestamp").cast(pa.int64()).to_numpy() // 1000
