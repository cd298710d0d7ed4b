"""The view that handlers have of the authorizer: the access of one client."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from .acls import CLUSTER_NAME, ResourceType
from .authorizer import SUPPORTED_OPERATIONS, Authorizer


class Audit(Protocol):
    """Records decisions."""

    @property
    def records_grants(self) -> bool:
        """True if :meth:`granted` does anything."""

    def denied(self, access: Access, operation: int, resource_type: int, name: str) -> None:
        """Record that an operation was refused."""

    def granted(self, access: Access, operation: int, resource_type: int, name: str) -> None:
        """Record that an operation was allowed."""


class Unlimited:
    """The access of every client without an authorizer: everything is allowed."""

    __slots__ = ()

    is_limited = False

    def allows(
        self, operation: int, resource_type: int, name: str, *, is_audited: bool = True
    ) -> bool:
        """Return True."""
        return True

    def allows_cluster(self, operation: int, *, is_audited: bool = True) -> bool:
        """Return True."""
        return True

    def allows_any(self, operation: int, resource_type: int) -> bool:
        """Return True."""
        return True

    def allows_all(self, operation: int, resource_type: int, names: Iterable[str]) -> bool:
        """Return True."""
        return True

    def operations(self, resource_type: int, name: str = CLUSTER_NAME) -> int:
        """Return all operations that a resource supports, as a bit field."""
        return SUPPORTED_OPERATIONS[resource_type]


class Access:
    """The access of a client under an authorizer. It has the methods of :class:`Unlimited`.

    A connection serves one request after the other, so its access knows the present one.

    :param principal: as text, ``User:alice``
    :param host: the client's address
    :ivar request: the name of the API of the present request, for the audit
    """

    __slots__ = ("_audit", "_authorizer", "host", "principal", "request")

    is_limited = True

    def __init__(self, authorizer: Authorizer, audit: Audit, principal: str, host: str) -> None:
        self._authorizer = authorizer
        self._audit = audit
        self.principal = principal
        self.host = host
        self.request = ""

    def allows(
        self, operation: int, resource_type: int, name: str, *, is_audited: bool = True
    ) -> bool:
        """Return whether the client may do an operation on a resource.

        :param is_audited: False where a refusal is no event: for lists that are filtered, and
            where another permission may do
        """
        decision = self._authorizer.allows(
            self.principal, self.host, operation, resource_type, name
        )
        audit = self._audit
        if not decision:
            if is_audited:
                audit.denied(self, operation, resource_type, name)
        elif audit.records_grants:
            audit.granted(self, operation, resource_type, name)
        return decision

    def allows_cluster(self, operation: int, *, is_audited: bool = True) -> bool:
        """Return whether the client may do an operation on the cluster."""
        return self.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME, is_audited=is_audited)

    def allows_any(self, operation: int, resource_type: int) -> bool:
        """Return whether the client may do an operation on some resource of a type."""
        return self._authorizer.allows_any(self.principal, self.host, operation, resource_type)

    def allows_all(self, operation: int, resource_type: int, names: Iterable[str]) -> bool:
        """Return whether the client may do an operation on each of these resources."""
        refused = [name for name in names if not self.allows(operation, resource_type, name)]
        return not refused

    def operations(self, resource_type: int, name: str = CLUSTER_NAME) -> int:
        """Return the operations that the client may do on a resource, as a bit field (KIP-430)."""
        return self._authorizer.operations(self.principal, self.host, resource_type, name)


UNLIMITED = Unlimited()
"""The access without an authorizer."""
AnyAccess = Access | Unlimited
