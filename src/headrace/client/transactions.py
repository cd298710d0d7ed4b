"""Transactions of other producers: description, listing, commit and abort (KIP-98, KIP-664).

One client may write in a transaction and another one end it, by the transactional id, the producer
id and the epoch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from headrace.errors import ErrorCode

from .cluster import Cluster
from .connection import Connection
from .coordinators import backing_off
from .errors import ClientError, RequestRefused

ONGOING = "Ongoing"
"""Kafka's name of the state of an open transaction."""

_ABORT_TIMEOUT = timedelta(milliseconds=60_000)


class OpenTransaction(NamedTuple):
    """The identity of a transaction, which suffices to end it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class TransactionDescription(NamedTuple):
    """The state of a transactional id.

    :param state: Kafka's name of it, such as :data:`ONGOING`
    """

    transaction: OpenTransaction
    state: str


async def describe_transactions(
    cluster: Cluster, transactional_ids: Iterable[str]
) -> dict[str, TransactionDescription | ClientError]:
    """Describe the transactions of transactional ids.

    :returns: transactional id → description, or the error that stands in its place
    """

    async def ask(
        connection: Connection, ids: Sequence[str], timeout_ms: int
    ) -> dict[str, TransactionDescription | RequestRefused]:
        request = connection.messages("describe_transactions").DescribeTransactionsRequest(
            transactional_ids=tuple(ids)
        )
        response = await connection.request(request, timeout_ms=timeout_ms)
        found: dict[str, TransactionDescription | RequestRefused] = {}
        for answer in response.transaction_states:
            name = str(answer.transactional_id)
            found[name] = _refusal("describing", "DESCRIBE", name, answer) or (
                TransactionDescription(
                    OpenTransaction(name, int(answer.producer_id), int(answer.producer_epoch)),
                    str(answer.transaction_state),
                )
            )
        return found

    return await cluster.transaction_coordinators.ask(transactional_ids, ask, cluster.timeout_ms)


async def end_transactions(
    cluster: Cluster, transactions: Iterable[OpenTransaction], *, commit: bool
) -> dict[OpenTransaction, ClientError | None]:
    """Commit or abort transactions. A repetition has the same answer as the first call.

    :returns: transaction → None if it has ended so, or the error. PRODUCER_FENCED,
        INVALID_PRODUCER_EPOCH and INVALID_TXN_STATE mean that it had ended otherwise before
    """
    by_id = {one.transactional_id: one for one in transactions}
    what = "committing" if commit else "aborting"

    async def end(connection: Connection, name: str, timeout_ms: int) -> RequestRefused | bool:
        one = by_id[name]
        request = connection.messages("end_txn").EndTxnRequest(
            transactional_id=name,
            producer_id=one.producer_id,
            producer_epoch=one.producer_epoch,
            committed=commit,
        )
        response = await connection.request(request, timeout_ms=timeout_ms)
        return _refusal(what, "WRITE", name, response) or True

    answers = await _each(cluster, by_id, end)
    return {
        one: answer if isinstance(answer, ClientError) else None
        for name, one in by_id.items()
        for answer in (answers[name],)
    }


async def abort_open_transactions(
    cluster: Cluster, transactional_ids: Iterable[str]
) -> dict[str, ClientError | None]:
    """Abort what is open with transactional ids, and fence their producers (InitProducerId).

    :returns: transactional id → None, or the error
    """

    async def fence(connection: Connection, name: str, timeout_ms: int) -> RequestRefused | bool:
        request = connection.messages("init_producer_id").InitProducerIdRequest(
            transactional_id=name, transaction_timeout=_ABORT_TIMEOUT
        )
        response = await connection.request(request, timeout_ms=timeout_ms)
        return _refusal("aborting", "WRITE", name, response) or True

    answers = await _each(cluster, dict.fromkeys(transactional_ids), fence)
    return {
        name: answer if isinstance(answer, ClientError) else None
        for name, answer in answers.items()
    }


async def open_transactional_ids(cluster: Cluster, prefix: str) -> list[str]:
    """Return the transactional ids with a prefix whose transactions are open, on all brokers.

    Ids that the user may not describe are missing.

    :raises ClientError: a broker does not answer
    """
    await cluster.metadata()

    async def ask(node_id: int) -> list[str]:
        connection = await cluster.connection(node_id)
        request = connection.messages("list_transactions").ListTransactionsRequest(
            state_filters=(ONGOING,)
        )
        response = await connection.request(request, timeout_ms=cluster.timeout_ms)
        if response.error_code:
            what = f"listing the transactions of {connection.address}"
            raise RequestRefused(what, int(response.error_code))
        return [str(one.transactional_id) for one in response.transaction_states]

    listed = await asyncio.gather(*(ask(node_id) for node_id in tuple(cluster.nodes)))
    return sorted(name for names in listed for name in names if name.startswith(prefix))


async def _each(
    cluster: Cluster, transactional_ids: Mapping[str, object], send: Any
) -> dict[str, bool | ClientError]:
    """Send a request for each transactional id; retry while its last transaction is ending."""
    answers: dict[str, bool | ClientError] = {}

    async def ask(
        connection: Connection, ids: Sequence[str], timeout_ms: int
    ) -> dict[str, bool | RequestRefused]:
        sent = await asyncio.gather(*(send(connection, name, timeout_ms) for name in ids))
        return dict(zip(ids, sent, strict=True))

    async def attempt() -> bool | None:
        left = [name for name in transactional_ids if _is_unfinished(answers.get(name))]
        coordinators = cluster.transaction_coordinators
        answers.update(await coordinators.ask(left, ask, cluster.timeout_ms))
        return None if any(map(_is_unfinished, answers.values())) else True

    await backing_off(attempt, cluster.timeout_ms)
    return answers


def _is_unfinished(answer: bool | ClientError | None) -> bool:
    return answer is None or (
        isinstance(answer, RequestRefused) and answer.code == ErrorCode.CONCURRENT_TRANSACTIONS
    )


def _refusal(
    what: str, operation: str, transactional_id: str, answer: Any
) -> RequestRefused | None:
    if not answer.error_code:
        return None
    return RequestRefused(
        f"{what} the transaction of '{transactional_id}'",
        int(answer.error_code),
        needs=f"{operation} on transactional id '{transactional_id}'",
    )
