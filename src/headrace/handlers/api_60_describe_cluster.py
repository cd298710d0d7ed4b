"""DescribeCluster (60), versions 0-2: describe the broker and the cluster (KIP-700).

Version notes:

* Version 1 adds the endpoint type: brokers or controllers (KIP-919). Controllers are refused.
* Version 2 adds fenced brokers (KIP-1073); there are none.
"""

from __future__ import annotations

from headrace.net.api import CLUSTER, DESCRIBE, Api, Inside
from headrace.net.call import Call
from headrace.protocol.api import DescribeClusterRequest, DescribeClusterResponse
from headrace.protocol.errors import ErrorCode

API = Api(60, Inside(DESCRIBE, CLUSTER, "authorized operations are 0"))

_BROKERS, _CONTROLLERS = 1, 2


async def handle(call: Call, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """Return this broker and the cluster id."""
    if request.endpoint_type == _CONTROLLERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="The request was sent to an endpoint of type BROKER, but we wanted an "
            "endpoint of type CONTROLLER",
        )
    if request.endpoint_type != _BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"Unsupported endpoint type {request.endpoint_type}",
        )
    this_broker = DescribeClusterResponse.DescribeClusterBroker(
        *call.node, call.config.get_str("broker.rack")
    )
    response = DescribeClusterResponse(
        cluster_id=call.catalog.cluster_id, controller_id=call.node_id, brokers=[this_broker]
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(call)
    return response


def cluster_operations(call: Call) -> int:
    """Return the operations that the client may do on the cluster: none without DESCRIBE."""
    is_allowed = call.access.allows_cluster(DESCRIBE)
    return call.access.operations(CLUSTER) if is_allowed else 0
