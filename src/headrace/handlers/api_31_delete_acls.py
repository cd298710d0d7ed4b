"""DeleteAcls (31), versions 1-3: delete the ACLs that filters find, and return them. An ACL that
several filters find is in the result of each.

Version notes:

* Version 1 adds prefixed patterns (KIP-290).
* Version 2 is flexible (KIP-482).
* Version 3 adds resources of type USER (KIP-373).
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from itertools import chain

from kio.schema.delete_acls.v3.request import DeleteAclsRequest
from kio.schema.delete_acls.v3.response import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
)

from headrace.broker.access_control import AccessControl
from headrace.broker.broker import Broker
from headrace.broker.catalog import CatalogError
from headrace.errors import ErrorCode, Refusal
from headrace.protocol.large_responses import Sliced
from headrace.protocol.messages import NO_THROTTLE
from headrace.security.acls import Acl, AclFilter

from .acl_requests import NO_AUTHORIZER, filter_of
from .context import RequestContext
from .slicing import run_sliced, sliced

_DONE = Refusal(ErrorCode.NONE)


def handle(
    broker: Broker, request: DeleteAclsRequest, context: RequestContext
) -> DeleteAclsResponse | Sliced | Awaitable[DeleteAclsResponse | Sliced]:
    """Delete the ACLs that match any of the filters, all of them or none."""
    conditions = list(map(filter_of, request.filters))
    control = broker.access_control
    if control is None:
        return _response([_result(NO_AUTHORIZER, ()) for _ in conditions])
    count = len(control.authorizer) * len(conditions)
    return run_sliced(broker, _delete(control, conditions), count)


def _delete(
    control: AccessControl, conditions: list[AclFilter]
) -> Generator[None, None, DeleteAclsResponse | Sliced]:
    found = []
    for condition in conditions:
        found.append((yield from control.authorizer.find_sliced(condition)))
    # Another request may have deleted some of them since they were found.
    named = dict.fromkeys(chain.from_iterable(found))
    acls = [acl for acl in named if acl in control.authorizer]
    try:
        control.delete(acls)
    except CatalogError as error:
        failed = Refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        return _response([_result(failed, ()) for _ in conditions])
    results = [_result(_DONE, of_filter) for of_filter in found]
    return sliced(_response(results), sum(map(len, found)))


def _result(result: Refusal, acls: list[Acl] | tuple[()]) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(
        error_code=result.code,
        error_message=result.message,
        matching_acls=tuple(map(_deleted, acls)),
    )


def _deleted(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_code=ErrorCode.NONE,
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _response(results: list[DeleteAclsFilterResult]) -> DeleteAclsResponse:
    return DeleteAclsResponse(throttle_time=NO_THROTTLE, filter_results=tuple(results))
