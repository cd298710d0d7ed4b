"""The step *audit*: a line in the log for each change that an administrator's request has made.

It stands beside the refusals that :mod:`headrace.net.access_control` logs, in the same form.
Names of configs are logged and no values, which may be passwords. These lines are not limited in
time, as those of refusals are, because none may be missing: each is of a change that is on disk, so
a client cannot cause them faster than the disk takes changes. A request about very many resources
has a line for the first :data:`MAX_LINES`, and one that counts the others.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple, Protocol

from headrace.log_lines import get_logger
from headrace.protocol.authorized_operations import Operation
from headrace.security.acls import Acl, PatternType, Permission, ResourceType
from headrace.security.principal import Principal

logger = get_logger("headrace.authorizer")

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

    principal: Principal
    host: str


def audited(
    api_name: str,
    changes: Callable[[Any, Any], Iterator[Change]],
    handle: Callable[[Any, Any], Awaitable[Any]],
) -> Callable[[Any, Any], Awaitable[Any]]:
    """Return the function that serves an API and logs what its requests have changed, unless they
    only validate changes.

    :param changes: yields what a request has changed, given also its response
    :param handle: serves the API
    """

    async def handle_and_tell(call: Any, request: Any) -> Any:
        try:
            response = await handle(call, request)
        except CancelledError:
            message = "has sent %s from host %s and gone: it may be done"
            log_line(call.client, message, api_name, call.client.host)
            raise
        try:
            if not getattr(request, "validate_only", False):
                log_changes(api_name, call.client, changes(request, response))
        except Exception as error:
            # The change is made: its client must not hear that it has failed.
            logger.error(
                "Principal %s has sent %s from host %s, and its changes cannot be told",
                call.client.principal,
                api_name,
                call.client.host,
                exc_info=error,
            )
        return response

    return handle_and_tell


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
