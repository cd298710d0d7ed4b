"""Client quotas (KIP-546): of users, client ids and addresses."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from headrace.protocol.api import AlterClientQuotasRequest, DescribeClientQuotasRequest
from headrace.security.quota_entities import ANY, DEFAULT, EXACT, Entity, entity_of

from .cluster import Cluster
from .errors import ClientError, check_answer, refused


async def describe_quotas(
    cluster: Cluster,
    entity: Mapping[str, str | None] | None = None,
    *,
    any_of: Collection[str] = (),
    strict: bool = False,
) -> dict[Entity, dict[str, float]]:
    """Return the quotas of entities (DescribeClientQuotas).

    :param entity: names by type: "user", "client-id" or "ip". None as a name is the default
    :param any_of: types that an entity must have, with any name
    :param strict: leave out entities that also have other types
    :returns: entity → quota → value; an entity is a tuple of types and names
    :raises ClientError: the broker refuses or does not answer
    """
    parts = [
        DescribeClientQuotasRequest.ComponentData(kind, DEFAULT if name is None else EXACT, name)
        for kind, name in (entity or {}).items()
    ]
    parts += [DescribeClientQuotasRequest.ComponentData(kind, ANY, None) for kind in any_of]
    response = await cluster.ask(DescribeClientQuotasRequest(parts, strict))
    check_answer("describing quotas", response, "DESCRIBE_CONFIGS on the cluster")
    return {
        _entity(entry): {quota.key: quota.value for quota in entry.values}
        for entry in response.entries or ()
    }


async def alter_quotas(
    cluster: Cluster, changes: Mapping[Entity, Mapping[str, float | None]]
) -> dict[Entity, ClientError | None]:
    """Set quotas (AlterClientQuotas).

    :param changes: entity → quota → value; None removes the quota
    :returns: entity → None if it was changed, or the error
    :raises ClientError: no broker answers
    """
    entries = [
        AlterClientQuotasRequest.EntryData(
            entity=[AlterClientQuotasRequest.EntityData(kind, name) for kind, name in entity],
            ops=[
                AlterClientQuotasRequest.OpData(key, value or 0.0, value is None)
                for key, value in values.items()
            ],
        )
        for entity, values in changes.items()
    ]
    response = await cluster.ask(AlterClientQuotasRequest(entries))
    return {
        _entity(entry): refused("altering quotas", entry, "ALTER_CONFIGS on the cluster")
        for entry in response.entries
    }


def _entity(entry: Any) -> Entity:
    return entity_of({part.entity_type: part.entity_name for part in entry.entity})
