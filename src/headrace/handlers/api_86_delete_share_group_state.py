"""DeleteShareGroupState (86), version 0: delete the state of share-partitions (KIP-932).

Deleting an unknown share-partition succeeds.
"""

from __future__ import annotations

from headrace.net.api import CLUSTER_ACTION, Api, on_cluster
from headrace.net.call import Call
from headrace.protocol.api import DeleteShareGroupStateRequest, DeleteShareGroupStateResponse
from headrace.protocol.errors import Refusal
from headrace.share.records import SharePartitionKey

from .api_83_initialize_share_group_state import serve_each

Result = DeleteShareGroupStateResponse.DeleteStateResult
Partition = DeleteShareGroupStateResponse.PartitionResult

API = Api(86, on_cluster(CLUSTER_ACTION), of_coordinator=True, has_message=True)


async def handle(
    call: Call, request: DeleteShareGroupStateRequest
) -> DeleteShareGroupStateResponse:
    """Delete the state of each share-partition of a request."""
    state = call.share_state_runtime

    def delete(
        key: SharePartitionKey, partition: DeleteShareGroupStateRequest.PartitionData
    ) -> Refusal | None:
        refusal = state.write_now(str(key), state.coordinator.delete(key))
        if refusal is None:
            call.share.drop(key)
        return refusal

    return DeleteShareGroupStateResponse(
        await serve_each(call, request.group_id, request.topics, delete, Result, Partition)
    )
