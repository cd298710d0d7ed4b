"""The transactions of a query's tasks in the cluster."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterable
from typing import Any, TypeVar

from headrace.client import ClientError, Cluster, RequestRefused
from headrace.client.transactions import (
    ONGOING,
    OpenTransaction,
    TransactionDescription,
    abort_open_transactions,
    describe_transactions,
    end_transactions,
    open_transactional_ids,
)
from headrace.errors import ErrorCode
from headrace.log_lines import get_logger
from headrace.spark.errors import SourceError, describe
from headrace.spark.option_parsing import KafkaOptions
from headrace.spark.reader.cluster_thread import shared_cluster_thread

T = TypeVar("T")

_log = get_logger(__name__)

_ENDED_OTHERWISE = {
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
}


class OpenTransactions:
    """See :class:`headrace.spark.produce.commits.Transactions`.

    :param prefix: the beginning of the transactional ids of this query's tasks
    """

    def __init__(self, kafka: KafkaOptions, prefix: str) -> None:
        self._kafka = kafka
        self._prefix = prefix

    def open_now(self, transactional_id: str) -> OpenTransaction:
        """Return the open transaction of a transactional id.

        :raises SourceError: there is none, or the cluster does not tell
        """
        found = self._open_transactions([transactional_id])[transactional_id]
        if found is None:
            raise SourceError(f"the transaction of '{transactional_id}' has ended: try again")
        return found

    def no_longer_open(self, transactions: Iterable[OpenTransaction]) -> list[OpenTransaction]:
        """Return the transactions that are not open any more."""
        wanted = list(transactions)
        found = self._open_transactions([one.transactional_id for one in wanted])
        return [one for one in wanted if found[one.transactional_id] != one]

    def commit(self, transactions: Iterable[OpenTransaction]) -> list[OpenTransaction]:
        """Commit transactions; return those that had been aborted before.

        :raises SourceError: it is unknown whether one is committed
        """
        wanted = list(transactions)
        lost = []
        answers = self._call(lambda cluster: end_transactions(cluster, wanted, commit=True))
        for one, answer in answers.items():
            if isinstance(answer, RequestRefused) and answer.code in _ENDED_OTHERWISE:
                lost.append(one)
            elif answer is not None:
                raise SourceError(describe(answer))
        return lost

    def abort_others(self, kept: Collection[str]) -> None:
        """Abort all open transactions of the query but those ``kept``."""

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
        """Return the open transaction of each transactional id; None if there is none.

        :raises SourceError: the cluster does not tell
        """
        found: dict[str, OpenTransaction | None] = {}
        answers = self._call(lambda cluster: describe_transactions(cluster, transactional_ids))
        for name, answer in answers.items():
            if isinstance(answer, TransactionDescription):
                found[name] = answer.transaction if answer.state == ONGOING else None
            elif (
                isinstance(answer, RequestRefused)
                and answer.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            ):
                found[name] = None
            else:
                raise SourceError(describe(answer))
        return found

    def _call(self, work: Callable[[Cluster], Coroutine[Any, Any, T]]) -> T:
        thread = shared_cluster_thread(self._kafka)
        return thread.call(work(thread.cluster))
