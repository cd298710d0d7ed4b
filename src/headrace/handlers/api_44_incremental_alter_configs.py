"""IncrementalAlterConfigs (44), versions 0-1: change some configs of topics, of the broker or of groups (KIP-339)."""

from __future__ import annotations

from kio.schema.incremental_alter_configs.v1.request import IncrementalAlterConfigsRequest
from kio.schema.incremental_alter_configs.v1.response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

from headrace.broker.broker import Broker
from headrace.broker.config_changes import Change, Resource, alter, increment
from headrace.wire.messages import NO_THROTTLE

from . import RequestContext


def handle(
    broker: Broker, request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    resources = [
        (
            Resource(asked.resource_type, asked.resource_name),
            increment(broker, [Change(one.name, one.config_operation, one.value) for one in asked.configs]),
        )
        for asked in request.resources
    ]
    refusals = alter(broker, resources, validate_only=request.validate_only)
    return IncrementalAlterConfigsResponse(
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
