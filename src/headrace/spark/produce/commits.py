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

import json
from collections.abc import Collection, Coroutine, Sequence
from dataclasses import astuple
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer

from headrace.client import ClientError, Cluster, RequestRefused
from headrace.client.errors import Outcomes, UnknownTopic, has_code, raised
from headrace.client.offsets import READ_UNCOMMITTED, log_bounds
from headrace.client.topics import NewTopic, create_topic
from headrace.client.transactions import (
    EMPTY,
    ONGOING,
    OpenTransaction,
    abort_open_transactions,
    end_transactions,
    open_transactions,
    transactional_ids,
)
from headrace.log_lines import get_logger
from headrace.protocol.errors import ErrorCode
from headrace.spark.errors import SourceError
from headrace.spark.produce.options import ProduceOptions
from headrace.spark.produce.records import described
from headrace.spark.reader.log_reader import read
from headrace.spark.reader.ranges import OffsetRange, ReadOptions


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


NOTHING_DECIDED = Decision(-1, ())
"""The decision before that about the first micro-batch."""

_NOT_OPEN = (
    "is not open any more: raise kafka.transaction.timeout.ms, or end the other query with the "
    "same checkpoint"
)


def commit_batch(
    log: KafkaCommitLog,
    transactions: OpenTransactions,
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
    decided = _last(log, transactions, batch_id)
    if decided.batch_id < batch_id or resend_lost:
        log.fence()
        decided = _last(log, transactions, batch_id)
    # The driver that has decided may be at work on the next micro-batch.
    is_of_other = decided.batch_id == batch_id
    if not is_of_other:
        _check_open(transactions, batch_id, written)
        decided = Decision(batch_id, tuple(written))
        log.decide(decided)
    lost = set(transactions.commit([entry.transaction for entry in decided.transactions]))
    if lost:
        decided = _without_lost(decided, lost, written if resend_lost else ())
        _check_open(
            transactions, batch_id, [entry for entry in decided.transactions if entry in written]
        )
        log.decide(decided)
        lost = set(transactions.commit([entry.transaction for entry in decided.transactions]))
        if lost:
            raise SourceError(_describe_lost(decided, lost))
    transactions.abort_others(_ids(decided), of_run=is_of_other)


def abort_batch(log: KafkaCommitLog, transactions: OpenTransactions, batch_id: int) -> None:
    """Abort what the tasks of a failed micro-batch have written, unless it is decided.

    Spark calls this also after a commit that failed, be it before or after the decision.
    """
    decided = log.last()
    if decided.batch_id < batch_id:
        log.fence()
        decided = log.last()
    decided_ids = _ids(decided) if decided.batch_id >= batch_id else ()
    transactions.abort_others(decided_ids, of_run=True)


def _last(log: KafkaCommitLog, transactions: OpenTransactions, batch_id: int) -> Decision:
    """Return the last decision.

    :raises SourceError: a later micro-batch counts as written. The query that wrote it may be at
        work: it is not fenced, and keeps what it has open
    """
    decided = log.last()
    if decided.batch_id > batch_id:
        transactions.abort_others(_ids(decided), of_run=True)
        raise SourceError(
            f"micro-batch {batch_id} is older than the last one that was written, "
            f"{decided.batch_id}: the checkpoint is an old copy, or another query writes with it; "
            "use the current one, or a new one"
        )
    return decided


def _ids(decided: Decision) -> list[str]:
    return [entry.transaction.transactional_id for entry in decided.transactions]


def _check_open(
    transactions: OpenTransactions, batch_id: int, written: Sequence[TaskTransaction]
) -> None:
    tasks = {entry.transaction: entry.task for entry in written}
    for transaction in transactions.no_longer_open(list(tasks)):
        raise SourceError(
            f"the transaction of task {tasks[transaction]} of micro-batch {batch_id} "
            f"('{transaction.transactional_id}') {_NOT_OPEN}"
        )


def _without_lost(
    decided: Decision, lost: Collection[OpenTransaction], written: Sequence[TaskTransaction]
) -> Decision:
    """Replace lost transactions by those of the same tasks of this attempt.

    :raises SourceError: there is no such task
    """
    same_tasks = {(entry.task, entry.records): entry for entry in written}
    try:
        entries = [
            same_tasks[entry.task, entry.records] if entry.transaction in lost else entry
            for entry in decided.transactions
        ]
    except KeyError:
        raise SourceError(_describe_lost(decided, lost)) from None
    return Decision(decided.batch_id, tuple(entries))


def _describe_lost(decided: Decision, lost: Collection[OpenTransaction]) -> str:
    tasks = [entry for entry in decided.transactions if entry.transaction in lost]
    names = ", ".join(str(entry.task) for entry in tasks)
    records = sum(entry.records for entry in tasks)
    return (
        f"micro-batch {decided.batch_id} is written in part: {records} "
        f"records of task {names} are lost, because their transactions timed out while no driver "
        "ran: if another one runs with the same checkpoint, nothing is lost: end one; else set "
        "lostTransactions=resend to write them again, if a replay divides the rows in the same "
        "way; or start with a new checkpoint"
    )


# -- the cluster's side

_log = get_logger(__name__)

_ENDED_OTHERWISE = (
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
)


class OpenTransactions:
    """The transactions of the tasks of one run of a query.

    Spark may run two attempts of a task (``spark.speculation``), and kills the slower one with
    SIGKILL. What that one has open would hold up readers until it times out. So when a micro-batch
    has ended, the driver fences every transactional id of the run that has a producer but has
    written nothing that counts; and an attempt that has just got its producer asks whether its
    micro-batch :meth:`has_ended`. Either the driver finds its producer, or it finds that it is
    late.

    :ivar query: the name of the query, with which the transactional ids of all its runs begin
    :ivar run: the name of the run, with which those of its tasks begin
    """

    def __init__(self, options: ProduceOptions, query_id: str, run_id: str) -> None:
        self._thread = options.kafka.shared_thread()
        self._options = options
        self.query = f"{options.prefix}-{query_id}"
        self.run = f"{self.query}-{run_id}"

    def open_now(self, transactional_id: str) -> OpenTransaction:
        """Return the open transaction of a transactional id.

        :raises SourceError: there is none
        :raises ClientError: the cluster does not tell
        """
        transaction = self._open_transactions([transactional_id])[transactional_id]
        if transaction is None:
            raise SourceError(f"the transaction of '{transactional_id}' {_NOT_OPEN}")
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
        thread = self._thread
        answers = thread.run(end_transactions(thread.cluster, transactions, commit=True))
        aborted = [t for t, answer in answers.items() if has_code(answer, *_ENDED_OTHERWISE)]
        raised({t: answer for t, answer in answers.items() if t not in aborted})
        return aborted

    def abort_others(self, kept: Collection[str], *, of_run: bool = False) -> None:
        """Abort all open transactions of the query but those with the transactional ids ``kept``,
        and fence the producers of this run that have opened none.

        A failure is logged: they time out.

        :param of_run: leave those of other runs of the query alone
        """
        name = self.run if of_run else self.query

        async def abort() -> Outcomes[str]:
            cluster = self._thread.cluster
            states = await transactional_ids(cluster, f"{name}-", (ONGOING, EMPTY))
            others = [
                transactional_id
                for transactional_id, state in states.items()
                if transactional_id not in kept
                and (state == ONGOING or transactional_id.startswith(f"{self.run}-"))
            ]
            return await abort_open_transactions(cluster, others)

        self._try(abort())

    def end_run(self) -> None:
        """Have all attempts that begin later find that they are late."""
        self._try(abort_open_transactions(self._thread.cluster, [self.run]))

    def has_ended(self, batch_id: int | None) -> bool:
        """Return True if the run has ended, or has decided about a micro-batch.

        :param batch_id: None for a batch
        :raises ClientError: the cluster does not tell
        """
        thread = self._thread
        if self.run in thread.run(transactional_ids(thread.cluster, self.run, (EMPTY,))):
            return True
        if batch_id is None:
            return False
        decided = last_decision(self._options, self.query)
        # A replay writes although an earlier run has decided. If this attempt of one is late, its
        # transaction stays open until the next decision.
        is_own = any(name.startswith(f"{self.run}-") for name in _ids(decided))
        return decided.batch_id >= batch_id and is_own

    def _try(self, abort: Coroutine[Any, Any, Outcomes[str]]) -> None:
        try:
            problems = [*self._thread.run(abort).values()]
        except ClientError as failure:
            problems = [failure]
        for problem in filter(None, problems):
            _log.warning("transactions may stay open until they time out: %s", problem)

    def _open_transactions(self, transactional_ids: list[str]) -> dict[str, OpenTransaction | None]:
        thread = self._thread
        return raised(thread.run(open_transactions(thread.cluster, transactional_ids)))


_PARTITION = 0
_TIMEOUT_S = 60.0
_TRANSACTION_TIMEOUT_MS = 10_000
"""Timeout of the transaction of one decision. If a driver dies in it, other queries with the same
topic wait for that long."""
_FIRST_LOOK_BACK = 200
_LOOK_BACK_GROWTH = 20
_VERSION = 1

TOPIC_CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(4 << 20),
    "segment.ms": str(24 * 3600 * 1000),
    "min.cleanable.dirty.ratio": "0.1",
}
"""Configs of the topic, if the sink creates it."""


