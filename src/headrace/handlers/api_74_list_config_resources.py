"""ListConfigResources (74), versions 0-1: list the resources that have configs.

Version 0 lists subscriptions of client metrics only (KIP-714).

Version notes:

* Version 1 adds resource types (KIP-1142); a request without types lists all.
"""

from __future__ import annotations

from headrace.broker.config import client_metrics
from headrace.broker.config.changes import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from headrace.errors import ErrorCode
from headrace.net.api import Api
from headrace.net.call import Call
from headrace.net.rules import DESCRIBE_CONFIGS, on_cluster
from headrace.protocol.api import ListConfigResourcesRequest, ListConfigResourcesResponse

API = Api(74, on_cluster(DESCRIBE_CONFIGS))


async def handle(call: Call, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    """List the resources of the requested types."""
    broker = call.broker
    names = {
        GROUP: broker.catalog.configured("group"),
        CLIENT_METRICS: broker.catalog.configured(client_metrics.KIND),
        BROKER_LOGGER: [str(broker.node_id)],
        BROKER: [str(broker.node_id)],
        TOPIC: list(broker.catalog.topics),
    }
    types = set(request.resource_types) or names.keys()
    if call.version == 0:
        types = {CLIENT_METRICS}
    if not types <= names.keys():
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    resources = []
    for resource_type in names:
        for name in names[resource_type] if resource_type in types else ():
            resources.append(
                ListConfigResourcesResponse.ConfigResource(
                    resource_name=name, resource_type=resource_type
                )
            )
            await call.pause()
    return ListConfigResourcesResponse(config_resources=resources)
