"""ReadShareGroupState (84), version 0: load the state of share-partitions (KIP-932).

A higher leader epoch is stored and fences earlier leaders.
"""

from __future__ import annotations

from headrace.net.api import CLUSTER_ACTION, Api, on_cluster
from headrace.net.call import Call
from headrace.protocol.api import ReadShareGroupStateRequest, ReadShareGroupStateResponse
from headrace.protocol.errors import Refusal
from headrace.share.records import SharePartitionKey

from .api_83_initialize_share_group_state import serve_each

Result = ReadShareGroupStateResponse.ReadStateResult
Partition = ReadShareGroupStateResponse.PartitionResult
StateBatch = ReadShareGroupStateResponse.StateBatch

API = Api(84, on_cluster(CLUSTER_ACTION), of_coordinator=True, has_message=True)


async def handle(call: Call, request: ReadShareGroupStateRequest) -> ReadShareGroupStateResponse:
    """Return the state of each share-partition of a request."""

    def read(
        key: SharePartitionKey, partition: ReadShareGroupStateRequest.PartitionData
    ) -> Partition | Refusal:
        outcome = call.share_state_runtime.coordinator.read(
            key, partition.leader_epoch, call.clock.wall_ms()
        )
        state = call.share_state_runtime.write_now(str(key), outcome)
        if isinstance(state, Refusal):
            return state
        return Partition(
            partition=key.partition,
            state_epoch=state.state_epoch,
            start_offset=state.start_offset,
            state_batches=[StateBatch(*batch) for batch in state.state_batches],
        )

    return ReadShareGroupStateResponse(
        await serve_each(call, request.group_id, request.topics, read, Result, Partition)
    )
