"""EndTxn (26), versions 0-5: commit or abort a transaction (KIP-98).

Version notes:

* Version 2 adds PRODUCER_FENCED (KIP-588); earlier versions return INVALID_PRODUCER_EPOCH.
* Version 3 is flexible (KIP-482).
* Version 4 adds TRANSACTION_ABORTABLE (KIP-890).
* Version 5 adds the producer id and epoch of the next transaction to the response. The epoch rises
  with each transaction, so that late records cannot join the next one (KIP-890).
"""

from __future__ import annotations

from headrace.net.api import WRITE_TRANSACTION, Api
from headrace.net.call import Call
from headrace.protocol.api import EndTxnRequest, EndTxnResponse
from headrace.protocol.errors import ErrorCode, Refusal
from headrace.transactions.producer import EPOCH_PER_TRANSACTION, Producer, error_code

API = Api(26, WRITE_TRANSACTION, of_coordinator=True)

_FIRST_WITH_FENCED = 2
_FIRST_WITH_NEW_EPOCH = 5


async def handle(call: Call, request: EndTxnRequest) -> EndTxnResponse:
    """End a transaction, and respond after its markers are written."""
    if not request.transactional_id:
        return EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    producer = call.transactions.end(
        request.transactional_id,
        Producer(request.producer_id, request.producer_epoch),
        commit=request.committed,
        client_version=EPOCH_PER_TRANSACTION if call.version >= _FIRST_WITH_NEW_EPOCH else 0,
    )
    if isinstance(producer, Refusal):
        return EndTxnResponse(error_code=error_code(producer, call.version, _FIRST_WITH_FENCED))
    await call.durable()
    return EndTxnResponse(producer_id=producer.producer_id, producer_epoch=producer.producer_epoch)
