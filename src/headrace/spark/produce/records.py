"""Rows as records: the columns of the sink, and the producer of a task.

The producer is librdkafka's, with errors that name the topic and partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer

from headrace.log_lines import get_logger, printable
from headrace.spark.errors import SourceError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType


_TEXT = ("string", "varchar", "char")
_BYTES = (*_TEXT, "binary")
_TYPES: Mapping[str, tuple[tuple[str, ...], str]] = {
    "key": (_BYTES, "string or binary"),
    "value": (_BYTES, "string or binary"),
    "topic": (_TEXT, "string"),
    "partition": (("integer",), "int"),
    "timestamp": (("timestamp",), "timestamp"),
    "headers": (("array",), "array<struct<key string, value binary>>"),
}
"""Column → accepted names of types, and what to cast to."""

_OF_SOURCES = frozenset({"offset", "timestampType", "deliveryCount", "receipt"})
"""Columns of the sources that only a stored record has; the sink ignores them."""

_UNASSIGNED = -1
"""librdkafka's number for a partition that the partitioner chooses."""
_PART_BYTES = 4 * 1024 * 1024
_SPARE_BYTES = 8 * 1024 * 1024
_NOW = 0
"""librdkafka's timestamp for the time of writing."""


class Record(NamedTuple):
    """A record to write, as librdkafka takes it."""

    topic: str | None
    key: str | bytes | None
    value: str | bytes | None
    partition: int
    timestamp_ms: int
    headers: list[tuple[str, str | bytes | None]] | None


def check_columns(schema: StructType, topic: str | None) -> None:
    """Check the columns of the rows to write.

    :param topic: the option of this name
    :raises SourceError: a column is missing, unknown, or of a wrong type
    """
    for column in schema.fields:
        if column.name in _OF_SOURCES:
            continue
        if column.name not in _TYPES:
            raise SourceError(
                f"unknown column '{column.name}': kafka-produce writes {', '.join(_TYPES)}; rename "
                "or drop it"
            )
        accepted, type_name = _TYPES[column.name]
        if column.dataType.typeName() not in accepted or not _has_headers(column.dataType):
            raise SourceError(
                f"column {column.name} is {column.dataType.simpleString()}: cast it to {type_name}"
            )
    names = schema.fieldNames()
    if "value" not in names:
        raise SourceError("the column value is missing: add it, as string or binary")
    if topic is None and "topic" not in names:
        raise SourceError("no topic: set the option topic, or add a column topic")


def _has_headers(data_type: DataType) -> bool:
    """Return False for an array that does not have headers as its elements."""
    if data_type.typeName() != "array":
        return True
    element = data_type.elementType
    if element.typeName() != "struct" or element.fieldNames() != ["key", "value"]:
        return False
    key, value = (field.dataType.typeName() for field in element.fields)
    return key in _TEXT and value in _BYTES


def records(batch: pa.RecordBatch, topic: str | None) -> Iterator[Record]:
    """Return the rows of an Arrow batch as records.

    :param topic: the topic of all records; None to take the column
    """
    # The first column of a name counts.
    columns = dict(zip(batch.schema.names[::-1], batch.columns[::-1], strict=True))
    if "timestamp" in columns:
        import pyarrow.compute as pc  # 50 ms, which other Python processes of Spark save

        # In UTC, because Arrow rounds by the clock of the column's zone, which shows an hour twice.
        moments = columns["timestamp"].cast(pa.timestamp("us", "UTC"))
        milliseconds = pc.floor_temporal(moments, unit="millisecond")
        columns["timestamp"] = milliseconds.cast(pa.timestamp("ms", "UTC")).cast(pa.int64())

    def column(name: str, default: int | None = None) -> Any:
        if name not in columns:
            return repeat(default)
        values = columns[name]
        has_gaps = values.null_count and default is not None
        return (values.fill_null(default) if has_gaps else values).to_pylist()

    headers = column("headers")
    rows = zip(
        column("topic") if topic is None else repeat(topic),
        column("key"),
        column("value"),
        column("partition", _UNASSIGNED),
        column("timestamp", _NOW),
        map(_header_pairs, headers) if "headers" in columns else headers,
        strict=False,
    )
    return map(Record._make, islice(rows, batch.num_rows))


def parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a batch in parts that are small enough to be Python objects, or have one
    row.

    :raises MemoryError: there is no memory for the next part
    """
    if batch.nbytes > _PART_BYTES and batch.num_rows > 1:
        half = batch.num_rows // 2
        yield from parts(batch.slice(0, half))
        yield from parts(batch.slice(half))
        return
    # As Python objects, in librdkafka's queue, and in a request. librdkafka would end the process
    # where Python raises an error. Memory that is not written to costs nothing.
    bytearray(3 * batch.nbytes + _SPARE_BYTES)
    yield batch


def _header_pairs(
    headers: list[dict[str, Any]] | None,
) -> list[tuple[str, str | bytes | None]] | None:
    """Return the headers of a row.

    :raises SourceError: librdkafka cannot write one
    """
    for header in headers or ():
        if header is None:
            raise SourceError("column headers has a null in the place of a header: remove it")
        if header["key"] is None:
            raise SourceError("column headers has a header without a key: give it one")
        if "\0" in header["key"]:
            raise SourceError(
                f"column headers has the key {header['key']!r}: librdkafka would cut it at its NUL"
            )
    return [(header["key"], header["value"]) for header in headers or ()] or None


_log = get_logger(__name__)

_POLL_EVERY_RECORDS = 1_000
_FULL_POLL_S = 0.1
_BEGIN_TIMEOUT_S = 60.0
_ABORT_TIMEOUT_S = 10.0
_FLUSH_S = 1.0

_ADVICE: Mapping[int, str] = {
    KafkaError.MSG_SIZE_TOO_LARGE: "raise max.message.bytes of the topic and the option "
    "kafka.message.max.bytes, or write smaller records",
    KafkaError._MSG_TIMED_OUT: "check that the executors reach the brokers, or raise "
    "kafka.delivery.timeout.ms",
    KafkaError._UNKNOWN_TOPIC: "create the topic first, or correct its name",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "create the topic first, or correct its name",
    KafkaError._UNKNOWN_PARTITION: "correct the column partition",
    KafkaError.INVALID_TRANSACTION_TIMEOUT: "lower kafka.transaction.timeout.ms to "
    "transaction.max.timeout.ms of the brokers",
    KafkaError._FENCED: "another query has the same transactional id: choose another "
    "transactionalIdPrefix, unless this task was tried twice",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "the user needs the permission WRITE on the "
    "transactional ids that begin with transactionalIdPrefix",
}


class RecordProducer:
    """An idempotent producer. Every method raises the first error of a delivery.

    Without :meth:`abort`, its transaction stays open when it is dropped.

    :param config: see :meth:`headrace.spark.produce.options.ProduceOptions.producer_config`
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._failure = _FirstFailure()
        # A callback for each record would take as long as the rest of writing it.
        config = {**config, "on_delivery": self._failure, "log_level": 2}
        try:
            self._producer = Producer(config, logger=_log)
        except KafkaException as error:
            if error.args[0].code() == KafkaError._CRIT_SYS_RESOURCE:
                raise MemoryError from None  # for the stacks of its threads
            raise
        self.written = 0
        """The number of records so far."""

    def begin(self) -> None:
        """Fence earlier producers with the transactional id, and begin a transaction.

        :raises SourceError: the cluster refuses, or does not answer
        """
        try:
            self._producer.init_transactions(_BEGIN_TIMEOUT_S)
            self._producer.begin_transaction()
        except KafkaException as error:
            raise SourceError(described("beginning a transaction", error.args[0])) from None

    def write(self, rows: Iterable[Record]) -> None:
        """Write records.

        :raises SourceError: a record cannot be written
        """
        produce, poll = self._producer.produce, partial(self._serve, self._producer.poll)
        for row in rows:
            topic, key, value, partition, timestamp_ms, headers = row
            if topic is None:
                raise SourceError("the column topic is null: fill it, or set the option topic")
            while True:
                try:
                    produce(topic, value, key, partition, None, None, timestamp_ms, headers)
                    break
                except BufferError:
                    poll(_FULL_POLL_S)
                except KafkaException as error:
                    self._check()
                    raise SourceError(failed_record(error.args[0], topic, partition)) from None
                except (TypeError, ValueError) as error:
                    raise SourceError(f"a record for topic '{topic}': {error}") from None
            self.written += 1
            if self.written % _POLL_EVERY_RECORDS == 0:
                poll(0)

    def flush(self) -> None:
        """Wait until all records are in the log.

        :raises SourceError: one of them is not
        """
        while self._serve(self._producer.flush, _FLUSH_S):
            pass

    def abort(self) -> None:
        """Abort the transaction; log a warning if that fails."""
        try:
            self._producer.purge()
            self._producer.abort_transaction(_ABORT_TIMEOUT_S)
        except KafkaException as error:
            _log.warning("%s", described("aborting a transaction", error.args[0]))

    def _serve(self, wait: Callable[[float], int], timeout_s: float) -> int:
        """Poll or flush, and return what that returns.

        :raises SourceError: a record is not in the log, or another producer has fenced this one
        """
        try:
            left = wait(timeout_s)
        except (KafkaException, SystemError) as error:
            # A fatal error is raised amid the calls for deliveries, which Python calls a mistake.
            self._check()
            is_told = isinstance(error, KafkaException)
            failure = error.args[0] if is_told else KafkaError(KafkaError._FENCED)
            raise SourceError(described("writing", failure)) from None
        self._check()
        return left

    def _check(self) -> None:
        if self._failure.text is not None:
            raise SourceError(self._failure.text)


class _FirstFailure:
    """The first error of a delivery. librdkafka calls this with errors only."""

    def __init__(self) -> None:
        self.text: str | None = None

    def __call__(self, error: KafkaError | None, message: Any) -> None:
        if error is not None and self.text is None:
            self.text = failed_record(error, message.topic(), message.partition())


def failed_record(error: KafkaError, topic: str, partition: int) -> str:
    """Return the text about a record that was not written, on one line."""
    where = topic if partition is None or partition < 0 else f"{topic}-{partition}"
    advice = None
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        advice = f"the user needs the permission WRITE on topic '{topic}'"
    return described(f"writing to {where}", error, advice)


def described(what: str, error: KafkaError, advice: str | None = None) -> str:
    """Return the text about an error of librdkafka, with advice if there is any, on one line."""
    advice = advice or _ADVICE.get(error.code())
    text = f"{what}: {error.str()}" + (f": {advice}" if advice else "")
    return printable(text, 1000)
