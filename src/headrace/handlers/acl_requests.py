"""The parts that DescribeAcls, CreateAcls and DeleteAcls have in common."""

from __future__ import annotations

from headrace.errors import ErrorCode, Refusal
from headrace.net.call import CloseConnection
from headrace.protocol.api import DeleteAclsRequest, DescribeAclsRequest
from headrace.security.acls import Acl, AclFilter, is_known

NO_AUTHORIZER = Refusal(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
"""The error of all three without an authorizer."""


def filter_of(condition: DescribeAclsRequest | DeleteAclsRequest.DeleteAclsFilter) -> AclFilter:
    """Return the condition in a DescribeAcls request, or in a filter of DeleteAcls.

    :raises CloseConnection: when it has numbers without a meaning, as from Kafka
    """
    acl_filter = AclFilter(
        condition.resource_type_filter,
        condition.resource_name_filter,
        condition.pattern_type_filter,
        condition.principal_filter,
        condition.host_filter,
        condition.operation,
        condition.permission_type,
    )
    check_known(acl_filter)
    return acl_filter


def check_known(acl: Acl | AclFilter) -> None:
    """Check the numbers of an ACL or a filter.

    :raises CloseConnection: when one has no meaning, as from Kafka
    """
    if not is_known(acl.resource_type, acl.pattern_type, acl.operation, acl.permission):
        raise CloseConnection("the request has unknown elements of ACLs")
