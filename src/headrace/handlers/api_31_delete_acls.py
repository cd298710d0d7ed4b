"""DeleteAcls (31), versions 1-3: delete the ACLs that filters find, and return them. An ACL that
several filters find is in the result of each.

Version notes:

* Version 1 adds prefixed patterns (KIP-290).
* Version 2 is flexible (KIP-482).
* Version 3 adds resources of type USER (KIP-373).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from headrace.net.access_control import NO_AUTHORIZER
from headrace.net.api import ALTER, Api, on_cluster
from headrace.net.audit import Change, acl_change
from headrace.net.call import Call
from headrace.protocol.api import DeleteAclsRequest, DeleteAclsResponse
from headrace.protocol.errors import ErrorCode, Refusal, failure_of
from headrace.security.acls import Acl, AclFilter

from .api_29_describe_acls import checked

Result = DeleteAclsResponse.DeleteAclsFilterResult
MatchingAcl = DeleteAclsResponse.DeleteAclsMatchingAcl


def changes(request: DeleteAclsRequest, response: DeleteAclsResponse) -> Iterator[Change]:
    """Yield the ACLs that were deleted, for the log."""
    for result in response.filter_results:
        for deleted in result.matching_acls:
            _, _, *acl = deleted.field_values()  # after the error code and its message
            yield acl_change("removed", Acl(*acl))


API = Api(31, on_cluster(ALTER), changes=changes)


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
    return DeleteAclsResponse(
        filter_results=[
            Result(ErrorCode.NONE, None, await call.each(_deleted, matching))
            for matching in acls_by_filter
        ]
    )


def _deleted(acl: Acl) -> MatchingAcl:
    return MatchingAcl(ErrorCode.NONE, None, *acl)