class KafkaCommitLog:
    """The decisions about one query, in the order of their micro-batches: a compacted topic.

    :param name: the transactional id of whoever decides, and the key of the decisions
    """

    def __init__(self, options: ProduceOptions, name: str) -> None:
        self._options = options
        self._name = name

    def fence(self) -> None:
        """Have no other driver decide from now on; complete or abort the decision that one may have
        begun. Create the topic if it is missing.

        :raises SourceError: the topic cannot be created, or the cluster does not answer
        """
        thread = self._options.kafka.shared_thread()
        thread.run(_create_topic(thread.cluster, self._options.commit_topic))
        config = {
            **self._options.producer_config(self._name),
            "transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS,
            "log_level": 2,
        }
        # These are about records of the query, and may exceed the timeout of the transaction.
        for setting in ("message.timeout.ms", "delivery.timeout.ms", "linger.ms"):
            config.pop(setting, None)
        self._producer = Producer(config, logger=_log)
        try:
            self._producer.init_transactions(_TIMEOUT_S)
        except KafkaException as error:
            raise SourceError(described("opening the log of commits", error.args[0])) from None

    def last(self) -> Decision:
        """Return the last decision about the query."""
        return last_decision(self._options, self._name)

    def decide(self, decision: Decision) -> None:
        """Write a decision, in a transaction, after :meth:`fence`.

        :raises SourceError: it is not written, or may not be; or another driver has fenced this one
        """
        topic = self._options.commit_topic
        value = json.dumps([_VERSION, *decision], default=astuple)
        try:
            self._producer.begin_transaction()
            self._producer.produce(topic, value, self._name, partition=_PARTITION)
            self._producer.commit_transaction(_TIMEOUT_S)
        except KafkaException as error:
            failure: KafkaError = error.args[0]
            if failure.code() == KafkaError._FENCED:
                raise SourceError(
                    "another driver commits the micro-batches of the same checkpoint: end one"
                ) from None
            what = f"deciding about micro-batch {decision.batch_id} in topic '{topic}'"
            raise SourceError(described(what, failure)) from None


