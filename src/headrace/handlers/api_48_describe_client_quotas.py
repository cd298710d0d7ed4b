"""DescribeClientQuotas (48), versions 0-1: the quotas of users, client ids and addresses (KIP-546).

Version notes:

* Version 1 is flexible (KIP-482).
"""

from __future__ import annotations

from kio.schema.describe_client_quotas.v1.request import DescribeClientQuotasRequest
from kio.schema.describe_client_quotas.v1.response import (
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode
from headrace.protocol.large_responses import Sliced
from headrace.protocol.messages import NO_THROTTLE
from headrace.security.quota_entities import Entity, Part, check_filter, matches

from .context import RequestContext
from .slicing import lazily, sliced


def handle(
    broker: Broker, request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse | Sliced:
    """Describe the entities that match a filter."""
    parts = [Part(one.entity_type, one.match_type, one.match) for one in request.components]
    refusal = check_filter(parts)
    if refusal is not None:
        return DescribeClientQuotasResponse(
            throttle_time=NO_THROTTLE,
            error_code=refusal.code,
            error_message=refusal.message,
            entries=None,
        )
    entities = broker.quotas.machine.entities
    found = [entity for entity in entities if matches(entity, parts, strict=request.strict)]

    def describe(entity: Entity) -> EntryData:
        return EntryData(
            entity=tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in entity),
            values=tuple(
                ValueData(key=key, value=value) for key, value in entities.get(entity, {}).items()
            ),
        )

    response = DescribeClientQuotasResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.NONE,
        error_message="",  # as Apache Kafka's
        entries=lazily(describe, found),
    )
    return sliced(response, len(found))
