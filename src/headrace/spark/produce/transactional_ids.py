"""Transactional ids of a query and its tasks."""

from __future__ import annotations

from typing import NamedTuple

from pyspark import TaskContext

from headrace.spark.errors import SourceError

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
