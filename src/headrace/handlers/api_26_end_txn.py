"""EndTxn (26), versions 0-5: commit or abort a transaction (KIP-98).

Version notes:

* Version 2 adds PRODUCER_FENCED (KIP-588); earlier versions return INVALID_PRODUCER_EPOCH.
* Version 3 is flexible (KIP-482).
* Version 4 adds TRANSACTION_ABORTABLE (KIP-890).
* Version 5 adds the producer id and epoch of the next transaction to the response. The epoch rises
  with each transaction, so that late records cannot join the next one (KIP-890).
"""

from __future__ import annotations

from typing import Any

from kio.schema.end_txn.v5.request import EndTxnRequest
from kio.schema.end_txn.v5.response import EndTxnResponse

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode, Refusal
from headrace.protocol.messages import NO_THROTTLE
from headrace.transactions.producer import EPOCH_PER_TRANSACTION, NO_PRODUCER, Producer

from .context import RequestContext
from .transaction_errors import error_for_version

_FIRST_WITH_FENCED = 2
_FIRST_WITH_NEW_EPOCH = 5


def handle(broker: Broker, request: EndTxnRequest, context: RequestContext) -> Any:
    """End a transaction, and respond after its markers are written."""
    if not request.transactional_id:
        return _response(ErrorCode.INVALID_REQUEST)
    producer = broker.transactions.end(
        request.transactional_id,
        Producer(request.producer_id, request.producer_epoch),
        commit=request.committed,
        client_version=EPOCH_PER_TRANSACTION if context.api_version >= _FIRST_WITH_NEW_EPOCH else 0,
    )
    if isinstance(producer, Refusal):
        return _response(error_for_version(producer, context.api_version, _FIRST_WITH_FENCED))
    return broker.when_durable(_response(ErrorCode.NONE, producer))


def _response(code: ErrorCode, producer: Producer = NO_PRODUCER) -> EndTxnResponse:
    return EndTxnResponse(
        throttle_time=NO_THROTTLE,
        error_code=code,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
    )
