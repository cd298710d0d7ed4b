"""AlterClientQuotas (49), versions 0-1: set and remove quotas of users, client ids and addresses
(KIP-546).

The valid entities of a request are changed in one transaction. Of an entity that is named twice,
the first changes are made and the answer is an error, as in Apache Kafka.

Version notes:

* Version 1 is flexible (KIP-482).
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.net.api import ALTER_CONFIGS, CLUSTER, MESSAGES, Api, on_cluster
from headrace.net.call import Call
from headrace.net.client_quotas import addresses_of
from headrace.protocol.api import AlterClientQuotasRequest, AlterClientQuotasResponse
from headrace.protocol.errors import ErrorCode, Refusal, failure_of
from headrace.security.acls import CLUSTER_NAME
from headrace.security.quota_entities import Entity, duplicate, entity_of, host_of, plan

Result = AlterClientQuotasResponse.EntryData
EntityData = AlterClientQuotasResponse.EntityData


def refuse(request: AlterClientQuotasRequest, code: ErrorCode) -> AlterClientQuotasResponse:
    """Refuse each entity of a request."""
    return AlterClientQuotasResponse(
        entries=[
            Result(
                code,
                MESSAGES.get(code),
                [EntityData(part.entity_type, part.entity_name) for part in entry.entity],
            )
            for entry in request.entries
        ]
    )


API = Api(49, on_cluster(ALTER_CONFIGS), refuse=refuse, is_audited=True)


async def handle(call: Call, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    """Change the valid entities of a request, or check them."""
    entries = await call.each(
        lambda entry: (
            entity_of({part.entity_type: part.entity_name for part in entry.entity}),
            entry.ops,
        ),
        request.entries,
    )
    hosts: dict[str, list[str]] = {}
    for entity, _ in entries:
        host = host_of(entity)
        if host and host not in hosts:
            hosts[host] = await addresses_of(host)
        await call.pause()
    new_quotas: dict[Entity, Mapping[str, float | None]] = {}
    details: dict[Entity, str] = {}
    outcomes: dict[Entity, Refusal | None] = {}
    for entity, ops in entries:
        if entity in outcomes:
            outcomes[entity] = duplicate(entity)
            continue
        planned = plan(
            entity,
            [(op.key, None if op.remove else op.value) for op in ops],
            call.quotas.machine.entities.get(entity, ()),
            lambda host: bool(hosts[host]),
        )
        if isinstance(planned, Refusal):
            outcomes[entity] = planned
        else:
            outcomes[entity] = None
            new_quotas[entity] = planned
            details[entity] = ", ".join(
                f"{op.key} removed" if op.remove else f"{op.key}={op.value:g}" for op in ops
            )
    failed = None
    if not request.validate_only:
        failed = failure_of(call.quotas.alter, new_quotas, hosts)
        for entity, detail in details.items() if failed is None else ():
            names = ", ".join(f"{kind} {name or '<default>'}" for kind, name in entity)
            call.changed(ALTER_CONFIGS, CLUSTER, CLUSTER_NAME, f"{names}: {detail}")
    return AlterClientQuotasResponse(
        entries=await call.each(
            lambda item: Result(entity=[EntityData(*part) for part in item[0]]).refused(
                item[1] or failed
            ),
            outcomes.items(),
        )
    )
