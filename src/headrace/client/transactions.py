"""Transactions of other producers: describe, list, commit and abort them (KIP-98, KIP-664).

One client may write in a transaction and another one end it, by the transactional id, the producer
id and the epoch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from headrace.errors import ErrorCode

from .cluster import Cluster
from .connection import Connection
from .coordinators import backing_off
from .errors import ClientError, RequestRefused, check_answer, refused

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

    :returns: transaction → None if it was committed or aborted as asked, or the error.
        PRODUCER_FENCED, INVALID_PRODUCER_EPOCH and INVALID_TXN_STATE mean that it had ended in
        another way before
    """
    by_id = {one.transactional_id: one for one in transactions}
    what = "committing" if commit else "aborting"

    async def end(connection: Connection, name: str, timeout_ms: int) -> RequestRefused | None:
        one = by_id[name]
        request = connection.messages("end_txn").EndTxnRequest(
            transactional_id=name,
            producer_id=one.producer_id,
            producer_epoch=one.producer_epoch,
            committed=commit,
        )
        response = await connection.request(request, timeout_ms=timeout_ms)
        return _refusal(what, "WRITE", name, response)

    errors = await _each(cluster, by_id, end)
    return {one: errors[name] for name, one in by_id.items()}


async def abort_open_transactions(
    cluster: Cluster, transactional_ids: Iterable[str]
) -> dict[str, ClientError | None]:
    """Abort the open transactions of transactional ids, and fence their producers (InitProducerId).

    :returns: transactional id → None, or the error
    """

    async def fence(connection: Connection, name: str, timeout_ms: int) -> RequestRefused | None:
        request = connection.messages("init_producer_id").InitProducerIdRequest(
            transactional_id=name, transaction_timeout=_ABORT_TIMEOUT
        )
        response = await connection.request(request, timeout_ms=timeout_ms)
        return _refusal("aborting", "WRITE", name, response)

    return await _each(cluster, dict.fromkeys(transactional_ids), fence)


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
        check_answer(f"listing the transactions of {connection.address}", response)
        return [str(one.transactional_id) for one in response.transaction_states]

    listed = await asyncio.gather(*(ask(node_id) for node_id in tuple(cluster.nodes)))
    return sorted(name for names in listed for name in names if name.startswith(prefix))


async def _each(
    cluster: Cluster,
    transactional_ids: Iterable[str],
    send: Callable[[Connection, str, int], Awaitable[RequestRefused | None]],
) -> dict[str, ClientError | None]:
    """Send a request for each transactional id; retry while its last transaction is ending.

    :param send: takes (connection, transactional id, timeout in ms)
    :returns: transactional id → None, or the error
    """
    errors: dict[str, ClientError | None] = {}
    pending = list(transactional_ids)

    async def ask(
        connection: Connection, ids: Sequence[str], timeout_ms: int
    ) -> dict[str, RequestRefused | None]:
        sent = await asyncio.gather(*(send(connection, name, timeout_ms) for name in ids))
        return dict(zip(ids, sent, strict=True))

    async def attempt() -> bool | None:
        errors.update(await cluster.transaction_coordinators.ask(pending, ask, cluster.timeout_ms))
        pending[:] = [name for name in pending if _is_ending(errors[name])]
        return None if pending else True

    await backing_off(attempt, cluster.timeout_ms)
    return errors


def _is_ending(error: ClientError | None) -> bool:
    return isinstance(error, RequestRefused) and error.code == ErrorCode.CONCURRENT_TRANSACTIONS


def _refusal(
    what: str, operation: str, transactional_id: str, answer: Any
) -> RequestRefused | None:
    return refused(
        f"{what} the transaction of '{transactional_id}'",
        answer,
        f"{operation} on transactional id '{transactional_id}'",
    )
