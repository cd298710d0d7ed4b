"""ListConfigResources (74), versions 0-1: list the resources that have configs.

Version 0 lists subscriptions of client metrics only (KIP-714).

Version notes:

* Version 1 adds resource types (KIP-1142); a request without types lists all.
"""

from __future__ import annotations

from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest
from kio.schema.list_config_resources.v1.response import ConfigResource, ListConfigResourcesResponse

from headrace.broker.broker import Broker
from headrace.broker.config import client_metrics
from headrace.broker.config.changes import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from headrace.errors import ErrorCode
from headrace.protocol.large_responses import Sliced
from headrace.protocol.messages import NO_THROTTLE

from .context import RequestContext
from .slicing import sliced

_KNOWN = (GROUP, CLIENT_METRICS, BROKER_LOGGER, BROKER, TOPIC)


def handle(
    broker: Broker, request: ListConfigResourcesRequest, context: RequestContext
) -> ListConfigResourcesResponse | Sliced:
    """List the resources of the requested types."""
    wanted = request.resource_types or _KNOWN
    if context.api_version == 0:
        wanted = (CLIENT_METRICS,)
    known = all(resource_type in _KNOWN for resource_type in wanted)
    names = {
        GROUP: broker.catalog.configured("group"),
        CLIENT_METRICS: broker.catalog.configured(client_metrics.KIND),
        BROKER_LOGGER: [str(broker.node_id)],
        BROKER: [str(broker.node_id)],
        TOPIC: list(broker.catalog.topics),
    }
    response = ListConfigResourcesResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_VERSION,
        config_resources=tuple(
            ConfigResource(resource_name=name, resource_type=resource_type)
            for resource_type in (_KNOWN if known else ())
            if resource_type in wanted
            for name in names.get(resource_type, ())
        ),
    )
    return sliced(response, len(response.config_resources))
