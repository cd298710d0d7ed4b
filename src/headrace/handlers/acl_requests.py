"""The parts that DescribeAcls, CreateAcls and DeleteAcls have in common."""

from __future__ import annotations

from typing import Any

from headrace.errors import ErrorCode, Refusal
from headrace.security.acls import AclFilter, is_known

from .context import CloseConnection

NO_AUTHORIZER = Refusal(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
"""The error of all three without an authorizer."""


def filter_of(asked: Any) -> AclFilter:
    """Return the condition in a DescribeAcls request, or in a filter of DeleteAcls.

    :raises CloseConnection: when it has numbers without a meaning, as from Kafka
    """
    check_known(
        asked.resource_type_filter,
        asked.pattern_type_filter,
        asked.operation,
        asked.permission_type,
    )
    return AclFilter(
        asked.resource_type_filter,
        asked.resource_name_filter,
        asked.pattern_type_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )


def check_known(resource_type: int, pattern_type: int, operation: int, permission: int) -> None:
    """Check the numbers of an ACL or a filter.

    :raises CloseConnection: when one has no meaning, as from Kafka
    """
    if not is_known(resource_type, pattern_type, operation, permission):
        raise CloseConnection("the request has unknown elements of ACLs")
