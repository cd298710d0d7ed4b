"""The commit of a micro-batch that many tasks have written, each in a transaction of its own.

::

    tasks     write, flush, leave the transaction open          nothing is visible
    driver    check that all are open
              decide: one record in the log of commits          ← from here on, the batch is written
              commit each transaction, again after any crash
              abort what other attempts have left open

The first decision about a micro-batch counts. A driver that finds an earlier one, its own or that
of a driver which died, completes that one and aborts what its own tasks wrote. So it does not
matter whether Spark divides the rows of a replay in the same way.

A decision is lost in part if a transaction times out before it is committed: then the driver was
gone for that long, or another producer has taken its transactional id. That never passes silently.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple, Protocol

from headrace.client.transactions import OpenTransaction
from headrace.spark.errors import SourceError


class TaskTransaction(NamedTuple):
    """The records that one task has written.

    :param task: the number of the task in its micro-batch
    :param records: the number of its records
    """

    task: int
    records: int
    transaction: OpenTransaction


class Decision(NamedTuple):
    """A micro-batch that counts as written, by these transactions."""

    batch_id: int
    transactions: tuple[TaskTransaction, ...]


class CommitLog(Protocol):
    """The decisions about one query, in the order of their micro-batches.

    Opening it fences all other drivers: their :meth:`decide` fails from then on.
    """

    def last(self) -> Decision | None:
        """Return the last decision; None before the first."""

    def decide(self, decision: Decision) -> None:
        """Write a decision, durably.

        :raises SourceError: it is not written, or may not be; or another driver has opened the log
        """


class Transactions(Protocol):
    """The transactions of the tasks of one query."""

    def no_longer_open(self, transactions: Iterable[OpenTransaction]) -> list[OpenTransaction]:
        """Return the transactions that are not open any more.

        :raises SourceError: the cluster does not tell
        """

    def commit(self, transactions: Iterable[OpenTransaction]) -> list[OpenTransaction]:
        """Commit transactions; return those that had been aborted before.

        :raises SourceError: it is unknown whether one is committed
        """

    def abort_others(self, kept: Collection[str]) -> None:
        """Abort all open transactions of the query but those with the transactional ids ``kept``.

        A failure is logged: they time out.
        """


def commit_batch(
    log: CommitLog,
    transactions: Transactions,
    batch_id: int,
    written: Sequence[TaskTransaction],
    *,
    resend_lost: bool = False,
) -> None:
    """Commit a micro-batch, or complete the earlier commit of it.

    :param written: what the tasks of this attempt have written
    :param resend_lost: commit what this attempt has written in the place of decided transactions
        that were aborted
    :raises SourceError: it is not committed, or only in part, as the text says
    """
    decided = log.last()
    if decided is not None and decided.batch_id > batch_id:
        transactions.abort_others(_ids(decided))
        raise SourceError(
            f"micro-batch {batch_id} is older than the last one that was written, "
            f"{decided.batch_id}: the checkpoint is an old copy; use the current one, or a new one"
        )
    if decided is None or decided.batch_id < batch_id:
        _check_open(transactions, batch_id, written)
        decided = Decision(batch_id, tuple(written))
        log.decide(decided)
    lost = set(transactions.commit(one.transaction for one in decided.transactions))
    if lost:
        decided = _without_lost(decided, lost, written if resend_lost else ())
        _check_open(transactions, batch_id, [one for one in decided.transactions if one in written])
        log.decide(decided)
        lost = set(transactions.commit(one.transaction for one in decided.transactions))
        if lost:
            raise SourceError(_describe_lost(decided, lost))
    transactions.abort_others(_ids(decided))


def abort_batch(log: CommitLog, transactions: Transactions, batch_id: int) -> None:
    """Abort what the tasks of a failed micro-batch have written, unless it is decided.

    Spark calls this also after a commit that failed, be it before or after the decision.
    """
    decided = log.last()
    if decided is None or decided.batch_id < batch_id:
        transactions.abort_others(())
    else:
        transactions.abort_others(_ids(decided))


def _ids(decided: Decision) -> list[str]:
    return [one.transaction.transactional_id for one in decided.transactions]


def _check_open(
    transactions: Transactions, batch_id: int, written: Sequence[TaskTransaction]
) -> None:
    no_longer_open = set(transactions.no_longer_open(one.transaction for one in written))
    for one in written:
        if one.transaction in no_longer_open:
            raise SourceError(
                f"the transaction of task {one.task} of micro-batch {batch_id} is not open any "
                f"more ('{one.transaction.transactional_id}'): raise kafka.transaction.timeout.ms, "
                "or end the other query with the same checkpoint"
            )


def _without_lost(
    decided: Decision, lost: Collection[OpenTransaction], written: Sequence[TaskTransaction]
) -> Decision:
    """Replace lost transactions by those of the same tasks of this attempt.

    :raises SourceError: there is no such task
    """
    by_task = {one.task: one for one in written}
    kept = []
    for one in decided.transactions:
        if one.transaction not in lost:
            kept.append(one)
        elif one.task in by_task and by_task[one.task].records == one.records:
            kept.append(by_task[one.task])
        else:
            raise SourceError(_describe_lost(decided, lost))
    return decided._replace(transactions=tuple(kept))


def _describe_lost(decided: Decision, lost: Collection[OpenTransaction]) -> str:
    tasks = [one for one in decided.transactions if one.transaction in lost]
    names = ", ".join(str(one.task) for one in tasks)
    return (
        f"micro-batch {decided.batch_id} is written in part: {sum(one.records for one in tasks)} "
        f"records of task {names} are lost, because their transactions timed out while no driver "
        "ran: set lostTransactions=resend to write them again, if a replay divides the rows in "
        "the same way; or start with a new checkpoint"
    )
