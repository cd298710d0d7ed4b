"""AddOffsetsToTxn (25), versions 0-4: add the offsets of a group to a transaction (KIP-98).

Version notes:

* Version 2 adds PRODUCER_FENCED (KIP-588); earlier versions return INVALID_PRODUCER_EPOCH.
* Version 3 is flexible (KIP-482).
* Version 4 adds TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from typing import Any

from kio.schema.add_offsets_to_txn.v4.request import AddOffsetsToTxnRequest
from kio.schema.add_offsets_to_txn.v4.response import AddOffsetsToTxnResponse

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode, Refusal
from headrace.protocol.messages import NO_THROTTLE
from headrace.transactions.producer import Producer

from .context import RequestContext
from .transaction_errors import error_for_version

_FIRST_WITH_FENCED = 2


def handle(broker: Broker, request: AddOffsetsToTxnRequest, context: RequestContext) -> Any:
    """Add the group's partition of ``__consumer_offsets`` to a transaction."""
    if not request.transactional_id:
        return _response(ErrorCode.INVALID_REQUEST)
    producer = Producer(request.producer_id, request.producer_epoch)
    added = broker.transactions.add_group(request.transactional_id, producer, request.group_id)
    if isinstance(added, Refusal):
        return _response(error_for_version(added, context.api_version, _FIRST_WITH_FENCED))
    return broker.when_durable(_response(ErrorCode.NONE))


def _response(code: ErrorCode) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(throttle_time=NO_THROTTLE, error_code=code)
