"""Requests about client quotas (KIP-546), which librdkafka lacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.security.quota_entities import Entity, Part, entity_of

from .cluster import Cluster
from .errors import ClientError, check_answer, refused


async def describe_quotas(
    cluster: Cluster, parts: Sequence[Part], timeout_ms: int, *, strict: bool
) -> dict[Entity, dict[str, float]]:
    """Return the quotas of the entities that a filter matches.

    :param parts: a filter; empty for all entities
    :param strict: leave out entities that also have other types
    :raises RequestRefused: the broker refuses
    """
    connection = await cluster.connection()
    messages = connection.messages("describe_client_quotas")
    request = messages.DescribeClientQuotasRequest(
        components=tuple(
            messages.ComponentData(entity_type=kind, match_type=how, match=name)
            for kind, how, name in parts
        ),
        strict=strict,
    )
    answer = await connection.request(request, timeout_ms=timeout_ms)
    check_answer("describing quotas", answer)
    return {
        entity_of({one.entity_type: one.entity_name for one in entry.entity}): {
            str(one.key): float(one.value) for one in entry.values
        }
        for entry in answer.entries or ()
    }


async def alter_quotas(
    cluster: Cluster,
    changes: Mapping[Entity, Mapping[str, float | None]],
    timeout_ms: int,
) -> dict[Entity, ClientError | None]:
    """Set quotas.

    :param changes: entity → quota → value; None removes the quota
    :returns: entity → None if it was changed, or the error
    :raises ConnectionFailed: no broker was reached in time
    """
    connection = await cluster.connection()
    messages = connection.messages("alter_client_quotas")
    request = messages.AlterClientQuotasRequest(
        entries=tuple(
            messages.EntryData(
                entity=tuple(
                    messages.EntityData(entity_type=kind, entity_name=name) for kind, name in entity
                ),
                ops=tuple(
                    messages.OpData(
                        key=key, value=0.0 if value is None else value, remove=value is None
                    )
                    for key, value in values.items()
                ),
            )
            for entity, values in changes.items()
        ),
        validate_only=False,
    )
    answer = await connection.request(request, timeout_ms=timeout_ms)
    return {
        entity_of({one.entity_type: one.entity_name for one in entry.entity}): refused(
            "altering quotas", entry
        )
        for entry in answer.entries
    }
