"""DescribeTransactions (65), version 0: describe transactions by transactional id (KIP-664)."""

from __future__ import annotations

from headrace.net.api import DESCRIBE, TOPIC, TRANSACTIONAL_ID, Api, Each, Inside
from headrace.net.call import Call
from headrace.protocol.api import DescribeTransactionsRequest, DescribeTransactionsResponse
from headrace.protocol.errors import ErrorCode
from headrace.protocol.partitions import by_topic

TransactionState = DescribeTransactionsResponse.TransactionState
TopicData = DescribeTransactionsResponse.TopicData

API = Api(
    65,
    Each(DESCRIBE, TRANSACTIONAL_ID),
    Inside(DESCRIBE, TOPIC, "left out of the answer"),
)


async def handle(call: Call, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
    """Describe the transaction of each transactional id of a request."""
    transactions = call.transactions.coordinator.transactions
    allowed, refused = await call.allowed_items(request.transactional_ids, TransactionState)

    def describe(transactional_id: str) -> TransactionState:
        transaction = transactions.get(transactional_id)
        if not transactional_id:
            return TransactionState(ErrorCode.INVALID_REQUEST)
        if transaction is None:
            return TransactionState(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id)
        return TransactionState(
            transactional_id=transactional_id,
            transaction_state=transaction.state.label,
            transaction_timeout_ms=transaction.timeout_ms,
            transaction_start_time_ms=transaction.start_ms,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            topics=[
                TopicData(topic, numbers)
                for topic, numbers in by_topic(sorted(transaction.partitions)).items()
                if call.may(DESCRIBE, TOPIC, topic)
            ],
        )

    states = call.lazily(describe, allowed, refused)
    return DescribeTransactionsResponse(transaction_states=states)
