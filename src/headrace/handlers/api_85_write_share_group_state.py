"""WriteShareGroupState (85), versions 0-1: store changes of share-partitions (KIP-932).

The share-partition leaders of this broker write without this request, and do not notice it.

Version notes:

* Version 1 adds the delivery-complete count, which gives the lag (KIP-1226). After a write of
  version 0 that moves the start offset the lag is unknown.
"""

from __future__ import annotations

from headrace.net.api import CLUSTER_ACTION, Api, on_cluster
from headrace.net.call import Call
from headrace.protocol.api import WriteShareGroupStateRequest, WriteShareGroupStateResponse
from headrace.protocol.errors import Refusal
from headrace.share.records import SharePartitionKey, StateBatch
from headrace.share.share_state import combined

from .api_83_initialize_share_group_state import serve_each

Result = WriteShareGroupStateResponse.WriteStateResult
Partition = WriteShareGroupStateResponse.PartitionResult

API = Api(85, on_cluster(CLUSTER_ACTION), of_coordinator=True, has_message=True)


async def handle(call: Call, request: WriteShareGroupStateRequest) -> WriteShareGroupStateResponse:
    """Store the changes of each share-partition of a request."""

    def write(
        key: SharePartitionKey, partition: WriteShareGroupStateRequest.PartitionData
    ) -> Refusal | None:
        batches = combined(
            [StateBatch(*batch.field_values()) for batch in partition.state_batches],
            partition.start_offset,
        )
        if isinstance(batches, Refusal):
            return batches
        outcome = call.share_state_runtime.coordinator.write(
            key,
            partition.state_epoch,
            partition.leader_epoch,
            partition.start_offset,
            partition.delivery_complete_count,
            batches,
            call.clock.wall_ms(),
        )
        return call.share_state_runtime.write_now(str(key), outcome)

    return WriteShareGroupStateResponse(
        await serve_each(call, request.group_id, request.topics, write, Result, Partition)
    )
