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

from headrace.net.api import CLUSTER, IDEMPOTENT_WRITE, TOPIC, WRITE, WRITE_TRANSACTION, Api, Inside
from headrace.net.call import Call
from headrace.protocol.api import InitProducerIdRequest, InitProducerIdResponse
from headrace.protocol.errors import ErrorCode, Refusal
from headrace.protocol.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from headrace.transactions.producer import Producer, error_code

API = Api(
    22,
    WRITE_TRANSACTION,
    Inside(
        IDEMPOTENT_WRITE,
        CLUSTER,
        "without a transactional id: refused, unless WRITE on any topic is allowed",
    ),
    of_coordinator=True,
)

_FIRST_WITH_FENCED = 4


async def handle(call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Return an id and an epoch for a producer."""
    transactional_id = request.transactional_id
    if transactional_id is None and not (
        call.access.allows_cluster(IDEMPOTENT_WRITE) or call.access.allows_any(WRITE, TOPIC)
    ):
        return _refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    expected = Producer(request.producer_id, request.producer_epoch)
    if (expected.producer_id == NO_PRODUCER_ID) != (expected.producer_epoch == NO_PRODUCER_EPOCH):
        return _refused(ErrorCode.INVALID_REQUEST)
    if transactional_id is None:
        return InitProducerIdResponse(producer_id=call.catalog.allocate_producer_id())
    if not transactional_id:
        return _refused(ErrorCode.INVALID_REQUEST)
    if request.enable2_pc:  # the error of Apache Kafka while two-phase commit is off
        return _refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if request.keep_prepared_txn:
        return _refused(ErrorCode.UNSUPPORTED_VERSION)
    producer = call.transactions.init_producer_id(
        transactional_id, request.transaction_timeout_ms, expected
    )
    if isinstance(producer, Refusal):
        return _refused(error_code(producer, call.version, _FIRST_WITH_FENCED))
    await call.durable()
    return InitProducerIdResponse(
        producer_id=producer.producer_id, producer_epoch=producer.producer_epoch
    )


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_epoch=NO_PRODUCER_EPOCH)
