"""Produce (0), versions 3-13: append batches to partitions, idempotently where the producer asks for it (KIP-98).

Batches stay opaque: the log checks their headers and CRC and patches their offsets. Topics come by id (KIP-516). With
acks=0 nothing is answered, and a failure closes the connection, which is all the client can notice.

A transactional batch must be of the producer that its transactional id has now. Its partition must take part in the
transaction; from version 12 on writing to it is what lets it take part (KIP-890).
"""

from __future__ import annotations

from typing import Any

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode, Refusal
from headrace.log.batch import ATTRIBUTES_LOW_BYTE, HEADER_BYTES, TRANSACTIONAL_BIT, header_at
from headrace.log.partition_log import PartitionLog
from headrace.transactions.producer import EPOCH_PER_TRANSACTION, Producer
from headrace.wire.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

from . import CloseConnection, RequestContext

_ACKS = (-1, 0, 1)
_FIRST_THAT_KNOWS_ABORTABLE = 11
_FIRST_THAT_TAKES_PART = 12


def handle(broker: Broker, request: ProduceRequest, context: RequestContext) -> Any:
    topics = []
    for topic in request.topic_data:
        topic_id = topic.topic_id
        partitions = [_append(broker, request, topic_id, partition, context) for partition in topic.partition_data]
        topics.append(TopicProduceResponse(topic_id, tuple(partitions)))
    response = ProduceResponse(tuple(topics))
    if request.acks == 0:
        return _unacknowledged(response)
    return broker.when_durable(response)


def _unacknowledged(response: ProduceResponse) -> None:
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                code = partition.error_code.name
                raise CloseConnection(f"partition {partition.index} with acks=0: {code}")


def _append(
    broker: Broker, request: ProduceRequest, topic_id: Any, data: PartitionProduceData, context: RequestContext
) -> PartitionProduceResponse:
    if request.acks not in _ACKS:
        return _refused(data.index, Refusal(ErrorCode.INVALID_REQUIRED_ACKS))
    log = broker.partition(topic_id, data.index)
    if isinstance(log, ErrorCode):
        return _refused(data.index, Refusal(log))
    records = data.records
    if not records:
        return _refused(data.index, Refusal(ErrorCode.INVALID_RECORD))
    if len(records) >= HEADER_BYTES and records[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_BIT:
        refusal = _take_part(broker, request.transactional_id, log, records, context.api_version)
        if refusal is not None:
            return _refused(data.index, refusal)
    appended = broker.append(log, records)
    if isinstance(appended, Refusal):
        return _refused(data.index, appended)
    return PartitionProduceResponse(
        data.index, ErrorCode.NONE, appended.base_offset, appended.log_append_time_ms, appended.log_start_offset
    )


def _take_part(
    broker: Broker, transactional_id: str | None, log: PartitionLog, records: memoryview, version: int
) -> Refusal | None:
    """Why a transactional batch may not be written, in words that a client of this version knows; None if it may."""
    if transactional_id is None:
        return Refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not transactional_id:
        return Refusal(ErrorCode.INVALID_REQUEST)
    header = header_at(records)
    producer, partition = Producer(header.producer_id, header.producer_epoch), (log.topic, log.partition)
    if version >= _FIRST_THAT_TAKES_PART:
        if header.base_sequence > 0 and header.producer_id not in log.producers:
            return Refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "The first batch of a producer has the sequence 0")
        added = broker.transactions.add_partitions(transactional_id, producer, [partition], EPOCH_PER_TRANSACTION)
        refusal = added if isinstance(added, Refusal) else None
    else:
        refusal = broker.transactions.coordinator.takes_part(transactional_id, producer, partition)
    if refusal is None:
        return None
    if refusal.code == ErrorCode.PRODUCER_FENCED:
        return Refusal(ErrorCode.INVALID_PRODUCER_EPOCH)
    if refusal.code == ErrorCode.INVALID_TXN_STATE and version >= _FIRST_THAT_KNOWS_ABORTABLE:
        return Refusal(ErrorCode.TRANSACTION_ABORTABLE)
    if refusal.code == ErrorCode.CONCURRENT_TRANSACTIONS and version < _FIRST_THAT_TAKES_PART:
        return Refusal(ErrorCode.NOT_ENOUGH_REPLICAS)  # what such a client tries again
    return refusal


def _refused(index: int, refusal: Refusal) -> PartitionProduceResponse:
    return PartitionProduceResponse(index, refusal.code, -1, -1, -1, refusal.message)
