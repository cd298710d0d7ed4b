"""The executor's side of ``kafka-share``: reads the values of acquired offsets with librdkafka, as Arrow batches."""

from __future__ import annotations

import atexit
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from pyspark.sql.datasource import InputPartition

from headrace.client import AcquiredRange

from .option_parsing import KafkaOptions, SourceError

_CHUNK_RECORDS = 2000
_POLL_TIMEOUT_S = 1.0
_STALLED_POLLS = 60
# Records that are read past, and dropped, rather than sought over.
_READ_THROUGH_RECORDS = 500

_DEFAULTS = {
    "client.id": "headrace-spark",
    # An acquired record is to be delivered, whatever its transaction became: the group's isolation level was applied
    # when it was acquired.
    "isolation.level": "read_uncommitted",
    "queued.min.messages": "20000",
    "fetch.wait.max.ms": "100",
}
_FIXED = {
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "enable.partition.eof": "true",
    # A record that retention deleted after it was acquired is gone: go on with the next.
    "auto.offset.reset": "earliest",
}


class SharePartition(InputPartition):
    """The work of one task: acquired ranges, of one or more topic partitions."""

    def __init__(self, ranges: Sequence[AcquiredRange]) -> None:
        super().__init__(tuple((r.topic, r.partition, r.first_offset, r.last_offset, r.delivery_count) for r in ranges))


def split(ranges: Sequence[AcquiredRange], records_per_task: int) -> list[SharePartition]:
    """Cut acquired ranges into tasks of about equal size, none larger than ``records_per_task``.

    A task may hold a piece of a topic partition or pieces of several.
    """
    total = sum(r.count for r in ranges)
    if not total:
        return []
    tasks = -(-total // records_per_task)
    room = size = -(-total // tasks)
    work: list[list[AcquiredRange]] = [[]]
    for acquired in sorted(ranges, key=lambda r: (r.topic, r.partition, r.first_offset)):
        first = acquired.first_offset
        while first <= acquired.last_offset:
            if not room:
                work.append([])
                room = size
            last = min(acquired.last_offset, first + room - 1)
            work[-1].append(AcquiredRange(acquired.topic, acquired.partition, first, last, acquired.delivery_count))
            room -= last - first + 1
            first = last + 1
    return [SharePartition(pieces) for pieces in work]


@dataclass(slots=True)
class _Pending:
    """The ranges of one topic partition still to be read: (first, last, delivery count), in order of offset."""

    ranges: list[tuple[int, int, int]]
    at: int = field(default=0)

    def take(self, offset: int) -> int | None:
        """The delivery count of ``offset`` when it is wanted; forgets the ranges before it."""
        while self.at < len(self.ranges) and self.ranges[self.at][1] < offset:
            self.at += 1
        if self.at == len(self.ranges) or offset < self.ranges[self.at][0]:
            return None
        return self.ranges[self.at][2]

    def next_after(self, offset: int) -> int | None:
        """Where reading goes on after ``offset``: None when all has been read."""
        while self.at < len(self.ranges) and self.ranges[self.at][1] <= offset:
            self.at += 1
        return None if self.at == len(self.ranges) else max(offset + 1, self.ranges[self.at][0])


def read(partition: SharePartition, kafka: KafkaOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The acquired records of one task. Offsets that hold no record (gaps, transaction markers) are passed over.

    :raises SourceError: the broker did not deliver for a minute
    """
    pending: dict[tuple[str, int], _Pending] = {}
    for topic, index, first, last, delivery_count in partition.value:
        pending.setdefault((topic, index), _Pending([])).ranges.append((first, last, delivery_count))
    consumer = _consumer(kafka)
    consumer.assign([TopicPartition(*key, work.ranges[0][0]) for key, work in pending.items()])
    rows = _Rows(schema)
    idle_polls = 0
    try:
        while pending:
            messages = consumer.consume(_CHUNK_RECORDS, _POLL_TIMEOUT_S)
            idle_polls = 0 if messages else idle_polls + 1
            if idle_polls == _STALLED_POLLS:
                _give_up(pending, kafka.bootstrap_servers)
            for key in _place(messages, pending, rows, consumer):
                del pending[key]
                consumer.incremental_unassign([TopicPartition(*key)])
            if len(rows) >= _CHUNK_RECORDS:
                yield rows.batch()
        if len(rows):
            yield rows.batch()
    finally:
        consumer.unassign()


def _place(
    messages: Sequence[Any], pending: dict[tuple[str, int], _Pending], rows: _Rows, consumer: Any
) -> set[tuple[str, int]]:
    """Put wanted records into ``rows``; the topic partitions that have been read to their end."""
    done: set[tuple[str, int]] = set()
    seek: dict[tuple[str, int], int] = {}
    for message in messages:
        key = (message.topic(), message.partition())
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF and key in pending:
                done.add(key)
            elif error.fatal() or not error.retriable():
                raise KafkaException(error)
            continue
        work = pending.get(key)
        if work is None or key in done:
            continue
        offset = message.offset()
        if offset < seek.get(key, 0):
            continue
        delivery_count = work.take(offset)
        if delivery_count is not None:
            rows.add(message, delivery_count)
        following = work.next_after(offset)
        if following is None:
            done.add(key)
            seek.pop(key, None)
        elif following > offset + _READ_THROUGH_RECORDS:
            seek[key] = following
    for (topic, index), offset in seek.items():
        consumer.seek(TopicPartition(topic, index, offset))
    return done


class _Rows:
    """Columns of records, until they are a batch."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._with_headers = "headers" in schema.names
        self._rows: list[tuple[Any, ...]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, message: Any, delivery_count: int) -> None:
        timestamp_type, timestamp_ms = message.timestamp()
        row: tuple[Any, ...] = (
            message.key(),
            message.value(),
            message.topic(),
            message.partition(),
            message.offset(),
            timestamp_ms * 1000 if timestamp_type else None,
            # librdkafka counts from 1 (create time), Spark's own Kafka source from 0.
            timestamp_type - 1,
        )
        if self._with_headers:
            headers = message.headers()
            row += (None if headers is None else [{"key": k, "value": v} for k, v in headers],)
        self._rows.append((*row, delivery_count))

    def batch(self) -> pa.RecordBatch:
        columns = [
            pa.array(column, type=kind.type)
            for column, kind in zip(zip(*self._rows, strict=True), self._schema, strict=True)
        ]
        self._rows = []
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


_consumers: dict[tuple[str, tuple[tuple[str, str], ...]], Any] = {}


def _consumer(kafka: KafkaOptions) -> Any:
    """A consumer of this worker process; kept for its next tasks, because connecting takes longer than reading."""
    key = (kafka.bootstrap_servers, tuple(sorted(kafka.librdkafka.items())))
    if key not in _consumers:
        # Of no group that anyone sees: librdkafka wants a name.
        config = kafka.consumer_config(_DEFAULTS, {**_FIXED, "group.id": f"headrace-spark-{secrets.token_hex(8)}"})
        _consumers[key] = Consumer(config, logger=None)
    return _consumers[key]


@atexit.register
def _close_consumers() -> None:
    for consumer in _consumers.values():
        consumer.close()
    _consumers.clear()


def _give_up(pending: Mapping[tuple[str, int], _Pending], bootstrap_servers: str) -> None:
    names = ", ".join(f"{topic}-{index}" for topic, index in pending)
    raise SourceError(
        f"{bootstrap_servers} delivered nothing of {names} for {_STALLED_POLLS * _POLL_TIMEOUT_S:.0f} s: can the "
        "executors reach the addresses that the brokers advertise?"
    )
