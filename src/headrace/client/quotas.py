"""Client quotas (KIP-546): of users, client ids and addresses."""

from __future__ import annotations

from collections.abc import Collection, Mapping

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
        (kind, DEFAULT if name is None else EXACT, name) for kind, name in (entity or {}).items()
    ]
    parts += [(kind, ANY, None) for kind in any_of]
    response = await cluster.ask(
        "describe_client_quotas",
        lambda messages: messages.DescribeClientQuotasRequest(
            components=tuple(
                messages.ComponentData(entity_type=kind, match_type=match_type, match=name)
                for kind, match_type, name in parts
            ),
            strict=strict,
        ),
    )
    check_answer("describing quotas", response, "DESCRIBE_CONFIGS on the cluster")
    return {
        entity_of({part.entity_type: part.entity_name for part in entry.entity}): {
            quota.key: quota.value for quota in entry.values
        }
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
    response = await cluster.ask(
        "alter_client_quotas",
        lambda messages: messages.AlterClientQuotasRequest(
            entries=tuple(
                messages.EntryData(
                    entity=tuple(
                        messages.EntityData(entity_type=kind, entity_name=name)
                        for kind, name in entity
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
        ),
    )
    return {
        entity_of({part.entity_type: part.entity_name for part in entry.entity}): refused(
            "altering quotas", entry, "ALTER_CONFIGS on the cluster"
        )
        for entry in response.entries
    }
