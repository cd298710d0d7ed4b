"""Where ``headrace consume`` reads from: partitions, or as a member of a group."""

from __future__ import annotations

import asyncio
import sys
import time
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any

from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
)

from headrace import positions
from headrace.blocking import ShareConsumer
from headrace.cli.errors import BadUsage, Failure
from headrace.cli.librdkafka import check_partition, reason
from headrace.client.config import read_config
from headrace.client.errors import error_line, raised
from headrace.client.message_headers import UnreadableHeaders, message_headers
from headrace.client.offsets import LATEST, list_offsets
from headrace.client.partition_reader import PartitionReader
from headrace.client.records import Record
from headrace.client.share.consumer import OutcomesFailed, is_setting
from headrace.patterns import matches
from headrace.protocol.partitions import TopicPartition

_POLLS_TO_LEAVE = 50
_MAX_EMPTY_READS = 150
"""About half a minute without records, and longer if brokers do not answer at all."""
_HINT_S = 2.0
_TIMESTAMP_TYPES = {
    TIMESTAMP_CREATE_TIME: "CreateTime",
    TIMESTAMP_LOG_APPEND_TIME: "LogAppendTime",
}
_TRANSIENT = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._RESOLVE,
    }
)
"""Errors from which librdkafka recovers."""


class Partitions:
    """Partitions that are read without a group: nobody is asked for a coordinator.

    :raises UnsupportedSetting: a setting cannot be used
    """

    def __init__(self, options: Namespace, config: Mapping[str, Any]) -> None:
        self._options = options
        self._isolation_level = int(options.read_committed)
        self._cluster = read_config(config).cluster()
        self._runner = asyncio.Runner()
        self._reader: PartitionReader | None = None
        self._has_ends = options.exit or options.end is not None
        self._empty_reads = 0

    def open(self) -> None:
        """Look up where to begin and to end.

        :raises Failure: no topic matches
        :raises ClientError: a broker refuses
        """
        self._reader = self._runner.run(self._open())

    def read(self, max_records: int, wait_s: float) -> list[Record] | None:
        """Return the next records, none if none came within ``wait_s``, None at the end.

        :raises ClientError: reading failed
        """
        assert self._reader is not None
        records = self._runner.run(self._reader.read(max_records, wait_s))
        self._empty_reads = 0 if records else self._empty_reads + 1
        # Up to an end there are records, and the reader tries again without end.
        if records is not None and self._has_ends and self._empty_reads > _MAX_EMPTY_READS:
            raise Failure("no broker sends the records up to the end")
        return records

    def done(self, records: Sequence[Record]) -> None:
        """Do nothing: nothing is committed."""

    def finish(self) -> None:
        """Do nothing: nothing is committed."""

    def close(self) -> None:
        """Close the connections."""
        with self._runner:
            self._runner.run(self._cluster.close())

    async def _open(self) -> PartitionReader:
        options = self._options
        partitions = [
            partition for name in options.topics for partition in await self._partitions(name)
        ]
        starts = await self._offsets(partitions, options.start or positions.EARLIEST)
        ends: dict[TopicPartition, int] = {}
        if self._has_ends:
            ends = await self._offsets(partitions, positions.LATEST)
            if options.end is not None:
                chosen = await self._offsets(partitions, options.end)
                ends = {p: min(end, chosen[p]) for p, end in ends.items()}
            starts = {p: start for p, start in starts.items() if start < ends[p]}
        return PartitionReader(self._cluster, starts, ends, self._isolation_level)

    async def _partitions(self, name: str) -> list[TopicPartition]:
        """Return the chosen partitions of a topic, or of those that match an expression."""
        if name.startswith("^"):
            topics = {
                topic.name: topic
                for topic in (await self._cluster.all_topics()).values()
                if matches(name[1:], topic.name)
            }
            if not topics:
                raise Failure(f"no topic matches '{name}'")
        else:
            topics = await self._cluster.topics([name])
        chosen = self._options.partition
        for topic in topics.values():
            for number in chosen or ():
                check_partition(number, topic.name, len(topic.leaders))
        return [
            (topic.name, number) for topic in topics.values() for number in chosen or topic.leaders
        ]

    async def _offsets(
        self, partitions: Sequence[TopicPartition], position: positions.Position
    ) -> dict[TopicPartition, int]:
        """Return offsets. A time after the last record gives the end of the log."""
        offset, time_ms = position
        if offset is not None and offset >= 0:
            return dict.fromkeys(partitions, offset)
        offsets = await self._offsets_at(partitions, LATEST if time_ms is None else time_ms)
        after = [partition for partition, listed in offsets.items() if listed is None]
        offsets |= await self._offsets_at(after, LATEST) if after else {}
        return {p: max(0, (listed or 0) + (offset or 0)) for p, listed in offsets.items()}

    async def _offsets_at(
        self, partitions: Iterable[TopicPartition], time_ms: int
    ) -> dict[TopicPartition, int | None]:
        listed = await list_offsets(
            self._cluster,
            dict.fromkeys(partitions, time_ms),
            isolation_level=self._isolation_level,
        )
        return {partition: answer.offset for partition, answer in raised(listed).items()}


