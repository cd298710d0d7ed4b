"""AlterClientQuotas (49), versions 0-1: set and remove quotas of users, client ids and addresses
(KIP-546).

The valid entities of a request are changed in one transaction. Of an entity that is named twice,
the first changes are made and the answer is an error, as in Apache Kafka.

Version notes:

* Version 1 is flexible (KIP-482).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headrace.net.api import ALTER_CONFIGS, MESSAGES, Api, on_cluster
from headrace.net.audit import Change
from headrace.net.call import Call
from headrace.net.client_quotas import addresses_of
from headrace.protocol.api import AlterClientQuotasRequest, AlterClientQuotasResponse
from headrace.protocol.errors import ErrorCode, Refusal, failure_of
from headrace.security.quota_entities import Entity, entity_of, host_of, plan, text_of

Entry = AlterClientQuotasRequest.EntryData
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


def changes(
    request: AlterClientQuotasRequest, response: AlterClientQuotasResponse
) -> Iterator[Change]:
    """Yield the quotas that were changed, for the log."""
    details: dict[Entity, str] = {}
    repeated: set[Entity] = set()
    for entry in request.entries:
        entity = _entity(entry)
        if entity in details:
            repeated.add(entity)
            continue
        details[entity] = ", ".join(
            f"{op.key} removed" if op.remove else f"{op.key}={op.value:g}" for op in entry.ops
        )
    for result in response.entries:
        entity = _entity(result)
        # Of an entity that is named twice the first changes are made, and the answer is an error.
        if not result.error_code or entity in repeated:
            doubt = " (named twice: unless it was refused)" if entity in repeated else ""
            names = ", ".join(f"{kind} {name or '<default>'}" for kind, name in entity)
            detail = f"{names}: {details[entity]}{doubt}"
            yield Change(ALTER_CONFIGS, "CLUSTER", "kafka-cluster", detail)


API = Api(49, on_cluster(ALTER_CONFIGS), refuse=refuse, changes=changes)


async def handle(call: Call, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    """Change the valid entities of a request, or check them."""
    entries = await call.each(lambda entry: (_entity(entry), entry.ops), request.entries)
    hosts: dict[str, list[str]] = {}
    for entity, _ in entries:
        host = host_of(entity)
        if host and host not in hosts:
            hosts[host] = await addresses_of(host)
        await call.pause()
    new_quotas: dict[Entity, Mapping[str, float | None]] = {}
    outcomes: dict[Entity, Refusal | None] = {}
    for entity, ops in entries:
        if entity in outcomes:
            message = f"Ignoring duplicate entity {text_of(entity)}"
            outcomes[entity] = Refusal(ErrorCode.INVALID_REQUEST, message)
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
    failed = None
    if not request.validate_only:
        failed = failure_of(call.quotas.alter, new_quotas, hosts)
    return AlterClientQuotasResponse(
        entries=await call.each(
            lambda item: Result(entity=[EntityData(*part) for part in item[0]]).refused(
                item[1] or failed
            ),
            outcomes.items(),
        )
    )


def _entity(entry: Entry | Result) -> Entity:
    return entity_of({part.entity_type: part.entity_name for part in entry.entity})
