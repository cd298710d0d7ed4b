"""Produce (0), versions 3-13: append batches to partitions, idempotently where the producer asks for it (KIP-98).

Batches stay opaque: the log checks their headers and CRC and patches their offsets. Topics come by id (KIP-516). With
acks=0 nothing is answered, and a failure closes the connection, which is all the client can notice.
"""

from __future__ import annotations

from typing import Any

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode, Refusal
from headrace.log.batch import CRC_START, TRANSACTIONAL_BIT
from headrace.wire.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

from . import CloseConnection, RequestContext

_ACKS = (-1, 0, 1)
_ATTRIBUTES_LOW_BYTE = CRC_START + 1


def handle(broker: Broker, request: ProduceRequest, context: RequestContext) -> Any:
    acks = request.acks
    topics = []
    for topic in request.topic_data:
        topic_id = topic.topic_id
        partitions = [_append(broker, topic_id, partition, acks) for partition in topic.partition_data]
        topics.append(TopicProduceResponse(topic_id, tuple(partitions)))
    response = ProduceResponse(tuple(topics))
    if acks == 0:
        return _unacknowledged(response)
    return broker.when_durable(response)


def _unacknowledged(response: ProduceResponse) -> None:
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                code = partition.error_code.name
                raise CloseConnection(f"partition {partition.index} with acks=0: {code}")


def _append(broker: Broker, topic_id: Any, data: PartitionProduceData, acks: int) -> PartitionProduceResponse:
    if acks not in _ACKS:
        return _refused(data.index, Refusal(ErrorCode.INVALID_REQUIRED_ACKS))
    log = broker.partition(topic_id, data.index)
    if isinstance(log, ErrorCode):
        return _refused(data.index, Refusal(log))
    records = data.records
    if not records:
        return _refused(data.index, Refusal(ErrorCode.INVALID_RECORD))
    if len(records) > _ATTRIBUTES_LOW_BYTE and records[_ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_BIT:
        # As Apache Kafka refuses a transactional batch without a transaction; here there are none.
        return _refused(data.index, Refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    appended = broker.append(log, records)
    if isinstance(appended, Refusal):
        return _refused(data.index, appended)
    return PartitionProduceResponse(
        data.index, ErrorCode.NONE, appended.base_offset, appended.log_append_time_ms, appended.log_start_offset
    )


def _refused(index: int, refusal: Refusal) -> PartitionProduceResponse:
    return PartitionProduceResponse(index, refusal.code, -1, -1, -1, refusal.message)
