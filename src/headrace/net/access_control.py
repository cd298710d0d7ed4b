"""Access control of a broker: the authorizer with the ACLs of the catalog, and the audit log.

A change is stored before it is in effect. Decisions about requests read memory only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from headrace.log_lines import LimitedLog, get_logger
from headrace.protocol.authorized_operations import Operation
from headrace.protocol.errors import ErrorCode, Refusal
from headrace.security.access import Access
from headrace.security.acls import Acl, ResourceType
from headrace.security.authorizer import Authorizer
from headrace.security.principal import Principal, super_users
from headrace.topics.catalog import Catalog
from headrace.topics.settings import Settings

logger = get_logger("headrace.authorizer")
log = LimitedLog(logger)

NO_AUTHORIZER = Refusal(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
"""The error of requests about ACLs without an authorizer."""


class AuditLog:
    """The log of decisions: a line for each refusal, and at level DEBUG for each grant. Of equal
    refusals of one client in a second, one is logged.
    """

    @property
    def records_grants(self) -> bool:
        """True if grants are logged."""
        return logger.isEnabledFor(logging.DEBUG)

    def denied(self, access: Access, operation: int, resource_type: int, name: str) -> None:
        """Log a refusal."""
        values = _logged(access, operation, resource_type, name)
        message = "Principal %s is denied %s on %s %s from host %s for %s"
        log.info(f"{access.principal} {access.host}", message, *values)

    def granted(self, access: Access, operation: int, resource_type: int, name: str) -> None:
        """Log a grant."""
        values = _logged(access, operation, resource_type, name)
        logger.debug("Principal %s is allowed %s on %s %s from host %s for %s", *values)


def _logged(access: Access, operation: int, resource_type: int, name: str) -> tuple[object, ...]:
    """Return what a decision is logged with."""
    kind = ResourceType(resource_type).name
    return access.principal, Operation(operation).name, kind, name, access.host, access.request


class AccessControl:
    """The authorizer of a broker, and its ACLs in the catalog."""

    def __init__(self, config: Settings, catalog: Catalog) -> None:
        self._catalog = catalog
        self._audit = AuditLog()
        self.authorizer = Authorizer(
            super_users(config.get_str("super.users") or ""),
            allow_without_acls=config.get_bool("allow.everyone.if.no.acl.found"),
        )
        self.authorizer.add(catalog.acls)
        self.on_change: Callable[[], object] = lambda: None
        """Called after a change of ACLs."""

    def access_of(self, principal: Principal, host: str) -> Access:
        """Return the access of a client."""
        return Access(self.authorizer, self._audit, str(principal), host)

    def create(self, acls: Sequence[Acl]) -> None:
        """Create ACLs. Those that are there already change nothing.

        :raises CatalogError: when the database fails
        """
        new = [acl for acl in dict.fromkeys(acls) if acl not in self.authorizer]
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


def access_control(config: Settings, catalog: Catalog) -> AccessControl | None:
    """Return the access control that a broker is configured to have; None without an authorizer."""
    return AccessControl(config, catalog) if config.get_str("authorizer.class.name") else None
