"""InitProducerId (22), versions 0-6: give a producer its id and epoch (KIP-98).

A transactional id keeps its producer id when the producer restarts: the epoch rises, the open
transaction is aborted, and the earlier producer is fenced. An idempotent producer without a
transactional id always gets a new id, even if it sends its old one, as in Apache Kafka.

Version notes:

* Version 2 is flexible (KIP-482).
* Version 3 adds the producer's current id and epoch, to recover from errors (KIP-360).
* Version 4 adds PRODUCER_FENCED (KIP-588); earlier versions return INVALID_PRODUCER_EPOCH.
* Version 5 adds TRANSACTION_ABORTABLE (KIP-890), which does not occur.
* Version 6 adds two-phase commit (KIP-939), which is always off. It is unstable.
"""

from __future__ import annotations

from typing import Any

from kio.schema.init_producer_id.v6.request import InitProducerIdRequest
from kio.schema.init_producer_id.v6.response import InitProducerIdResponse

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode, Refusal
from headrace.protocol.authorized_operations import Operation
from headrace.protocol.messages import NO_THROTTLE
from headrace.security.acls import ResourceType
from headrace.transactions.producer import NO_PRODUCER, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Producer

from .context import RequestContext
from .durations import to_ms
from .transaction_errors import error_for_version

_FIRST_WITH_FENCED = 4


def handle(broker: Broker, request: InitProducerIdRequest, context: RequestContext) -> Any:
    """Return an id and an epoch for a producer."""
    transactional_id, access = request.transactional_id, context.access
    if transactional_id is None and not (
        access.allows_cluster(Operation.IDEMPOTENT_WRITE)
        or access.allows_any(Operation.WRITE, ResourceType.TOPIC)
    ):
        return _response(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    expected = Producer(request.producer_id, request.producer_epoch)
    if (expected.producer_id == NO_PRODUCER_ID) != (expected.producer_epoch == NO_PRODUCER_EPOCH):
        return _response(ErrorCode.INVALID_REQUEST)
    if transactional_id is None:
        return _response(ErrorCode.NONE, Producer(broker.catalog.allocate_producer_id(), 0))
    if not transactional_id:
        return _response(ErrorCode.INVALID_REQUEST)
    if request.enable2_pc:  # the error of Apache Kafka while two-phase commit is off
        return _response(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if request.keep_prepared_txn:
        return _response(ErrorCode.UNSUPPORTED_VERSION)
    timeout_ms = to_ms(request.transaction_timeout)
    producer = broker.transactions.init_producer_id(transactional_id, timeout_ms, expected)
    if isinstance(producer, Refusal):
        return _response(error_for_version(producer, context.api_version, _FIRST_WITH_FENCED))
    return broker.when_durable(_response(ErrorCode.NONE, producer))


def _response(code: ErrorCode, producer: Producer = NO_PRODUCER) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time=NO_THROTTLE,
        error_code=code,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
    )
