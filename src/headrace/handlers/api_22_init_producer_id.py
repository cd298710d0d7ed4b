"""InitProducerId (22), versions 0-6: an id and an epoch for an idempotent or transactional producer
(KIP-98, KIP-360).

A producer without a transactional id that comes back with its id and epoch (version 3 and later,
after an error it cannot repair otherwise) gets a new id too, as Apache Kafka does. Two-phase commit
(KIP-939) is switched off.
"""

from __future__ import annotations

from typing import Any

from kio.schema.init_producer_id.v6.request import InitProducerIdRequest
from kio.schema.init_producer_id.v6.response import InitProducerIdResponse

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode, Refusal
from headrace.protocol.messages import NO_THROTTLE
from headrace.transactions.producer import NO_PRODUCER, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Producer

from . import RequestContext
from .group_requests import milliseconds
from .transaction_requests import error_code

_FIRST_THAT_KNOWS_FENCED = 4


def handle(broker: Broker, request: InitProducerIdRequest, context: RequestContext) -> Any:
    transactional_id = request.transactional_id
    expected = Producer(request.producer_id, request.producer_epoch)
    if (expected.producer_id == NO_PRODUCER_ID) != (expected.producer_epoch == NO_PRODUCER_EPOCH):
        return _response(ErrorCode.INVALID_REQUEST)
    if transactional_id is None:
        return _response(ErrorCode.NONE, Producer(broker.catalog.allocate_producer_id(), 0))
    if not transactional_id:
        return _response(ErrorCode.INVALID_REQUEST)
    if request.enable2_pc or request.keep_prepared_txn:
        return _response(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    timeout_ms = milliseconds(request.transaction_timeout)
    producer = broker.transactions.init_producer_id(transactional_id, timeout_ms, expected)
    if isinstance(producer, Refusal):
        return _response(error_code(producer, context.api_version >= _FIRST_THAT_KNOWS_FENCED))
    return broker.when_durable(_response(ErrorCode.NONE, producer))


def _response(code: ErrorCode, producer: Producer = NO_PRODUCER) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time=NO_THROTTLE,
        error_code=code,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
    )
