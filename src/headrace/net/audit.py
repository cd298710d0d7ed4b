"""The step *audit*: a line in the log for each change that an administrator's request has made.

It stands beside the refusals that :mod:`headrace.net.access_control` logs, in the same form.
Names of configs are logged and no values, which may be passwords. These lines are not limited in
time, as those of refusals are, because none may be missing: each is of a change that is on disk, so
a client cannot cause them faster than the disk takes changes. A request about very many resources
has a line for the first :data:`MAX_LINES`, and one that counts the others. Handlers note a change
where they make it, by :meth:`headrace.net.call.Call.changed`.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Iterable
from enum import Enum
from typing import Any

from headrace.protocol.authorized_operations import Operation
from headrace.security.acls import CLUSTER_NAME, Acl, PatternType, Permission, ResourceType

from .access_control import logger

MAX_LINES = 100
"""The lines of one request."""

Change = tuple[Operation, Enum, str, str]
"""The operation, the type of the resource, its name, and what was changed."""


def audited(handle: Callable[[Any, Any], Awaitable[Any]]) -> Callable[[Any, Any], Awaitable[Any]]:
    """Return the function that serves an API of administrators, and logs what its requests have
    changed.
    """

    async def handle_and_tell(call: Any, request: Any) -> Any:
        try:
            response = await handle(call, request)
        except CancelledError:
            message = "has sent %s from host %s and gone: it may be done"
            _log(call, message, call.api.name, call.client.host)
            raise
        try:
            log_changes(call)
        except Exception as error:
            # The change is made: its client must not hear that it has failed.
            logger.error(
                "Principal %s has sent %s from host %s, and its changes cannot be told",
                call.client.principal,
                call.api.name,
                call.client.host,
                exc_info=error,
            )
        return response

    return handle_and_tell


def log_changes(call: Any) -> None:
    """Log the changes that a call has made."""
    origin = call.client.host, call.api.name
    for operation, resource_type, name, detail in call.changes:
        message = "has done %s on %s %s from host %s for %s%s"
        change = operation.name, resource_type.name, name
        _log(call, message, *change, *origin, f": {detail}" if detail else "")
    unlogged = call.change_count - len(call.changes)
    if unlogged:
        _log(call, "has made %d more changes from host %s for %s", unlogged, *origin)


def _log(call: Any, message: str, *values: object) -> None:
    """Log what the client of a call has done."""
    logger.info(f"Principal %s {message}", call.client.principal, *values)


def note_acls(call: Any, verb: str, acls: Iterable[Acl]) -> None:
    """Note the ACLs that a call has added or removed."""
    for acl in acls:
        detail = (
            f"{verb} {Permission(acl.permission).name} {Operation(acl.operation).name} for "
            f"{acl.principal} from {acl.host} on {PatternType(acl.pattern_type).name} "
            f"{ResourceType(acl.resource_type).name} {acl.name}"
        )
        call.changed(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME, detail)
