"""``format("kafka-produce")``: the sink, the part of each task, and the commit on the driver. See
``docs/spark/produce.md``.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    DataSourceWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from headrace.spark.data_source import KafkaDataSource
from headrace.spark.errors import SourceError, one_line_errors
from headrace.spark.pyspark_capabilities import ArrowStreamWriter, arrow_batches
from headrace.spark.worker_check import CheckedInExecutors

from .commits import KafkaCommitLog, OpenTransactions, TaskTransaction, abort_batch, commit_batch
from .options import ProduceOptions
from .records import RecordProducer, check_columns, parts, records

# Local properties that Spark sets for the jobs of a streaming query.
_QUERY_ID = "sql.streaming.queryId"
_RUN_ID = "spark.jobGroup.id"
_BATCH_ID = "streaming.sql.batchId"
_RUN_ID_CHARS = 8
_BATCH_RUN = "batch"
"""The run id of a batch, which is run once."""


class WriteTask(NamedTuple):
    """One attempt to write one part of a micro-batch, or of a batch.

    :param query_id: stays the same for all runs with one checkpoint
    :param run_id: differs for each start of the query, so that no task can abort what a task of an
        earlier run has written
    :param batch_id: of the micro-batch; None for a batch
    """

    query_id: str
    run_id: str
    number: int
    attempt: int
    batch_id: int | None = None


def current_task(batch_query_id: str | None) -> WriteTask:
    """Return the task of this Python worker.

    :param batch_query_id: the query of a batch; None for a stream, whose tasks know theirs
    :raises SourceError: it is not a task of a streaming query
    """
    context = TaskContext.get()
    assert context is not None, "called outside of a Spark task"
    place = context.partitionId(), context.attemptNumber()
    if batch_query_id is not None:
        return WriteTask(batch_query_id, _BATCH_RUN, *place)
    query_id, run_id, batch_id = map(context.getLocalProperty, (_QUERY_ID, _RUN_ID, _BATCH_ID))
    if not query_id or not run_id or not batch_id:
        raise SourceError("transactions need a streaming query with micro-batches")
    return WriteTask(query_id, run_id[:_RUN_ID_CHARS], *place, int(batch_id))


@dataclass
class Written(WriterCommitMessage):
    """What one task has written in a transaction.

    :param transaction: None without records
    """

    task: WriteTask
    transaction: TaskTransaction | None = None


class ProduceDataSource(KafkaDataSource):
    """Topics as a sink of batches and of streams.

    ``docs/spark/produce.md`` describes options and columns. Creating one opens no connection.
    """

    @classmethod
    def name(cls) -> str:
        """Return ``kafka-produce``."""
        return "kafka-produce"

    def schema(self) -> str:
        """Refuse to be read.

        :raises SourceError: always
        """
        self._refuse("cannot be read: read with kafka-ordered or kafka-share")

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
            options.kafka.check(lambda cluster: cluster.topics(topics), options.producer_config())
        return options


class StreamProduceWriter(CheckedInExecutors, ArrowStreamWriter):
    """The writer of a streaming query."""

    def __init__(self, options: ProduceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task. Runs in an executor."""
        with one_line_errors():
            return write_rows(self._options, arrow_batches(iterator, self._schema))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Make the rows of all tasks visible to readers with ``read_committed``, at once."""
        self._end(messages, batchId, commit=True)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Abort what the tasks have written, unless it counts as written."""
        self._end(messages, batchId, commit=False)

    def _end(
        self, messages: list[WriterCommitMessage | None], batch_id: int, *, commit: bool
    ) -> None:
        options, written = self._options, _written(messages)
        if not written:
            return  # there are no transactions
        task = written[0].task
        with one_line_errors():
            transactions = OpenTransactions(options, task.query_id, task.run_id)
            log = KafkaCommitLog(options, transactions.query)
            if commit:
                commit_batch(
                    log, transactions, batch_id, _tasks(written), resend_lost=options.resend_lost
                )
            else:
                transactions.end_run()
                abort_batch(log, transactions, batch_id)


class BatchProduceWriter(CheckedInExecutors, DataSourceArrowWriter):
    """The writer of a batch. A batch has no replay, so nothing is decided in the log of commits."""

    def __init__(self, options: ProduceOptions) -> None:
        self._options = options
        self._query_id = str(uuid.uuid4())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task. Runs in an executor."""
        with one_line_errors():
            return write_rows(self._options, iterator, self._query_id)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the transactions of all tasks, one after the other.

        :raises SourceError: one of them is not open any more; then none is committed, or the others
            are if it ends meanwhile
        """
        with one_line_errors():
            transactions = self._transactions()
            if transactions is None:
                return
            written = [task.transaction for task in _tasks(_written(messages))]
            lost = transactions.no_longer_open(written) or transactions.commit(written)
            if lost:
                raise SourceError(
                    f"the transaction of '{lost[0].transactional_id}' is not open any more: raise "
                    "kafka.transaction.timeout.ms"
                )
            transactions.end_run()
            transactions.abort_others(())

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort the transactions of all tasks."""
        if transactions := self._transactions():
            transactions.end_run()
            transactions.abort_others(())

    def _transactions(self) -> OpenTransactions | None:
        if self._options.prefix is None:
            return None
        return OpenTransactions(self._options, self._query_id, _BATCH_RUN)


def write_rows(
    options: ProduceOptions, batches: Iterator[pa.RecordBatch], batch_query_id: str | None = None
) -> WriterCommitMessage:
    """Write rows; with a prefix of transactional ids, in a transaction that stays open for the
    driver.

    :param batch_query_id: the query of a batch; None for a stream
    :raises SourceError: a row cannot be written; then the transaction is aborted
    """
    if options.prefix is None:
        _write_batches(RecordProducer(options.producer_config()), batches, options)
        return WriterCommitMessage()
    task = current_task(batch_query_id)
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return Written(task)
    transactions = OpenTransactions(options, task.query_id, task.run_id)
    # Attempts have different ids, so that a late one does not abort what another one has written.
    # Tasks of later micro-batches of the run have the same.
    transactional_id = f"{transactions.run}-{task.number}-{task.attempt}"
    producer = RecordProducer(options.producer_config(transactional_id))
    producer.begin()
    try:
        if transactions.has_ended(task.batch_id):
            raise SourceError(
                f"task {task.number} was written by another attempt: this one is too late"
            )
        _write_batches(producer, chain([first], filled), options)
        transaction = transactions.open_now(transactional_id)
    except BaseException:
        producer.abort()
        raise
    return Written(task, TaskTransaction(task.number, producer.written, transaction))


def _write_batches(
    producer: RecordProducer, batches: Iterable[pa.RecordBatch], options: ProduceOptions
) -> None:
    for batch in batches:
        for part in parts(batch):
            producer.write(records(part, options.topic))
    producer.flush()


def _written(messages: Sequence[WriterCommitMessage | None]) -> list[Written]:
    return [message for message in messages if isinstance(message, Written)]


def _tasks(written: Sequence[Written]) -> list[TaskTransaction]:
    return sorted(message.transaction for message in written if message.transaction is not None)
