"""ACLs (KIP-11, KIP-290): a rule about a principal on a host, an operation and a resource pattern;
and the filters that find rules.

The numbers are Kafka's.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import IntEnum
from typing import NamedTuple

from headrace.protocol.authorized_operations import Operation

ANY_NAME, ANY_HOST, ANY_PRINCIPAL = "*", "*", "User:*"
"""The literal resource name, the host and the principal that stand for all."""
CLUSTER_NAME = "kafka-cluster"
"""The only name of a resource of type CLUSTER."""


class ResourceType(IntEnum):
    """The type of a resource."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """The way in which the name of a pattern stands for names of resources.

    UNKNOWN, ANY and MATCH are in filters only: MATCH finds every pattern that a name matches.
    """

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """The effect of an ACL. UNKNOWN and ANY are in filters only."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


Pattern = tuple[int, str, int]
"""Type of the resource, name, type of the pattern: the beginning of an ACL."""


class Acl(NamedTuple):
    """A rule.

    :ivar name: the name of the resource, its prefix, or ``*``
    :ivar principal: as text, ``User:alice``
    :ivar host: an address, or ``*``
    """

    resource_type: int
    name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int

    @property
    def pattern(self) -> Pattern:
        """The resources that it is about."""
        return self[:3]


class AclFilter(NamedTuple):
    """A condition on ACLs. None and ANY hold for all values of a field."""

    resource_type: int = ResourceType.ANY
    name: str | None = None
    pattern_type: int = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: int = Operation.ANY
    permission: int = Permission.ANY

    def matches(self, acl: Acl) -> bool:
        """Return whether an ACL meets the condition."""
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._matches_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _matches_name(self, acl: Acl) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if self.name is None or self.name == acl.name:
            return True
        if self.pattern_type != PatternType.MATCH:
            return False
        if acl.pattern_type == PatternType.PREFIXED:
            return self.name.startswith(acl.name)
        return acl.name == ANY_NAME

    @property
    def pattern(self) -> Pattern | None:
        """The resources that it is about, if they are exact."""
        if (
            self.resource_type == ResourceType.ANY
            or self.pattern_type in (PatternType.ANY, PatternType.MATCH)
            or self.name is None
        ):
            return None
        return self.resource_type, self.name, self.pattern_type


def check_new(acl: Acl) -> str | None:
    """Return the reason why an ACL cannot be created, in Kafka's words; None if it can."""
    if acl.resource_type == ResourceType.CLUSTER and acl.name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not acl.name:
        return "Invalid empty resource name"
    if acl.resource_type == ResourceType.ANY:
        return "Invalid resourceType ANY"
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"Invalid patternType {PatternType(acl.pattern_type).name}"
    if acl.operation == Operation.ANY:
        return "Invalid operation ANY"
    if acl.permission == Permission.ANY:
        return "Invalid permissionType ANY"
    if ":" not in acl.principal:
        return (
            f"Could not parse principal from `{acl.principal}` (no colon is present separating "
            "the principal type from the principal name)"
        )
    return None


def is_known(acl: Acl | AclFilter) -> bool:
    """Return whether the numbers of an ACL or a filter mean anything to this broker."""
    numbers: Collection[tuple[int, type[IntEnum]]] = (
        (acl.resource_type, ResourceType),
        (acl.pattern_type, PatternType),
        (acl.operation, Operation),
        (acl.permission, Permission),
    )
    return all(0 < number <= max(names) for number, names in numbers)
