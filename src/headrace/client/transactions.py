"""Transactions of other producers: describe, list, commit and abort them (KIP-98, KIP-664).

One client may write in a transaction and another one end it, by the transactional id, the producer
id and the epoch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from headrace.errors import ErrorCode

from .cluster import Cluster
from .connection import Connection
from .coordinators import CoordinatorRequest, EveryBroker, ask_brokers
from .errors import ClientError, RequestRefused, has_code, raised, refused

_ONGOING = "Ongoing"
"""Kafka's name of the state of an open transaction."""

_ABORT_TIMEOUT = timedelta(milliseconds=60_000)


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """The identity of a transaction, which suffices to end it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


async def open_transactions(
    cluster: Cluster, transactional_ids: Iterable[str]
) -> dict[str, OpenTransaction | ClientError | None]:
    """Return the open transactions of transactional ids (DescribeTransactions).

    :returns: transactional id → its open transaction, None if there is none; or the error
    """
    request: CoordinatorRequest[str, OpenTransaction | None] = CoordinatorRequest(
        lambda connection, ids: connection.messages(
            "describe_transactions"
        ).DescribeTransactionsRequest(transactional_ids=tuple(ids)),
        _opened,
    )
    return await cluster.transaction_coordinators.ask(
        transactional_ids, request, cluster.timeout_ms
    )


def _opened(response: Any) -> dict[str, OpenTransaction | ClientError | None]:
    opened: dict[str, OpenTransaction | ClientError | None] = {}
    for answer in response.transaction_states:
        name = answer.transactional_id
        refusal = _refusal("describing", "DESCRIBE", name, answer)
        if refusal is not None or answer.transaction_state != _ONGOING:
            is_unknown = has_code(refusal, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
            opened[name] = None if is_unknown else refusal
        else:
            opened[name] = OpenTransaction(name, answer.producer_id, answer.producer_epoch)
    return opened


async def end_transactions(
    cluster: Cluster, transactions: Iterable[OpenTransaction], *, commit: bool
) -> dict[OpenTransaction, ClientError | None]:
    """Commit or abort transactions (EndTxn). A repetition has the same answer as the first call.

    :returns: transaction → None if it was committed or aborted as asked, or the error.
        PRODUCER_FENCED, INVALID_PRODUCER_EPOCH and INVALID_TXN_STATE mean that it had ended in
        another way before
    """
    by_id = {transaction.transactional_id: transaction for transaction in transactions}

    def build(connection: Connection, name: str) -> Any:
        return connection.messages("end_txn").EndTxnRequest(
            transactional_id=name,
            producer_id=by_id[name].producer_id,
            producer_epoch=by_id[name].producer_epoch,
            committed=commit,
        )

    what = "committing" if commit else "aborting"
    errors = await _each(cluster, by_id, build, what)
    return {transaction: errors[name] for name, transaction in by_id.items()}


async def abort_open_transactions(
    cluster: Cluster, transactional_ids: Iterable[str]
) -> dict[str, ClientError | None]:
    """Abort the open transactions of transactional ids, and fence their producers (InitProducerId).

    :returns: transactional id → None, or the error
    """

    def build(connection: Connection, name: str) -> Any:
        return connection.messages("init_producer_id").InitProducerIdRequest(
            transactional_id=name, transaction_timeout=_ABORT_TIMEOUT
        )

    return await _each(cluster, transactional_ids, build, "aborting")


async def open_transactional_ids(cluster: Cluster, prefix: str) -> list[str]:
    """Return the transactional ids with a prefix whose transactions are open, on all brokers
    (ListTransactions). Ids that the user may not describe are missing.

    :raises ClientError: a broker does not answer
    """
    await cluster.metadata()

    async def send(
        connection: Connection, node_ids: Sequence[int], timeout_ms: int
    ) -> dict[int, list[str] | ClientError]:
        request = connection.messages("list_transactions").ListTransactionsRequest(
            state_filters=(_ONGOING,)
        )
        response = await connection.request(request, timeout_ms=timeout_ms)
        refusal = refused(f"listing the transactions of {connection.address}", response)
        names = [answer.transactional_id for answer in response.transaction_states]
        return dict.fromkeys(node_ids, refusal or names)

    listed = raised(
        await ask_brokers(cluster, EveryBroker(), tuple(cluster.nodes), send, cluster.timeout_ms)
    )
    return sorted(name for names in listed.values() for name in names if name.startswith(prefix))


async def _each(
    cluster: Cluster,
    transactional_ids: Iterable[str],
    build: Callable[[Connection, str], Any],
    what: str,
) -> dict[str, ClientError | None]:
    """Send a request for each transactional id; retry while its last transaction is ending.

    :param build: makes the request about one
    :param what: the change, for error texts
    :returns: transactional id → None, or the error
    """

    async def send(
        connection: Connection, ids: Sequence[str], timeout_ms: int
    ) -> dict[str, RequestRefused | None]:
        responses = await asyncio.gather(
            *(connection.request(build(connection, name), timeout_ms=timeout_ms) for name in ids)
        )
        return {
            name: _refusal(what, "WRITE", name, response)
            for name, response in zip(ids, responses, strict=True)
        }

    return await cluster.transaction_coordinators.ask(
        transactional_ids, send, cluster.timeout_ms, retried=(ErrorCode.CONCURRENT_TRANSACTIONS,)
    )


def _refusal(
    what: str, operation: str, transactional_id: str, answer: Any
) -> RequestRefused | None:
    return refused(
        f"{what} the transaction of '{transactional_id}'",
        answer,
        f"{operation} on transactional id '{transactional_id}'",
    )
