"""AddPartitionsToTxn (24), versions 0-5: add partitions to a transaction (KIP-98).

All partitions of a transaction are added, or none: if one of them does not exist, the others have
OPERATION_NOT_ATTEMPTED.

Version notes:

* Version 2 adds PRODUCER_FENCED (KIP-588); earlier versions return INVALID_PRODUCER_EPOCH.
* Version 3 is flexible (KIP-482).
* Version 4 adds, for brokers, several transactions per request, and ``verify_only`` to verify that
  the partitions have been added (KIP-890).
* Version 5 adds TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from functools import partial

from headrace.net.api import CLUSTER, CLUSTER_ACTION, TOPIC, TRANSACTIONAL_ID, WRITE, Api, Inside
from headrace.net.call import Call
from headrace.protocol.api import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from headrace.protocol.errors import ErrorCode
from headrace.protocol.internal_topics import INTERNAL_TOPICS
from headrace.protocol.partitions import TopicPartition
from headrace.transactions.producer import Producer, error_code

Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
TransactionResult = AddPartitionsToTxnResponse.AddPartitionsToTxnResult
TopicResult = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
PartitionResult = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult


API = Api(
    24,
    Inside(CLUSTER_ACTION, CLUSTER, "from version 4 on: refused as a whole"),
    Inside(WRITE, TRANSACTIONAL_ID, "before version 4: refused as a whole"),
    Inside(
        WRITE,
        TOPIC,
        "before version 4: TOPIC_AUTHORIZATION_FAILED for its partitions; others are not added",
    ),
    of_coordinator=True,
)

_FIRST_WITH_FENCED = 2
_FIRST_FOR_BROKERS = 4


async def handle(call: Call, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    """Add partitions to each transaction of a request, or to the only one before version 4."""
    if call.version < _FIRST_FOR_BROKERS:
        transaction = Transaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        topics = await _add(call, transaction)
        await call.durable()
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)
    if not call.access.allows_cluster(CLUSTER_ACTION):
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    results = []
    for transaction in request.transactions:
        topics = await _add(call, transaction)
        results.append(TransactionResult(transaction.transactional_id, topics))
        await call.pause()
    await call.durable()
    return AddPartitionsToTxnResponse(results_by_transaction=results)


async def _add(call: Call, transaction: Transaction) -> list[TopicResult]:
    codes = await _codes(call, transaction)

    def result(name: str, partition: int) -> PartitionResult:
        return PartitionResult(partition, codes[name, partition])

    return [
        TopicResult(topic.name, await call.each(partial(result, topic.name), topic.partitions))
        for topic in transaction.topics
    ]


async def _codes(call: Call, transaction: Transaction) -> dict[TopicPartition, ErrorCode]:
    """Add the partitions of a transaction, or verify that they are in it; return their errors."""
    transactional_id, transactions = transaction.transactional_id, call.transactions
    partitions = [
        (topic.name, partition) for topic in transaction.topics for partition in topic.partitions
    ]
    if call.version < _FIRST_FOR_BROKERS and not call.may(
        WRITE, TRANSACTIONAL_ID, transactional_id
    ):
        return dict.fromkeys(partitions, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not transactional_id:
        return dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST)
    refused: dict[TopicPartition, ErrorCode] = {}
    for partition in partitions:
        code = _check(call, *partition)
        if code:
            refused[partition] = code
        await call.pause()
    if refused:
        return dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED) | refused
    producer = Producer(transaction.producer_id, transaction.producer_epoch)
    if not transaction.verify_only:
        refusal = transactions.add_partitions(transactional_id, producer, partitions)
        return dict.fromkeys(partitions, error_code(refusal, call.version, _FIRST_WITH_FENCED))
    codes = dict.fromkeys(partitions, ErrorCode.NONE)
    for partition in partitions:
        if refusal := transactions.coordinator.takes_part(transactional_id, producer, partition):
            is_abortable = refusal.code == ErrorCode.INVALID_TXN_STATE
            codes[partition] = ErrorCode.TRANSACTION_ABORTABLE if is_abortable else refusal.code
    return codes


def _check(call: Call, name: str, index: int) -> ErrorCode:
    """Return the error for a partition that does not exist or that the client, which is no broker,
    may not write to; else NONE. An offline partition exists; Produce refuses its records.
    """
    if call.version < _FIRST_FOR_BROKERS and (
        name in INTERNAL_TOPICS or not call.may(WRITE, TOPIC, name)
    ):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    log = call.topic_logs.partition(name, index)
    if isinstance(log, ErrorCode) and log != ErrorCode.KAFKA_STORAGE_ERROR:
        return log
    return ErrorCode.NONE
