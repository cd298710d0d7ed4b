"""Config changes, for AlterConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from headrace.broker.broker import Broker
from headrace.broker.config.changes import ConfigResource, Plan, alter
from headrace.protocol.messages import NO_THROTTLE

from .slicing import run_sliced_to_end, sliced


def alter_resources(
    broker: Broker, request: Any, plan: Callable[[Any], Plan], response: Any, resource_response: Any
) -> Any:
    """Alter the configs of each resource of a request, or validate the changes.

    :param plan: returns the changes that the ``configs`` of a resource request
    :param response: kio's class of the response
    :param resource_response: kio's class of the result for a resource
    """
    steps = _alter_all(broker, request, plan, response, resource_response)
    return run_sliced_to_end(broker, steps, len(request.resources))


def _alter_all(
    broker: Broker, request: Any, plan: Callable[[Any], Plan], response: Any, resource_response: Any
) -> Generator[None, None, Any]:
    resources = [
        (ConfigResource(asked.resource_type, asked.resource_name), plan(asked.configs))
        for asked in request.resources
    ]
    refusals = yield from alter(broker, resources, validate_only=request.validate_only)
    answer = response(
        throttle_time=NO_THROTTLE,
        responses=tuple(
            resource_response(
                error_code=refusal.code,
                error_message=refusal.message,
                resource_type=resource.type,
                resource_name=resource.name,
            )
            for (resource, _), refusal in zip(resources, refusals, strict=True)
        ),
    )
    return sliced(answer, len(resources))
