"""Produce (0), versions 3-13: append batches to partitions, idempotently where the producer asks for it (KIP-98).

Batches stay opaque: the log checks their headers and CRC and patches their offsets. Topics come by id (KIP-516). With
acks=0 nothing is answered, and a failure closes the connection, which is all the client can notice.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from kio.schema.produce.v13.request import PartitionProduceData, ProduceRequest
from kio.schema.produce.v13.response import PartitionProduceResponse, ProduceResponse, TopicProduceResponse

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode, Refusal
from headrace.log.batch import CRC_START, TRANSACTIONAL_BIT

from . import CloseConnection, RequestContext

_ACKS = (-1, 0, 1)
_ATTRIBUTES_LOW_BYTE = CRC_START + 1


def handle(broker: Broker, request: ProduceRequest, context: RequestContext) -> Any:
    response = ProduceResponse(
        responses=tuple(
            TopicProduceResponse(
                topic_id=topic.topic_id,
                partition_responses=tuple(
                    _append(broker, topic.topic_id, partition, request) for partition in topic.partition_data
                ),
            )
            for topic in request.topic_data
        )
    )
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
    broker: Broker, topic_id: Any, data: PartitionProduceData, request: ProduceRequest
) -> PartitionProduceResponse:
    if request.acks not in _ACKS:
        return _refused(data.index, Refusal(ErrorCode.INVALID_REQUIRED_ACKS))
    log = broker.partition(topic_id, data.index)
    if isinstance(log, ErrorCode):
        return _refused(data.index, Refusal(log))
    if not data.records:
        return _refused(data.index, Refusal(ErrorCode.INVALID_RECORD))
    if len(data.records) > _ATTRIBUTES_LOW_BYTE and data.records[_ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_BIT:
        # As Apache Kafka refuses a transactional batch without a transaction; here there are none.
        return _refused(data.index, Refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    appended = broker.append(log, data.records)
    if isinstance(appended, Refusal):
        return _refused(data.index, appended)
    time_ms = appended.log_append_time_ms
    return PartitionProduceResponse(
        index=data.index,
        error_code=ErrorCode.NONE,
        base_offset=appended.base_offset,
        log_append_time=None if time_ms < 0 else datetime.fromtimestamp(time_ms / 1000, UTC),
        log_start_offset=appended.log_start_offset,
        record_errors=(),
    )


def _refused(index: int, refusal: Refusal) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        error_code=refusal.code,
        base_offset=-1,
        log_start_offset=-1,
        record_errors=(),
        error_message=refusal.message,
    )
