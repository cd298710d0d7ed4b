"""DeleteShareGroupState (86), version 0: delete the state of share-partitions (KIP-932).

Deleting an unknown share-partition succeeds.
"""

from __future__ import annotations

from headrace.errors import ErrorCode
from headrace.net.api import Api
from headrace.net.call import Call
from headrace.net.rules import CLUSTER_ACTION, on_cluster
from headrace.protocol.api import DeleteShareGroupStateRequest, DeleteShareGroupStateResponse
from headrace.share.records import SharePartitionKey

from .share_state import DONE, refusing, serve_each

Result = DeleteShareGroupStateResponse.DeleteStateResult
Partition = DeleteShareGroupStateResponse.PartitionResult

API = Api(
    86,
    on_cluster(CLUSTER_ACTION),
    storage_error=ErrorCode.NOT_COORDINATOR,
    refuse=refusing(86),
)


async def handle(
    call: Call, request: DeleteShareGroupStateRequest
) -> DeleteShareGroupStateResponse:
    """Delete the state of each share-partition of a request."""
    broker = call.broker

    def delete(
        key: SharePartitionKey,
        partition: DeleteShareGroupStateRequest.PartitionData,
        count: int | None,
    ) -> Partition:
        outcome = broker.share_state.delete(key, count)
        refusal = broker.share_state_runtime.write_now(str(key), outcome) or DONE
        if refusal is DONE:
            broker.share.drop(*key)
        return Partition(key.partition, refusal.code, refusal.message)

    results = await serve_each(call, request, delete)
    return DeleteShareGroupStateResponse([Result(*result) for result in results])
