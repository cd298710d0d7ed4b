"""ListPartitionReassignments (46), version 0: list the reassignments in progress (KIP-455).

There is one node, so no replica ever moves: the list is empty.
"""

from __future__ import annotations

from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest
from kio.schema.list_partition_reassignments.v0.response import ListPartitionReassignmentsResponse

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode
from headrace.protocol.messages import NO_THROTTLE

from .context import RequestContext


def handle(
    broker: Broker, request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    """Return no reassignments."""
    return ListPartitionReassignmentsResponse(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.NONE, error_message=None, topics=()
    )
