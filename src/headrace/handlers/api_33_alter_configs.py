"""AlterConfigs (33), versions 0-2: replace all configs of topics, the broker or groups (KIP-133).

A config that the request does not name is removed.

Version notes:

* Version 2 is flexible (KIP-482).
"""

from __future__ import annotations

from headrace.broker.config.changes import ConfigChange, is_refused_early, owner_of_configs
from headrace.net.api import Api
from headrace.net.call import Call
from headrace.net.rules import ALTER_CONFIGS, Owner, each_config
from headrace.protocol.api import AlterConfigsRequest, AlterConfigsResponse
from headrace.protocol.configs import ConfigOperation, ConfigType

from .alter_configs import alter_resources, changes

Resource = AlterConfigsRequest.AlterConfigsResource
Result = AlterConfigsResponse.AlterConfigsResourceResponse


def _changes(resource: Resource) -> list[ConfigChange]:
    return [
        ConfigChange(config.name, ConfigOperation.SET, config.value) for config in resource.configs
    ]


def _owner(resource: Resource) -> Owner:
    resource_type = resource.resource_type
    if resource_type == ConfigType.BROKER_LOGGER or is_refused_early(
        resource_type, _changes(resource)
    ):
        return None
    return owner_of_configs(resource_type, resource.resource_name)


API = Api(33, each_config(ALTER_CONFIGS, _owner, once=True), changes=changes)


async def handle(call: Call, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Replace the configs of each resource of a request."""
    resources = request.resources
    results = await alter_resources(
        call, resources, _changes, replaces=True, validate_only=request.validate_only
    )
    return AlterConfigsResponse(
        responses=[
            Result(result.code, result.message, resource.resource_type, resource.resource_name)
            for resource, result in zip(resources, results, strict=True)
        ]
    )
