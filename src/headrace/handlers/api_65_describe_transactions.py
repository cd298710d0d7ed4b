"""DescribeTransactions (65), version 0: describe transactions by transactional id (KIP-664)."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from typing import Any

from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
from kio.schema.describe_transactions.v0.response import (
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode
from headrace.protocol.authorized_operations import Operation
from headrace.protocol.large_responses import Sliced
from headrace.protocol.messages import NO_THROTTLE
from headrace.security.access import AnyAccess
from headrace.security.acls import ResourceType
from headrace.transactions.records import State, Transaction

from .context import RequestContext
from .durations import to_timedelta
from .slicing import lazily, sliced

_NOTHING: dict[str, Any] = {
    "transaction_state": "",
    "transaction_timeout": NO_THROTTLE,
    "transaction_start_time": datetime.fromtimestamp(0, UTC),
    "producer_id": 0,
    "producer_epoch": 0,
    "topics": (),
}


def handle(
    broker: Broker, request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse | Sliced:
    """Describe the transaction of each transactional id of a request."""
    known = broker.transactions.coordinator.transactions
    states = lazily(
        lambda one: _state(one, known.get(one), context.access), request.transactional_ids
    )
    response = DescribeTransactionsResponse(throttle_time=NO_THROTTLE, transaction_states=states)
    return sliced(response, len(request.transactional_ids))


def state_name(state: State) -> str:
    """Return a state as Kafka's tools print it, for example PrepareCommit for PREPARE_COMMIT."""
    return state.name.title().replace("_", "")


def _state(transactional_id: str, known: Transaction | None, access: AnyAccess) -> TransactionState:
    if not transactional_id or known is None:
        code = (
            ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if transactional_id else ErrorCode.INVALID_REQUEST
        )
        return TransactionState(error_code=code, transactional_id=transactional_id, **_NOTHING)
    start = None if known.start_ms < 0 else datetime.fromtimestamp(known.start_ms / 1000, UTC)
    return TransactionState(
        error_code=ErrorCode.NONE,
        transactional_id=transactional_id,
        transaction_state=state_name(known.state),
        transaction_timeout=to_timedelta(known.timeout_ms),
        transaction_start_time=start,
        producer_id=known.producer_id,
        producer_epoch=known.producer_epoch,
        topics=tuple(
            TopicData(topic=topic, partitions=tuple(partition for _, partition in partitions))
            for topic, partitions in groupby(sorted(known.partitions), key=itemgetter(0))
            if access.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic)
        ),
    )
