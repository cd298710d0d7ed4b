"""The transactions of a query's tasks in the cluster, and their ids."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any, NamedTuple, TypeVar

from pyspark import TaskContext

from headrace.client import ClientError, Cluster
from headrace.client.errors import has_code, raised
from headrace.client.transactions import (
    OpenTransaction,
    abort_open_transactions,
    end_transactions,
    open_transactional_ids,
    open_transactions,
)
from headrace.errors import ErrorCode
from headrace.log_lines import get_logger
from headrace.spark.errors import SourceError
from headrace.spark.option_parsing import KafkaOptions
from headrace.spark.reader.cluster_thread import shared_cluster_thread

T = TypeVar("T")

_log = get_logger(__name__)

_ENDED_OTHERWISE = (
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
)


class OpenTransactions:
    """The transactions of the tasks of one query.

    :param prefix: the beginning of the transactional ids of this query's tasks
    """

    def __init__(self, kafka: KafkaOptions, prefix: str) -> None:
        self._kafka = kafka
        self._prefix = prefix

    def open_now(self, transactional_id: str) -> OpenTransaction:
        """Return the open transaction of a transactional id.

        :raises SourceError: there is none
        :raises ClientError: the cluster does not tell
        """
        transaction = self._open_transactions([transactional_id])[transactional_id]
        if transaction is None:
            raise SourceError(f"the transaction of '{transactional_id}' has ended: try again")
        return transaction

    def no_longer_open(self, transactions: Sequence[OpenTransaction]) -> list[OpenTransaction]:
        """Return the transactions that are not open any more.

        :raises ClientError: the cluster does not tell
        """
        open_by_id = self._open_transactions([t.transactional_id for t in transactions])
        return [t for t in transactions if open_by_id[t.transactional_id] != t]

    def commit(self, transactions: Sequence[OpenTransaction]) -> list[OpenTransaction]:
        """Commit transactions; return those that had been aborted before.

        :raises ClientError: it is unknown whether one is committed
        """
        answers = self._call(lambda cluster: end_transactions(cluster, transactions, commit=True))
        aborted = [t for t, answer in answers.items() if has_code(answer, *_ENDED_OTHERWISE)]
        raised({t: answer for t, answer in answers.items() if t not in aborted})
        return aborted

    def abort_others(self, kept: Collection[str]) -> None:
        """Abort all open transactions of the query but those with the transactional ids ``kept``.

        A failure is logged: they time out.
        """

        async def abort(cluster: Cluster) -> list[ClientError]:
            names = await open_transactional_ids(cluster, self._prefix)
            others = [name for name in names if name not in kept]
            answers = await abort_open_transactions(cluster, others)
            return [answer for answer in answers.values() if answer is not None]

        try:
            for failure in self._call(abort):
                _log.warning("a transaction stays open until it times out: %s", failure)
        except ClientError as failure:
            _log.warning("transactions may stay open until they time out: %s", failure)

    def _open_transactions(self, transactional_ids: list[str]) -> dict[str, OpenTransaction | None]:
        return raised(self._call(lambda cluster: open_transactions(cluster, transactional_ids)))

    def _call(self, work: Callable[[Cluster], Coroutine[Any, Any, T]]) -> T:
        thread = shared_cluster_thread(self._kafka)
        return thread.call(work(thread.cluster))


# Local properties that Spark sets for the jobs of a streaming query.
_QUERY_ID = "sql.streaming.queryId"
_RUN_ID = "spark.jobGroup.id"
_RUN_ID_CHARS = 8


class QueryRun(NamedTuple):
    """A run of a streaming query, or one batch write.

    :param query_id: stays the same for all runs with one checkpoint
    :param run_id: differs for each start of the query, so that no task can abort what a task of an
        earlier run has written
    """

    query_id: str
    run_id: str


class Task(NamedTuple):
    """One attempt to write one part of a micro-batch."""

    number: int
    attempt: int


def current_task() -> Task:
    """Return the task of this Python worker."""
    context = _context()
    return Task(context.partitionId(), context.attemptNumber())


def current_run() -> QueryRun:
    """Return the query of this Python worker's task.

    :raises SourceError: it is not a task of a streaming query
    """
    context = _context()
    query_id, run_id = map(context.getLocalProperty, (_QUERY_ID, _RUN_ID))
    if not query_id or not run_id:
        raise SourceError("transactions need a streaming query with micro-batches")
    return QueryRun(query_id, run_id[:_RUN_ID_CHARS])


def query_transactional_id(prefix: str, query_id: str) -> str:
    """Return the id of the driver that decides about micro-batches."""
    return f"{prefix}-{query_id}"


def task_prefix(prefix: str, query_id: str) -> str:
    """Return the beginning of the ids of all tasks of a query."""
    return f"{query_transactional_id(prefix, query_id)}-"


def task_transactional_id(prefix: str, run: QueryRun, task: Task) -> str:
    """Return the id of a task. Tasks of later micro-batches of the run have the same.

    Attempts have different ids, so that a late attempt does not abort what another one has
    written.
    """
    return f"{task_prefix(prefix, run.query_id)}{run.run_id}-{task.number}-{task.attempt}"


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "called outside of a Spark task"
    return context
