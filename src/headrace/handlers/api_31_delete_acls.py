"""DeleteAcls (31), versions 1-3: delete the ACLs that filters find, and return them. An ACL that
several filters find is in the result of each.

Version notes:

* Version 1 adds prefixed patterns (KIP-290).
* Version 2 is flexible (KIP-482).
* Version 3 adds resources of type USER (KIP-373).
"""

from __future__ import annotations

from itertools import chain

from headrace.net.access_control import NO_AUTHORIZER
from headrace.net.api import ALTER, Api, on_cluster
from headrace.net.audit import note_acls
from headrace.net.call import Call
from headrace.protocol.api import DeleteAclsRequest, DeleteAclsResponse
from headrace.protocol.errors import ErrorCode, Refusal, failure_of
from headrace.security.acls import AclFilter

from .api_29_describe_acls import checked

Result = DeleteAclsResponse.DeleteAclsFilterResult
MatchingAcl = DeleteAclsResponse.DeleteAclsMatchingAcl


API = Api(31, on_cluster(ALTER), is_audited=True)


async def handle(call: Call, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Delete the ACLs that match any of the filters, all of them or none."""
    conditions = [checked(AclFilter(*condition.field_values())) for condition in request.filters]
    control = call.access_control

    def refused(refusal: Refusal) -> DeleteAclsResponse:
        return DeleteAclsResponse(filter_results=[Result().refused(refusal) for _ in conditions])

    if control is None:
        return refused(NO_AUTHORIZER)
    acls_by_filter = [
        await call.in_slices(control.authorizer.find(condition)) for condition in conditions
    ]
    # another request may have deleted some of them since they were found
    acls = [
        acl
        for acl in dict.fromkeys(chain.from_iterable(acls_by_filter))
        if acl in control.authorizer.acls
    ]
    failed = failure_of(control.delete, acls)
    if failed is not None:
        return refused(failed)
    note_acls(call, "removed", acls)
    return DeleteAclsResponse(
        filter_results=[
            Result(
                ErrorCode.NONE,
                None,
                await call.each(lambda acl: MatchingAcl(ErrorCode.NONE, None, *acl), matching),
            )
            for matching in acls_by_filter
        ]
    )
