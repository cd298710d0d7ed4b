"""ACLs (KIP-11, KIP-290): list, create, delete.

:class:`~headrace.security.acls.Acl` and :class:`~headrace.security.acls.AclFilter` have Kafka's
numbers; :class:`~headrace.security.acls.ResourceType` and so on name them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.protocol.api import (
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from headrace.security.acls import Acl, AclFilter

from .cluster import Cluster
from .errors import ClientError, InvalidResponse, check_answer, refused

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


async def create_acls(cluster: Cluster, acls: Sequence[Acl]) -> dict[Acl, ClientError | None]:
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
) -> dict[AclFilter, list[Acl] | ClientError]:
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
    refusal = refused("deleting ACLs", result, _NEEDS_ALTER)
    if refusal is not None:
        return refusal
    for match in result.matching_acls:
        refusal = refused("deleting an ACL", match, _NEEDS_ALTER)
        if refusal is not None:
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
