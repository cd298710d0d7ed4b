"""Config changes, for AlterConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias, TypeVar

from headrace.broker.config.changes import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
    ConfigResource,
    Plan,
    alter,
)
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

Request: TypeAlias = AlterConfigsRequest | IncrementalAlterConfigsRequest
Response: TypeAlias = AlterConfigsResponse | IncrementalAlterConfigsResponse
R = TypeVar(
    "R",
    AlterConfigsRequest.AlterConfigsResource,
    IncrementalAlterConfigsRequest.AlterConfigsResource,
)

_TYPE_NAMES = {
    TOPIC: "TOPIC",
    BROKER: "BROKER",
    BROKER_LOGGER: "BROKER_LOGGER",
    CLIENT_METRICS: "CLIENT_METRICS",
    GROUP: "GROUP",
}


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
            type_name = _TYPE_NAMES[result.resource_type]
            yield Change(ALTER_CONFIGS, type_name, result.resource_name, detail)


async def alter_resources(
    call: Call, resources: Sequence[R], plan: Callable[[R], Plan], *, validate_only: bool
) -> list[Refusal]:
    """Alter the configs of resources, or validate the changes; return the result of each, with code
    NONE for success. Changes are made to their end, even if the client goes meanwhile.

    :param plan: returns the changes that a resource of the request asks for
    """
    allowed, refused = call.allowed(resources)
    plans = []
    for resource in allowed:
        named = ConfigResource(resource.resource_type, resource.resource_name)
        plans.append((named, plan(resource)))
        await call.pause()
    broker = call.broker
    altered = await broker.slices.run_to_end(alter(broker, plans, validate_only=validate_only))
    results = dict(zip(map(id, allowed), altered, strict=True))
    results |= {id(resource): _not_allowed(resource, code) for resource, code in refused}
    return [results[id(resource)] for resource in resources]


def _not_allowed(resource: R, code: ErrorCode) -> Refusal:
    """Return the refusal of a resource: with a message where a controller of Kafka changes it."""
    is_of_broker = resource.resource_type in (BROKER, BROKER_LOGGER)
    return Refusal(code, None if is_of_broker else MESSAGES[code])
