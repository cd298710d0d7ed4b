"""ListConfigResources (74), versions 0-1: list the resources that have configs.

Version 0 lists subscriptions of client metrics only (KIP-714).

Version notes:

* Version 1 adds resource types (KIP-1142); a request without types lists all.
"""

from __future__ import annotations

from headrace.net.api import DESCRIBE_CONFIGS, Api, on_cluster
from headrace.net.call import Call
from headrace.protocol.api import ListConfigResourcesRequest, ListConfigResourcesResponse
from headrace.protocol.configs import ConfigType
from headrace.protocol.errors import ErrorCode

API = Api(74, on_cluster(DESCRIBE_CONFIGS))


async def handle(call: Call, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    """List the resources of the requested types."""
    names = {
        ConfigType.GROUP: call.catalog.configured(ConfigType.GROUP.kind),
        ConfigType.CLIENT_METRICS: call.catalog.configured(ConfigType.CLIENT_METRICS.kind),
        ConfigType.BROKER_LOGGER: [str(call.node_id)],
        ConfigType.BROKER: [str(call.node_id)],
        ConfigType.TOPIC: list(call.catalog.topics),
    }
    types = set(request.resource_types) or names.keys()
    if call.version == 0:
        types = {ConfigType.CLIENT_METRICS}
    if not types <= names.keys():
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    resources = [(name, kind) for kind in names if kind in types for name in names[kind]]
    return ListConfigResourcesResponse(
        config_resources=call.lazily(
            lambda resource: ListConfigResourcesResponse.ConfigResource(*resource), resources
        )
    )
