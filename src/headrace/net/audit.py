"""The step *audit*: a line in the log for each change that an administrator's request has made.

It stands beside the refusals that :mod:`headrace.broker.access_control` logs, in the same form.
Names of configs are logged and no values, which may be passwords. These lines are not limited in
time, as those of refusals are, because none may be missing: each is of a change that is on disk, so
a client cannot cause them faster than the disk takes changes. A request about very many resources
has a line for the first :data:`MAX_LINES`, and one that counts the others.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Iterator, Mapping
from inspect import iscoroutinefunction
from itertools import islice
from typing import Any, NamedTuple, Protocol

from headrace.broker.access_control import logger
from headrace.coordinators.runtime import Deferred
from headrace.errors import ErrorCode
from headrace.protocol.authorized_operations import Operation
from headrace.protocol.large_responses import Sliced
from headrace.security.acls import Acl, PatternType, Permission, ResourceType
from headrace.security.principal import Principal

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


def step(api_name: str, key: int, handle: Callable[..., Any]) -> Callable[[Any, Any, Any], Any]:
    """Return a function that serves an API of :data:`CHANGES`, and logs what it has changed."""
    changes = CHANGES[key]

    def audited(broker: Any, request: Any, context: Any) -> Any:
        answer = handle(broker, request, context)
        if isinstance(answer, Deferred):
            answer = answer.future()
        if isinstance(answer, Awaitable):
            return later(answer, request, context)
        tell(api_name, context, changes, request, _response(answer))
        return answer

    async def later(answer: Awaitable[Any], request: Any, context: Any) -> Any:
        try:
            response = await answer
        except CancelledError:
            tell_gone(api_name, context)
            raise
        tell(api_name, context, changes, request, _response(response))
        return response

    # The request of a client that has gone is ended before its first step: then `handle` must not
    # have been called.
    async def audited_steps(broker: Any, request: Any, context: Any) -> Any:
        return await later(handle(broker, request, context), request, context)

    return audited_steps if iscoroutinefunction(handle) else audited


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


def _response(answer: Any) -> Any:
    return answer.response if isinstance(answer, Sliced) else answer


def _done(results: Any) -> Iterator[Any]:
    return (one for one in results if one.error_code == ErrorCode.NONE)


# Changes by API -----------------------------------------------------------------------------------


def acl_change(verb: str, acl: Acl) -> Change:
    """Return the change of an ACL that was ``added`` or ``removed``."""
    detail = (
        f"{verb} {Permission(acl.permission).name} {Operation(acl.operation).name} for "
        f"{acl.principal} from {acl.host} on {PatternType(acl.pattern_type).name} "
        f"{ResourceType(acl.resource_type).name} {acl.name}"
    )
    return Change(Operation.ALTER, "CLUSTER", "kafka-cluster", detail)


CHANGES: Mapping[int, Callable[[Any, Any], Iterator[Change]]] = {}
"""The changes of a request and its response, by API key."""
