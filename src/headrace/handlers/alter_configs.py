"""Config changes, for AlterConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias, TypeVar

from headrace.broker.config.changes import ConfigChange, ConfigResource, alter
from headrace.errors import ErrorCode, Refusal
from headrace.net.audit import Change
from headrace.net.call import Call
from headrace.net.rules import ALTER_CONFIGS, MESSAGES
from headrace.protocol.api import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from headrace.protocol.configs import ConfigType

Request: TypeAlias = AlterConfigsRequest | IncrementalAlterConfigsRequest
Response: TypeAlias = AlterConfigsResponse | IncrementalAlterConfigsResponse
R = TypeVar(
    "R",
    AlterConfigsRequest.AlterConfigsResource,
    IncrementalAlterConfigsRequest.AlterConfigsResource,
)


def changes(request: Request, response: Response) -> Iterator[Change]:
    """Yield the resources whose configs were altered, for the log: names of configs, no values."""
    if request.validate_only:
        return
    names = {
        (resource.resource_type, resource.resource_name): ", ".join(
            config.name for config in resource.configs
        )
        for resource in request.resources
    }
    for result in response.responses:
        if not result.error_code:
            detail = names[result.resource_type, result.resource_name]
            type_name = ConfigType(result.resource_type).name
            yield Change(ALTER_CONFIGS, type_name, result.resource_name, detail)


async def alter_resources(
    call: Call,
    resources: Sequence[R],
    changes_of: Callable[[R], Sequence[ConfigChange]],
    *,
    replaces: bool,
    validate_only: bool,
) -> list[Refusal]:
    """Alter the configs of resources, or validate the changes; return the result of each, with code
    NONE for success. Changes are made to their end, even if the client goes meanwhile.

    :param changes_of: returns the changes that a resource of the request asks for
    :param replaces: these are all configs that the resource is to have
    """
    allowed, refused = call.allowed(resources)
    requested = []
    for resource in allowed:
        named = ConfigResource(resource.resource_type, resource.resource_name)
        requested.append((named, changes_of(resource)))
        await call.pause()
    broker = call.broker
    altered = await broker.slices.run_to_end(
        alter(broker, requested, replaces=replaces, validate_only=validate_only)
    )
    results = dict(zip(map(id, allowed), altered, strict=True))
    results |= {id(resource): _not_allowed(resource, code) for resource, code in refused}
    return [results[id(resource)] for resource in resources]


def _not_allowed(resource: R, code: ErrorCode) -> Refusal:
    """Return the refusal of a resource: with a message where a controller of Kafka changes it."""
    is_of_broker = resource.resource_type in (ConfigType.BROKER, ConfigType.BROKER_LOGGER)
    return Refusal(code, None if is_of_broker else MESSAGES[code])
