"""IncrementalAlterConfigs (44), versions 0-1: set, delete, append to or subtract from configs
(KIP-339).

Version notes:

* Version 1 is flexible (KIP-482).
"""

from __future__ import annotations

from headrace.broker.config.changes import is_refused_early, owner_of_configs
from headrace.net.api import Api
from headrace.net.call import Call
from headrace.net.rules import ALTER_CONFIGS, Owner, each_config
from headrace.protocol.api import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse

from .alter_configs import alter_resources, changes

Resource = IncrementalAlterConfigsRequest.AlterConfigsResource
Result = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse


def _owner(resource: Resource) -> Owner:
    if is_refused_early(resource.resource_type, resource.configs):
        return None
    return owner_of_configs(resource.resource_type, resource.resource_name)


API = Api(44, each_config(ALTER_CONFIGS, _owner, once=True), changes=changes)


async def handle(
    call: Call, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Change the named configs of each resource of a request."""
    resources = request.resources
    results = await alter_resources(
        call,
        resources,
        lambda resource: resource.configs,
        replaces=False,
        validate_only=request.validate_only,
    )
    return IncrementalAlterConfigsResponse(
        responses=[
            Result(result.code, result.message, resource.resource_type, resource.resource_name)
            for resource, result in zip(resources, results, strict=True)
        ]
    )
