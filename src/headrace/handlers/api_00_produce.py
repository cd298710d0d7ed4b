"""Produce (0), versions 3-13: append batches to partitions, idempotently where the producer asks
for it (KIP-98).

Batches stay opaque: the log checks their headers and CRC and patches their offsets. Topics come by
id (KIP-516). With acks=0 nothing is answered, and a failure closes the connection, which is all the
client can notice.

A transactional batch must be of the producer that its transactional id has now. Its partition must
take part in the transaction; from version 12 on writing to it is what lets it take part (KIP-890).
"""

from __future__ import annotations

from typing import Any

from kio.schema.produce.v13.response import BatchIndexAndErrorMessage

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode, Refusal
from headrace.log.partition_log import PartitionLog
from headrace.log.validation import (
    MAGIC_POSITION,
    RefusedRecords,
    check_client_batch,
    check_first,
    check_one,
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
    header_at,
)
from headrace.transactions.producer import NO_PRODUCER_ID, Producer

from . import CloseConnection, RequestContext
from .internal_records import check_coordinator_records

_ACKS = (-1, 0, 1)
_TELL_NO_START = frozenset(
    (
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
)
"""With which a refusal by the log does not say where the log starts."""
_ADMIN_CLIENT_ID = "__admin_client"
"""The name of who may write to internal topics."""
_FIRST_THAT_KNOWS_ABORTABLE = 11
_FIRST_THAT_TAKES_PART = 12


def handle(broker: Broker, request: ProduceRequest, context: RequestContext) -> Any:
    refusal = _check_all(broker, request)
    topics = []
    for topic in request.topic_data:
        partitions = [
            _refused(one.index, refusal)
            if refusal
            else _append(broker, request, topic.topic_id, one, context)
            for one in topic.partition_data
        ]
        if partitions:
            topics.append(TopicProduceResponse(topic.topic_id, tuple(partitions)))
    response = ProduceResponse(tuple(topics))
    if request.acks == 0:
        return _unacknowledged(response)
    return broker.when_durable(response)


def _check_all(broker: Broker, request: ProduceRequest) -> Refusal | None:
    """Why nothing of a request may be written: it has transactional batches, and not one producer
    for all of them.

    Also when a batch before the first transactional one cannot be told to be one.
    """
    batches = [
        (topic.topic_id, one.index, one.records)
        for topic in request.topic_data
        for one in topic.partition_data
        if one.records is not None
    ]
    for _, _, records in batches:
        whole = check_first(records)
        if isinstance(whole, Refusal):
            return whole
        if whole and _is_transactional(records):
            break
    else:
        return None
    if request.transactional_id is None:
        return Refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    producers = set()
    for topic_id, index, records in batches:
        exists = not isinstance(broker.partition(topic_id, index), ErrorCode)
        if exists and check_one(records) is None and _is_transactional(records):
            header = header_at(records)
            producers.add((header.producer_id, header.producer_epoch))
    if len({one for one in producers if one[0] != NO_PRODUCER_ID}) > 1:
        return Refusal(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            "There are transactional batches of several producers",
        )
    return None


def _unacknowledged(response: ProduceResponse) -> None:
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                code = partition.error_code.name
                raise CloseConnection(f"partition {partition.index} with acks=0: {code}")


def _append(
    broker: Broker,
    request: ProduceRequest,
    topic_id: Any,
    data: PartitionProduceData,
    context: RequestContext,
) -> PartitionProduceResponse:
    log = broker.partition(topic_id, data.index)
    if isinstance(log, ErrorCode):
        return _refused(data.index, Refusal(log))
    records = data.records
    if not records:
        return _refused(data.index, Refusal(ErrorCode.INVALID_RECORD))
    refusal = check_one(records)
    if refusal is None and _is_transactional(records):
        refusal = _take_part(
            broker, request.transactional_id or "", log, records, context.api_version
        )
    if refusal is not None:
        return _refused(data.index, refusal)
    if request.acks not in _ACKS:
        return _refused(data.index, Refusal(ErrorCode.INVALID_REQUIRED_ACKS))
    if log.config.internal and context.client_id != _ADMIN_CLIENT_ID:
        message = f"Cannot append to internal topic {log.topic}"
        return _refused(data.index, Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, message))
    appended = (
        _check_first_sequence(broker, log, records, context)
        or check_coordinator_records(broker, log, records)
        or broker.append(log, records)
    )
    if isinstance(appended, Refusal):
        return _refused(
            data.index, appended, -1 if appended.code in _TELL_NO_START else log.log_start_offset
        )
    return PartitionProduceResponse(
        data.index,
        ErrorCode.NONE,
        appended.base_offset,
        appended.log_append_time_ms,
        appended.log_start_offset,
    )


def _is_transactional(records: memoryview) -> bool:
    if len(records) < HEADER_BYTES or records[MAGIC_POSITION] != 2:
        return False
    return bool(records[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_BIT)


def _take_part(
    broker: Broker, transactional_id: str, log: PartitionLog, records: memoryview, version: int
) -> Refusal | None:
    """Why a transactional batch may not be written, in words that a client of this version knows;
    None if it may.
    """
    header = header_at(records)
    if header.producer_id == NO_PRODUCER_ID:
        return None  # nobody's transaction
    producer, adds_partition = (
        Producer(header.producer_id, header.producer_epoch),
        version >= _FIRST_THAT_TAKES_PART,
    )
    refusal = broker.transactions.may_write(
        transactional_id, producer, log, adds_partition=adds_partition
    )
    if refusal is None:
        return None
    if refusal.code == ErrorCode.PRODUCER_FENCED:
        return Refusal(ErrorCode.INVALID_PRODUCER_EPOCH)
    if refusal.code == ErrorCode.INVALID_TXN_STATE and version >= _FIRST_THAT_KNOWS_ABORTABLE:
        return Refusal(ErrorCode.TRANSACTION_ABORTABLE)
    if refusal.code == ErrorCode.CONCURRENT_TRANSACTIONS and version < _FIRST_THAT_TAKES_PART:
        return Refusal(ErrorCode.NOT_ENOUGH_REPLICAS)  # what such a client tries again
    return refusal


def _check_first_sequence(
    broker: Broker, log: PartitionLog, records: memoryview, context: RequestContext
) -> Refusal | None:
    """Why a batch is no first one of its producer; None when it may be one, or is none.

    Where writing lets a partition take part, the first batch has the sequence 0: nobody can have
    lost any before.
    """
    if context.api_version < _FIRST_THAT_TAKES_PART or not _is_transactional(records):
        return None
    header = header_at(records)
    if (
        header.base_sequence <= 0
        or header.producer_id == NO_PRODUCER_ID
        or header.producer_id in log.producers
    ):
        return None
    checked = check_client_batch(records, log.config, broker.clock.wall_ms())
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