class GroupMember:
    """A member of a consumer group, with librdkafka. It commits what was printed.

    :raises BadUsage: a setting cannot be used
    """

    def __init__(self, options: Namespace, config: Mapping[str, Any]) -> None:
        self._topics = [f"^({name[1:]})$" if name[0] == "^" else name for name in options.topics]
        self._group_id = options.group
        self._exits = options.exit
        self._messages: dict[tuple[str, int, int], Any] = {}
        self._ended: set[TopicPartition] = set()
        try:
            self._consumer = Consumer(
                {
                    "log_level": 2,  # the command reports errors
                    **config,
                    "group.id": options.group,
                    "enable.auto.commit": True,
                    "enable.auto.offset.store": False,
                    "enable.partition.eof": options.exit,
                    "isolation.level": (
                        "read_committed" if options.read_committed else "read_uncommitted"
                    ),
                    "auto.offset.reset": (
                        "latest" if options.start == positions.LATEST else "earliest"
                    ),
                }
            )
        except KafkaException as error:
            raise BadUsage(error_line(error)) from error

    def open(self) -> None:
        """Join the group."""
        self._consumer.subscribe(self._topics)

    def read(self, max_records: int, wait_s: float) -> list[Record] | None:
        """Return the next records, none if none came within ``wait_s``, None at the ends.

        :raises Failure: reading failed
        """
        # consume() waits until it has all records that it may return: wait for the first only.
        first = self._consumer.poll(wait_s)
        if first is None:
            assigned = {(one.topic, one.partition) for one in self._consumer.assignment()}
            return None if assigned and assigned <= self._ended else []
        more = self._consumer.consume(max_records - 1, 0) if max_records > 1 else []
        records = map(self._record, (first, *more))
        return [record for record in records if record is not None]

    def _record(self, message: Any) -> Record | None:
        """Return a record, None for what is none.

        :raises Failure: reading failed, or a header cannot be read
        """
        topic, partition, error = message.topic(), message.partition(), message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                self._ended.add((topic, partition))
            elif error.code() not in _TRANSIENT:
                named = ", ".join(self._topics) if topic is None else f"{topic}-{partition}"
                raise Failure(f"reading {named} as group '{self._group_id}': {self._why(error)}")
            return None
        self._ended.discard((topic, partition))
        try:
            headers = message_headers(message)
        except UnreadableHeaders as unreadable:
            raise Failure(f"{topic}-{partition} offset {message.offset()}: {unreadable}") from None
        kind, at_ms = message.timestamp()
        record = Record(
            topic,
            partition,
            message.offset(),
            message.key(),
            message.value(),
            headers,
            at_ms if kind in _TIMESTAMP_TYPES else -1,
            _TIMESTAMP_TYPES.get(kind, "NoTimestampType"),
            0,
        )
        self._messages[record[:3]] = message
        return record

    def _why(self, error: KafkaError) -> str:
        if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            return reason(error, f"READ on group '{self._group_id}'")
        return reason(error, f"READ on topic '{', '.join(self._topics)}'")

    def done(self, records: Sequence[Record]) -> None:
        """Remember the offsets of records to commit, unless their partition was revoked meanwhile:
        its next member prints them again.
        """
        for record in sorted(records):
            try:
                self._consumer.store_offsets(message=self._messages[record[:3]])
            except KafkaException as error:
                if error.args[0].code() != KafkaError._STATE:
                    raise
        self._messages.clear()

    def finish(self) -> None:
        """Commit what was printed.

        :raises Failure: the broker refuses or does not answer
        """
        try:
            self._consumer.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._NO_OFFSET:
                why = self._why(error.args[0])
                raise Failure(f"committing as group '{self._group_id}': {why}") from error

    def close(self) -> None:
        """Leave the group."""
        # librdkafka may hang if it is closed while an assignment arrives (its issue 4884).
        self._consumer.unsubscribe()
        for _ in range(_POLLS_TO_LEAVE):
            self._consumer.poll(0.01)
            if not self._consumer.assignment():
                break
        self._consumer.close()


def share_config(options: Namespace, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a share consumer: a file may have settings of other clients."""
    chosen = {name for name, _ in getattr(options, "command_property", ())}
    return {
        name: value
        for name, value in {"client.id": "headrace", **config}.items()
        if name in chosen or is_setting(name)
    }


class ShareMember:
    """A member of a share group, which ends each record that was printed."""

    def __init__(self, options: Namespace, config: Mapping[str, Any]) -> None:
        start: str | float | None = None
        if options.start is not None:
            start = "latest" if options.start == positions.LATEST else "earliest"
            if options.start.time_ms is not None:
                start = max(0.0, time.time() - options.start.time_ms / 1000)
        self._queue = ShareConsumer(
            {**share_config(options, config), "group.id": options.share_group},
            options.topics,
            start=start,
        )
        self._end = getattr(self._queue, options.outcome or "accept")
        self._hint_s = time.monotonic() + _HINT_S if options.start is None else inf

    def open(self) -> None:
        """Join the group.

        :raises ClientError: a broker refuses
        """
        self._queue.open()

    def read(self, max_records: int, wait_s: float) -> list[Record]:
        """Return the next records, none if none came within ``wait_s``.

        :raises ClientError: the membership has ended, or a batch cannot be read
        """
        records = self._queue.poll(max_records, wait_s)
        if records:
            self._hint_s = inf
        elif time.monotonic() > self._hint_s:
            self._hint_s = inf
            print(
                "no record yet: a new share group begins with records from now on; with --from "
                "earliest it begins with the oldest",
                file=sys.stderr,
            )
        return records

    def done(self, records: Sequence[Record]) -> None:
        """Send the outcome of records, and tell which was not accepted."""
        try:
            self._end(records)
        except OutcomesFailed as error:
            print(f"{error}: they will be delivered again", file=sys.stderr)

    def finish(self) -> None:
        """Do nothing: every outcome is confirmed."""

    def close(self) -> None:
        """Release what was not printed, and leave the group."""
        self._queue.close()


Source = Partitions | GroupMember | ShareMember


def source(options: Namespace, config: Mapping[str, Any]) -> Source:
    """Return what the options name.

    :raises BadUsage: a setting cannot be used
    """
    if options.share_group is not None:
        return ShareMember(options, config)
    return (Partitions if options.group is None else GroupMember)(options, config)
