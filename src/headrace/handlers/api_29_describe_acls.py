"""DescribeAcls (29), versions 1-3: list the ACLs that a filter finds, by resource pattern.

Version notes:

* Version 1 adds prefixed patterns (KIP-290).
* Version 2 is flexible (KIP-482).
* Version 3 adds resources of type USER (KIP-373).
"""

from __future__ import annotations

from typing import TypeVar

from headrace.net.access_control import NO_AUTHORIZER
from headrace.net.api import DESCRIBE, Api, on_cluster
from headrace.net.call import Call, CloseConnection
from headrace.protocol.api import DescribeAclsRequest, DescribeAclsResponse
from headrace.security.acls import Acl, AclFilter, Pattern, is_known

Resource = DescribeAclsResponse.DescribeAclsResource
AclDescription = DescribeAclsResponse.AclDescription

API = Api(29, on_cluster(DESCRIBE))

A = TypeVar("A", Acl, AclFilter)


async def handle(call: Call, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """Return the ACLs that match the filter."""
    condition = checked(AclFilter(*request.field_values()))
    control = call.access_control
    if control is None:
        return DescribeAclsResponse().refused(NO_AUTHORIZER)
    by_pattern: dict[Pattern, list[AclDescription]] = {}
    for acl in await call.in_slices(control.authorizer.find(condition)):
        description = AclDescription(acl.principal, acl.host, acl.operation, acl.permission)
        by_pattern.setdefault(acl.pattern, []).append(description)
        await call.pause()
    resources = [Resource(*pattern, acls) for pattern, acls in by_pattern.items()]
    return DescribeAclsResponse(error_message=None, resources=resources)


def checked(acl: A) -> A:
    """Return an ACL or a filter of a request.

    :raises CloseConnection: when it has numbers without a meaning, as from Kafka
    """
    if not is_known(acl):
        raise CloseConnection("the request has unknown elements of ACLs")
    return acl
