"""AddOffsetsToTxn (25), versions 0-4: add the offsets of a group to a transaction (KIP-98).

Version notes:

* Version 2 adds PRODUCER_FENCED (KIP-588); earlier versions return INVALID_PRODUCER_EPOCH.
* Version 3 is flexible (KIP-482).
* Version 4 adds TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from headrace.net.api import READ_GROUP, WRITE_TRANSACTION, Api
from headrace.net.call import Call
from headrace.protocol.api import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from headrace.protocol.errors import ErrorCode
from headrace.transactions.producer import Producer, error_code

API = Api(25, WRITE_TRANSACTION, READ_GROUP, of_coordinator=True)

_FIRST_WITH_FENCED = 2


async def handle(call: Call, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    """Add the group's partition of ``__consumer_offsets`` to a transaction."""
    if not request.transactional_id:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    producer = Producer(request.producer_id, request.producer_epoch)
    partition = call.transactions.offsets_partition(request.group_id)
    refusal = call.transactions.add_partitions(request.transactional_id, producer, [partition])
    if refusal is None:
        await call.durable()
    return AddOffsetsToTxnResponse(error_code=error_code(refusal, call.version, _FIRST_WITH_FENCED))
