"""What the driver of ``kafka-ordered`` asks the brokers: topics, ends, offsets by time, and the
group's commits.

Few requests: one Metadata now and then, one ListOffsets per broker and question. Records are looked
at only where :mod:`headrace.spark.ordered.plan` has doubts.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pyarrow as pa

from headrace.client import ConnectionFailed
from headrace.client.list_offsets import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    ListedOffset,
    ask_leader,
)
from headrace.client.offset_commits import committed_offsets
from headrace.protocol.partitions import TopicPartition
from headrace.spark.reader.log_reader import LogReader, OffsetRange, link
from headrace.spark.subscription import check_complete, existing_topics

from .options import OrderedOptions

_log = logging.getLogger(__name__)

_PARTITIONS_AT_ONCE = 10_000
"""How many partitions one ListOffsets names: a broker is not held up for long."""
_FIRST_LOOK = 200
"""So many offsets are looked at for the first record that is visible; then all that there are."""
_LOOK_BUFFER_BYTES = 4 * 1024 * 1024
_TIMEOUT_MS = 10_000


class BrokerLog:
    """The subscribed topics of one query, as its driver sees them. See
    :class:`headrace.spark.ordered.plan.Log`.

    Connects when first asked.
    """

    def __init__(self, options: OrderedOptions) -> None:
        self._options = options
        self._isolation_level = READ_COMMITTED if options.read_committed else READ_UNCOMMITTED
        self.link = link(options.kafka)
        self._leaders: dict[TopicPartition, int] = {}
        self._topics: dict[str, int] = {}
        self._ids: dict[str, UUID] = {}
        self._replaced: set[str] = set()
        self._asked_at_s: float | None = None

    def topics(self) -> Mapping[str, int]:
        """How many partitions each subscribed topic has, in the order of the subscription; asked
        for now and then.

        Topics that do not exist are left out.

        :raises ClientError: the cluster does not answer, or a topic may not be read
        """
        now_s = time.monotonic()
        if (
            self._asked_at_s is None
            or (now_s - self._asked_at_s) * 1000 >= self._options.metadata_age_ms
        ):
            found = self.link.call(existing_topics(self.link.cluster, self._options.subscription))
            names = self._options.subscription.topics or sorted(found)
            self._leaders = {
                (t, p): leader for t, topic in found.items() for p, leader in topic.leaders.items()
            }
            self._topics = {name: len(found[name].leaders) for name in names if name in found}
            ids = {name: topic.topic_id for name, topic in found.items()}
            self._replaced |= {
                name for name, topic_id in self._ids.items() if ids.get(name) != topic_id
            }
            self._ids = ids
            self._asked_at_s = now_s
        return self._topics

    def all_topics(self) -> Mapping[str, int]:
        """The same, when they all exist.

        :raises ClientError: one does not, or the cluster does not answer
        :raises SourceError: no topic matches the pattern
        """
        topics = self.topics()
        check_complete(topics, self._options.subscription)
        return topics

    def look_again(self) -> None:
        """Ask for the topics anew the next time."""
        self._asked_at_s = None

    @property
    def replaced(self) -> Collection[str]:
        """Topics that were gone at some time, or have another id than before, since
        :meth:`accept_replaced`.
        """
        return self._replaced

    def accept_replaced(self) -> None:
        """Positions in those topics are not used any more."""
        self._replaced.clear()

    def starts(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each log; without those that nobody tells of now."""
        return _offsets(self._list(dict.fromkeys(partitions, EARLIEST)))

    def ends(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last record, or the last stable offset; without those that nobody
        tells of now.
        """
        return _offsets(self._list(dict.fromkeys(partitions, LATEST)))

    def whole_ends(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last record, whatever transactions are open; without those that
        nobody tells of now.
        """
        return _offsets(self._list(dict.fromkeys(partitions, LATEST), READ_UNCOMMITTED))

    def offsets_at(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        """The first offset with that timestamp or a later one; None without any."""
        return {p: found.offset for p, found in self._list(timestamps_ms).items()}

    def peaks(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """(timestamp, offset) of the record with the largest timestamp."""
        return {
            p: (found.timestamp_ms, found.offset)
            for p, found in self._list(dict.fromkeys(partitions, MAX_TIMESTAMP)).items()
            if found.offset is not None and found.timestamp_ms is not None
        }

    def heads(
        self, ranges: Mapping[TopicPartition, tuple[int, int]]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """(offset, timestamp) of the first visible record in each range."""
        near = {p: (start, min(end, start + _FIRST_LOOK)) for p, (start, end) in ranges.items()}
        found = self._first_records(near)
        far = {
            p: (near[p][1], end)
            for p, (_, end) in ranges.items()
            if p not in found and near[p][1] < end
        }
        return found | (self._first_records(far) if far else {})

    def walk(self, partition: TopicPartition, start: int, end: int) -> Iterator[tuple[Any, Any]]:
        """Offsets and timestamps of the visible records in a range."""
        with self._reader([OffsetRange(*partition, start, end)]) as reader:
            while (batch := reader.next(*partition)) is not None:
                yield batch.column("offset").to_numpy(), timestamps_ms(batch)

    def _first_records(
        self, ranges: Mapping[TopicPartition, tuple[int, int]]
    ) -> dict[TopicPartition, tuple[int, int]]:
        found = {}
        with self._reader(
            [OffsetRange(*p, start, end) for p, (start, end) in ranges.items()]
        ) as reader:
            for partition in ranges:
                batch = reader.next(*partition)
                if batch is not None:
                    found[partition] = (
                        batch.column("offset")[0].as_py(),
                        int(timestamps_ms(batch.slice(0, 1))[0]),
                    )
        return found

    def _reader(self, ranges: Sequence[OffsetRange]) -> LogReader:
        # The task that reads the same for the query is the one to warn.
        options = replace(
            self._options.reading,
            headers=False,
            warn_of_lost=False,
            buffer_bytes=_LOOK_BUFFER_BYTES,
        )
        return LogReader(self._options.kafka, ranges, options)

    def _list(
        self, wanted: Mapping[TopicPartition, int], isolation_level: int | None = None
    ) -> dict[TopicPartition, ListedOffset]:
        level = self._isolation_level if isolation_level is None else isolation_level
        return self.link.call(self._ask_leaders(wanted, level))

    async def _ask_leaders(
        self, wanted: Mapping[TopicPartition, int], isolation_level: int
    ) -> dict[TopicPartition, ListedOffset]:
        led: dict[int, list[TopicPartition]] = {}
        for partition in wanted:
            led.setdefault(self._leaders.get(partition, -1), []).append(partition)
        led.pop(-1, None)
        asked = [
            (node_id, {p: wanted[p] for p in partitions[at : at + _PARTITIONS_AT_ONCE]})
            for node_id, partitions in led.items()
            for at in range(0, len(partitions), _PARTITIONS_AT_ONCE)
        ]
        answers = await asyncio.gather(
            *(
                ask_leader(self.link.cluster, node, part, isolation_level, _TIMEOUT_MS)
                for node, part in asked
            ),
            return_exceptions=True,
        )
        found: dict[TopicPartition, ListedOffset] = {}
        for answer in answers:
            if isinstance(answer, ConnectionFailed):
                _log.warning("%s", answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found.update(answer)
        if len(found) < len(wanted):
            self.look_again()  # leaders have moved, or brokers are away
        return found

    def committed(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The group's committed offsets, of those partitions that have one."""
        return self.link.call(committed_offsets(self.link.cluster, group_id, partitions))


def _offsets(listed: Mapping[TopicPartition, ListedOffset]) -> dict[TopicPartition, int]:
    return {p: found.offset for p, found in listed.items() if found.offset is not None}


def timestamps_ms(batch: Any) -> Any:
    """The column ``timestamp`` in milliseconds, as a numpy array."""
    return batch.column("timestamp").cast(pa.int64()).to_numpy() // 1000
