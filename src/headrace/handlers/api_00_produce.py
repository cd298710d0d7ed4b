"""Produce (0), versions 3-13: append batches to partitions.

Batches stay opaque: the broker reads only their header, and sets base offset and leader epoch in
it. With acks=0 there is no response, and a failure closes the connection. Checks run in Kafka's
order. A corrupt batch is refused before anything is added to a transaction.

Version notes:

* Version 3 adds record batches of magic 2 and transactional ids (KIP-98).
* Version 7 adds zstd (KIP-110).
* Version 8 adds errors of single records (KIP-467).
* Version 11 adds TRANSACTION_ABORTABLE (KIP-890).
* Version 12 adds the partition to the transaction with its first batch (KIP-890). Earlier versions
  require AddPartitionsToTxn.
* Version 13 replaces topic names by ids (KIP-516).
"""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from kio.schema.produce.v13.response import BatchIndexAndErrorMessage

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode, Refusal
from headrace.log.partition_log import PartitionLog
from headrace.log.validation import (
    MAGIC_POSITION,
    RefusedRecords,
    check_client_batch,
    single_batch,
    starts_with_batch,
)
from headrace.protocol.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from headrace.protocol.record_batch import (
    ATTRIBUTES_LOW_BYTE,
    HEADER_BYTES,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from headrace.transactions.producer import NO_PRODUCER_ID, Producer

from .context import CloseConnection, RequestContext
from .internal_records import check_coordinator_records

_ACKS = (-1, 0, 1)
_WITHOUT_LOG_START = frozenset(
    (
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
)
"""Errors of the log whose response has no log start offset."""
_ADMIN_CLIENT_ID = "__admin_client"
"""The client id that may write to internal topics."""
_FIRST_WITH_TRANSACTION_ABORTABLE = 11
_FIRST_THAT_ADDS_PARTITION = 12

Header = BatchHeader | Refusal | None
"""The header of a partition's batch, or the error of a corrupt one; None for null records."""


class _Batch(NamedTuple):
    topic_id: UUID
    data: PartitionProduceData
    header: Header


def handle(broker: Broker, request: ProduceRequest, context: RequestContext) -> Any:
    """Append the batch of each partition, and answer when all are durable."""
    batches = [
        [_Batch(topic.topic_id, data, _header_of(data)) for data in topic.partition_data]
        for topic in request.topic_data
    ]
    refusal = _check_producers(broker, request, [one for topic in batches for one in topic])
    topics = []
    for topic, of_topic in zip(request.topic_data, batches, strict=True):
        partitions = [
            _refused(one.data.index, refusal) if refusal else _append(broker, request, one, context)
            for one in of_topic
        ]
        if partitions:
            topics.append(TopicProduceResponse(topic.topic_id, tuple(partitions)))
    response = ProduceResponse(tuple(topics))
    if request.acks == 0:
        return _unacknowledged(response)
    return broker.when_durable(response)


def _header_of(data: PartitionProduceData) -> Header:
    return None if data.records is None else single_batch(data.records)


def _check_producers(
    broker: Broker, request: ProduceRequest, batches: list[_Batch]
) -> Refusal | None:
    """Reject a request whose transactional batches come from more than one producer.

    Also reject it when a batch before the first transactional one has an invalid length or magic.
    """
    for _, data, header in batches:
        if header is None or data.records is None:
            continue
        if isinstance(header, BatchHeader):
            if header.attributes & TRANSACTIONAL_BIT:
                break
            continue
        is_batch = starts_with_batch(data.records)
        if isinstance(is_batch, Refusal):
            return is_batch
        if is_batch and _is_transactional(data.records):
            break
    else:
        return None
    if request.transactional_id is None:
        return Refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    producers = {
        (header.producer_id, header.producer_epoch)
        for topic_id, data, header in batches
        if isinstance(header, BatchHeader)
        and header.is_transactional
        and header.producer_id != NO_PRODUCER_ID
        and not isinstance(broker.partition(topic_id, data.index), ErrorCode)
    }
    if len(producers) > 1:
        return Refusal(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            "There are transactional batches of several producers",
        )
    return None


def _is_transactional(records: memoryview) -> bool:
    """Return whether the first batch is transactional and has magic 2."""
    if len(records) < HEADER_BYTES or records[MAGIC_POSITION] != 2:
        return False
    return bool(records[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_BIT)


def _unacknowledged(response: ProduceResponse) -> None:
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                code = partition.error_code.name
                raise CloseConnection(f"partition {partition.index} with acks=0: {code}")


def _append(
    broker: Broker, request: ProduceRequest, batch: _Batch, context: RequestContext
) -> PartitionProduceResponse:
    topic_id, data, header = batch
    index, records = data.index, data.records
    log = broker.partition(topic_id, index)
    if isinstance(log, ErrorCode):
        return _refused(index, Refusal(log))
    if not records or header is None:
        return _refused(index, Refusal(ErrorCode.INVALID_RECORD))
    if isinstance(header, Refusal):
        return _refused(index, header)
    version, is_transactional = context.api_version, header.attributes & TRANSACTIONAL_BIT
    if is_transactional:
        refusal = _check_transaction(broker, request.transactional_id or "", log, header, version)
        if refusal is not None:
            return _refused(index, refusal)
    if request.acks not in _ACKS:
        return _refused(index, Refusal(ErrorCode.INVALID_REQUIRED_ACKS))
    if log.config.internal and context.client_id != _ADMIN_CLIENT_ID:
        message = f"Cannot append to internal topic {log.topic}"
        return _refused(index, Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, message))
    refusal = None
    if is_transactional and version >= _FIRST_THAT_ADDS_PARTITION:
        refusal = _check_first_sequence(broker, log, records, header)
    appended = (
        refusal
        or check_coordinator_records(broker, log, records)
        or broker.append(log, records, header)
    )
    if isinstance(appended, Refusal):
        has_start = appended.code not in _WITHOUT_LOG_START
        return _refused(index, appended, log.log_start_offset if has_start else -1)
    return PartitionProduceResponse(
        index,
        ErrorCode.NONE,
        appended.base_offset,
        appended.log_append_time_ms,
        appended.log_start_offset,
    )


def _check_transaction(
    broker: Broker, transactional_id: str, log: PartitionLog, header: BatchHeader, version: int
) -> Refusal | None:
    """Return the error for a transactional batch in this request version, or None."""
    if header.producer_id == NO_PRODUCER_ID:
        return None
    refusal = broker.transactions.may_write(
        transactional_id,
        Producer(header.producer_id, header.producer_epoch),
        log,
        adds_partition=version >= _FIRST_THAT_ADDS_PARTITION,
    )
    if refusal is None:
        return None
    if refusal.code == ErrorCode.PRODUCER_FENCED:
        return Refusal(ErrorCode.INVALID_PRODUCER_EPOCH)
    if refusal.code == ErrorCode.INVALID_TXN_STATE and version >= _FIRST_WITH_TRANSACTION_ABORTABLE:
        return Refusal(ErrorCode.TRANSACTION_ABORTABLE)
    if refusal.code == ErrorCode.CONCURRENT_TRANSACTIONS and version < _FIRST_THAT_ADDS_PARTITION:
        return Refusal(ErrorCode.NOT_ENOUGH_REPLICAS)  # retriable for these clients
    return refusal


def _check_first_sequence(
    broker: Broker, log: PartitionLog, records: memoryview, header: BatchHeader
) -> Refusal | None:
    """Return the error for a producer's first batch, or None if it may be appended.

    From version 12 on it must have sequence 0, so that no earlier batch was lost.
    """
    if (
        header.base_sequence <= 0
        or header.producer_id == NO_PRODUCER_ID
        or header.producer_id in log.producers
    ):
        return None
    checked = check_client_batch(records, log.config, broker.clock.wall_ms(), header)
    if isinstance(checked, Refusal):
        return checked
    return Refusal(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "The first batch of a producer has the sequence 0"
    )


def _refused(index: int, refusal: Refusal, log_start_offset: int = -1) -> PartitionProduceResponse:
    response = PartitionProduceResponse(
        index, refusal.code, -1, -1, log_start_offset, refusal.message
    )
    if isinstance(refusal, RefusedRecords):
        response.record_errors = tuple(
            BatchIndexAndErrorMessage(batch_index=one, batch_index_error_message=refusal.message)
            for one in refusal.records
        )
    return response
