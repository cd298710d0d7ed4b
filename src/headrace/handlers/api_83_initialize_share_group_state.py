"""InitializeShareGroupState (83), version 0: initialise the state of share-partitions at an offset
(KIP-932).

The group coordinator of this broker initialises state without this request. A share-partition in
memory is loaded again, and its acquisition locks are lost.
"""

from __future__ import annotations

from headrace.errors import ErrorCode
from headrace.net.api import Api
from headrace.net.call import Call
from headrace.net.rules import CLUSTER_ACTION, on_cluster
from headrace.protocol.api import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
)
from headrace.share.records import SharePartitionKey

from .share_state import DONE, refusing, serve_each

Result = InitializeShareGroupStateResponse.InitializeStateResult
Partition = InitializeShareGroupStateResponse.PartitionResult

API = Api(
    83,
    on_cluster(CLUSTER_ACTION),
    storage_error=ErrorCode.NOT_COORDINATOR,
    refuse=refusing(83),
)


async def handle(
    call: Call, request: InitializeShareGroupStateRequest
) -> InitializeShareGroupStateResponse:
    """Initialise each share-partition of a request."""
    broker = call.broker

    def initialize(
        key: SharePartitionKey,
        partition: InitializeShareGroupStateRequest.PartitionData,
        count: int | None,
    ) -> Partition:
        outcome = broker.share_state.initialize(
            key, partition.state_epoch, partition.start_offset, broker.clock.wall_ms(), count
        )
        refusal = broker.share_state_runtime.write_now(str(key), outcome) or DONE
        if refusal is DONE:
            broker.share.fence(*key)
        return Partition(key.partition, refusal.code, refusal.message)

    results = await serve_each(call, request, initialize)
    return InitializeShareGroupStateResponse([Result(*result) for result in results])
