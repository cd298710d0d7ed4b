"""Access control of a broker: the authorizer with the ACLs of the catalog, the permissions of
clients, and the log of decisions.

A change is stored before it is in effect. Decisions about requests read memory only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from headrace.log_lines import LimitedLog, get_logger
from headrace.protocol.authorized_operations import Operation
from headrace.protocol.errors import ErrorCode, Refusal
from headrace.security.acls import CLUSTER_NAME, Acl, ResourceType
from headrace.security.authorizer import SUPPORTED_OPERATIONS, Authorizer
from headrace.security.principal import Principal, super_users
from headrace.topics.catalog import Catalog
from headrace.topics.settings import Settings

logger = get_logger("headrace.authorizer")
log = LimitedLog("headrace.authorizer")

NO_AUTHORIZER = Refusal(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
"""The error of requests about ACLs without an authorizer."""


class Access:
    """The permissions of one client, and the log of decisions about it: a line for each refusal,
    and at level DEBUG for each grant. Of equal refusals of one client in a second, one is logged.

    A connection serves one request after the other, so its access knows the present one.

    :param authorizer: None if everything is allowed
    :param principal: as text, ``User:alice``
    :param host: the client's address
    :ivar is_limited: False if everything is allowed
    :ivar request: the name of the API of the present request, for the log
    """

    __slots__ = ("_authorizer", "host", "is_limited", "principal", "request")

    def __init__(self, authorizer: Authorizer | None, principal: str = "", host: str = "") -> None:
        self._authorizer = authorizer
        self.is_limited = authorizer is not None
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
        if self._authorizer is None:
            return True
        client = self.principal, self.host
        if self._authorizer.allows(*client, operation, resource_type, name):
            if logger.isEnabledFor(logging.DEBUG):
                message = "Principal %s is allowed %s on %s %s from host %s for %s"
                logger.debug(message, *self._logged(operation, resource_type, name))
            return True
        if is_audited:
            message = "Principal %s is denied %s on %s %s from host %s for %s"
            log.info(" ".join(client), message, *self._logged(operation, resource_type, name))
        return False

    def _logged(self, operation: int, resource_type: int, name: str) -> tuple[object, ...]:
        """Return what a decision is logged with."""
        kind = ResourceType(resource_type).name
        return self.principal, Operation(operation).name, kind, name, self.host, self.request

    def allows_cluster(self, operation: int, *, is_audited: bool = True) -> bool:
        """Return whether the client may do an operation on the cluster."""
        return self.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME, is_audited=is_audited)

    def allows_any(self, operation: int, resource_type: int) -> bool:
        """Return whether the client may do an operation on some resource of a type."""
        return self._authorizer is None or self._authorizer.allows(
            self.principal, self.host, operation, resource_type, None
        )

    def allows_all(self, operation: int, resource_type: int, names: Iterable[str]) -> bool:
        """Return whether the client may do an operation on each of these resources."""
        refused = [name for name in names if not self.allows(operation, resource_type, name)]
        return not refused

    def operations(self, resource_type: int, name: str = CLUSTER_NAME) -> int:
        """Return the operations that the client may do on a resource, as a bit field (KIP-430)."""
        if self._authorizer is None:
            return SUPPORTED_OPERATIONS[resource_type]
        return self._authorizer.operations(self.principal, self.host, resource_type, name)


UNLIMITED = Access(None)
"""The access without an authorizer."""


class AccessControl:
    """The authorizer of a broker, and its ACLs in the catalog."""

    def __init__(self, config: Settings, catalog: Catalog) -> None:
        self._catalog = catalog
        self.authorizer = Authorizer(
            super_users(config.get_str("super.users") or ""),
            allow_without_acls=config.get_bool("allow.everyone.if.no.acl.found"),
        )
        self.authorizer.add(catalog.acls)
        self.on_change: Callable[[], object] = lambda: None
        """Called after a change of ACLs."""

    def access_of(self, principal: Principal, host: str) -> Access:
        """Return the access of a client."""
        return Access(self.authorizer, str(principal), host)

    def create(self, acls: Sequence[Acl]) -> None:
        """Create ACLs. Those that are there already change nothing.

        :raises CatalogError: when the database fails
        """
        new = [acl for acl in dict.fromkeys(acls) if acl not in self.authorizer.acls]
        if new:
            self._catalog.add_acls(new)
            self.authorizer.add(new)
            self.on_change()

    def delete(self, acls: Sequence[Acl]) -> None:
        """Delete ACLs that are there.

        :raises CatalogError: when the database fails
        """
        if acls:
            self._catalog.remove_acls(acls)
            self.authorizer.remove(acls)
            self.on_change()
