"""AlterConfigs (33), versions 0-2: replace all configs of topics, the broker or groups (KIP-133).

A config that the request does not name is removed.

Version notes:

* Version 2 is flexible (KIP-482).
"""

from __future__ import annotations

from headrace.net.api import ALTER_CONFIGS, Api, Owner, each_config
from headrace.net.call import Call
from headrace.protocol.api import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
)
from headrace.protocol.configs import ConfigOperation, ConfigType

from .api_44_incremental_alter_configs import Resource, alter_configs, owner

ConfigChange = IncrementalAlterConfigsRequest.AlterableConfig
Result = AlterConfigsResponse.AlterConfigsResourceResponse


def _owner(resource: Resource) -> Owner:
    return None if resource.resource_type == ConfigType.BROKER_LOGGER else owner(resource)


API = Api(33, each_config(ALTER_CONFIGS, _owner, once=True), is_audited=True)


async def handle(call: Call, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Replace the configs of each resource of a request."""
    resources = [
        Resource(
            resource.resource_type,
            resource.resource_name,
            [
                ConfigChange(config.name, ConfigOperation.SET, config.value)
                for config in resource.configs
            ],
        )
        for resource in request.resources
    ]
    results = await alter_configs(
        call, resources, Result, replaces=True, validate_only=request.validate_only
    )
    return AlterConfigsResponse(responses=results)
