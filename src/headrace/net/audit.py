"""The step *audit*: a line in the log for each change that an administrator's request has made.

It stands beside the refusals that :mod:`headrace.net.access_control` logs, in the same form.
Names of configs are logged and no values, which may be passwords. These lines are not limited in
time, as those of refusals are, because none may be missing: each is of a change that is on disk, so
a client cannot cause them faster than the disk takes changes. A request about very many resources
has a line for the first :data:`MAX_LINES`, and one that counts the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple, Protocol

from headrace.protocol.authorized_operations import Operation
from headrace.security.acls import Acl, PatternType, Permission, ResourceType
from headrace.security.principal import Principal

from .access_control import logger

MAX_LINES = 100
"""The lines of one request."""


class Change(NamedTuple):
    """A change that was made.

    :ivar resource_type: as in the lines of refusals: TOPIC, GROUP, …
    :ivar detail: what was changed, without values of configs; empty if the rest says it
    """

    operation: Operation
    resource_type: str
    name: str
    detail: str = ""


class Administrator(Protocol):
    """The client who has sent a request."""

    @property
    def principal(self) -> Principal: ...
    @property
    def host(self) -> str: ...


def tell(
    api_name: str,
    client: Administrator,
    changes: Callable[[Any, Any], Iterator[Change]],
    request: Any,
    response: Any,
) -> None:
    """Log what a request has changed."""
    try:
        log_changes(api_name, client, changes(request, response))
    except Exception as error:
        # The change is made: its client must not hear that it has failed.
        logger.error(
            "Principal %s has sent %s from host %s, and its changes cannot be told",
            client.principal,
            api_name,
            client.host,
            exc_info=error,
        )


def tell_gone(api_name: str, client: Administrator) -> None:
    """Log that a client has gone before it got its answer."""
    log_line(client, "has sent %s from host %s and gone: it may be done", api_name, client.host)


def log_changes(api_name: str, client: Administrator, changes: Iterator[Change]) -> None:
    """Log changes of a request."""
    for change in islice(changes, MAX_LINES):
        log_line(
            client,
            "has done %s on %s %s from host %s for %s%s",
            change.operation.name,
            change.resource_type,
            change.name,
            client.host,
            api_name,
            f": {change.detail}" if change.detail else "",
        )
    more = sum(1 for _ in changes)
    if more:
        message = "has made %d more changes from host %s for %s"
        log_line(client, message, more, client.host, api_name)


def log_line(client: Administrator, message: str, *values: object) -> None:
    """Log what the client of a request has done."""
    logger.info(f"Principal %s {message}", client.principal, *values)


def acl_change(verb: str, acl: Acl) -> Change:
    """Return the change of an ACL that was ``added`` or ``removed``."""
    detail = (
        f"{verb} {Permission(acl.permission).name} {Operation(acl.operation).name} for "
        f"{acl.principal} from {acl.host} on {PatternType(acl.pattern_type).name} "
        f"{ResourceType(acl.resource_type).name} {acl.name}"
    )
    return Change(Operation.ALTER, "CLUSTER", "kafka-cluster", detail)
