"""AlterClientQuotas (49), versions 0-1: set and remove quotas of users, client ids and addresses
(KIP-546).

The valid entities of a request are changed in one transaction. Of an entity that is named twice,
the first changes are made and the answer is an error, as in Apache Kafka.

Version notes:

* Version 1 is flexible (KIP-482).
"""

from __future__ import annotations

from collections.abc import Mapping

from kio.schema.alter_client_quotas.v1.request import AlterClientQuotasRequest, EntryData
from kio.schema.alter_client_quotas.v1.response import AlterClientQuotasResponse, EntityData
from kio.schema.alter_client_quotas.v1.response import EntryData as Result

from headrace.broker.broker import Broker
from headrace.broker.catalog import CatalogError
from headrace.broker.client_quotas import addresses_of
from headrace.errors import ErrorCode, Refusal
from headrace.protocol.messages import NO_THROTTLE
from headrace.security.quota_entities import Entity, entity_of, host_of, plan, text_of

from .context import RequestContext

_DONE = Refusal(ErrorCode.NONE)


async def handle(
    broker: Broker, request: AlterClientQuotasRequest, context: RequestContext
) -> AlterClientQuotasResponse:
    """Change the valid entities of a request, or check them."""
    hosts: dict[str, list[str]] = {}
    for asked in request.entries:
        host = host_of(_entity(asked))
        if host and host not in hosts:
            hosts[host] = await addresses_of(host)
    changes: dict[Entity, Mapping[str, float | None]] = {}
    results: dict[Entity, Refusal] = {}
    current = broker.quotas.machine.entities
    for asked in request.entries:
        entity = _entity(asked)
        if entity in results:
            message = f"Ignoring duplicate entity {text_of(entity)}"
            results[entity] = Refusal(ErrorCode.INVALID_REQUEST, message)
            continue
        planned = plan(
            entity,
            [(op.key, None if op.remove else op.value) for op in asked.ops],
            current.get(entity, ()),
            lambda host: bool(hosts[host]),
        )
        if isinstance(planned, Refusal):
            results[entity] = planned
        else:
            results[entity] = _DONE
            changes[entity] = planned
    if not request.validate_only:
        try:
            broker.quotas.alter(changes, hosts)
        except CatalogError as error:
            failed = Refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
            results = {entity: one if one.code else failed for entity, one in results.items()}
    return AlterClientQuotasResponse(
        throttle_time=NO_THROTTLE,
        entries=tuple(_result(entity, refusal) for entity, refusal in results.items()),
    )


def _entity(asked: EntryData) -> Entity:
    return entity_of({one.entity_type: one.entity_name for one in asked.entity})


def _result(entity: Entity, refusal: Refusal) -> Result:
    return Result(
        error_code=refusal.code,
        error_message=refusal.message,
        entity=tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in entity),
    )
