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

from collections.abc import Generator
from typing import Any

from kio.schema.add_partitions_to_txn.v5.request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTransaction,
)
from kio.schema.add_partitions_to_txn.v5.response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode, Refusal
from headrace.internal_topics import INTERNAL_TOPICS
from headrace.protocol.authorized_operations import Operation
from headrace.protocol.messages import NO_THROTTLE
from headrace.security.access import AnyAccess
from headrace.security.acls import ResourceType
from headrace.transactions.producer import Producer

from .context import RequestContext
from .slicing import run_sliced_durably
from .transaction_errors import error_for_version

_FIRST_WITH_FENCED = 2
_FIRST_FOR_BROKERS = 4

Codes = dict[tuple[str, int], ErrorCode]


def handle(broker: Broker, request: AddPartitionsToTxnRequest, context: RequestContext) -> Any:
    """Add partitions to each transaction of a request."""
    if context.api_version >= _FIRST_FOR_BROKERS and not context.access.allows_cluster(
        Operation.CLUSTER_ACTION
    ):
        return AddPartitionsToTxnResponse(
            throttle_time=NO_THROTTLE,
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            results_by_transaction=(),
        )
    count = sum(len(topic.partitions) for one in request.transactions for topic in one.topics)
    return run_sliced_durably(broker, _add_all(broker, request, context), count)


def _add_all(
    broker: Broker, request: AddPartitionsToTxnRequest, context: RequestContext
) -> Generator[None, None, AddPartitionsToTxnResponse]:
    results = []
    for asked in request.transactions:
        results.append((yield from _transaction(broker, asked, context)))
        yield
    return AddPartitionsToTxnResponse(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.NONE, results_by_transaction=tuple(results)
    )


def _transaction(
    broker: Broker, asked: AddPartitionsToTxnTransaction, context: RequestContext
) -> Generator[None, None, AddPartitionsToTxnResult]:
    codes = yield from _codes(broker, asked, context)
    return AddPartitionsToTxnResult(
        transactional_id=asked.transactional_id,
        topic_results=tuple(
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=tuple(
                    AddPartitionsToTxnPartitionResult(
                        partition_index=partition, partition_error_code=codes[topic.name, partition]
                    )
                    for partition in topic.partitions
                ),
            )
            for topic in asked.topics
        ),
    )


def _codes(
    broker: Broker, asked: AddPartitionsToTxnTransaction, context: RequestContext
) -> Generator[None, None, Codes]:
    version = context.api_version
    partitions = [
        (topic.name, partition) for topic in asked.topics for partition in topic.partitions
    ]
    client = version < _FIRST_FOR_BROKERS
    if client and not context.access.allows(
        Operation.WRITE, ResourceType.TRANSACTIONAL_ID, asked.transactional_id
    ):
        return dict.fromkeys(partitions, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not asked.transactional_id:
        return dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST)
    producer = Producer(asked.producer_id, asked.producer_epoch)
    refused: Codes = {}
    for one in partitions:
        code = _refusal(broker, *one, context.access if client else None)
        if code is not None:
            refused[one] = code
        yield
    if refused:
        return dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED) | refused
    if asked.verify_only:
        return {one: _verified(broker, asked.transactional_id, producer, one) for one in partitions}
    reply = broker.transactions.add_partitions(asked.transactional_id, producer, partitions)
    if isinstance(reply, Refusal):
        return dict.fromkeys(partitions, error_for_version(reply, version, _FIRST_WITH_FENCED))
    return dict.fromkeys(partitions, ErrorCode.NONE)


def _refusal(
    broker: Broker, name: str, partition: int, access: AnyAccess | None
) -> ErrorCode | None:
    """Return the error for a partition that does not exist or that the client may not write to.

    An offline partition exists; Produce refuses its records.

    :param access: the access of a client; None for a broker
    """
    if access is not None and (
        name in INTERNAL_TOPICS or not access.allows(Operation.WRITE, ResourceType.TOPIC, name)
    ):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    found = broker.partition_by_name(name, partition)
    if not isinstance(found, ErrorCode) or found == ErrorCode.KAFKA_STORAGE_ERROR:
        return None
    return found


def _verified(
    broker: Broker, transactional_id: str, producer: Producer, partition: tuple[str, int]
) -> ErrorCode:
    refusal = broker.transactions.coordinator.takes_part(transactional_id, producer, partition)
    if refusal is None:
        return ErrorCode.NONE
    return (
        ErrorCode.TRANSACTION_ABORTABLE
        if refusal.code == ErrorCode.INVALID_TXN_STATE
        else refusal.code
    )
