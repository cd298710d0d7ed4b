"""InitProducerId (22), versions 0-6: an id for an idempotent producer (KIP-98, KIP-360).

A producer without a transactional id that comes back with its id and epoch (version 3 and later, after an error it
cannot repair otherwise) gets a new id too, as Apache Kafka does. Transactional ids are refused: transactions are not
served.
"""

from __future__ import annotations

from kio.schema.init_producer_id.v6.request import InitProducerIdRequest
from kio.schema.init_producer_id.v6.response import InitProducerIdResponse

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode
from headrace.wire.messages import NO_THROTTLE

from . import RequestContext


def handle(broker: Broker, request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        code = ErrorCode.INVALID_REQUEST if request.transactional_id == "" else ErrorCode.COORDINATOR_NOT_AVAILABLE
        return _response(code)
    return _response(ErrorCode.NONE, broker.catalog.allocate_producer_id(), 0)


def _response(code: ErrorCode, producer_id: int = -1, producer_epoch: int = -1) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time=NO_THROTTLE, error_code=code, producer_id=producer_id, producer_epoch=producer_epoch
    )
