"""DescribeClientQuotas (48), versions 0-1: the quotas of users, client ids and addresses (KIP-546).

Version notes:

* Version 1 is flexible (KIP-482).
"""

from __future__ import annotations

from headrace.net.api import DESCRIBE_CONFIGS, Api, on_cluster
from headrace.net.call import Call
from headrace.protocol.api import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from headrace.security.quota_entities import Entity, Part, check_filter, matches

EntryData = DescribeClientQuotasResponse.EntryData
EntityData = DescribeClientQuotasResponse.EntityData
ValueData = DescribeClientQuotasResponse.ValueData

API = Api(
    48,
    on_cluster(DESCRIBE_CONFIGS),
    refuse=lambda request, code: DescribeClientQuotasResponse(
        error_code=code, error_message=None, entries=None
    ),
)


async def handle(call: Call, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    """Describe the entities that match a filter."""
    parts = [Part(*component.field_values()) for component in request.components]
    if refusal := check_filter(parts):
        return DescribeClientQuotasResponse(entries=None).refused(refusal)
    quotas = call.quotas.machine.entities
    matching = []
    for entity in list(quotas):
        if matches(entity, parts, strict=request.strict):
            matching.append(entity)
        await call.pause()

    def describe(entity: Entity) -> EntryData:
        values = quotas.get(entity, {})
        return EntryData(
            entity=[EntityData(*part) for part in entity],
            values=[ValueData(*value) for value in values.items()],
        )

    # without an error the message is empty, as Apache Kafka's
    return DescribeClientQuotasResponse(error_message="", entries=call.lazily(describe, matching))
