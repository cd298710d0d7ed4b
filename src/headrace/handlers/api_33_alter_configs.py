"""AlterConfigs (33), versions 0-2: replace all configs of topics, of the broker or of groups (KIP-133)."""

from __future__ import annotations

from kio.schema.alter_configs.v2.request import AlterConfigsRequest
from kio.schema.alter_configs.v2.response import AlterConfigsResourceResponse, AlterConfigsResponse

from headrace.broker.broker import Broker
from headrace.broker.config_changes import Change, Operation, Resource, alter, replacement
from headrace.wire.messages import NO_THROTTLE

from . import RequestContext


def handle(broker: Broker, request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    resources = [
        (
            Resource(asked.resource_type, asked.resource_name),
            replacement([Change(one.name, Operation.SET, one.value) for one in asked.configs]),
        )
        for asked in request.resources
    ]
    refusals = alter(broker, resources, validate_only=request.validate_only)
    return AlterConfigsResponse(
        throttle_time=NO_THROTTLE,
        responses=tuple(
            AlterConfigsResourceResponse(
                error_code=refusal.code,
                error_message=refusal.message,
                resource_type=resource.type,
                resource_name=resource.name,
            )
            for (resource, _), refusal in zip(resources, refusals, strict=True)
        ),
    )
