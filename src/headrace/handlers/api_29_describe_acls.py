"""DescribeAcls (29), versions 1-3: list the ACLs that a filter finds, by resource pattern.

Version notes:

* Version 1 adds prefixed patterns (KIP-290).
* Version 2 is flexible (KIP-482).
* Version 3 adds resources of type USER (KIP-373).
"""

from __future__ import annotations

from headrace.net.api import Api
from headrace.net.call import Call
from headrace.net.rules import DESCRIBE, on_cluster
from headrace.protocol.api import DescribeAclsRequest, DescribeAclsResponse

from .acl_requests import NO_AUTHORIZER, filter_of

Resource = DescribeAclsResponse.DescribeAclsResource
AclDescription = DescribeAclsResponse.AclDescription

API = Api(29, on_cluster(DESCRIBE))


async def handle(call: Call, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """Return the ACLs that match the filter."""
    condition = filter_of(request)
    control = call.broker.access_control
    if control is None:
        return DescribeAclsResponse(
            error_code=NO_AUTHORIZER.code, error_message=NO_AUTHORIZER.message
        )
    by_pattern: dict[tuple[int, str, int], list[AclDescription]] = {}
    for acl in await call.in_slices(control.authorizer.find_sliced(condition)):
        pattern = (acl.resource_type, acl.name, acl.pattern_type)
        description = AclDescription(acl.principal, acl.host, acl.operation, acl.permission)
        by_pattern.setdefault(pattern, []).append(description)
        await call.pause()
    resources = [Resource(*pattern, acls) for pattern, acls in by_pattern.items()]
    return DescribeAclsResponse(error_message=None, resources=resources)
