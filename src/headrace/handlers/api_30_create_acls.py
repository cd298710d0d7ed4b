"""CreateAcls (30), versions 1-3: create ACLs. One that exists already is created again.

Version notes:

* Version 1 adds prefixed patterns (KIP-290).
* Version 2 is flexible (KIP-482).
* Version 3 adds resources of type USER (KIP-373).
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.errors import ErrorCode
from headrace.net.api import Api
from headrace.net.audit import Change, acl_change
from headrace.net.call import Call
from headrace.net.rules import ALTER, on_cluster
from headrace.protocol.api import CreateAclsRequest, CreateAclsResponse
from headrace.security.acls import Acl, check_new
from headrace.topics.catalog import CatalogError

from .acl_requests import NO_AUTHORIZER, check_known

Creation = CreateAclsRequest.AclCreation
Result = CreateAclsResponse.AclCreationResult


def changes(request: CreateAclsRequest, response: CreateAclsResponse) -> Iterator[Change]:
    """Yield the ACLs that were created, for the log."""
    for creation, result in zip(request.creations, response.results, strict=True):
        if not result.error_code:
            yield acl_change("added", _acl(creation))


API = Api(30, on_cluster(ALTER), changes=changes)


async def handle(call: Call, request: CreateAclsRequest) -> CreateAclsResponse:
    """Create the valid ACLs of a request, all of them or none."""
    acls, results = [], []
    for creation in request.creations:
        acl = _acl(creation)
        check_known(acl)
        message = check_new(acl)
        acls.append(acl)
        results.append(Result(ErrorCode.INVALID_REQUEST if message else ErrorCode.NONE, message))
        await call.pause()
    control = call.broker.access_control
    if control is None:
        refusal = Result(NO_AUTHORIZER.code, NO_AUTHORIZER.message)
        return CreateAclsResponse(results=[refusal] * len(acls))
    try:
        control.create(
            [acl for acl, result in zip(acls, results, strict=True) if not result.error_code]
        )
    except CatalogError as error:
        failure = Result(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        results = [result if result.error_code else failure for result in results]
    return CreateAclsResponse(results=results)


def _acl(creation: Creation) -> Acl:
    return Acl(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )
