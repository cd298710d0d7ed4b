"""Who may do what, and how much: ACLs (KIP-11, KIP-290), client quotas (KIP-546), and the SCRAM
credentials of users (KIP-554).

:class:`~headrace.security.acls.Acl` and :class:`~headrace.security.acls.AclFilter` have Kafka's
numbers; :class:`~headrace.security.acls.ResourceType` and so on name them.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.protocol.api import (
    AlterClientQuotasRequest,
    AlterUserScramCredentialsRequest,
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeClientQuotasRequest,
    DescribeUserScramCredentialsRequest,
)
from headrace.security import scram
from headrace.security.acls import Acl, AclFilter
from headrace.security.quota_entities import DEFAULT, EXACT, Entity, entity_of

from .cluster import Cluster
from .errors import Answers, ClientError, InvalidResponse, Outcomes, check_answer, refused

EVERY_ACL = AclFilter()
_NEEDS_ALTER = "ALTER on the cluster"


async def describe_acls(cluster: Cluster, acl_filter: AclFilter = EVERY_ACL) -> list[Acl]:
    """Return the ACLs that match a filter (DescribeAcls).

    :raises ClientError: the broker refuses or does not answer; SECURITY_DISABLED if it has no
        authorizer
    """
    response = await cluster.ask(DescribeAclsRequest(*acl_filter))
    check_answer("listing ACLs", response, "DESCRIBE on the cluster")
    return [_acl(resource, acl) for resource in response.resources for acl in resource.acls]


async def create_acls(cluster: Cluster, acls: Sequence[Acl]) -> Outcomes[Acl]:
    """Create ACLs (CreateAcls).

    :returns: ACL → None if it exists now, or the error
    :raises ClientError: no broker answers
    """
    creations = [CreateAclsRequest.AclCreation(*acl) for acl in acls]
    response = await cluster.ask(CreateAclsRequest(creations))
    results = _as_many(response.results, acls)
    return {
        acl: refused("creating an ACL", result, _NEEDS_ALTER)
        for acl, result in zip(acls, results, strict=True)
    }


async def delete_acls(
    cluster: Cluster, filters: Sequence[AclFilter]
) -> Answers[AclFilter, list[Acl]]:
    """Delete the ACLs that match filters (DeleteAcls).

    :returns: filter → the ACLs that were deleted, or the error
    :raises ClientError: no broker answers
    """
    request = DeleteAclsRequest([DeleteAclsRequest.DeleteAclsFilter(*item) for item in filters])
    response = await cluster.ask(request)
    results = _as_many(response.filter_results, filters)
    return {
        acl_filter: _deleted(result) for acl_filter, result in zip(filters, results, strict=True)
    }


def _deleted(result: Any) -> list[Acl] | ClientError:
    if refusal := refused("deleting ACLs", result, _NEEDS_ALTER):
        return refusal
    for match in result.matching_acls:
        if refusal := refused("deleting an ACL", match, _NEEDS_ALTER):
            return refusal
    return [_acl(match, match) for match in result.matching_acls]


def _acl(resource: Any, acl: Any) -> Acl:
    return Acl(
        resource.resource_type,
        resource.resource_name,
        resource.pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission_type,
    )


def _as_many(results: Sequence[Any], keys: Sequence[Any]) -> Sequence[Any]:
    if len(results) != len(keys):
        raise InvalidResponse(
            f"the broker sent {len(results)} results about {len(keys)} changes of ACLs"
        )
    return results


# Quotas -------------------------------------------------------------------------------------------


async def describe_quotas(
    cluster: Cluster, entity: Mapping[str, str | None] | None = None
) -> dict[Entity, dict[str, float]]:
    """Return the quotas of entities (DescribeClientQuotas).

    :param entity: names by type: "user", "client-id" or "ip". None as a name is the default
    :returns: entity → quota → value; an entity is a tuple of types and names
    :raises ClientError: the broker refuses or does not answer
    """
    parts = [
        DescribeClientQuotasRequest.ComponentData(kind, DEFAULT if name is None else EXACT, name)
        for kind, name in (entity or {}).items()
    ]
    response = await cluster.ask(DescribeClientQuotasRequest(parts))
    check_answer("describing quotas", response, "DESCRIBE_CONFIGS on the cluster")
    return {
        _entity(entry): {quota.key: quota.value for quota in entry.values}
        for entry in response.entries or ()
    }


async def alter_quotas(
    cluster: Cluster, changes: Mapping[Entity, Mapping[str, float | None]]
) -> Outcomes[Entity]:
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


# Users --------------------------------------------------------------------------------------------


MECHANISMS = {mechanism.name: mechanism.number for mechanism in scram.MECHANISMS.values()}
"""Name → Kafka's number of a mechanism."""


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """The credential of a user for one mechanism, without secrets.

    :param mechanism: a number of :data:`MECHANISMS`
    """

    mechanism: int
    iterations: int


@dataclass(frozen=True, slots=True)
class ScramUpsertion:
    """A password to set. Only its salted hash is sent.

    :param mechanism: a number of :data:`MECHANISMS`
    """

    user: str
    mechanism: int
    password: bytes = field(repr=False)
    iterations: int = scram.MIN_ITERATIONS


@dataclass(frozen=True, slots=True)
class ScramDeletion:
    """A credential to delete.

    :param mechanism: a number of :data:`MECHANISMS`
    """

    user: str
    mechanism: int


async def describe_users(
    cluster: Cluster, names: Iterable[str] = ()
) -> Answers[str, tuple[ScramCredential, ...]]:
    """Return the SCRAM credentials of users (DescribeUserScramCredentials).

    :param names: the users; all if it is empty
    :returns: user → credentials, or the error: RESOURCE_NOT_FOUND for a user without any
    :raises ClientError: the broker refuses the request or does not answer
    """
    needs = "DESCRIBE on the cluster"
    users = [DescribeUserScramCredentialsRequest.UserName(name) for name in names]
    response = await cluster.ask(DescribeUserScramCredentialsRequest(users or None))
    check_answer("describing users", response, needs)
    return {
        result.user: refused(f"describing user '{result.user}'", result, needs)
        or tuple(
            ScramCredential(info.mechanism, info.iterations) for info in result.credential_infos
        )
        for result in response.results
    }


async def alter_users(
    cluster: Cluster, changes: Sequence[ScramUpsertion | ScramDeletion]
) -> Outcomes[str]:
    """Set and delete SCRAM credentials (AlterUserScramCredentials).

    :returns: user → None if all changes of this user were made, or the error
    :raises ClientError: no broker answers
    """
    deletions, upsertions = [], []
    for change in changes:
        if isinstance(change, ScramDeletion):
            deletions.append(
                AlterUserScramCredentialsRequest.ScramCredentialDeletion(
                    change.user, change.mechanism
                )
            )
            continue
        salt, iterations = secrets.token_bytes(scram.SALT_BYTES), change.iterations
        salted_password = hashlib.pbkdf2_hmac(
            scram.MECHANISM_NUMBERS[change.mechanism].hash_name, change.password, salt, iterations
        )
        upsertions.append(
            AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
                change.user, change.mechanism, iterations, salt, salted_password
            )
        )
    response = await cluster.ask(AlterUserScramCredentialsRequest(deletions, upsertions))
    return {
        result.user: refused(f"altering user '{result.user}'", result, "ALTER on the cluster")
        for result in response.results
    }
