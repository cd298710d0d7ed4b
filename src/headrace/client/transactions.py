"""Transactions of other producers: describe, list, commit and abort them (KIP-98, KIP-664).

One client may write in a transaction and another one end it, by the transactional id, the producer
id and the epoch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.protocol.api import (
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
)
from headrace.protocol.errors import ErrorCode
from headrace.protocol.schema import Message

from .cluster import Cluster
from .connection import Connection
from .coordinators import (
    KeyedRequest,
    TransactionCoordinators,
    ask_brokers,
    ask_every_broker,
)
from .errors import Answers, Outcomes, RequestRefused, has_code, raised, refused

ONGOING, EMPTY = "Ongoing", "Empty"
"""Kafka's names of two states of a transactional id: a transaction is open; none has been opened
since its producer was initialized."""

_ABORT_TIMEOUT_MS = 60_000


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """The identity of a transaction, which suffices to end it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


async def open_transactions(
    cluster: Cluster, transactional_ids: Iterable[str]
) -> Answers[str, OpenTransaction | None]:
    """Return the open transactions of transactional ids (DescribeTransactions).

    :returns: transactional id → its open transaction, None if there is none; or the error
    """
    request = KeyedRequest[str, OpenTransaction | None](DescribeTransactionsRequest, _opened)
    places = TransactionCoordinators(cluster)
    return await ask_brokers(cluster, places, transactional_ids, request)


def _opened(response: Any) -> Answers[str, OpenTransaction | None]:
    opened: Answers[str, OpenTransaction | None] = {}
    for answer in response.transaction_states:
        name = answer.transactional_id
        refusal = _refusal("describing", "DESCRIBE", name, answer)
        if refusal is not None or answer.transaction_state != ONGOING:
            is_unknown = has_code(refusal, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
            opened[name] = None if is_unknown else refusal
        else:
            opened[name] = OpenTransaction(name, answer.producer_id, answer.producer_epoch)
    return opened


async def end_transactions(
    cluster: Cluster, transactions: Collection[OpenTransaction], *, commit: bool
) -> Outcomes[OpenTransaction]:
    """Commit or abort transactions (EndTxn). A repetition has the same answer as the first call.

    :returns: transaction → None if it was committed or aborted as asked, or the error.
        PRODUCER_FENCED, INVALID_PRODUCER_EPOCH and INVALID_TXN_STATE mean that it had ended in
        another way before
    """
    requests = {
        transaction.transactional_id: EndTxnRequest(
            transaction.transactional_id,
            transaction.producer_id,
            transaction.producer_epoch,
            commit,
        )
        for transaction in transactions
    }
    errors = await _each(cluster, requests, "committing" if commit else "aborting")
    return {transaction: errors[transaction.transactional_id] for transaction in transactions}


async def abort_open_transactions(
    cluster: Cluster, transactional_ids: Iterable[str]
) -> Outcomes[str]:
    """Abort the open transactions of transactional ids, and fence their producers (InitProducerId).

    :returns: transactional id → None, or the error
    """
    requests = {name: InitProducerIdRequest(name, _ABORT_TIMEOUT_MS) for name in transactional_ids}
    return await _each(cluster, requests, "aborting")


async def transactional_ids(
    cluster: Cluster, prefix: str, states: Collection[str]
) -> dict[str, str]:
    """Return the transactional ids with a prefix that are in one of some states, and the state, on
    all brokers (ListTransactions). Ids that the user may not describe are missing.

    :raises ClientError: a broker does not answer
    """
    request = ListTransactionsRequest(list(states))
    listed = raised(await ask_every_broker(cluster, request, "transactions"))
    return {
        answer.transactional_id: answer.transaction_state
        for response in listed.values()
        for answer in response.transaction_states
        if answer.transactional_id.startswith(prefix)
    }


async def _each(cluster: Cluster, requests: Mapping[str, Message], what: str) -> Outcomes[str]:
    """Send a request for each transactional id; retry while its last transaction is ending.

    :param requests: transactional id → its request
    :param what: the change, for error texts
    :returns: transactional id → None, or the error
    """

    async def send(connection: Connection, names: Sequence[str], timeout_ms: int) -> Outcomes[str]:
        responses = await asyncio.gather(
            *(connection.ask(requests[name], timeout_ms=timeout_ms) for name in names)
        )
        return {
            name: _refusal(what, "WRITE", name, response)
            for name, response in zip(names, responses, strict=True)
        }

    places, retried = TransactionCoordinators(cluster), (ErrorCode.CONCURRENT_TRANSACTIONS,)
    return await ask_brokers(cluster, places, requests, send, retried=retried)


def _refusal(
    what: str, operation: str, transactional_id: str, answer: Any
) -> RequestRefused | None:
    return refused(
        f"{what} the transaction of '{transactional_id}'",
        answer,
        f"{operation} on transactional id '{transactional_id}'",
    )
