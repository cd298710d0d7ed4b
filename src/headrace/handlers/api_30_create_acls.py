"""CreateAcls (30), versions 1-3: create ACLs. One that exists already is created again.

Version notes:

* Version 1 adds prefixed patterns (KIP-290).
* Version 2 is flexible (KIP-482).
* Version 3 adds resources of type USER (KIP-373).
"""

from __future__ import annotations

from headrace.net.access_control import NO_AUTHORIZER
from headrace.net.api import ALTER, Api, on_cluster
from headrace.net.audit import note_acls
from headrace.net.call import Call
from headrace.protocol.api import CreateAclsRequest, CreateAclsResponse
from headrace.protocol.errors import ErrorCode, failure_of
from headrace.security.acls import Acl, check_new

from .api_29_describe_acls import checked

Result = CreateAclsResponse.AclCreationResult


API = Api(30, on_cluster(ALTER), is_audited=True)


async def handle(call: Call, request: CreateAclsRequest) -> CreateAclsResponse:
    """Create the valid ACLs of a request, all of them or none."""
    acls, results = [], []
    for creation in request.creations:
        acl = checked(Acl(*creation.field_values()))
        message = check_new(acl)
        if message is None:
            acls.append(acl)
        results.append(Result(ErrorCode.INVALID_REQUEST if message else ErrorCode.NONE, message))
        await call.pause()
    control = call.access_control
    if control is None:
        return CreateAclsResponse(results=[Result().refused(NO_AUTHORIZER) for _ in results])
    failed = failure_of(control.create, acls)
    for result in results:
        if not result.error_code:
            result.refused(failed)
    if failed is None:
        note_acls(call, "added", acls)
    return CreateAclsResponse(results=results)
