"""DescribeCluster (60), versions 0-2: describe the broker and the cluster (KIP-700).

Version notes:

* Version 1 adds the endpoint type: brokers or controllers (KIP-919). Controllers are refused.
* Version 2 adds fenced brokers (KIP-1073); there are none.
"""

from __future__ import annotations

from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.describe_cluster.v2.response import DescribeClusterBroker, DescribeClusterResponse

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode, Refusal
from headrace.protocol.authorized_operations import NOT_ASKED, Operation
from headrace.protocol.messages import NO_THROTTLE
from headrace.security.access import AnyAccess
from headrace.security.acls import ResourceType

from .context import RequestContext

_BROKERS, _CONTROLLERS = 1, 2


def handle(
    broker: Broker, request: DescribeClusterRequest, context: RequestContext
) -> DescribeClusterResponse:
    """Return this broker and the cluster id."""
    refusal = _refusal(request.endpoint_type)
    if refusal is not None:
        return DescribeClusterResponse(
            throttle_time=NO_THROTTLE,
            error_code=refusal.code,
            error_message=refusal.message,
            cluster_id="",
            brokers=(),
        )
    me = DescribeClusterBroker(
        broker_id=broker.node_id,
        host=context.listener_host,
        port=context.listener_port,
        rack=broker.config.get_str("broker.rack"),
        is_fenced=False,
    )
    return DescribeClusterResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.NONE,
        cluster_id=broker.catalog.cluster_id,
        controller_id=broker.node_id,
        brokers=(me,),
        cluster_authorized_operations=_operations(context.access)
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    )


def _operations(access: AnyAccess) -> int:
    """Return the authorized operations on the cluster: none without DESCRIBE."""
    is_allowed = access.allows_cluster(Operation.DESCRIBE)
    return access.operations(ResourceType.CLUSTER) if is_allowed else 0


def _refusal(endpoint_type: int) -> Refusal | None:
    if endpoint_type == _BROKERS:
        return None
    if endpoint_type == _CONTROLLERS:
        message = (
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of "
            "type CONTROLLER"
        )
        return Refusal(ErrorCode.MISMATCHED_ENDPOINT_TYPE, message)
    return Refusal(
        ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {endpoint_type}"
    )