def last_decision(options: ProduceOptions, name: str) -> Decision:
    """Return the last decision about a query.

    :param name: see :class:`KafkaCommitLog`
    """
    thread = options.kafka.shared_thread()
    partition = (options.commit_topic, _PARTITION)
    # The end is behind open transactions.
    try:
        bounds = thread.run(log_bounds(thread.cluster, [partition], READ_UNCOMMITTED))
    except UnknownTopic:
        return NOTHING_DECIDED  # the first micro-batch creates it
    start, before = bounds[partition]
    look_back = _FIRST_LOOK_BACK
    reading = ReadOptions(read_committed=True, timeout_ms=int(_TIMEOUT_S * 1000))
    while start < before:
        first = max(start, before - look_back)
        decision: bytes | None = None
        for batch in read(options.kafka, [OffsetRange(*partition, first, before)], reading):
            keys, values = batch.column("key"), batch.column("value")
            for place, key in enumerate(keys.to_pylist()):
                if key == name.encode():
                    decision = values[place].as_py()
        if decision is not None:
            return _decode(decision)
        before, look_back = first, look_back * _LOOK_BACK_GROWTH
    return NOTHING_DECIDED


async def _create_topic(cluster: Cluster, name: str) -> None:
    if await cluster.existing_topics([name]):
        return
    try:
        await create_topic(cluster, NewTopic(name, 1, configs=TOPIC_CONFIGS))
    except RequestRefused as refusal:
        if refusal.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise SourceError(
                f"{refusal}: create the topic of the option commitTopic, with one partition and "
                "cleanup.policy=compact"
            ) from None


def _decode(value: bytes) -> Decision:
    """Return a decision.

    :raises SourceError: a later version of the sink has written it
    """
    version, batch_id, transactions = json.loads(value)
    if version != _VERSION:
        raise SourceError(
            f"the log of commits has a decision of version {version}: use the version of "
            "headrace that wrote it"
        )
    return Decision(
        batch_id,
        tuple(
            TaskTransaction(task, records, OpenTransaction(*transaction))
            for task, records, transaction in transactions
        ),
    )
