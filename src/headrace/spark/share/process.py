"""Micro-batches of ``kafka-share`` whose outcomes a handler returns.

A handler that fails is called again with parts of its rows. The rows that make it fail are
rejected, and the others are processed, as long as something succeeds: if nothing does, a sink is
down, and the query ends with the handler's error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import reduce, wraps
from operator import or_
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pyspark.errors import AnalysisException

from headrace.client import Acknowledgement, AcknowledgeType
from headrace.log_lines import get_logger, printable
from headrace.spark.errors import SourceError
from headrace.spark.pyspark_capabilities import drain

from .outcomes import MAX_REASON_CHARS, NEEDED_COLUMNS, acknowledge, deliver

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming import StreamingQuery

_log = get_logger(__name__)

Handler = Callable[["DataFrame"], "DataFrame | None"]
P = TypeVar("P")

MOST_REJECTED = 10
"""The largest number of rows of a micro-batch that are rejected because the handler fails. If it
fails with more of them, the rows are not to blame."""
_STOPPED = re.compile(r"cancelled (?:part of|because)|InterruptedException")
"""Spark's words for jobs that it has cancelled, because the query is being stopped."""
_CAUSE = re.compile(r"^[A-Za-z_][\w.]*: .*$", re.MULTILINE)
"""The last line of a Python stack, as it is in Spark's errors."""


def process(
    stream: DataFrame, handler: Handler, *, checkpoint: str, name: str | None = None, **trigger: Any
) -> StreamingQuery:
    """Start a query that has each record of ``kafka-share`` processed at least once.

    :param stream: rows of the source, with its columns ``topic``, ``partition``, ``offset`` and
        ``receipt``
    :param handler: called with the rows of each micro-batch, which are persisted. It does the work,
        and returns rows for :func:`acknowledge`: with the column ``outcome``, and perhaps
        ``reason`` and ``delay``. Without that column, and for None instead of a frame, all rows are
        accepted. If it fails, see :func:`each_batch`
    :param checkpoint: the query's folder for Spark's checkpoint
    :param name: the query's name
    :param trigger: as ``DataStreamWriter.trigger`` takes it; ``availableNow=True`` also waits until
        the query has ended
    :returns: the query
    :raises StreamingQueryException: the query failed, with ``availableNow``
    """
    writer = stream.writeStream.foreachBatch(each_batch(handler))
    writer = writer.option("checkpointLocation", checkpoint)
    if name is not None:
        writer = writer.queryName(name)
    if trigger.get("availableNow"):
        return drain(writer)
    return (writer.trigger(**trigger) if trigger else writer).start()


def each_batch(handler: Handler) -> Callable[[DataFrame, int], None]:
    """Return a handler of :func:`process` as a function for ``foreachBatch``; a decorator.

    A handler that raises an error, or whose rows fail to compute, is called again with single rows
    and with parts of the micro-batch. Rows with which it fails alone, while others succeed, are
    rejected; the error is the reason in their dead letters, if the group has a dead-letter queue.
    The query ends with the error if nothing succeeds, or more than ten rows fail: then these have
    no outcome, and the broker delivers them again.
    """

    @wraps(handler)
    def run(batch: DataFrame, batch_id: int) -> None:
        batch.persist()
        try:
            error = _attempt(handler, batch)
            if error is not None:
                _isolate(handler, batch, error)
        finally:
            batch.unpersist()

    return run


def _attempt(handler: Handler, rows: DataFrame) -> Exception | None:
    """Have rows handled and acknowledged; return the handler's error.

    :raises SourceError: the outcomes cannot be applied, which no row is to blame for
    """
    try:
        outcomes = handler(rows)
        acknowledge(rows if outcomes is None else outcomes)
    except (SourceError, AnalysisException):
        raise
    except Exception as error:
        if _STOPPED.search(str(error)):
            raise
        return error
    return None


def _isolate(handler: Handler, batch: DataFrame, error: Exception) -> None:
    rows = sorted(_Row(*row) for row in batch.select(*NEEDED_COLUMNS).collect())
    failures = isolate(
        rows, error, lambda part: _attempt(handler, batch.where(_is_of(part, batch)))
    )
    rejected: dict[str, list[Acknowledgement]] = {}
    for row, failure in failures:
        reason = printable(cause(failure), MAX_REASON_CHARS)
        _log.error("%s-%d offset %d is rejected: %s", *row[:3], reason)
        reject = Acknowledgement(*row[:3], row.offset, AcknowledgeType.REJECT, reason=reason)
        rejected.setdefault(row.receipt, []).append(reject)
    deliver(rejected)


class _Row(NamedTuple):
    topic: str
    partition: int
    offset: int
    receipt: str


def _is_of(rows: Sequence[_Row], batch: DataFrame) -> Column:
    """Return the condition for some rows of a batch, which are neighbours when all are sorted."""
    offsets: dict[tuple[str, int], list[int]] = {}
    for row in rows:
        offsets.setdefault((row.topic, row.partition), []).append(row.offset)
    return reduce(
        or_,
        (
            (batch["topic"] == topic)
            & (batch["partition"] == partition)
            & batch["offset"].between(of_partition[0], of_partition[-1])
            for (topic, partition), of_partition in offsets.items()
        ),
    )


def isolate(
    rows: Sequence[P], error: Exception, attempt: Callable[[Sequence[P]], Exception | None]
) -> list[tuple[P, Exception]]:
    """Find the rows that make a call fail, by calls with parts of them; return them with their
    errors.

    A row is to blame if it fails alone, and something succeeds after that: else a sink may have
    gone down in the meantime.

    :param error: of the call with all rows
    :param attempt: a call with some rows, neighbours in ``rows``; returns its error
    :raises Exception: the error of a call, if no row can be blamed for it
    """
    suspects: list[tuple[P, Exception]] = []
    blamed = 0  # the suspects before the last success

    def succeeds(part: Sequence[P]) -> bool:
        nonlocal blamed
        failure = attempt(part)
        if failure is None:
            blamed = len(suspects)
        elif len(part) == 1:
            suspects.append((part[0], failure))
        return failure is None

    # A single row at each end tells whether anything succeeds, without trying everything.
    if len(rows) < 2 or not (succeeds(rows[-1:]) or succeeds(rows[:1])):
        raise error
    middle = rows[1:-1] if suspects else rows[:-1]
    parts = [middle] if middle else []
    while parts:
        part = parts.pop()
        if succeeds(part):
            continue
        if len(suspects) > MOST_REJECTED:
            raise error
        if len(part) > 1:
            half = len(part) // 2
            parts += [part[half:], part[:half]]
    if blamed < len(suspects):
        _, failure = suspects[blamed]
        raise failure
    return suspects


def cause(error: Exception) -> str:
    """Return an error as one line: of a failed task, the error of its Python function."""
    text = str(error)
    lines: Iterable[str] = (
        _CAUSE.findall(text) if "Traceback (most recent call last)" in text else ()
    )
    return [f"{type(error).__name__}: {text}", *lines][-1]
