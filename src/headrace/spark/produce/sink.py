"""``format("kafka-produce")``: the sink, the part of each task, and the commit on the driver. See
``docs/spark.md``.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
from confluent_kafka import Producer
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    DataSourceWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from headrace.spark.errors import SourceError, one_line_errors
from headrace.spark.pyspark_capabilities import ArrowStreamWriter, arrow_batches
from headrace.spark.worker_check import CheckedInExecutors

from .commits import KafkaCommitLog, TaskTransaction, abort_batch, commit_batch
from .options import ProduceOptions
from .records import RecordProducer, check_columns, records
from .transactions import (
    OpenTransactions,
    QueryRun,
    current_run,
    current_task,
    query_transactional_id,
    task_prefix,
    task_transactional_id,
)

_BEGIN_TIMEOUT_S = 60.0


@dataclass
class Written(WriterCommitMessage):
    """The records that one task has written.

    :param query_id: None without transactions
    :param transaction: None without transactions, and without records
    """

    records: int
    query_id: str | None = None
    transaction: TaskTransaction | None = None


class ProduceDataSource(CheckedInExecutors, DataSource):
    """Topics as a sink of batches and of streams.

    ``docs/spark.md`` describes options and columns. Creating one opens no connection.
    """

    @classmethod
    def name(cls) -> str:
        """Return ``kafka-produce``."""
        return "kafka-produce"

    def schema(self) -> str:
        """Refuse to be read.

        :raises SourceError: always
        """
        with one_line_errors():
            raise SourceError("kafka-produce is a sink: read with kafka-ordered or kafka-share")

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch."""
        return BatchProduceWriter(self._checked(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of a streaming query."""
        return StreamProduceWriter(self._checked(schema, overwrite), schema)

    def _checked(self, schema: StructType, overwrite: bool) -> ProduceOptions:
        """Return the options, after checking the columns, the broker and the topic.

        :raises SourceError: an option or a column is invalid, the broker does not answer, or the
            topic does not exist
        """
        with one_line_errors():
            if overwrite:
                raise SourceError(
                    "records of a topic cannot be overwritten: use mode('append'), or "
                    "outputMode('append') or ('update')"
                )
            options = ProduceOptions.parse(self.options)
            check_columns(schema, options.topic)
            topics = [options.topic] if options.topic else []
            options.kafka.check(
                lambda cluster: cluster.topics(topics), Producer, options.producer_config()
            )
        return options


class StreamProduceWriter(CheckedInExecutors, ArrowStreamWriter):
    """The writer of a streaming query."""

    def __init__(self, options: ProduceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task. Runs in an executor."""
        with one_line_errors():
            run = None if self._options.prefix is None else current_run()
            return write_rows(self._options, run, arrow_batches(iterator, self._schema))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Make the rows of all tasks visible to readers with ``read_committed``, at once."""
        self._end(messages, batchId, commit=True)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Abort what the tasks have written, unless it counts as written."""
        self._end(messages, batchId, commit=False)

    def _end(
        self, messages: list[WriterCommitMessage | None], batch_id: int, *, commit: bool
    ) -> None:
        options, (query_id, written) = self._options, _of_query(messages)
        if options.prefix is None or query_id is None:
            return
        transactions = OpenTransactions(options.kafka, task_prefix(options.prefix, query_id))
        with one_line_errors():
            log = KafkaCommitLog(options, query_transactional_id(options.prefix, query_id))
            if commit:
                commit_batch(log, transactions, batch_id, written, resend_lost=options.resend_lost)
            else:
                abort_batch(log, transactions, batch_id)


class BatchProduceWriter(CheckedInExecutors, DataSourceArrowWriter):
    """The writer of a batch. A batch has no replay, so nothing is decided in the log of commits."""

    def __init__(self, options: ProduceOptions) -> None:
        self._options = options
        self._run = QueryRun(str(uuid.uuid4()), "batch")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task. Runs in an executor."""
        with one_line_errors():
            return write_rows(self._options, self._run, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the transactions of all tasks, one after the other.

        :raises SourceError: one of them is not open any more; then none is committed
        """
        if self._options.prefix is None:
            return
        with one_line_errors():
            transactions = self._transactions(self._options.prefix)
            written = [entry.transaction for entry in _of_query(messages)[1]]
            lost = transactions.no_longer_open(written) or transactions.commit(written)
            if lost:
                raise SourceError(
                    f"the transaction of '{lost[0].transactional_id}' is not open any more: raise "
                    "kafka.transaction.timeout.ms"
                )
            transactions.abort_others(())

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort the transactions of all tasks."""
        if self._options.prefix is not None:
            self._transactions(self._options.prefix).abort_others(())

    def _transactions(self, prefix: str) -> OpenTransactions:
        return OpenTransactions(self._options.kafka, task_prefix(prefix, self._run.query_id))


def write_rows(
    options: ProduceOptions, run: QueryRun | None, batches: Iterator[pa.RecordBatch]
) -> Written:
    """Write rows; with a prefix of transactional ids, in a transaction that stays open for the
    driver.

    :raises SourceError: a row cannot be written; then the transaction is aborted
    """
    if options.prefix is None or run is None:
        producer = RecordProducer(options.producer_config())
        _write_batches(producer, batches, options)
        return Written(producer.written)
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return Written(0, run.query_id)
    task = current_task()
    transactional_id = task_transactional_id(options.prefix, run, task)
    producer = RecordProducer(options.producer_config(transactional_id))
    producer.begin(_BEGIN_TIMEOUT_S)
    try:
        _write_batches(producer, chain([first], filled), options)
        transactions = OpenTransactions(options.kafka, task_prefix(options.prefix, run.query_id))
        transaction = TaskTransaction(
            task.number, producer.written, transactions.open_now(transactional_id)
        )
    except BaseException:
        producer.abort()
        raise
    return Written(producer.written, run.query_id, transaction)


def _write_batches(
    producer: RecordProducer, batches: Iterable[pa.RecordBatch], options: ProduceOptions
) -> None:
    for batch in batches:
        producer.write(records(batch, options.topic))
    producer.flush()


def _of_query(
    messages: Sequence[WriterCommitMessage | None],
) -> tuple[str | None, list[TaskTransaction]]:
    """Return the query of commit messages, and the transactions of its tasks in their order."""
    written_messages = [message for message in messages if isinstance(message, Written)]
    query_id = next((message.query_id for message in written_messages if message.query_id), None)
    written = [
        message.transaction for message in written_messages if message.transaction is not None
    ]
    return query_id, sorted(written)
