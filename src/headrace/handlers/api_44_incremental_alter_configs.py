"""IncrementalAlterConfigs (44), versions 0-1: set, delete, append to or subtract from configs
(KIP-339).

Version notes:

* Version 1 is flexible (KIP-482).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from headrace.net.api import ALTER_CONFIGS, MESSAGES, Api, Owner, each_config, owner_of_configs
from headrace.net.call import Call
from headrace.protocol.api import (
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from headrace.protocol.configs import ConfigType, why_malformed
from headrace.protocol.errors import Refusal

Resource = IncrementalAlterConfigsRequest.AlterConfigsResource
Result = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse

R = TypeVar("R", Result, AlterConfigsResponse.AlterConfigsResourceResponse)


def owner(resource: Resource) -> Owner:
    """Return the resource whose permission is needed. Malformed changes are refused before
    permissions are checked, as in Kafka.
    """
    return owner_of_configs(resource) if why_malformed(resource.configs) is None else None


API = Api(44, each_config(ALTER_CONFIGS, owner, once=True), is_audited=True)


async def handle(
    call: Call, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Change the named configs of each resource of a request."""
    results = await alter_configs(
        call, request.resources, Result, replaces=False, validate_only=request.validate_only
    )
    return IncrementalAlterConfigsResponse(responses=results)


async def alter_configs(
    call: Call,
    resources: Sequence[Resource],
    result: type[R],
    *,
    replaces: bool,
    validate_only: bool,
) -> list[R]:
    """Alter the configs of resources, or validate the changes; return the result of each. Changes
    are made to their end, even if the client goes meanwhile.

    :param result: the class of a result
    :param replaces: the changes are all configs that a resource is to have
    """
    allowed, refused = await call.allowed(resources)
    altered = await call.to_end(
        call.configs.alter(allowed, replaces=replaces, validate_only=validate_only)
    )
    refusals = dict(zip(map(id, allowed), altered, strict=True))
    for resource, code in refused:  # with a message where a controller of Kafka changes it
        is_of_broker = resource.resource_type in (ConfigType.BROKER, ConfigType.BROKER_LOGGER)
        refusals[id(resource)] = Refusal(code, None if is_of_broker else MESSAGES[code])
    results = []
    for resource in resources:
        refusal = refusals[id(resource)]
        resource_type, name = resource.resource_type, resource.resource_name
        results.append(result(resource_type=resource_type, resource_name=name).refused(refusal))
        if refusal is None and not validate_only:  # names of configs, no values
            names = ", ".join(config.name for config in resource.configs)
            call.changed(ALTER_CONFIGS, ConfigType(resource_type), name, names)
    return results
