"""Reading ACLs and users over our own connections.

librdkafka drops the error of a DescribeAcls response, and that of a DescribeUserScramCredentials
response corrupts its memory (librdkafka 2.16).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialsDescription,
)

from headrace.client import ClientError, Cluster
from headrace.client.errors import check_answer, refused

E = TypeVar("E", ResourceType, AclOperation, ScramMechanism)

_UNKNOWN = 0


async def describe_acls(
    cluster: Cluster, acl_filter: AclBindingFilter, timeout_ms: int
) -> list[AclBinding]:
    """Return the ACLs that match a filter: DescribeAcls.

    :raises RequestRefused: SECURITY_DISABLED if the broker has no authorizer
    """
    condition: Any = acl_filter  # its type hints have what its constructor takes
    connection = await cluster.connection()
    request = connection.messages("describe_acls").DescribeAclsRequest(
        resource_type_filter=condition.restype.value,
        resource_name_filter=condition.name,
        pattern_type_filter=condition.resource_pattern_type.value,
        principal_filter=condition.principal,
        host_filter=condition.host,
        operation=condition.operation.value,
        permission_type=condition.permission_type.value,
    )
    response = await connection.request(request, timeout_ms=timeout_ms)
    check_answer("listing ACLs", response, "DESCRIBE on the cluster")
    return [
        AclBinding(
            _known(ResourceType, int(resource.resource_type)),
            str(resource.resource_name),
            ResourcePatternType(int(resource.pattern_type)),
            str(acl.principal),
            str(acl.host),
            _known(AclOperation, int(acl.operation)),
            AclPermissionType(int(acl.permission_type)),
        )
        for resource in response.resources
        for acl in resource.acls
    ]


async def describe_users(
    cluster: Cluster, names: Sequence[str], timeout_ms: int
) -> dict[str, UserScramCredentialsDescription | ClientError]:
    """Return the SCRAM credentials of users: DescribeUserScramCredentials (KIP-554).

    :param names: the users; all if it is empty
    :raises RequestRefused: the broker refuses the request
    """
    needs = "DESCRIBE on the cluster"
    connection = await cluster.connection()
    messages = connection.messages("describe_user_scram_credentials")
    asked = tuple(messages.UserName(name=name) for name in names)
    request = messages.DescribeUserScramCredentialsRequest(users=asked or None)
    response = await connection.request(request, timeout_ms=timeout_ms)
    check_answer("describing users", response, needs)
    return {
        str(result.user): refused(f"describing user '{result.user}'", result, needs)
        or UserScramCredentialsDescription(
            str(result.user),
            [
                ScramCredentialInfo(
                    _known(ScramMechanism, int(info.mechanism)), int(info.iterations)
                )
                for info in result.credential_infos
            ],
        )
        for result in response.results
    }


def _known(names: type[E], number: int) -> E:
    """Return UNKNOWN for a number that confluent-kafka has no name for, as librdkafka does."""
    try:
        return names(number)
    except ValueError:
        return names(_UNKNOWN)
