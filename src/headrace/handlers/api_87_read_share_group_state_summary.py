"""ReadShareGroupStateSummary (87), versions 0-1: summarise share-partitions (KIP-932).

An unknown share-partition has the start offset -1 and the delivery-complete count -1. The leader
epoch of the request has no effect, as in Apache Kafka.

Version notes:

* Version 1 adds the delivery-complete count (KIP-1226).
"""

from __future__ import annotations

from headrace.net.api import CLUSTER_ACTION, Api, on_cluster
from headrace.net.call import Call
from headrace.protocol.api import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
)
from headrace.protocol.errors import Refusal
from headrace.share.records import SharePartitionKey

from .api_83_initialize_share_group_state import serve_each

Result = ReadShareGroupStateSummaryResponse.ReadStateSummaryResult
Partition = ReadShareGroupStateSummaryResponse.PartitionResult

API = Api(87, on_cluster(CLUSTER_ACTION), has_message=True)


async def handle(
    call: Call, request: ReadShareGroupStateSummaryRequest
) -> ReadShareGroupStateSummaryResponse:
    """Return a summary of each share-partition of a request."""

    def summarize(
        key: SharePartitionKey, partition: ReadShareGroupStateSummaryRequest.PartitionData
    ) -> Partition | Refusal:
        summary = call.share_state_runtime.coordinator.summary(key)
        if isinstance(summary, Refusal):
            return summary
        return Partition(
            partition=key.partition,
            state_epoch=summary.state_epoch,
            leader_epoch=summary.leader_epoch,
            start_offset=summary.start_offset,
            delivery_complete_count=summary.delivery_complete_count,
        )

    return ReadShareGroupStateSummaryResponse(
        await serve_each(call, request.group_id, request.topics, summarize, Result, Partition)
    )
