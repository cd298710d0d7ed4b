"""Writers of the sink: the part of each task, and the commit on the driver."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from headrace.spark.errors import SourceError, one_line_errors
from headrace.spark.pyspark_capabilities import ArrowBatchWriter, ArrowStreamWriter
from headrace.spark.worker_check import CheckedInExecutors

from .commits import KafkaCommitLog, TaskTransaction, abort_batch, commit_batch
from .options import ProduceOptions
from .records import RecordProducer, records
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


class StreamProduceWriter(CheckedInExecutors, ArrowStreamWriter):
    """The writer of a streaming query."""

    def __init__(self, options: ProduceOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task. Runs in an executor."""
        with one_line_errors():
            if self._options.prefix is None:
                return write_rows(self._options, iterator)
            return write_in_transaction(
                self._options, self._options.prefix, current_run(), iterator
            )

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
        commit_log = KafkaCommitLog(options, query_transactional_id(options.prefix, query_id))
        with one_line_errors(), commit_log as log:
            if commit:
                commit_batch(log, transactions, batch_id, written, resend_lost=options.resend_lost)
            else:
                abort_batch(log, transactions, batch_id)


class BatchProduceWriter(CheckedInExecutors, ArrowBatchWriter):
    """The writer of a batch. A batch has no replay, so nothing is decided in the log of commits."""

    def __init__(self, options: ProduceOptions) -> None:
        self._options = options
        self._run = QueryRun(str(uuid.uuid4()), "batch")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task. Runs in an executor."""
        with one_line_errors():
            if self._options.prefix is None:
                return write_rows(self._options, iterator)
            return write_in_transaction(self._options, self._options.prefix, self._run, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the transactions of all tasks, one after the other.

        :raises SourceError: one of them is not open any more; then none is committed
        """
        _, written = _of_query(messages)
        if self._options.prefix is None:
            return
        with one_line_errors():
            transactions = self._transactions(self._options.prefix)
            wanted = [entry.transaction for entry in written]
            lost = transactions.no_longer_open(wanted) or transactions.commit(wanted)
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


def write_rows(options: ProduceOptions, batches: Iterator[pa.RecordBatch]) -> Written:
    """Write rows without a transaction.

    :raises SourceError: a row cannot be written
    """
    producer = RecordProducer(options.producer_config())
    for batch in batches:
        producer.write(records(batch, options.topic))
    producer.flush()
    return Written(producer.written)


def write_in_transaction(
    options: ProduceOptions, prefix: str, run: QueryRun, batches: Iterator[pa.RecordBatch]
) -> Written:
    """Write rows in a transaction that stays open for the driver.

    :raises SourceError: a row cannot be written; then the transaction is aborted
    """
    task = current_task()
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return Written(0, run.query_id)
    transactional_id = task_transactional_id(prefix, run, task)
    producer = RecordProducer(options.producer_config(transactional_id))
    producer.begin(_BEGIN_TIMEOUT_S)
    try:
        producer.write(records(first, options.topic))
        for batch in filled:
            producer.write(records(batch, options.topic))
        producer.flush()
        open_now = OpenTransactions(options.kafka, task_prefix(prefix, run.query_id)).open_now
        transaction = TaskTransaction(task.number, producer.written, open_now(transactional_id))
    except BaseException:
        producer.abort()
        raise
    return Written(producer.written, run.query_id, transaction)


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
