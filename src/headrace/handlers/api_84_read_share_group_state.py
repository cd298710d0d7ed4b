"""ReadShareGroupState (84), version 0: load the state of share-partitions (KIP-932).

A higher leader epoch is stored and fences earlier leaders.
"""

from __future__ import annotations

from headrace.errors import ErrorCode, Refusal
from headrace.net.api import Api
from headrace.net.call import Call
from headrace.net.rules import CLUSTER_ACTION, on_cluster
from headrace.protocol.api import ReadShareGroupStateRequest, ReadShareGroupStateResponse
from headrace.share.records import SharePartitionKey

from .share_state import refusing, serve_each

Result = ReadShareGroupStateResponse.ReadStateResult
Partition = ReadShareGroupStateResponse.PartitionResult
StateBatch = ReadShareGroupStateResponse.StateBatch

API = Api(
    84,
    on_cluster(CLUSTER_ACTION),
    storage_error=ErrorCode.NOT_COORDINATOR,
    refuse=refusing(84),
)


async def handle(call: Call, request: ReadShareGroupStateRequest) -> ReadShareGroupStateResponse:
    """Return the state of each share-partition of a request."""
    broker = call.broker

    def read(
        key: SharePartitionKey,
        partition: ReadShareGroupStateRequest.PartitionData,
        count: int | None,
    ) -> Partition:
        outcome = broker.share_state.read(
            key, partition.leader_epoch, broker.clock.wall_ms(), count
        )
        state = broker.share_state_runtime.write_now(str(key), outcome)
        if isinstance(state, Refusal):
            return Partition(key.partition, state.code, state.message)
        return Partition(
            partition=key.partition,
            state_epoch=state.state_epoch,
            start_offset=state.start_offset,
            state_batches=[StateBatch(*batch) for batch in state.state_batches],
        )

    results = await serve_each(call, request, read)
    return ReadShareGroupStateResponse([Result(*result) for result in results])
