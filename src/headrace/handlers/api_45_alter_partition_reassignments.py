"""AlterPartitionReassignments (45), versions 0-1: move partitions to other replicas (KIP-455).

This node is the only valid replica, so a reassignment to it is complete at once, and any other is
refused. None can be in progress, so none can be cancelled.

Version notes:

* Version 1 can forbid changes of the replication factor (KIP-860); it can only be 1.
"""

from __future__ import annotations

from functools import partial

from headrace.net.api import ALTER, Api, on_cluster
from headrace.net.call import Call
from headrace.protocol.api import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from headrace.protocol.errors import ErrorCode, Refusal
from headrace.topics.topic_rules import check_assignment

TopicResult = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
PartitionResult = AlterPartitionReassignmentsResponse.ReassignablePartitionResponse

API = Api(45, on_cluster(ALTER))


async def handle(
    call: Call, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Answer each partition of a request."""
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None if request.topics else "",
        responses=[
            TopicResult(
                topic.name, await call.each(partial(_reassign, call, topic.name), topic.partitions)
            )
            for topic in request.topics
        ],
    )


def _reassign(
    call: Call, name: str, partition: AlterPartitionReassignmentsRequest.ReassignablePartition
) -> PartitionResult:
    index, topic = partition.partition_index, call.catalog.topics.get(name)
    refusal: Refusal | None
    if topic is None:
        refusal = Refusal(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}."
        )
    elif not 0 <= index < topic.partitions:
        refusal = Refusal(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}."
        )
    elif partition.replicas is None:
        refusal = Refusal(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    else:
        refusal = check_assignment(partition.replicas, call.node_id)
    return PartitionResult(index).refused(refusal)
