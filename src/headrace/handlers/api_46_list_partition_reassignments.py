"""ListPartitionReassignments (46), version 0: list the reassignments in progress (KIP-455).

There is one node, so no replica ever moves: the list is empty.
"""

from __future__ import annotations

from headrace.net.api import DESCRIBE, Api, on_cluster
from headrace.net.call import Call
from headrace.protocol.api import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

API = Api(46, on_cluster(DESCRIBE))


async def handle(
    call: Call, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Return no reassignments."""
    return ListPartitionReassignmentsResponse(error_message=None)
